"""The norms of rows and columns: Clarabel's answers, closed forms, infeasible lanes, rows of every kind, precision."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.norms import named
from jaxattn.svm import Cvxpy, Status
from tests import instances
from tests.svm.posed import assert_certified, assert_lanes_keep_to_themselves, assert_nothing_else_shows, posed

NAMES = ("2,inf", "2,1", "2,inf of columns", "2,1 of columns")


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
    assert_certified(ours)
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


@pytest.mark.slow
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
    assert_lanes_keep_to_themselves(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2,inf", "2,1 of columns"])
def test_scale_precision_jit_and_vmap_do_not_show(name):
    assert_nothing_else_shows(name)
