"""The spectral and entrywise solver: known answers, Clarabel's, every kind of rows, scales, and its refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.svm import Cvxpy, PathFollowing, Status
from tests import instances
from tests.instances import assert_close
from tests.svm import constructed

LANES = 3
NORMS = {
    "spectral": svm.spectral,
    **{f"p={p:g}": svm.entrywise(p) for p in (1.0, 1.5, 3.0, float("inf"))},
}
# Each pair compiles a program of its own, of 4 s (10 s the spectral ones).
PAIRS = [(name, "hard") for name in NORMS if name != "p=1.5"] + [
    ("p=3", "soft"),
    ("p=1.5", "squared"),
    ("p=inf", "sets"),
]


def posed(kind: str) -> svm.Constraints:
    """A batch of problems of the shared shape with rows of one kind."""
    if kind == "sets":
        selected = jnp.zeros((instances.n, instances.T), bool).at[:, 0].set(True).at[0, 2].set(True)
        return instances.stacked([svm.set_constraints(instances.problem(i), selected) for i in range(LANES)])
    hard = instances.constraints(LANES)
    return hard if kind == "hard" else jax.vmap(partial(svm.soft, C=0.4))(hard)


def objective(norm: svm.Norm, kind: str) -> svm.Norm:
    return svm.squared(norm) if kind == "squared" else norm


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_it_agrees_with_clarabel(name, kind):
    pytest.importorskip("cvxpy")
    constraints, norm = posed(kind), objective(NORMS[name], kind)
    ours = svm.solve_batch(constraints, norm)
    assert not any(np.isnan(leaf).any() for leaf in ours)
    np.testing.assert_array_equal(ours.status, Status.OPTIMAL)
    assert np.abs(ours.gap).max() < 1e-8
    theirs = svm.solve(instances.lane(constraints, 0), norm, solver=Cvxpy())
    np.testing.assert_allclose(ours.primal[0], theirs.primal, rtol=1e-5)


@pytest.mark.parametrize("p", [pytest.param(1.5, marks=pytest.mark.slow), 3.0])
def test_a_constructed_entrywise_solution_is_recovered(p):
    # W is the gradient of the dual norm at `sum a_k A_k`; support rows are scaled to margin 1.
    rng = np.random.default_rng(0)
    while True:
        queries, differences, a = rng.normal(size=(3, 5)), rng.normal(size=(3, 3, 5)), np.zeros((3, 3))
        a[:, :2] = rng.uniform(0.5, 2.0, size=(3, 2))
        M = np.einsum("nm,nmd,ne->de", a, differences, queries)
        W = np.sign(M) * np.abs(M) ** (1 / (p - 1))
        margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
        if np.all(margins[:, :2] > 0.2):
            break
    differences[:, :2] /= margins[:, :2, None]
    constructed._lift_margins(differences[:, 2:], W, queries)
    solution = svm.solve(svm.Constraints(jnp.asarray(differences), jnp.asarray(queries)), svm.entrywise(p))
    np.testing.assert_allclose(solution.primal, np.sum(np.abs(W) ** p) ** (1 / p), rtol=1e-8)
    np.testing.assert_allclose(solution.W, W, atol=1e-4 * np.abs(W).max())


@pytest.mark.parametrize("name", ["spectral", "p=1", "p=inf"])
def test_one_row_has_the_dual_norm_for_its_value(name):
    b, z = np.array([3.0, 0.0, 4.0]), np.array([0.0, 2.0, 0.0])
    solution = svm.solve(svm.Constraints(jnp.asarray(b[None, None]), jnp.asarray(z[None])), NORMS[name])
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, 1 / NORMS[name].dual(jnp.asarray(np.outer(b, z))), rtol=1e-8)


def test_the_l2_norm_is_the_frobenius_norm():
    constraints = posed("hard")
    one, two = (svm.solve_batch(constraints, norm) for norm in (svm.entrywise(2.0), svm.frobenius))
    np.testing.assert_allclose(one.primal, two.primal, rtol=1e-8)
    assert_close(one.W, two.W, rtol=1e-4)


@pytest.mark.parametrize("name", ["p=3"])
def test_infeasible_lanes_and_repeated_rows_keep_to_themselves(name):
    good = instances.lane(posed("hard"), 0)
    twice = good._replace(differences=good.differences.at[:, 2].set(good.differences[:, 1]))
    lanes = [good, *(make()[0] for make in instances.INFEASIBLE.values()), twice]
    solutions = svm.solve_batch(instances.stacked(lanes), NORMS[name])
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    assert solutions.primal[3] <= solutions.primal[0] * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p=3"])
def test_scale_precision_jit_and_vmap_do_not_show(name):
    constraints, norm = posed("hard"), NORMS[name]
    expected = svm.solve_batch(constraints, norm)
    lone = svm.solve(instances.lane(constraints, 1), norm)
    assert lone.status == Status.OPTIMAL
    np.testing.assert_allclose(lone.primal, expected.primal[1], rtol=1e-9)
    lifted = jax.jit(jax.vmap(partial(svm.solve, norm=norm)))(constraints)
    np.testing.assert_array_equal(lifted.status, Status.OPTIMAL)
    np.testing.assert_allclose(lifted.primal, expected.primal, rtol=1e-8)
    for c in (1e-6, 1e5):
        scaled = svm.solve_batch(constraints._replace(differences=c * constraints.differences), norm)
        np.testing.assert_array_equal(scaled.status, Status.OPTIMAL)
        np.testing.assert_allclose(c * scaled.primal, expected.primal, rtol=1e-8)
    single = svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), constraints), norm)
    np.testing.assert_array_equal(single.status, Status.OPTIMAL)
    np.testing.assert_allclose(single.primal, expected.primal, rtol=2e-4)


def test_negative_targets_alone_are_met_by_zero():
    good = instances.lane(posed("hard"), 0)
    solution = svm.solve(good._replace(targets=-jnp.ones(good.differences.shape[:2])), svm.entrywise(3.0))
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_array_equal(solution.W, 0)


def test_too_few_iterations_are_not_certified():
    constraints = instances.lane(posed("hard"), 0)
    solution = svm.solve(constraints, NORMS["p=3"], solver=PathFollowing(most=3))
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    assert not any(np.isnan(leaf).any() for leaf in solution)


def test_another_norm_is_refused():
    with pytest.raises(ValueError, match=r"^PathFollowing: expected norm 'spectral' or an entrywise one, found 'nucl"):
        svm.solve(instances.lane(posed("hard"), 0), "nuclear", solver=PathFollowing())
