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
from tests.svm.posed import assert_certified, assert_lanes_keep_to_themselves, assert_nothing_else_shows, posed

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


def objective(norm: svm.Norm, kind: str) -> svm.Norm:
    return svm.squared(norm) if kind == "squared" else norm


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_it_agrees_with_clarabel(name, kind):
    pytest.importorskip("cvxpy")
    constraints, norm = posed(kind), objective(NORMS[name], kind)
    ours = svm.solve_batch(constraints, norm)
    assert_certified(ours)
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


@pytest.mark.slow
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
    assert_lanes_keep_to_themselves(NORMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p=3"])
def test_scale_precision_jit_and_vmap_do_not_show(name):
    constraints, norm = posed("hard"), NORMS[name]
    expected = svm.solve_batch(constraints, norm)
    lone = svm.solve(instances.lane(constraints, 1), norm)
    assert lone.status == Status.OPTIMAL
    np.testing.assert_allclose(lone.primal, expected.primal[1], rtol=1e-9)
    assert_nothing_else_shows(norm)


def test_negative_targets_alone_are_met_by_zero():
    good = instances.lane(posed("hard"), 0)
    solution = svm.solve(good._replace(targets=-jnp.ones(good.differences.shape[:2])), svm.entrywise(3.0))
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_array_equal(solution.W, 0)


def listed(rows, targets, equal, penalty=None) -> svm.Constraints:
    """Rows of vectors: W has one column."""
    rows = jnp.asarray(rows, float)[:, None]
    targets, equal = jnp.asarray(targets, float)[:, None], jnp.asarray(equal, bool)[:, None]
    penalty = None if penalty is None else jnp.asarray(penalty, float)[:, None]
    return svm.Constraints(rows, jnp.ones((len(rows), 1)), targets, equal, penalty=penalty)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["p=inf", *(pytest.param(name, marks=pytest.mark.slow) for name in NORMS if name != "p=inf")]
)
def test_implied_equations_are_left_out_beside_inequalities_and_alone(name):
    both = [[1, 0, 0], [0, 1, 0], [1, 1, 0]]
    many = [
        listed([*both, [0, 0, 1]], [1, 1, 2, 1], [1, 1, 1, 0]),
        listed([*both, [2, 2, 0]], [1, 1, 2, 4], [1, 1, 1, 1]),
        listed([*both, [0, 0, 0]], [1, 1, 2, 0], [1, 1, 1, 1]),
        listed([*both, [0, 0, 1]], [1, 1, 2.5, 1], [1, 1, 1, 0]),
    ]
    found = svm.solve_batch(instances.stacked(many), NORMS[name])
    assert list(found.status) == [Status.OPTIMAL] * 3 + [Status.INFEASIBLE]
    for W, expected in zip(found.W, ([1, 1, 1], [1, 1, 0], [1, 1, 0]), strict=False):
        if name not in ("p=inf", "spectral"):  # Of p = inf the third entry is free.
            np.testing.assert_allclose(W[:, 0], expected, atol=1e-6)
        np.testing.assert_allclose(W[:2, 0], 1.0, rtol=1e-11)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in NORMS])
def test_soft_rows_that_are_hard_to_satisfy_or_contradict_are_decided(name):
    # Queries that are nearly or quite the same for all inputs, so that large W or shortfalls are the answer; equations
    # of zeros and implied ones beside soft rows, where queries differ: beside equal ones some are left undecided.
    rng = np.random.default_rng(0)
    D, Z = rng.normal(size=(24, 4, 4, 6)), rng.normal(size=(24, 4, 6))
    Z[8:16] += 100.0
    Z[16:] = Z[16:, :1]
    D[:16:4, 0, 0] = 0.0
    D[1:16:4, 0, 2] = D[1:16:4, 0, 0] + D[1:16:4, 0, 1]
    equal, targets = np.zeros((24, 4, 4), bool), np.ones((24, 4, 4))
    equal[:16:4, 0, 0], targets[:16:4, 0, 0] = True, 0.0
    equal[1:16:4, 0, :3], targets[1:16:4, 0, 2] = True, 2.0
    hard = svm.Constraints(*map(jnp.asarray, (D, Z, targets, equal)))
    found = [svm.solve_batch(jax.vmap(partial(svm.soft, C=C))(hard), NORMS[name]).status for C in (0.1, 10.0, 1e3)]
    # One of them is undecided in the spectral norm at C = 10.
    assert (np.concatenate(found) != Status.OPTIMAL).sum() <= (name == "spectral")


@pytest.mark.parametrize("kind", ["hard", "soft", "sets"])
def test_single_precision_stays_single_beside_double(kind):
    rows = instances.lane(jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype("f4"), posed(kind)), 0)
    found = jax.eval_shape(partial(PathFollowing(), norm=svm.spectral), rows)
    assert found.W.dtype == found.duals.dtype == np.float32


@pytest.mark.slow
def test_the_spectral_norm_is_solved_in_single_precision():
    rows = jax.tree.map(lambda leaf: leaf.astype("f4"), posed("hard"))
    found, expected = svm.solve_batch(rows, "spectral"), svm.solve_batch(posed("hard"), "spectral")
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal, expected.primal, rtol=2e-4)


def test_too_few_iterations_are_not_certified():
    constraints = instances.lane(posed("hard"), 0)
    solution = svm.solve(constraints, NORMS["p=3"], solver=PathFollowing(most=3))
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    assert not any(np.isnan(leaf).any() for leaf in solution)


def test_another_norm_is_refused():
    with pytest.raises(ValueError, match=r"^PathFollowing: expected norm 'spectral' or .*, found 'nucl"):
        svm.solve(instances.lane(posed("hard"), 0), "nuclear", solver=PathFollowing())
