"""Synthetic measurements of the selector, how runs are compared seed by seed, and what trained records give."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn import bias, data, descent, initial, models, svm, tokens
from jaxattn.experiments.bias import controls
from jaxattn.experiments.bias.selector import EXPERIMENT, measure, summarize
from jaxattn.study.settings import schedule
from tests.recorded import problem_of, recorded

pytestmark = pytest.mark.usefixtures("drawn_once")
KEY = jax.random.key(0)
SEEDS, INPUTS, STEPS = 60, 5, np.array([100, 1000, 2000, 5000, 10000])
VERDICTS = {
    "selector:entropy-tokens": "holds with a correction",
    "selector:gumbel-tokens": "does not hold",
    "selector:entropy-norm": "does not hold",
    "selector:gumbel-norm": "not decided",
    "selector:rotary": "does not hold",
    "selector:positions": "does not hold",
}


def measured(**changes):
    """Only the smallest penalty selects the same tokens, and the largest obeys no norm; a second head comes nearer.

    Rotations help as much as random ones do, and added positions help, but less than random vectors.
    """
    runs = {
        "plain": {},
        "entropy 0.01": {},
        "entropy 0.1": {"same": 0.6},
        "entropy 1": {"same": 0.6, "ratio": 0.7},
        "Gumbel": {"same": 0.6, "ratio": 0.97},
        "random start": {},
        "two heads": {"ratio": 0.995, "spread": 0.002},
        "rotary": {"ratio": 0.985, "spread": 0.002},
        "random rotations": {"ratio": 0.985, "spread": 0.002},
        "one-hot positions": {"ratio": 0.993, "spread": 0.002},
        "random vectors": {"ratio": 0.994, "spread": 0.002},
    }
    found = {name: run(**(change | changes.get(name, {}))) for name, change in runs.items()}
    heads = found["two heads"]
    heads["joint"] = heads["margin_ratio"].sel(norm="frobenius", drop=True) - 0.005
    return found


def run(same=1.0, ratio=0.99, rival=0.8, spread=0.004):
    """A run that selects token 0 for a share of the inputs, with these mean ratios in the Frobenius and other norms."""
    means = np.array([ratio if norm == "frobenius" else rival for norm in bias.NORMS])
    around = spread * np.resize([-1.0, 1.0, 0.5, -0.5], SEEDS)
    flat = np.ones((SEEDS, STEPS.size))
    others = (np.arange(SEEDS * INPUTS) * 7 % 100 >= 100 * same).reshape(SEEDS, INPUTS)
    return xarray.Dataset(
        {
            "margin_ratio": (("seed", "norm", "snapshot"), (means + around[:, None])[:, :, None] * flat[:, None]),
            "probability": (("seed", "snapshot"), 0.9999 * flat),
            "size": (("seed", "snapshot"), STEPS * flat),
            "selected": (("seed", "input"), others.astype(int)),
            "optimal": (("seed",), np.full(SEEDS, 0.8)),
            "stalled": (("seed",), np.zeros(SEEDS, bool)),
            "confusion": (("norm", "rival"), 0.5 + 0.5 * np.eye(len(bias.NORMS))),
        },
        {"seed": np.arange(SEEDS), "norm": np.array(bias.NORMS, object), "snapshot": STEPS},
        {"steps": int(STEPS[-1]), "attempted": SEEDS, "kept": SEEDS, "unsolved": 0, "exponents": "[]"},
    )


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        # The Frobenius problem is no longer alone: which norm it is cannot be told.
        ({"Gumbel": {"ratio": 0.99, "rival": 0.99}}, "gumbel-norm", "not decided"),
        # What one weight refutes, an open one does not change.
        ({"entropy 0.1": {"ratio": 0.7}, "entropy 1": {"ratio": 0.97}}, "entropy-norm", "does not hold"),
    ],
)
def test_norms_that_cannot_be_told_apart_decide_nothing(changes, name, verdict):
    runs = measured(**({"entropy 1": {"ratio": 0.99}} | changes))
    read = {run: one for run, one in runs.items() if run.lower().startswith((name.partition("-")[0], "random"))}
    (claim,) = (claim for claim in EXPERIMENT.claims if claim.id == f"selector:{name}")
    found = claim.judge(summarize(read, KEY))
    assert found.verdict == verdict
    assert "missing" not in found.note


def test_heads_are_compared_where_they_select_the_same_tokens():
    runs = {name: measured()[name] for name in ("random start", "two heads")}
    runs["two heads"]["selected"][:50, 0] = 2
    # Where the tokens differ, so do the problems, and nothing is compared.
    runs["two heads"]["margin_ratio"][:50] = 0.5
    heads = summarize(runs, KEY)["two heads"]
    assert heads.attrs["compared"] == 10
    assert float(heads["gain"]) > 0
    runs["two heads"]["selected"][:55, 0] = 2
    (claim,) = (claim for claim in EXPERIMENT.claims if claim.id == "selector:heads")
    assert claim.judge(summarize(runs, KEY)).verdict == "not decided"
    runs["two heads"]["selected"][:, 0] = 2
    assert np.isnan(summarize(runs, KEY)["two heads"]["gain"])


def test_a_control_changes_every_key_by_its_own_vector_or_rotation():
    problems = jax.jit(jax.vmap(lambda key: data.sphere(key, n=2, T=3, d=5)))(jax.random.split(KEY, 2))
    seen = jax.jit(jax.vmap(controls.shifted(key=7).seen))(problems)
    shifts = np.asarray(seen.X - problems.X).reshape(-1, 5)
    np.testing.assert_allclose(np.linalg.norm(shifts, axis=1), 1)
    assert np.unique(shifts, axis=0).shape == (12, 5)
    np.testing.assert_array_equal(seen.Z, problems.Z)
    turned = np.asarray(jax.jit(jax.vmap(controls.turned(key=7).seen))(problems).X)
    np.testing.assert_allclose(turned[..., 4], problems.X[..., 4])
    for plane in (slice(0, 2), slice(2, 4)):
        before, after = (np.asarray(X)[..., plane] for X in (problems.X, turned))
        np.testing.assert_allclose(np.linalg.norm(after, axis=-1), np.linalg.norm(before, axis=-1))
        assert np.unique(np.sum(before * after, axis=-1) / np.sum(before**2, axis=-1)).size == 12


def test_a_head_alone_starts_where_the_first_of_two_does():
    np.testing.assert_array_equal(controls.first_of_two(KEY, 3), initial.several(KEY, 3, count=2)[0])


def test_seeds_are_paired():
    """Of seeds that one run lacks, none is compared; the difference is that of each seed."""
    runs = {name: measured()[name] for name in ("random start", "two heads")}
    heads, base = runs["two heads"], runs["random start"]
    # One seed that selects late does not outweigh the others.
    heads["margin_ratio"][20] = -1.0
    runs["two heads"] = heads.isel(seed=slice(10, 50))
    off = [np.log10(1 - each["margin_ratio"].sel(norm="frobenius").values[10:50]) for each in (base, heads)]
    gain = float(summarize(runs, KEY)["two heads"]["gain"])
    assert gain == pytest.approx((off[0] - off[1]).mean(), rel=1e-12)
    assert gain > 0
    runs["two heads"] = heads.assign_coords(seed=heads["seed"] + 1000)
    with pytest.raises(ValueError, match="selector: expected a seed that two heads and random start both kept"):
        summarize(runs, KEY)


TRAINED = {
    "entropy": {"penalty": descent.entropy(0.5)},
    "Gumbel": {"noise": descent.gumbel(1.0)},
    "two heads": {"model": models.summed(2), "start": lambda key, d: initial.several(key, d)},
    "rotary": {"model": models.rotary()},
    "one-hot positions": {"model": models.key_only(np.eye(3, 2))},
    "random vectors": {"model": controls.shifted(key=7)},
}
CONFIGS = {
    "two heads": {"_target_": "jaxattn.models.summed", "count": 2},
    "rotary": {"_target_": "jaxattn.models.rotary", "query": 0},
    "one-hot positions": {"_target_": "jaxattn.models.key_only", "P": {"_target_": "numpy.eye", "N": 3, "M": 2}},
    "random vectors": {"_target_": "jaxattn.experiments.bias.controls.shifted", "key": 7},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_the_selected_tokens_of_a_record_are_measured(tmp_path, name):
    setting = {"start": initial.free_zero, "seeds": 4, "steps": 40, "snapshots": schedule.Evenly(10)} | TRAINED[name]
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    config = {"model": CONFIGS[name]} if name in CONFIGS else {}
    record = recorded(tmp_path, data.three_tokens, optimizer=rule, config=config, **setting)
    found, planted = measure(record), measured()[name if name in CONFIGS else "plain"]
    assert {key: found[key].dims for key in found} == {key: array.dims for key, array in planted.items()}
    assert found.sizes["input"] == record.sizes["input"]
    if name == "Gumbel":
        for k, seed in enumerate(found["seed"].values):
            expected = tokens.selected(record["W"].values[seed], problem_of(record, seed))
            np.testing.assert_array_equal(found["selected"].values[k], expected)


def test_a_solver_is_refused():
    with pytest.raises(ValueError, match="svm: expected native"):
        measure(run(), solver=svm.Cvxpy())
