"""Claims of experiments without an EXPERIMENT yet, on examples: each verdict is reached by the numbers alone."""

import dataclasses
import functools
import hashlib
import importlib
import pickle
import warnings
from typing import Any

import jax
import numpy as np
import pytest
import xarray

from jaxattn.study.claims import Needs, Verdict, experiment, folders, judged, registry
from jaxattn.study.style import fitting, page, table

KEY = jax.random.key(0)
CLAIMS = {name: claim for name, claim in registry().items() if not isinstance(claim.needs, Needs)}
PATHS = sorted({folder for folder in folders() for claim in experiment(folder).claims if claim.id in CLAIMS})
FOLDERS = {claim.id: folder for folder in PATHS for claim in experiment(folder).claims}


@functools.cache
def examples(name: str):
    return CLAIMS[name].examples()


JUDGED: dict[bytes, tuple[Any, dict]] = {}


def summarized(name: str, datasets) -> tuple[Any, dict]:
    """The summaries of these datasets and what the claim's experiment judges, once for all claims that share them."""
    place = hashlib.sha256(pickle.dumps((FOLDERS[name], CLAIMS[name].experiment, datasets))).digest()
    if place not in JUDGED:
        summaries, found = judged(experiment(FOLDERS[name]), CLAIMS[name].experiment, datasets, KEY)
        JUDGED[place] = summaries, {claim.id: one for claim, one in found}
    return JUDGED[place]


def judgement(name: str, datasets):
    return summarized(name, datasets)[1][name]


@functools.cache
def of_example(name: str, verdict: Verdict):
    return judgement(name, examples(name)[verdict])


def decided(name: str) -> list[Verdict]:
    return [verdict for verdict in examples(name) if verdict is not Verdict.OPEN]


@pytest.mark.parametrize("name", CLAIMS)
def test_every_reachable_verdict_has_an_example_and_is_reached(name):
    known = examples(name)
    assert {Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN} <= set(known)
    assert (Verdict.CORRECTED in known) == bool(of_example(name, Verdict.HOLDS).corrected)
    for verdict in known:
        found = of_example(name, verdict)
        assert found.verdict is verdict, (verdict, *map(str, found.stated), *map(str, found.corrected), found.undecided)


def described(datasets) -> dict:
    """All of measured datasets but their measured numbers."""
    return {
        run: (
            {name: (one[name].dims, one[name].dtype.kind) for name in one.data_vars},
            {name: one[name].values.tolist() for name in one.coords},
            {name: one[name].values.tolist() for name in one.data_vars if one[name].dtype.kind not in "fiub"},
            dict(one.attrs),
        )
        for run, one in datasets.items()
    }


@pytest.mark.parametrize("name", CLAIMS)
def test_what_confirms_corrects_and_refutes_differs_in_measured_numbers_alone(name):
    first, *others = (described(examples(name)[verdict]) for verdict in decided(name))
    for other in others:
        assert other == first


@pytest.mark.parametrize("name", CLAIMS)
def test_a_threshold_on_the_other_side_of_the_data_changes_the_verdict(name):
    refuted = of_example(name, Verdict.FAILS)
    turned = tuple(one.turned() if one.outcome == "broken" else one for one in refuted.stated)
    assert dataclasses.replace(refuted, stated=turned).verdict is not Verdict.FAILS
    confirmed = of_example(name, Verdict.HOLDS)
    for place, criterion in enumerate(confirmed.stated):
        changed = (*confirmed.stated[:place], criterion.turned(), *confirmed.stated[place + 1 :])
        assert dataclasses.replace(confirmed, stated=changed).verdict is not Verdict.HOLDS


def altered(one: xarray.Dataset, change) -> xarray.Dataset:
    """The dataset with every measured variable of floating numbers changed."""
    names = [name for name in one.data_vars if one[name].dtype.kind == "f"]
    return one.assign({name: (one[name].dims, change(one[name].values)) for name in names})


@pytest.mark.parametrize("name", CLAIMS)
def test_numbers_that_are_none_decide_nothing(name):
    for run, one in (confirming := dict(examples(name)[Verdict.HOLDS])).items():
        broken = altered(one, lambda values: np.full_like(values, np.nan))
        if any(broken[variable].dtype.kind == "f" for variable in broken.data_vars):
            found = judgement(name, confirming | {run: broken})
            assert found.verdict is Verdict.OPEN
            assert "not a number" in found.note


def opposite(one: xarray.Dataset) -> xarray.Dataset:
    """The dataset with the sign of every measured number changed; where there are none, with every flag."""
    if any(one[name].dtype.kind == "f" for name in one.data_vars):
        return altered(one, np.negative)
    return one.assign({name: ~one[name] for name in one.data_vars if one[name].dtype.kind == "b"})


@pytest.mark.parametrize("name", CLAIMS)
def test_numbers_of_the_other_sign_do_not_confirm(name):
    reversed_signs = {run: opposite(one) for run, one in examples(name)[Verdict.HOLDS].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Logarithms of what is positive when measured.
        try:
            found = judgement(name, reversed_signs).verdict
        except ValueError:
            return  # Refused as no such measurement.
    assert found not in (Verdict.HOLDS, Verdict.CORRECTED)


@functools.cache
def fullest(folder: str):
    """Summaries of an experiment's examples; they hold what their claims read, so runs are taken from all of them."""
    claims = sorted(experiment(folder).claims, key=lambda one: sum(map(len, examples(one.id)[Verdict.HOLDS].values())))
    datasets = {}
    for one in claims:
        if one.experiment == claims[-1].experiment:
            datasets |= examples(one.id)[Verdict.HOLDS]
    return summarized(claims[-1].id, datasets)[0]


@pytest.mark.parametrize("folder", [folder for folder in PATHS if experiment(folder).draw])
def test_a_figure_has_one_of_two_widths_and_no_text_that_is_small_or_cut_off(folder):
    draw = experiment(folder).draw
    assert draw is not None
    figure = draw(fullest(folder), {})
    assert figure.get_figwidth() in (page.COLUMN, page.PAGE)
    texts = fitting.drawn_texts(figure)
    assert len(texts) > 5
    assert [line for line in texts if line.size < page.SMALLEST or line.cut] == []
    panels = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    for box in (axes.get_window_extent() for axes in panels):
        assert min(box.width, box.height) / figure.dpi >= _LEAST, "a panel has no room left"


# Inches.
_LEAST = 0.6


@pytest.mark.parametrize("folder", [folder for folder in PATHS if experiment(folder).table])
def test_a_table_has_rows_and_says_what_was_kept(folder):
    of = experiment(folder).table
    assert of is not None
    found = of(fullest(folder), {})
    assert len(found.rows) > 1
    assert all(cell for row in found.rows for cell in row)
    assert "kept" in found.note
    # Every formula is closed.
    assert table.markdown(found).count("$") % 2 == 0


@pytest.mark.parametrize("name", CLAIMS)
def test_the_evidence_is_said(name):
    for verdict in decided(name):
        found = of_example(name, verdict)
        assert found.measured
        assert set(found.interval) <= set(found.measured)
        assert set(found.counts)
        assert all(np.isfinite([*one.value]).all() for one in (*found.stated, *found.corrected))
    assert importlib.import_module(f"{FOLDERS[name]}.claims").__doc__
