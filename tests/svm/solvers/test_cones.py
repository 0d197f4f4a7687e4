"""The norms of rows and columns: Clarabel's answers, closed forms, infeasible lanes, rows of every kind, precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.norms import named
from jaxattn.svm import Cvxpy, Status
from tests import instances

LANES = 3
NAMES = ("2,inf", "2,1", "2,inf of columns", "2,1 of columns")


def posed(kind: str) -> svm.Constraints:
    """A batch of problems of the shared shape with rows of one kind."""
    if kind == "sets":
        selected = jnp.zeros((instances.n, instances.T), bool).at[:, 0].set(True).at[0, 2].set(True)
        return instances.stacked([svm.set_constraints(instances.problem(i), selected) for i in range(LANES)])
    hard = instances.constraints(LANES)
    return hard if kind == "hard" else jax.vmap(partial(svm.soft, C=0.4))(hard)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "hard") for name in NAMES),
        *(
            pytest.param(name, kind, marks=pytest.mark.slow)
            for name in NAMES[:2]
            for kind in ("soft", "squared", "sets")
        ),
    ],
)
def test_it_agrees_with_clarabel(name, kind):
    pytest.importorskip("cvxpy")
    constraints = posed(kind)
    norm = svm.squared(name) if kind == "squared" else named(name)
    ours = svm.solve_batch(constraints, norm)
    assert not any(np.isnan(leaf).any() for leaf in ours)
    np.testing.assert_array_equal(ours.status, Status.OPTIMAL)
    assert np.abs(ours.gap).max() < 1e-8
    theirs = svm.solve(instances.lane(constraints, 0), norm, solver=Cvxpy())
    np.testing.assert_allclose(ours.primal[0], theirs.primal, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_has_the_dual_norm_for_its_value(name):
    """Tokens differ by (3, 0, 4), the query is (0, 2, 0): the rows of the row's matrix have lengths 6, 0 and 8."""
    b, z = np.array([3.0, 0.0, 4.0]), np.array([0.0, 2.0, 0.0])
    solution = svm.solve(svm.Constraints(jnp.asarray(b[None, None]), jnp.asarray(z[None])), name)
    dual = {"2,inf": 14, "2,1": 8, "2,inf of columns": 10, "2,1 of columns": 10}[name]
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, 1 / dual, rtol=1e-8)


@pytest.mark.parametrize("p", [1.0, float("inf")])
def test_columns_are_the_rows_of_the_transposed_problem(p):
    """With one token difference for each query, the two may change places."""
    constraints = instances.lane(posed("hard"), 0)
    one = svm.Constraints(constraints.differences[:, :1], constraints.queries)
    turned = svm.Constraints(constraints.queries[:, None], constraints.differences[:, 0])
    of_rows, of_columns = svm.solve(turned, svm.rows(p)), svm.solve(one, svm.columns(p))
    np.testing.assert_allclose(of_columns.primal, of_rows.primal, rtol=1e-8)


@pytest.mark.parametrize("name", ["2,inf", "2,1"])
def test_infeasible_lanes_and_repeated_rows_keep_to_themselves(name):
    good = instances.lane(posed("hard"), 0)
    twice = good._replace(differences=good.differences.at[:, 2].set(good.differences[:, 1]))
    lanes = [good, *(make()[0] for make in instances.INFEASIBLE.values()), twice]
    solutions = svm.solve_batch(instances.stacked(lanes), name)
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    assert solutions.primal[3] <= solutions.primal[0] * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2,inf", "2,1 of columns"])
def test_scale_precision_jit_and_vmap_do_not_show(name):
    constraints = posed("hard")
    expected = svm.solve_batch(constraints, name)
    lifted = jax.jit(jax.vmap(partial(svm.solve, norm=name)))(constraints)
    np.testing.assert_array_equal(lifted.status, Status.OPTIMAL)
    np.testing.assert_allclose(lifted.primal, expected.primal, rtol=1e-8)
    for c in (1e-6, 1e5):
        scaled = svm.solve_batch(constraints._replace(differences=c * constraints.differences), name)
        np.testing.assert_array_equal(scaled.status, Status.OPTIMAL)
        np.testing.assert_allclose(c * scaled.primal, expected.primal, rtol=1e-8)
    single = svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), constraints), name)
    np.testing.assert_array_equal(single.status, Status.OPTIMAL)
    np.testing.assert_allclose(single.primal, expected.primal, rtol=2e-4)
