"""The separation constraints: the formula, their order, adjoints, reduction, and malformed input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, svm, tokens
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import T, assert_close, d, n

ALPHA = np.array([2, 0, 3])


@pytest.fixture(scope="module")
def constraints():
    return svm.token_constraints(instances.problem(), ALPHA)


def test_differences_run_over_the_other_tokens_in_increasing_order(constraints):
    X = np.asarray(instances.problem().X)
    expected = [[X[i, a] - X[i, t] for t in range(T) if t != a] for i, a in enumerate(ALPHA)]
    assert_close(constraints.differences, np.array(expected), rtol=0)
    assert_close(constraints.queries, instances.problem().Z, rtol=0)


def test_margins_are_differences_of_logits(constraints):
    W, problem = np.asarray(instances.free()), instances.problem()
    logits = np.einsum("ntd,de,ne->nt", problem.X, W, problem.Z)
    expected = [[logits[i, a] - logits[i, t] for t in range(T) if t != a] for i, a in enumerate(ALPHA)]
    assert_close(svm.margins(constraints, jnp.asarray(W)), np.array(expected))


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


def test_a_lane_of_jit_and_vmap_is_a_lone_call():
    many = instances.problems(3)
    alpha = jnp.stack([tokens.optimal(instances.lane(many, i)) for i in range(3)])
    lifted = jax.jit(jax.vmap(svm.token_constraints))(many, alpha)
    for i in range(3):
        assert_close(instances.lane(lifted, i), svm.token_constraints(instances.lane(many, i), alpha[i]), rtol=0)


def test_permuting_the_tokens_permutes_the_constraints(constraints):
    problem, order = instances.problem(), np.array([3, 1, 0, 2])
    shuffled = Problem(X=problem.X[:, order], Z=problem.Z, Y=problem.Y, v=problem.v)
    again = svm.token_constraints(shuffled, np.argsort(order)[ALPHA])
    W = instances.free()
    assert_close(np.sort(svm.margins(again, W), axis=1), np.sort(svm.margins(constraints, W), axis=1))


@pytest.mark.parametrize("kind", [list, np.array, jnp.array, lambda a: np.array(a, np.uint8)])
def test_tokens_may_be_integers_of_any_kind(kind, constraints):
    assert_close(svm.token_constraints(instances.problem(), kind([2, 0, 3])), constraints, rtol=0)


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ([0, 1, T], r"^alpha: expected tokens 0\.\.3, found \[4\]"),
        ([-1, 1, 7], r"^alpha: expected tokens 0\.\.3, found \[-1, 7\]"),
        ([0, 1], r"^alpha: expected 3 integers, found shape \(2,\)"),
        ([[0, 1, 2]], r"^alpha: expected 3 integers, found shape \(1, 3\)"),
        (0, r"^alpha: expected 3 integers, found shape \(\)"),
        ([0.0, 1.0, 2.0], r"^alpha: expected 3 integers, found shape \(3,\) of float64"),
        ([True, False, True], r"^alpha: expected 3 integers, found shape \(3,\) of bool"),
    ],
)
@pytest.mark.parametrize("kind", [lambda a: a, jnp.asarray], ids=["plain", "jax"])
def test_tokens_out_of_range_or_kind_are_refused(alpha, message, kind):
    with pytest.raises(ValueError, match=message):
        svm.token_constraints(instances.problem(), kind(alpha))


@pytest.mark.parametrize("alpha", [T, T + 5, -1, -T - 2])
def test_a_token_out_of_range_under_vmap_is_refused_by_the_solver(alpha):
    many, alphas = instances.problems(2), jnp.array([[0, 1, 2], [0, alpha, 2]])
    constraints = jax.vmap(svm.token_constraints)(many, alphas)
    assert np.isfinite(constraints.differences[0]).all()
    assert np.isnan(constraints.differences[1, 1]).all()
    with pytest.raises(ValueError, match=r"^constraints: expected finite differences, found 15 NaN .* alpha"):
        svm.solve_batch(constraints)
    with pytest.raises(ValueError, match=r"^constraints: expected finite differences, found 15 NaN .* alpha"):
        svm.solve(instances.lane(constraints, 1))


GOOD = np.ones((3, 2, 4)), np.ones((3, 4))


@pytest.mark.parametrize(
    ("differences", "queries", "message"),
    [
        (GOOD[0][0], GOOD[1], r"differences \(n, m, d\) and queries \(n, e\), found \(2, 4\) and \(3, 4\)"),
        (GOOD[0], GOOD[1][:2], r"differences \(n, m, d\) and queries \(n, e\), found \(3, 2, 4\) and \(2, 4\)"),
        (GOOD[0], GOOD[1][:, 0], r"differences \(n, m, d\) and queries \(n, e\), found \(3, 2, 4\) and \(3,\)"),
        (GOOD[0][None], GOOD[1][None], r"differences \(n, m, d\) and queries \(n, e\), found \(1, 3, 2, 4\)"),
        (GOOD[0][:, :0], GOOD[1], r"expected at least one, found differences of shape \(3, 0, 4\)"),
        (GOOD[0], GOOD[1].astype(np.float32), r"expected one floating-point precision, found float64 and float32"),
        (GOOD[0].astype(int), GOOD[1].astype(int), r"expected one floating-point precision, found int64"),
        (GOOD[0] * np.inf, GOOD[1], r"expected finite differences, found 24 NaN or infinite"),
        (GOOD[0], GOOD[1] * np.nan, r"expected finite queries, found 12 NaN or infinite"),
    ],
)
def test_malformed_constraints_are_refused(differences, queries, message):
    malformed = svm.Constraints(jnp.asarray(differences), jnp.asarray(queries))
    with pytest.raises(ValueError, match=rf"^constraints: .*{message}"):
        svm.solve(malformed)


def test_a_batch_is_asked_for_one_batch_axis():
    with pytest.raises(ValueError, match=r"^constraints: .*\(batch, n, m, d\) and queries \(batch, n, e\), found"):
        svm.solve_batch(svm.Constraints(jnp.asarray(GOOD[0]), jnp.asarray(GOOD[1])))
