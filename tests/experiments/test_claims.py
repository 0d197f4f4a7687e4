"""Every claim on its experiment's synthetic measurements: verdicts, what each criterion does, and what a claim needs.

The module of an experiment's tests has `measured()`, synthetic runs as `measure` would return them, under the names of
the YAML, and `VERDICTS`, those verdicts on them that are not "holds".
"""

import dataclasses
import functools
import importlib
import itertools
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxattn.study.claims import Number, Outcome, Runs, Verdict, experiment, folders, judged, registry
from jaxattn.study.configuration.names import described, root
from jaxattn.study.style import fitting, page, table

pytestmark = pytest.mark.usefixtures("drawn_once")
KEY = jax.random.key(0)
CLAIMS = registry()
EXPERIMENTS = folders()
PATHS = {claim.id: path for path in EXPERIMENTS for claim in experiment(path).claims}
FIGURES = [(path, name) for path in EXPERIMENTS for name in ("draw", "second") if getattr(experiment(path), name)]
TABLES = [path for path in EXPERIMENTS if experiment(path).table]
# Inches.
LEAST_PANEL = 0.6


def module_of(path: str):
    """The module of tests of an experiment."""
    _, _, topic, name = path.split(".")
    return importlib.import_module(f"tests.experiments.{topic}.test_{name}")


@functools.cache
def summaries(path: str):
    """The estimates of an experiment's synthetic measurements."""
    runs = {name: run.assign_attrs(run=name) for name, run in module_of(path).measured().items()}
    return experiment(path).estimates(runs, KEY)


@functools.cache
def judgement(name: str):
    return CLAIMS[name].judge(summaries(PATHS[name]))


@functools.cache
def recorded():
    """The entries of claims.json that were made from the published size."""
    lines = json.loads((Path(root()) / "figures" / "claims.json").read_text())
    return {line["id"]: line for line in lines}


def placed(criterion, where: str):
    """The criterion with its number on one side of its thresholds, astride one, or NaN."""
    least, most = criterion.least, criterion.most
    scale = max(abs(edge) for edge in (least, most, 1.0) if math.isfinite(edge))
    inside = (
        (least + most) / 2 if math.isfinite(least + most) else least + scale if math.isfinite(least) else most - scale
    )
    outside = least - scale if math.isfinite(least) else most + scale
    edge = least if math.isfinite(least) else most
    number = {
        "met": Number.exact(inside),
        "broken": Number.exact(outside),
        "astride": Number(edge, edge - scale, edge + scale),
        "nan": Number.exact(math.nan),
    }[where]
    return dataclasses.replace(criterion, value=number)


def with_all(judgement, stated: dict[int, str], corrected: dict[int, str]):
    """The judgement with all criteria met, except some."""
    return dataclasses.replace(
        judgement,
        stated=[placed(criterion, stated.get(k, "met")) for k, criterion in enumerate(judgement.stated)],
        corrected=[placed(criterion, corrected.get(k, "met")) for k, criterion in enumerate(judgement.corrected)],
        undecided="",
    )


def test_every_experiment_has_claims_of_different_names():
    assert all(experiment(path).claims for path in folders())
    assert len(CLAIMS) >= 225


@pytest.mark.parametrize("path", EXPERIMENTS)
def test_the_verdicts_on_synthetic_measurements(path):
    found = {claim.id: judgement(claim.id) for claim in experiment(path).claims}
    expected = dict.fromkeys(found, "holds") | module_of(path).VERDICTS
    assert {name: str(one.verdict) for name, one in found.items()} == expected, [
        f"{name}: {one.undecided} {[*map(str, one.stated)]} {[*map(str, one.corrected)]}" for name, one in found.items()
    ]


@pytest.mark.parametrize("name", CLAIMS)
def test_each_criterion_decides_by_its_own_number(name):
    found = judgement(name)
    assert with_all(found, {}, {}).verdict is Verdict.HOLDS
    refuted = Verdict.CORRECTED if found.corrected else Verdict.FAILS
    for k in range(len(found.stated)):
        assert with_all(found, {k: "broken"}, {}).verdict is refuted
        assert with_all(found, {k: "astride"}, {}).verdict is Verdict.OPEN
        assert with_all(found, {k: "nan"}, {}).verdict is Verdict.OPEN
    for k in range(len(found.corrected)):
        for where in ("broken", "astride", "nan"):
            assert with_all(found, {0: "broken"}, {k: where}).verdict is Verdict.FAILS


@pytest.mark.parametrize("name", CLAIMS)
def test_thresholds_are_those_that_the_recorded_verdict_was_made_with(name):
    assert name in recorded(), f"make the figure of {CLAIMS[name].experiment} first"
    line, found = recorded()[name], judgement(name)
    for criteria, key in (
        (found.stated, "criteria in numbers"),
        (found.corrected, "criteria of the correction in numbers"),
    ):
        asked = [_rounded((one.numbers["least"], one.numbers["most"])) for one in criteria]
        known = [_rounded((one["least"], one["most"])) for one in line[key]]
        # A synthetic measurement may have fewer runs than the published one.
        assert asked == known if len(asked) == len(known) else all(pair in known for pair in asked)


def _rounded(pair):
    return [None if edge is None else float(f"{edge:.5g}") for edge in pair]


CHANGES = (lambda values: values * 3 + 7, lambda values: values * 0.5, lambda values: -values - 7)


def altered(summary, change, *names):
    """The estimates with some of their variables changed; truth values are negated."""
    return summary.assign(
        {
            name: ~summary[name] if summary[name].dtype.kind == "b" else change(summary[name])
            for name in names or summary.data_vars
            if summary[name].dtype.kind in "bfiu"
        }
    )


def alterations(runs, first):
    """The estimates of what a rule reads with all variables changed, with one, with one of one run, with other axes."""
    for change in CHANGES:
        yield runs | {run: altered(one, change) for run, one in first.items()}
    for name in dict.fromkeys(name for one in first.values() for name in one.data_vars):
        yield runs | {run: altered(one, CHANGES[0], name) for run, one in first.items() if name in one}
    for run in dict.fromkeys([*first, *runs]):
        for change, name in itertools.product(CHANGES, runs[run].data_vars):
            yield {**runs, run: altered(runs[run], change, name)}
        for axis in runs[run].sizes:
            yield {**runs, run: runs[run].pad({axis: (0, 1)})}
            yield {**runs, run: runs[run].isel({axis: slice(0, -1)})}


@pytest.mark.parametrize("name", CLAIMS)
def test_every_criterion_depends_on_an_estimate(name):
    claim, runs = CLAIMS[name], summaries(PATHS[name])
    found = judgement(name)
    criteria = [*found.stated, *found.corrected]
    same = set(range(len(criteria)))
    for changed in alterations(runs, read_by(name)):
        try:
            again = claim.rule(Runs(changed))
        except (ArithmeticError, LookupError, RuntimeWarning, ValueError):
            continue
        values = [one.value for one in (*again.stated, *again.corrected)]
        if len(values) == len(criteria):
            same -= {k for k in same if values[k] != criteria[k].value}
        if not same:
            return
    assert not same, [criteria[k].quantity for k in same]


@functools.cache
def read_by(name: str):
    """The runs that a claim's rule reads."""
    runs = Runs(summaries(PATHS[name]))
    CLAIMS[name].rule(runs)
    return runs.read


@pytest.mark.parametrize("name", CLAIMS)
def test_missing_runs_few_seeds_and_few_steps_decide_nothing(name):
    claim, runs = CLAIMS[name], dict(summaries(PATHS[name]))
    read = read_by(name)
    assert read
    assert claim.judge({run: one for run, one in runs.items() if run not in read}).verdict is Verdict.OPEN
    # Reading hundreds of runs again for each of them takes minutes.
    some = list(read)[:: max(1, len(read) // 3)]
    for run, attribute in itertools.product(some, ("seeds", "steps")):
        if least := getattr(claim.needs, attribute):
            few = runs[run].assign_attrs({"kept" if attribute == "seeds" else "steps": least - 1})
            found = claim.judge(runs | {run: few})
            assert found.verdict is Verdict.OPEN
            assert str(least) in found.note


@pytest.mark.parametrize("name", CLAIMS)
def test_the_evidence_is_said(name):
    found = judgement(name)
    assert found.measured
    assert set(found.interval) <= set(found.measured)
    assert found.counts
    assert all(np.isfinite([*one.value]).all() or one.outcome is Outcome.UNCLEAR for one in found.stated)


@pytest.mark.parametrize("path", EXPERIMENTS)
def test_numbers_that_are_none_and_runs_without_seeds_decide_nothing(path):
    runs, claims = module_of(path).measured(), experiment(path)
    name = claims.claims[0].experiment
    for run, one in runs.items():
        floats = [variable for variable in one.data_vars if one[variable].dtype.kind == "f" and one[variable].size]
        if floats:
            broken = one.assign({floats[0]: one[floats[0]] * np.nan})
            none, found = judged(claims, name, {**runs, run: broken}, KEY)
            assert none is None
            assert all(f"{run}: " in one.note and "not a number" in one.note for _, one in found)
            return
    pytest.fail("no measured number")


@pytest.mark.parametrize(("path", "name"), FIGURES)
def test_a_figure_has_one_of_two_widths_and_no_text_that_is_small_or_cut_off(path, name):
    draw = getattr(experiment(path), name)
    judgements = {claim.id: judgement(claim.id) for claim in experiment(path).claims}
    figure = draw(summaries(path), judgements)
    assert figure.get_figwidth() in (page.COLUMN, page.PAGE)
    texts = fitting.drawn_texts(figure)
    assert len(texts) > 5
    assert [line for line in texts if line.size < page.SMALLEST or line.cut] == []
    panels = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    for box in (axes.get_window_extent() for axes in panels):
        assert min(box.width, box.height) / figure.dpi >= LEAST_PANEL, "a panel has no room left"


@pytest.mark.parametrize("path", EXPERIMENTS)
def test_no_run_is_named_like_an_estimate_over_several_runs(path):
    study = described(experiment(path).claims[0].experiment)
    over_several = set(summaries(path)) - set(module_of(path).measured())
    assert over_several.isdisjoint([*study.runs, *(study.small or ())])


@pytest.mark.parametrize("path", TABLES)
def test_a_table_has_rows_and_says_what_was_kept(path):
    of = experiment(path).table
    assert of is not None
    found = of(summaries(path), {claim.id: judgement(claim.id) for claim in experiment(path).claims})
    assert len(found.rows) > 1
    assert all(cell for row in found.rows for cell in row)
    assert "kept" in found.note
    # Every formula is closed.
    assert table.markdown(found).count("$") % 2 == 0
