"""Schatten norms: a constructed solution, every kind of rows, infeasible lanes, precision and scales."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.svm import Status, Unique
from tests.svm import constructed
from tests.svm.posed import assert_certified, assert_lanes_keep_to_themselves, assert_nothing_else_shows, posed


@pytest.mark.parametrize("p", [1.5, 4.0])
def test_a_constructed_solution_is_recovered(p):
    """W is the gradient of the dual norm at `sum a_k A_k`; support rows are scaled to margin 1."""
    rng = np.random.default_rng(0)
    while True:
        queries, differences, a = rng.normal(size=(3, 5)), rng.normal(size=(3, 3, 5)), np.zeros((3, 3))
        a[:, :2] = rng.uniform(0.5, 2.0, size=(3, 2))
        U, s, Vt = np.linalg.svd(np.einsum("nm,nmd,ne->de", a, differences, queries))
        s[3:] = 0.0
        W = (U * s ** (1 / (p - 1))) @ Vt
        margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
        if np.all(margins[:, :2] > 0.2):
            break
    differences[:, :2] /= margins[:, :2, None]
    constructed._lift_margins(differences[:, 2:], W, queries)
    solution = svm.solve(svm.Constraints(jnp.asarray(differences), jnp.asarray(queries)), svm.schatten(p))
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, np.sum(s ** (p / (p - 1))) ** (1 / p), rtol=1e-8)
    np.testing.assert_allclose(solution.W, W, atol=1e-4 * np.abs(W).max())
    assert solution.unique == Unique.YES


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft", "squared", "sets"])
@pytest.mark.parametrize("p", [1.25, 6.0])
def test_rows_of_every_kind_are_solved(p, kind):
    norm = svm.squared(svm.schatten(p)) if kind == "squared" else svm.schatten(p)
    solutions = svm.solve_batch(posed(kind), norm)
    assert_certified(solutions)


def test_infeasible_lanes_and_repeated_rows_keep_to_themselves():
    assert_lanes_keep_to_themselves("schatten_1.5")


@pytest.mark.slow
def test_the_optimal_value_falls_with_p_between_those_of_the_nuclear_and_the_spectral_norm():
    constraints = posed("hard")
    values = [svm.solve_batch(constraints, f"schatten_{p}").primal for p in (1, 1.5, 2, 4, "inf")]
    assert (np.diff(values, axis=0) < 0).all()


@pytest.mark.slow
def test_scale_precision_jit_and_vmap_do_not_show():
    lifted = assert_nothing_else_shows(svm.schatten(1.5))
    np.testing.assert_array_equal(lifted.unique, Unique.YES)
