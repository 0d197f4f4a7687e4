"""Plain descent under equal scores: synthetic runs, and what is measured of a record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, losses, metrics, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.experiments.landscape.gd_divergence import EXPERIMENT, estimate, measure
from jaxattn.study.settings import schedule
from tests.experiments.synthetic import synthetic
from tests.instances import T, d, n
from tests.recorded import problem_of, recorded

VERDICTS = {}
STEPS = np.array(schedule.Logarithmically(8)(100_000))
GROWTH = np.log(1 + STEPS)


def measured():
    """Runs within 1 / L, which is 15, and one with a far larger step and more seeds."""
    return {
        "step 0.05": run(0.05, 1000),
        "step 0.05, every step": run(0.05, 1),
        "step 5": run(5.0, 1000, seeds=1000),
        "W = 0, step 5": run(5.0, 1000, seeds=1000),
        "exact direction": run(0.1, 1000, seeds=1000),
        "W = 0, exact direction": run(0.1, 1000, seeds=1000),
    }


def run(step_size, record_every, seeds=30, off=0.5 / (1 + GROWTH) ** 2):
    """A run whose norm grows like log k, with a small spread over seeds."""
    spread = 1 + np.random.default_rng(0).normal(0, 0.02, (seeds, 1))
    return synthetic(
        seeds,
        {"optimizer.step_size": step_size, "record_every": record_every, "steps": int(STEPS[-1])},
        {"snapshot": STEPS, "step": np.arange(3)},
        growth=spread * GROWTH,
        off=spread * off,
        bend=np.full((seeds, len(STEPS)), 0.1),
        bound=15.0,
        optimal=np.ones(seeds, bool),
        lost=0.0,
        loss=(("seed", "step"), np.tile([1.0, 0.5, 0.4], (seeds, 1))),
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    law = partial(data.spread_scores, n=n, T=T, d=d, spread=0.0)
    path = tmp_path_factory.mktemp("runs")
    rule, kept = descent.gd(0.5), schedule.Logarithmically(2)
    return recorded(path, law, optimizer=rule, seeds=5, steps=400, snapshots=kept, record_every=100)


@pytest.mark.slow
def test_a_run_is_held_against_the_solutions_of_its_optimal_tokens(record):
    one = measure(record)
    assert one.attrs["kept"] == one.sizes["seed"] == 5
    assert np.all(one["bend"] < one["bound"])
    for seed in range(5):
        problem = problem_of(record, seed)
        solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
        last = jnp.asarray(record["W_snapshots"].values[seed, -1])
        np.testing.assert_allclose(one["off"][seed, -1], 1 - metrics.correlation(last, solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["growth"][seed, -1], metrics.norm(last) / metrics.norm(solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["bound"][seed], smoothness.bound(problem))
        curvature = jax.hessian(losses.risk)(last, problem).reshape(d * d, d * d)
        np.testing.assert_allclose(one["bend"][seed, -1], np.linalg.norm(curvature, 2), rtol=0.02)


def test_slopes_are_over_the_last_decade_and_rises_are_counted():
    summary = estimate(run(0.05, 1), jax.random.key(0))
    np.testing.assert_allclose(summary["slope"], 1.0, rtol=0.02)
    # 1 - cos falls like the square of 1 + growth.
    np.testing.assert_allclose(summary["exponent"], -2.0, rtol=0.15)
    assert (int(summary["rises"]), int(summary["taken"]), float(summary["nearer"])) == (0, 60, 1.0)
    np.testing.assert_allclose(summary["within"], 0.75)


def test_distances_that_are_not_positive_are_refused():
    with pytest.raises(ValueError, match="growth, off: expected positive numbers"):
        estimate(run(0.05, 1, off=0 * GROWTH), jax.random.key(0))


@pytest.mark.usefixtures("drawn_once")
def test_only_a_seed_that_stays_at_other_tokens_in_both_runs_refutes():
    def verdict(plain, exact, lost):
        runs = measured()
        runs["step 5"]["optimal"][plain] = False
        runs["exact direction"]["optimal"][exact] = False
        runs["exact direction"]["lost"][exact] = lost
        summaries = EXPERIMENT.estimates(runs, jax.random.key(0))
        return [str(claim.judge(summaries).verdict) for claim in EXPERIMENT.claims[1:3]]

    assert verdict(7, 7, 1e-9) == ["does not hold", "holds"]
    assert verdict(7, 7, 1e-3) == ["not decided", "holds"]
    assert verdict(7, 8, 1e-9) == ["holds", "holds"]
