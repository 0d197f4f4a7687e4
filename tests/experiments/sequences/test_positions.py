"""Sequences: synthetic runs with attention to all tokens and with a mask, and what is measured of a record."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, heads, initial, losses, metrics, svm, tokens
from jaxattn.experiments.sequences.positions import CLAIMS, measure, summarize
from jaxattn.problem import of_arrays
from jaxattn.regularization import FROBENIUS, NUCLEAR
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import paths, recording, schedule, training
from tests.experiments.synthetic import synthetic
from tests.instances import gives_up
from tests.recorded import recorded, written

VERDICTS = {"sequence:norm-KQ": "holds with a correction", "sequence:causal-norm-KQ": "holds with a correction"}
SEEDS = 12
STEPS = np.array([200, 1000, 2000])
# A small spread over seeds.
SPREAD = np.resize([-0.001, 0.001], SEEDS)


def measured():
    """Runs that end close to their own solutions; the norm of the published K Q^T does not grow."""
    runs = {}
    for attention, prefix in (("sequence", ""), ("causal", "causal ")):
        runs |= {
            f"{prefix}W": run(attention, "free", "normalized_gd", frobenius=0.991, nuclear=0.9),
            f"{prefix}KQ": run(attention, "factored", "normalized_gd", nuclear=0.995, frobenius=0.9),
            f"{prefix}W, exact direction": run(attention, "free", "scale_free_gd", frobenius=0.9985),
            f"{prefix}KQ, exact direction": run(attention, "factored", "falling_gd", nuclear=0.998, growth=1.0),
            f"{prefix}W, regularization path": path(attention),
        }
    return runs


def run(attention, weights, optimizer, growth=0.0, **ends):
    """A run with these correlations at its end, by norm, and 0.1 less before; ||W Z|| grows with this exponent."""
    correlation = np.array(list(ends.values()))[None, :, None] - 0.1 * (STEPS < 2000)
    # The spread over seeds is not the same for both solutions.
    correlation = correlation + np.stack([np.roll(SPREAD, k) for k in range(len(ends))], axis=1)[:, :, None]
    return synthetic(
        SEEDS,
        {"data": attention, "weights": weights, "optimizer": optimizer, "steps": 2000}
        | {"inputs": 6, "optimal_kept": 9, "optimal_infeasible": 3},
        {"norm": np.array(list(ends), object), "snapshot": STEPS},
        correlation=(("seed", "norm", "snapshot"), correlation),
        margin_ratio=(("seed", "norm", "snapshot"), 0.998 + 0 * correlation + SPREAD[:, None, None]),
        probability=(("seed", "step"), np.full((SEEDS, 2000), 0.9999) + 1e-5 * SPREAD[:, None]),
        status=(("attempt", "norm"), np.full((SEEDS, len(ends)), int(svm.Status.OPTIMAL))),
        optimal_share=0.8 + SPREAD,
        length=400 * (STEPS / 2000) ** (growth + 10 * SPREAD)[:, None],
    )


def path(attention):
    """Paths that end close to the Frobenius solution and select all optimal tokens there."""
    correlation = np.array([0.9995, 0.9])[None, :, None] - np.array([0.1, 0.0]) + 0.3 * SPREAD[:, None, None]
    return synthetic(
        SEEDS,
        {"data": attention, "steps": 2000},
        {"norm": np.array(["frobenius", "nuclear"], object), "radius": [100.0, 1000.0]},
        off=(("seed", "norm", "radius"), 1 - correlation),
        selected=(("seed", "radius"), np.tile([False, True], (SEEDS, 1))),
    )


def test_direction_growth_and_descent_without_a_penalty_are_judged_apart():
    falling = run("causal", "factored", "falling_gd", nuclear=0.9, growth=1.0)
    runs = measured() | {"causal KQ, exact direction": falling}
    summaries = summarize(runs, jax.random.key(0))
    found = {claim.id.removeprefix("sequence:causal-"): claim.judge(summaries).verdict for claim in CLAIMS}
    assert [found[name] for name in ("KQ", "norm-KQ", "limit-KQ")] == [Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS]


@pytest.fixture(scope="module", params=[pytest.param("sequence", marks=pytest.mark.slow), "causal"])
def record(request, tmp_path_factory):
    law = functools.partial(getattr(data, request.param), n=2, T=3, d=4)
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    size = {"seeds": 4, "steps": 40, "snapshots": schedule.Evenly(20)}
    path = tmp_path_factory.mktemp(request.param)
    made = recorded(path, law, optimizer=rule, **size)
    return request.param, made.assign_attrs(optimizer="scale_free_gd")


@pytest.mark.slow
def test_a_record_holds_what_every_position_sees_and_is_compared_under_it(record):
    name, one = record
    assert ("present" in one) == (name == "causal")
    found = measure(one)
    assert found.attrs["inputs"] == 6
    assert found.attrs["optimal_kept"] + found.attrs["optimal_infeasible"] == found.attrs["attempted"] == 4
    assert found["norm"].values.tolist() == ["frobenius"]
    assert found.sizes["seed"] >= 3
    for seed in found["seed"].values:
        problem = of_arrays({name: one[name].values[seed] for name in one.data_vars})
        W = jnp.asarray(one["W"].values[seed])
        alpha = np.asarray(tokens.selected(W, problem))
        seen = np.ones((6, 3), bool) if problem.present is None else np.asarray(problem.present)
        if name == "causal":
            np.testing.assert_array_equal(seen, np.tile(np.tri(3, dtype=bool), (2, 1)))
        assert seen[np.arange(6), alpha].all()
        right = (alpha == np.asarray(tokens.optimal(problem)))[seen.sum(axis=1) > 1]
        np.testing.assert_allclose(found["optimal_share"].sel(seed=seed), right.mean())
        solution = svm.solve(svm.token_constraints(problem, alpha))
        length = np.linalg.norm(np.asarray(W) @ np.asarray(problem.Z).T)
        np.testing.assert_allclose(found["length"].sel(seed=seed)[-1], length, rtol=1e-12)
        expected = metrics.correlation(W, solution.W)
        np.testing.assert_allclose(found["correlation"].sel(seed=seed)[0, -1], expected, rtol=1e-9)


@pytest.mark.slow
def test_a_published_run_is_held_against_both_norms(record):
    found = measure(record[1].assign_attrs(optimizer="normalized_gd"), solver=gives_up)
    assert found.attrs["unsolved"] + found.attrs["infeasible"] == found.attrs["attempted"] == 4
    assert found["norm"].values.tolist() == ["frobenius", "nuclear"]


def test_a_record_that_holds_logits_alone_refuses_a_mask():
    law = functools.partial(data.causal, n=2, T=3, d=4)
    rest = losses.logistic, heads.linear, 4, 1, 40, schedule.Evenly(20)
    setting = training.Screening(law, initial.free, descent.normalized_gd(0.1), *rest)
    with pytest.raises(ValueError, match=r"^data: expected inputs that see all their tokens, found a law with a mask"):
        recording.shapes(setting)


@pytest.mark.slow
@pytest.mark.parametrize("ball", [FROBENIUS, NUCLEAR])
def test_a_record_of_paths_is_told_by_its_radii(ball, tmp_path):
    law = functools.partial(data.causal, n=2, T=3, d=4)
    rest = losses.logistic, heads.linear, 2, 1, paths.Radii(1.0, 1000.0, 5)
    found = measure(written(paths.Regularization(law, ball, *rest), tmp_path))
    assert set(found["off"].dims) == {"seed", "norm", "radius"}
