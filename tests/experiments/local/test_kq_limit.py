"""Synthetic measurements of descent on (K, Q) without a penalty, its exponents, and what is measured of a solution."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, metrics, svm, tokens
from jaxattn.attention import Factored
from jaxattn.experiments.local.kq_limit import EXPERIMENT
from jaxattn.experiments.local.kq_limit.measure import remaining
from jaxattn.study.claims import not_a_number
from jaxattn.study.settings import schedule
from tests.experiments.local.test_limits import short
from tests.experiments.synthetic import synthetic
from tests.instances import d
from tests.recorded import problem_of

STEPS, SEEDS = np.array(schedule.Logarithmically(8)(200_000)), 20
VERDICTS = {
    "kq-limit:direction": "holds with a correction",
    "kq-limit:balance": "holds with a correction",
    "kq-limit:factors": "holds with a correction",
}


def measured():
    """Distances stall with a constant step and fall with decreasing ones; a joint norm balances K and Q.

    K and Q turn on with a constant step.
    """
    steps, norms = ("constant step", "step k^-1/2", "step / norm"), ("separate norms", "joint norm")
    kinds = itertools.product(steps, norms, (1, 3))
    runs = {f"{step}, {norm}, c = {c}": run(step, norm) for step, norm, c in kinds}
    return {"as published": run("constant step", "separate norms")} | runs


def run(step, norm):
    """A run by a rule; constant steps make W grow like k^2, decreasing ones like k."""
    is_constant = step == "constant step"
    spread = np.linspace(0.9, 1.1, SEEDS)
    off = np.full(STEPS.shape, 6e-3) if is_constant else np.minimum(1, 10.0 / STEPS)
    balance = 1.3 if is_constant and norm == "separate norms" else 1.001
    along, flat = ("seed", "norm", "snapshot"), np.ones((2, STEPS.size))
    return synthetic(
        SEEDS,
        {"steps": int(STEPS[-1])},
        {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": STEPS},
        off=(along, np.multiply.outer(spread, off * flat)),
        margin_ratio=(along, 1 - 0.001 * np.multiply.outer(spread, flat)),
        size=np.tile(STEPS ** (2.0 if is_constant else 1.0), (SEEDS, 1)),
        balance=np.outer(0.999 + spread / 1000, balance * flat[0]),
        turned=(("seed", "decade"), np.outer(spread, [1e-3, 1e-3 if is_constant else 1e-4])),
        room=spread / 2,
        complementarity=spread[::-1] / 2,
    )


def test_exponents_are_those_of_the_step_and_of_the_norm_of_W():
    names = "as published", "step / norm, joint norm, c = 3"
    summaries = EXPERIMENT.estimates({name: measured()[name] for name in names}, jax.random.key(0))
    falling = summaries[names[1]]
    np.testing.assert_allclose([falling["exponent"], falling["power"]], -1.0)
    np.testing.assert_allclose(summaries["as published"]["power"], 0.0, atol=1e-9)
    assert falling.attrs["since"] == 2131
    np.testing.assert_allclose([falling["remains"], summaries["as published"]["remains"]], [0, 1], atol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_the_share_that_remains_in_the_limit_is_that_of_the_constant(share):
    spread = np.exp(np.random.default_rng(0).normal(0, 0.1, size=(12, 1)))
    size = np.geomspace(1, 100, 25)[None] * np.ones((12, 1))
    end = share + (1 - share) * (size / 100) ** -0.5
    found = remaining(size, 1e-3 * end * spread, jax.random.key(0))
    assert found.low <= found.mean <= found.high
    np.testing.assert_allclose(found.mean, share, atol=0.02)


@pytest.mark.slow
def test_a_run_is_measured_with_how_clear_cut_its_solution_is(tmp_path):
    record = short(tmp_path, d, descent.falling(descent.exact_normalized_gd(1.0, penalty=0.0)))
    one = EXPERIMENT.measure(record)
    assert not_a_number({"KQ": one}) == ""
    early = int(np.abs(np.log(record["snapshot"].values / 5)).argmin())
    for seed in one["seed"].values:
        problem = problem_of(record, seed)
        end = Factored(*(jnp.asarray(record[name].values[seed]) for name in "KQ"))
        constraints = svm.token_constraints(problem, tokens.selected(end, problem))
        solution = svm.solve(constraints, norm="nuclear")
        values = np.linalg.svd(svm.combination(constraints, solution.duals), compute_uv=False)
        rank = int(metrics.rank(solution.W))
        room = 1 - values[rank] if rank < d else 1.0
        np.testing.assert_allclose(one["room"].sel(seed=seed), room, atol=1e-6)
        at_5, at_50 = (jnp.asarray(record["K_snapshots"].values[seed, k]) for k in (early, -1))
        assert one["turned"].sel(seed=seed)[1] >= 1 - metrics.correlation(at_5, at_50) - 1e-12
        rows = np.asarray(solution.duals / solution.duals.max() + svm.margins(constraints, solution.W)) - 1
        np.testing.assert_allclose(one["complementarity"].sel(seed=seed), max(rows.min(), 0), atol=1e-5)
    empty = EXPERIMENT.measure(record.assign(K=record["K"] * np.nan))
    assert empty.sizes["seed"] == 0
    assert empty["room"].shape == (0,)
