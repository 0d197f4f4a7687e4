"""Problems with rows of one kind, and what every solver of a norm has to do with them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import svm
from jaxattn.svm import Status
from tests import instances

LANES = 3


def posed(kind: str, C: float = 0.4) -> svm.Constraints:
    """A batch of problems of the shared shape with rows of one kind: "hard", "soft", "squared" (as soft), or "sets"."""
    if kind == "sets":
        selected = jnp.zeros((instances.n, instances.T), bool).at[:, 0].set(True).at[0, 2].set(True)
        return instances.stacked([svm.set_constraints(instances.problem(i), selected) for i in range(LANES)])
    hard = instances.constraints(LANES)
    return hard if kind == "hard" else jax.vmap(partial(svm.soft, C=C))(hard)


def assert_certified(solutions: svm.Solution) -> None:
    """Hold that every lane is optimal, to a gap of 1e-8, and nothing is NaN."""
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    assert np.abs(solutions.gap).max() < 1e-8


def assert_lanes_keep_to_themselves(norm: str | svm.Norm) -> None:
    """Hold that infeasible lanes and repeated rows change no other lane."""
    good = instances.lane(posed("hard"), 0)
    twice = good._replace(differences=good.differences.at[:, 2].set(good.differences[:, 1]))
    lanes = [good, *(make()[0] for make in instances.INFEASIBLE.values()), twice]
    solutions = svm.solve_batch(instances.stacked(lanes), norm)
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    assert solutions.primal[3] <= solutions.primal[0] * (1 + 1e-8)


def assert_single_precision(norm: str | svm.Norm, expected: svm.Solution) -> None:
    """Hold that single precision is certified to its own tolerance, and agrees with double."""
    single = svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), posed("hard")), norm)
    np.testing.assert_array_equal(single.status, Status.OPTIMAL)
    np.testing.assert_allclose(single.primal, expected.primal, rtol=2e-4)


def assert_nothing_else_shows(norm: str | svm.Norm) -> svm.Solution:
    """Hold that scale, precision, `jit` and `vmap` do not show; return what was found under these two."""
    constraints = posed("hard")
    expected = svm.solve_batch(constraints, norm)
    lifted = jax.jit(jax.vmap(partial(svm.solve, norm=norm)))(constraints)
    np.testing.assert_array_equal(lifted.status, Status.OPTIMAL)
    np.testing.assert_allclose(lifted.primal, expected.primal, rtol=1e-8)
    for c in (1e-6, 1e5):
        scaled = svm.solve_batch(constraints._replace(differences=c * constraints.differences), norm)
        np.testing.assert_array_equal(scaled.status, Status.OPTIMAL)
        np.testing.assert_allclose(c * scaled.primal, expected.primal, rtol=1e-8)
    assert_single_precision(norm, expected)
    return lifted
