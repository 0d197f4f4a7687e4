"""Constraints: margins and their adjoint, kinds of rows, reduction, projections, and malformed input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import T, assert_close, d, n


@pytest.fixture(scope="module")
def constraints():
    return svm.token_constraints(instances.problem(), [2, 0, 3])


def test_combination_is_the_adjoint_of_margins(constraints):
    duals = np.random.default_rng(0).normal(size=(n, T - 1))
    combined = svm.combination(constraints, jnp.asarray(duals))
    assert_close(combined, np.einsum("nm,nmde->de", duals, instances.matrices(constraints)))
    W = instances.free()
    np.testing.assert_allclose(np.sum(combined * W), np.sum(duals * svm.margins(constraints, W)), rtol=1e-12)


def test_lengths_and_gram_are_those_of_the_matrices_written_out(constraints):
    flat = instances.matrices(constraints).reshape(n * (T - 1), d * d)
    assert_close(cons.gram(constraints), flat @ flat.T)
    assert_close(cons.lengths(constraints), np.linalg.norm(flat, axis=1).reshape(n, T - 1))


@pytest.mark.parametrize("shape", [(2, 1, 7), (5, 2, 3)])
def test_the_reduced_constraints_are_the_same_in_other_coordinates(shape):
    rng = np.random.default_rng(1)
    groups, m, width = shape
    whole = svm.Constraints(jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.normal(size=(groups, width))))
    reduced = cons.reduce(whole)
    p, q = min(width, groups * m), min(width, groups)
    assert reduced.constraints.differences.shape == (groups, m, p)
    assert reduced.constraints.queries.shape == (groups, q)
    assert_close(cons.gram(reduced.constraints), cons.gram(whole), rtol=1e-11)
    W = jnp.asarray(rng.normal(size=(p, q)))
    assert_close(svm.margins(whole, reduced.lift(W)), svm.margins(reduced.constraints, W), rtol=1e-11)
    np.testing.assert_allclose(
        np.linalg.svd(reduced.lift(W), compute_uv=False)[: min(p, q)], np.linalg.svd(W, compute_uv=False), rtol=1e-10
    )


GOOD = np.ones((3, 2, 4)), np.ones((3, 4))


@pytest.mark.parametrize(
    ("differences", "queries", "message"),
    [
        (GOOD[0][0], GOOD[1], r"differences \(n, m, d\) and queries \(n, e\), found \(2, 4\) and \(3, 4\)"),
        (GOOD[0], GOOD[1][:2], r"differences \(n, m, d\) and queries \(n, e\), found \(3, 2, 4\) and \(2, 4\)"),
        (GOOD[0], GOOD[1][:, 0], r"differences \(n, m, d\) and queries \(n, e\), found \(3, 2, 4\) and \(3,\)"),
        (GOOD[0][None], GOOD[1][None], r"differences \(n, m, d\) and queries \(n, e\), found \(1, 3, 2, 4\)"),
        (GOOD[0][:, :0], GOOD[1], r"expected at least one, found differences of shape \(3, 0, 4\)"),
        (GOOD[0], GOOD[1].astype(np.float32), r"expected one precision, found float64 and float32"),
        (GOOD[0].astype(int), GOOD[1].astype(int), r"expected float32 or float64, found int64"),
        (GOOD[0] * np.inf, GOOD[1], r"expected finite differences, found 24 NaN or infinite"),
        (GOOD[0], GOOD[1] * np.nan, r"expected finite queries, found 12 NaN or infinite"),
    ],
)
def test_malformed_constraints_are_refused(differences, queries, message):
    malformed = svm.Constraints(jnp.asarray(differences), jnp.asarray(queries))
    with pytest.raises(ValueError, match=rf"^constraints: .*{message}"):
        svm.solve(malformed)
    with pytest.raises(ValueError, match=r"^constraints: .*\(batch, n, m, d\) and queries \(batch, n, e\), found"):
        svm.solve_batch(svm.Constraints(*map(jnp.asarray, GOOD)))


def kinds() -> svm.Constraints:
    """Hard, equal, soft and absent rows, with targets of either sign."""
    return svm.Constraints(
        jnp.asarray(GOOD[0] * np.random.default_rng(0).normal(size=(3, 2, 4))),
        jnp.asarray(GOOD[1] * np.random.default_rng(1).normal(size=(3, 4))),
        targets=jnp.asarray([[1.0, 2.0], [0.0, -3.0], [1.0, 7.0]]),
        equal=jnp.asarray([[False, False], [True, False], [False, True]]),
        present=jnp.asarray([[True, True], [True, True], [True, False]]),
        penalty=jnp.asarray([[np.inf, np.inf], [np.inf, 5.0], [0.5, np.inf]]),
    )


def test_every_kind_of_row_has_its_bounds_of_the_multiplier():
    of, inf = cons.rows(kinds()), np.inf
    np.testing.assert_array_equal(of.lower, [[0, 0], [-inf, 0], [0, 0]])
    np.testing.assert_array_equal(of.upper, [[inf, inf], [inf, 5], [0.5, 0]])
    np.testing.assert_array_equal(of.equal, [[False, False], [True, False], [False, False]])
    np.testing.assert_array_equal(of.hard, [[True, True], [True, False], [False, False]])
    plain = cons.rows(svm.Constraints(*kinds()[:2]))
    np.testing.assert_array_equal(plain.targets, 1)
    np.testing.assert_array_equal(plain.upper, inf)
    assert bool(plain.hard.all())
    assert not bool(plain.equal.any())


def test_the_worst_margin_is_what_a_matrix_is_divided_by_where_its_length_is_free():
    posed, W = kinds(), jnp.asarray(np.random.default_rng(2).normal(size=(4, 4)))
    margins = np.asarray(svm.margins(posed, W))
    hard = posed._replace(penalty=None)
    # The target of -3 is hard now: no length is free.
    assert cons.worst_margin(hard, W) == 1
    free = hard._replace(targets=jnp.asarray([[1.0, 2.0], [0.0, 4.0], [1.0, 7.0]]))
    least = min(margins[0, 0], margins[0, 1] / 2, margins[1, 1] / 4, margins[2, 0])
    np.testing.assert_allclose(cons.worst_margin(free, W), least, rtol=1e-12)
    most = -max(margins[0, 0], margins[0, 1] / 2, margins[1, 1] / 4, margins[2, 0])
    np.testing.assert_allclose(cons.worst_margin(free, -W), most, rtol=1e-12)
    for bound in (
        free._replace(targets=jnp.asarray([[1.0, 2.0], [0.1, 4.0], [1.0, 7.0]])),
        free._replace(equal=jnp.ones((3, 2), bool)),
    ):
        assert cons.worst_margin(bound, W) == 1
    # Beside soft rows W is made longer, never shorter.
    soft = free._replace(penalty=posed.penalty)
    for c in (0.1, 1.0, 10.0):
        first = c * min(margins[0, 0], margins[0, 1] / 2)
        np.testing.assert_allclose(cons.worst_margin(soft, c * W), min(first, 1.0), rtol=1e-12)
    assert cons.worst_margin(svm.soft(svm.Constraints(*posed[:2])), W) == 1


def test_the_violation_is_that_of_the_worst_hard_row():
    posed, W = kinds(), jnp.asarray(np.random.default_rng(2).normal(size=(4, 4)))
    margins = np.asarray(svm.margins(posed, W))
    short = max(1 - margins[0, 0], 2 - margins[0, 1], abs(margins[1, 0]), 0.0)
    np.testing.assert_allclose(cons.violation(posed, W), short, rtol=1e-12)
    # In units of the largest target where all are small.
    small = posed._replace(targets=1e-6 * cons.rows(posed).targets)
    np.testing.assert_allclose(cons.violation(small, 1e-6 * W), short / 2, rtol=1e-9)
    assert cons.violation(svm.soft(svm.Constraints(*posed[:2])), W) == 0


def test_the_violation_of_zero_is_that_of_its_margins():
    posed, _ = instances.pair_of_opposites()
    price = np.full(posed.differences.shape[:-1], 0.7)
    price[0] = np.inf
    for one in (posed, posed._replace(targets=-0.2 * jnp.ones_like(price)), posed._replace(penalty=jnp.asarray(price))):
        zero = jnp.zeros((one.differences.shape[-1], one.queries.shape[-1]))
        assert cons.violation_of_zero(one) == cons.violation(one, zero)
    assert cons.violation_of_zero(posed) == 1


@pytest.mark.parametrize("copies", [False, True])
def test_the_closest_matrix_on_the_equations_is_the_projection(copies):
    rng = np.random.default_rng(0)
    D, Z, targets = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    if copies:
        D[1], Z[1], targets[1] = -2 * D[0], Z[0], -2 * targets[0]
    equal = np.array([[True, True], [True, False], [False, True]])
    posed = svm.Constraints(*map(jnp.asarray, (D, Z, targets)), equal=jnp.asarray(equal))
    found = jax.jit(cons.equations)(posed)
    assert int(found.taken.sum()) == (3 if copies else 4)
    W = rng.normal(size=(4, 4))
    A = instances.matrices(posed)[equal].reshape(-1, 16)
    expected = W.ravel() - np.linalg.pinv(A) @ (A @ W.ravel() - targets[equal])
    assert_close(cons.onto(posed, found, jnp.asarray(W)), expected.reshape(4, 4))
    G = A @ A.T
    np.testing.assert_allclose(cons.gram(posed)[np.ix_(equal.ravel(), equal.ravel())], G, rtol=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("targets", np.ones((3, 3)), r"expected targets \(3, 2\), found \(3, 3\)"),
        ("targets", np.ones((3, 2), np.float32), r"expected one precision, found float64 and float32"),
        ("targets", np.full((3, 2), np.nan), r"expected finite targets, found 6 NaN"),
        ("targets", np.full((3, 2), np.inf), r"expected finite targets, found 6 NaN or infinite"),
        ("equal", np.ones((3, 2)), r"expected equal of truth values, found float64"),
        ("equal", np.ones((3, 1), bool), r"expected equal \(3, 2\), found \(3, 1\)"),
        ("present", np.ones((3, 2), int), r"expected present of truth values, found int64"),
        ("penalty", np.zeros((3, 2)), r"expected a positive penalty, found 0\.0"),
        ("penalty", np.full((3, 2), -1.0), r"expected a positive penalty, found -1\.0"),
        ("penalty", np.full((3, 2), np.nan), r"expected a positive penalty, found nan"),
        ("penalty", np.ones((2, 3)), r"expected penalty \(3, 2\), found \(2, 3\)"),
        ("penalty", np.ones((3, 2), int), r"expected one precision, found float64 and int64"),
        ("penalty", np.full((3, 2), 5.0), r"expected a penalty of inf on every equality, found 5\.0"),
    ],
)
@pytest.mark.parametrize("solve", [svm.solve, svm.solve_batch])
def test_malformed_rows_are_refused(solve, field, value, message):
    malformed = kinds()._replace(**{field: jnp.asarray(value)})
    if solve is svm.solve_batch:
        malformed = instances.stacked([malformed])
        message = message.replace(r"\(3", r"\(1, 3").replace(r"\(2", r"\(1, 2")
    with pytest.raises(ValueError, match=rf"^constraints: .*{message}"):
        solve(malformed)
