"""Experiments as values: where they are found, what is missing, what is judged, and counts of seeds."""

import importlib
import json
import sys
from typing import Any

import jax
import numpy as np
import pytest
import xarray

from jaxattn.study.claims import (
    EXCLUDED,
    Claim,
    Experiment,
    Judgement,
    Needs,
    Number,
    Setting,
    Source,
    Verdict,
    above,
    counts_of,
    experiment,
    judged,
    not_a_number,
    registry,
    too_few,
    total,
)

KEY = jax.random.key(0)
REGISTRY = importlib.import_module("jaxattn.study.claims.registry")


def claim(name, mean=1.0):
    def rule(runs):
        return Judgement([above("it", Number.exact(mean * float(runs["W"]["off"])), 0.5)])

    return Claim(name, Source("paper", "figure 1", Setting.EXACT), "It is so.", rule, Needs(0))


def of(*claims, **parts):
    fields: dict[str, Any] = {"draw": print} | parts
    return Experiment(lambda record: record, claims, **fields)


def measured(**runs):
    return {run: xarray.Dataset({"off": value}) for run, value in runs.items()}


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"draw": None}, "expected a figure or a table, found neither or both"),
        ({"table": print}, "expected a figure or a table, found neither or both"),
        ({"estimate": print, "summarize": print}, "expected estimate or summarize, found both"),
    ],
)
def test_an_experiment_with_parts_that_are_missing_or_exclude_each_other_is_refused(parts, named):
    with pytest.raises(ValueError, match=named):
        of(**parts)


def test_an_experiment_is_found_by_the_path_of_its_module_and_a_module_without_one_is_named():
    assert isinstance(experiment("jaxattn.experiments.local.rate"), Experiment)
    for path in ("jaxattn.experiments.local.none", "jaxattn.experiments.nowhere.none"):
        with pytest.raises(ValueError, match=rf"experiment: expected a module {path}, found none"):
            experiment(path)
    with pytest.raises(ValueError, match=r"experiment: expected EXPERIMENT in jaxattn\.experiments\.local, found none"):
        experiment("jaxattn.experiments.local")


def test_a_package_that_an_experiment_needs_and_lacks_is_named_as_such(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        experiment("mine")
    sys.modules.pop("mine", None)


def test_claims_are_ordered_by_id_and_two_of_one_id_are_refused(monkeypatch):
    experiments = {"one": of(claim("b:1"), claim("a:1")), "two": of(claim("a:2"))}
    monkeypatch.setattr(REGISTRY, "folders", lambda: [*experiments])
    monkeypatch.setattr(REGISTRY, "experiment", experiments.__getitem__)
    assert list(registry()) == ["a:1", "a:2", "b:1"]
    experiments["two"] = of(claim("b:1"), claim("c:1"))
    with pytest.raises(ValueError, match=r"claims: expected different ids, found \['b:1'\] twice"):
        registry()


def test_what_is_not_a_number_is_named_wherever_it_was_measured():
    values = np.array([[1.0, np.nan], [np.nan, np.inf]])
    run = xarray.Dataset({"off": (("seed", "norm"), values), "rank": ("seed", [1, 2])}, {"norm": ["a", "b"]})
    assert not_a_number({"W": run.isel(norm=[0], seed=[0]), "KQ": run}) == "KQ: 2 of 4 entries of off are not a number."
    assert not_a_number({"W": run.fillna(0.0)}) == ""
    assert "radius" in not_a_number({"W": xarray.Dataset(coords={"radius": [1.0, np.nan]})})


def test_measured_runs_are_judged_by_the_claims_of_their_configuration():
    claims, runs = (claim("a-3:W"), claim("a-3:KQ", mean=0.0), claim("a-5:W")), measured(W=1.0)
    summaries, found = judged(of(*claims), "a-3", runs, KEY)
    assert summaries is runs
    assert [(one.id, judgement.verdict) for one, judgement in found] == [
        ("a-3:W", Verdict.HOLDS),
        ("a-3:KQ", Verdict.FAILS),
    ]


def test_each_run_is_estimated_with_its_own_key():
    drawn = of(claim("a:W"), estimate=lambda run, key: run.assign(draw=float(jax.random.uniform(key))))
    summaries, _ = judged(drawn, "a", measured(W=1.0, KQ=1.0), KEY)
    assert summaries is not None
    keys = jax.random.split(KEY)
    expected = {run: float(jax.random.uniform(key)) for run, key in zip(("W", "KQ"), keys, strict=True)}
    assert {run: float(one["draw"]) for run, one in summaries.items()} == expected
    together = of(claim("a:W"), summarize=lambda runs, key: {"W": sum(runs.values())})
    summaries, _ = judged(together, "a", measured(W=1.0, KQ=1.0), KEY)
    assert summaries is not None
    assert float(summaries["W"]["off"]) == 2.0


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (xarray.Dataset({"off": np.nan}), "W: 1 of 1 entries of off are not a number."),
        (
            xarray.Dataset({"off": ("seed", np.zeros(0))}, attrs={"attempted": 3, "kept": 0, "diverged": 3}),
            "Expected a kept seed in each run, found counts {'W': {'attempted': 3, 'kept': 0, 'diverged': 3}}.",
        ),
    ],
)
def test_nothing_is_estimated_from_what_is_not_a_number_or_from_no_seed(run, note):
    summaries, found = judged(of(claim("a:W"), claim("a:KQ")), "a", {"W": run}, KEY)
    assert summaries is None
    assert [judgement.verdict for _, judgement in found] == [Verdict.OPEN] * 2
    assert {judgement.note for _, judgement in found} == {note}


def test_runs_without_a_seed_are_estimated_where_the_experiment_says_so():
    empty = {"W": xarray.Dataset({"off": ("seed", np.zeros(0))}, attrs={"attempted": 3, "kept": 0, "diverged": 3})}
    counted = of(
        claim("a:W"), estimate=lambda run, key: run.sizes["seed"] + xarray.Dataset({"off": 1.0}), empty_runs=True
    )
    summaries, found = judged(counted, "a", empty, KEY)
    assert summaries is not None
    assert [judgement.verdict for _, judgement in found] == [Verdict.HOLDS]


COUNTS = {"attempted": 11, "kept": 8, "diverged": 1, "infeasible": 2, "unsolved": 0}


def test_counts_are_those_of_the_comparison_as_integers_that_json_can_write():
    one = xarray.Dataset(attrs={name: np.int64(count) for name, count in COUNTS.items()} | {"run": "W"})
    assert json.loads(json.dumps(counts_of({"W": one}))) == {"W": COUNTS}


def test_counts_of_several_runs_add_up():
    runs = {run: xarray.Dataset(attrs=COUNTS) for run in ("W", "KQ")}
    assert total(runs) == {name: 2 * count for name, count in COUNTS.items()}
    assert total({}) == {}
    assert set(COUNTS) - {"attempted", "kept"} <= set(EXCLUDED)


def test_the_least_numbers_are_enough():
    assert too_few(20) == ""
    assert too_few(19) == "19 kept seeds are too few to decide; at least 20 are needed."
    assert too_few(8, 8) == ""
