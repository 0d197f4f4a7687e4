"""Synthetic measurements of the selector, how runs are compared seed by seed, and what trained records give."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn import bias, data, descent, initial, models, svm, tokens
from jaxattn.experiments.bias.selector import EXPERIMENT, measure, summarize
from jaxattn.study.settings import schedule
from tests.recorded import problem_of, recorded

KEY = jax.random.key(0)
SEEDS, INPUTS, STEPS = 60, 5, np.array([100, 1000, 2000, 5000, 10000])
VERDICTS = {
    "selector:entropy-tokens": "holds with a correction",
    "selector:gumbel-tokens": "does not hold",
    "selector:entropy-norm": "does not hold",
    "selector:gumbel-norm": "not decided",
    # These change the problem, so that no difference tests them.
    "selector:heads": "not decided",
    "selector:rotary": "not decided",
    "selector:positions": "not decided",
}


def measured(**changes):
    """Only the smallest penalty selects the same tokens, and the largest obeys no norm; heads come nearer."""
    runs = {
        "plain": {},
        "entropy 0.01": {},
        "entropy 0.1": {"same": 0.6},
        "entropy 1": {"same": 0.6, "ratio": 0.7},
        "Gumbel": {"same": 0.6, "ratio": 0.97},
        "random start": {},
        "two heads": {"ratio": 0.995, "spread": 0.002},
        "rotary": {"ratio": 0.985, "spread": 0.002},
        "one-hot positions": {"ratio": 0.9912, "spread": 0.002},
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
    return xarray.Dataset(
        {
            "margin_ratio": (("seed", "norm", "snapshot"), (means + around[:, None])[:, :, None] * flat[:, None]),
            "probability": (("seed", "snapshot"), 0.9999 * flat),
            "size": (("seed", "snapshot"), STEPS * flat),
            "selected": (
                ("seed", "input"),
                (np.arange(SEEDS * INPUTS) * 7 % 100 >= 100 * same).reshape(SEEDS, INPUTS).astype(int),
            ),
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
        ({}, "entropy-norm", "holds"),
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
}
CONFIGS = {
    "two heads": {"_target_": "jaxattn.models.summed", "count": 2},
    "rotary": {"_target_": "jaxattn.models.rotary", "query": 0},
    "one-hot positions": {"_target_": "jaxattn.models.key_only", "P": {"_target_": "numpy.eye", "N": 3, "M": 2}},
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
    if name == "two heads":
        assert found.sizes["input"] == 2 * record.sizes["input"]
    if name == "Gumbel":
        for k, seed in enumerate(found["seed"].values):
            expected = tokens.selected(record["W"].values[seed], problem_of(record, seed))
            np.testing.assert_array_equal(found["selected"].values[k], expected)


def test_a_solver_is_refused():
    with pytest.raises(ValueError, match="svm: expected native"):
        measure(run(), solver=svm.Cvxpy())
