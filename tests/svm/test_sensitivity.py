"""The derivative of the optimal value, against finite differences; that of anything else is refused in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from tests import instances
from tests.instances import slow

HARD = instances.lane(instances.constraints(4), 0)
SOFT = svm.soft(HARD, 0.2)._replace(targets=jnp.linspace(0.5, 1.5, 9).reshape(3, 3))
STEP = 1e-5


def value(rows, norm):
    return svm.solve(rows, norm=norm).primal


QUICK = [(HARD, "frobenius"), (SOFT, "l_3")]
SLOW = [(HARD, "nuclear"), (SOFT, "frobenius"), (SOFT, "nuclear"), (HARD, "l_1.5")]


@pytest.mark.parametrize(("rows", "norm"), QUICK + [slow(*case) for case in SLOW])
def test_the_gradient_is_that_of_finite_differences(rows, norm):
    gradient = jax.grad(value)(rows, norm)
    # By the programs of the gradient, so that no other compiles.
    at = lambda rows: jax.value_and_grad(value)(rows, norm)[0]  # noqa: E731
    rng = np.random.default_rng(0)
    for name in ("differences", "queries", "targets", "penalty"):
        if (leaf := getattr(rows, name)) is None:
            continue
        way = jnp.asarray(rng.normal(size=leaf.shape))
        ends = [at(rows._replace(**{name: leaf + sign * STEP * way})) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(jnp.sum(getattr(gradient, name) * way), expected, rtol=1e-3, atol=1e-5)


def test_it_works_under_jit_and_vmap_and_through_the_tokens():
    batch = instances.constraints(4)
    lanes = jax.jit(jax.vmap(jax.grad(lambda rows: value(rows, "frobenius"))))(batch)
    np.testing.assert_allclose(instances.lane(lanes, 0).queries, jax.grad(value)(HARD, "frobenius").queries, rtol=1e-6)
    problem = instances.problem()

    def of_tokens(X):
        return svm.att(X, problem.Z, [0, 1, 2]).primal

    along = jnp.sum(jax.grad(of_tokens)(problem.X) * problem.X)
    # The value is homogeneous of degree -1 in the tokens.
    np.testing.assert_allclose(along, -of_tokens(problem.X), rtol=1e-6)


def test_without_a_proof_of_optimality_it_is_zero():
    rows, _ = instances.INFEASIBLE[next(iter(instances.INFEASIBLE))]()
    gradient = jax.grad(value)(rows, "frobenius")
    np.testing.assert_array_equal(gradient.differences, 0)
    np.testing.assert_array_equal(gradient.queries, 0)


@pytest.mark.parametrize("name", ["W", "duals", "dual"])
def test_the_derivative_of_another_number_is_refused(name):
    with pytest.raises(ValueError, match=f"a solution's `primal`, found that of {name}"):
        jax.grad(lambda rows: jnp.sum(getattr(svm.solve(rows), name)))(HARD)


@pytest.mark.parametrize("lift", [jax.jit, jax.vmap, jax.grad], ids=lambda lift: lift.__name__)
def test_a_batch_cannot_be_solved_inside_a_transformation(lift):
    rows = instances.constraints(4)
    given = jax.tree.map(lambda leaf: leaf[None], rows) if lift is jax.vmap else rows
    with pytest.raises(ValueError, match=r"use jax\.vmap\(svm\.solve\)"):
        lift(lambda posed: svm.solve_batch(posed).primal.sum())(given)
