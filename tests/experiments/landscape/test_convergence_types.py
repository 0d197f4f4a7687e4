"""Types of convergence: synthetic runs, and how records are classified."""

import itertools

import jax
import numpy as np
import pytest

from jaxattn import svm, tokens
from jaxattn.experiments.landscape import convergence_types
from jaxattn.experiments.landscape.convergence_types import estimate, measure
from jaxattn.svm import Status
from tests import instances
from tests.experiments.synthetic import synthetic
from tests.recorded import ended

VERDICTS = {"convergence-types:local": "holds with a correction"}


def measured():
    """Global and all-support selections become more frequent with d; 10 runs of (K, Q) are local by their own SVM.

    One run in each dimension was trained on, and left its tokens.
    """
    runs = {}
    for (trained, weights), d in itertools.product((("W", "free"), ("KQ", "factored")), (4, 10, 20, 40, 80)):
        locally = 190 if (trained, d) == ("KQ", 4) else 200
        name = f"{trained} n=5 T=5 d={d}"
        runs[name] = run(weights, d, globally=min(100 + 4 * d, 196), locally=locally, support=2 * d)
    return runs


def run(weights, d, globally, locally, support, own=200, unsaturated=0):
    """A run with these numbers of seeds of each kind, the first ones of 200; one more is unsolved."""
    seed = np.arange(200)
    ends = {"saturated": 200 - unsaturated, "globally": globally, "locally": locally, "all_support": support}
    ends |= {"locally_own": own, "trained_on": 1}
    return synthetic(
        200,
        {"weights": weights, "data.n": 5, "data.T": 5, "data.d": d, "steps": 1500}
        | {"attempted": 201, "kept": 200 - unsaturated, "ambiguous": unsaturated, "unsolved": 1},
        **{name: seed < end for name, end in ends.items()},
        remains=np.zeros(200, bool),
        nearest=1.5,
    )


def test_runs_that_selected_nothing_are_not_global_and_neither_local_nor_not():
    summary = estimate(run("free", 4, globally=50, locally=120, support=16, unsaturated=20), jax.random.key(0))
    np.testing.assert_allclose((summary["globally"], summary["all_support"]), (0.25, 0.08))
    np.testing.assert_allclose((summary["by_frobenius"], summary["not_by_frobenius"]), (120 / 180, 60))
    assert np.isnan(estimate(run("free", 4, 0, 0, 0, unsaturated=200), jax.random.key(0))["by_own"])


@pytest.mark.slow
def test_runs_that_end_at_tokens_that_are_not_local_are_trained_on():
    problems = instances.problems(10)
    worst = jax.vmap(lambda problem: tokens.scores(problem).argmin(axis=1))(problems)
    solved = svm.solve_batch(jax.vmap(svm.token_constraints)(problems, worst))
    assert (solved.status == Status.OPTIMAL).all()
    # Far along a solution whose tokens all others outscore, the softmax is saturated, but descent leaves.
    found = measure(ended(problems, W=40 * solved.W))
    assert found["trained_on"].all()
    assert not found["remains"].any()
    assert (found["saturated"] & found["locally_own"]).all()


@pytest.mark.slow
def test_records_are_classified_by_the_solution_that_selects_their_tokens(monkeypatch):
    monkeypatch.setattr(convergence_types, "_ROUNDS", ())
    problems = instances.problems(6)
    alpha = np.array(jax.random.randint(jax.random.key(1), (6, instances.n), 0, instances.T))
    alpha[0] = tokens.optimal(instances.lane(problems, 0))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints)
    assert (solved.status == Status.OPTIMAL).all()
    W = solved.W * np.array([40.0, 40.0, 40.0, 40.0, 1.0, np.nan])[:, None, None]
    found = measure(ended(problems, W=W))
    assert found["saturated"].values.tolist() == [True] * 4 + [False]
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(5):
        inputs = np.arange(instances.n)
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = scores[i][inputs, alpha[i]], scores[i][inputs[:, None], others]
        active = np.abs(margins[i] - 1) < 1e-6
        one = found.isel(seed=i)
        assert one["globally"] == (own[:, None] > rest).all()
        assert one["locally"] == ((own[:, None] > rest) | ~active).all()
        assert one["all_support"] == active.all()
        assert one["nearest"] == margins[i][~active].min()
    np.testing.assert_array_equal(found["locally_own"], found["locally"])  # W tends to the Frobenius solution.
    counted = {name: found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous", "unsolved")}
    assert counted == {"attempted": 6, "kept": 4, "diverged": 1, "ambiguous": 1, "unsolved": 0}


@pytest.mark.slow
def test_factors_are_local_by_the_neighbours_of_the_nuclear_solution_too(monkeypatch):
    monkeypatch.setattr(convergence_types, "_ROUNDS", ())
    problems = instances.problems(6)
    alpha = np.asarray(jax.random.randint(jax.random.key(3), (6, instances.n), 0, instances.T))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints, norm="nuclear")
    assert (solved.status == Status.OPTIMAL).all()
    found = measure(ended(problems, K=40 * solved.W, Q=np.tile(np.eye(instances.d), (6, 1, 1))))
    assert found.attrs["kept"] == 6
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(6):
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = (np.take_along_axis(scores[i], which, axis=1) for which in (alpha[i][:, None], others))
        assert found["locally_own"][i] == ((own > rest) | (np.abs(margins[i] - 1) > 1e-6)).all()
