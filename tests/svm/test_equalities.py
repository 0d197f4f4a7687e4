"""Equalities: the multi-token problem and its finite part, dependent and inconsistent equations, their proofs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, metrics, svm
from jaxattn.svm import Cvxpy, Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import T, assert_close, n

NORMS = {"frobenius": svm.frobenius, "nuclear": svm.nuclear}
LANES = 6
SELECTED = np.array([[True, False, True, False], [False, False, False, True], [False, True, True, True]])


@pytest.fixture(scope="module", params=NORMS)
def norm(request):
    return request.param


def full(constraints: svm.Constraints) -> svm.Constraints:
    """The same rows with targets and kinds written out, so that all problems here share one program."""
    of = cons.rows(constraints)
    return constraints._replace(targets=of.targets, equal=of.equal, present=of.present)


def solved(constraints, norm) -> svm.Solution:
    solutions = svm.solve_batch(instances.stacked([full(one) for one in constraints]), norm, chunk=LANES)
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    return solutions


def rows_of(constraints: svm.Constraints) -> tuple[np.ndarray, np.ndarray]:
    """The equalities written out: matrices, one a row, and targets."""
    of = jax.tree.map(np.asarray, cons.rows(constraints))
    return instances.matrices(constraints)[of.equal].reshape(of.equal.sum(), -1), of.targets[of.equal]


def multi_token(seed: int) -> svm.Constraints:
    return svm.set_constraints(instances.problem(seed), np.roll(SELECTED, seed, axis=1))


def finite(seed: int) -> svm.Constraints:
    problem = instances.problem(seed)
    logits = attention.logits(instances.free(seed), problem)
    return svm.finite_constraints(problem, np.roll(SELECTED, seed, axis=1), logits)


@pytest.mark.slow
def test_the_multi_token_problem_agrees_with_clarabel(norm):
    pytest.importorskip("cvxpy")
    many = [multi_token(seed) for seed in range(4)]
    solutions = solved(many, norm)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    for i, one in enumerate(many):
        theirs = svm.solve(one, norm, solver=Cvxpy(), tolerance=svm.Tolerance(gap=1e-6, violation=1e-6))
        assert Status(int(theirs.status)) is Status.OPTIMAL
        np.testing.assert_allclose(solutions.primal[i], theirs.primal, rtol=1e-6)
        A, b = rows_of(one)
        np.testing.assert_allclose(A @ solutions.W[i].ravel(), b, atol=1e-11)
        assert 1 - metrics.correlation(jnp.asarray(solutions.W[i]), theirs.W) < 1e-6


def test_the_finite_part_is_the_least_norm_solution_of_its_equations():
    many = [finite(seed) for seed in range(LANES)]
    solutions = solved(many, "frobenius")
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    for i, one in enumerate(many):
        A, b = rows_of(one)
        expected = np.linalg.lstsq(A, b, rcond=None)[0].reshape(5, 5)
        assert_close(solutions.W[i], expected, rtol=1e-11)
        np.testing.assert_allclose(solutions.primal[i], np.linalg.norm(expected), rtol=1e-12)


def test_the_finite_part_of_the_nuclear_norm_satisfies_them_with_a_smaller_nuclear_norm():
    many = [finite(seed) for seed in range(LANES)]
    solutions = solved(many, "nuclear")
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    for i, one in enumerate(many):
        A, b = rows_of(one)
        np.testing.assert_allclose(A @ solutions.W[i].ravel(), b, atol=1e-11)
        least = np.linalg.lstsq(A, b, rcond=None)[0].reshape(5, 5)
        assert solutions.primal[i] <= np.linalg.norm(least, "nuc") * (1 + 1e-8)


@pytest.mark.slow
def test_one_selected_token_an_input_has_no_finite_part(norm):
    problem = instances.problem()
    alone = svm.finite_constraints(problem, np.arange(T)[None, :] == np.array([[1], [0], [2]]), jnp.ones((n, T)))
    solution = instances.lane(solved([alone], norm), 0)
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_array_equal(solution.W, 0)
    assert solution.primal == solution.dual == 0


def test_equal_attention_has_the_finite_part_zero(norm):
    flat = svm.finite_constraints(instances.problem(), SELECTED, jnp.ones((n, T)))
    solution = instances.lane(solved([flat], norm), 0)
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.W, 0, atol=1e-15)


@pytest.mark.parametrize("c", [0.0, 0.3, 7.0, 1e4])
def test_w_is_recovered_from_its_finite_part_and_its_share_of_the_max_margin_part(c):
    W_fin = solved([finite(0)], "frobenius").W[0]
    W_mm = solved([multi_token(0)], "frobenius").W[0]
    W = jnp.asarray(W_fin + c * W_mm)
    assert_close(svm.with_finite_part(W, jnp.asarray(W_fin), jnp.asarray(W_mm)), W, rtol=1e-12)


def test_the_finite_part_and_the_max_margin_part_keep_their_attention_at_any_share():
    # W_mm is the same inside O_i: adding it changes no ratio there, and takes the others' attention away.
    problem, W = instances.problem(), instances.free()
    posed = svm.finite_constraints(problem, SELECTED, attention.logits(W, problem))
    W_fin, W_mm = solved([posed], "frobenius").W[0], solved([multi_token(0)], "frobenius").W[0]
    s = np.asarray(attention.probabilities(W, problem)) * SELECTED
    limit = np.asarray(attention.probabilities(jnp.asarray(W_fin + 200 * W_mm), problem))
    np.testing.assert_allclose(limit, s / s.sum(axis=1, keepdims=True), atol=1e-11)


def test_the_share_is_the_best_one_and_never_negative():
    rng = np.random.default_rng(0)
    W, W_fin, W_mm = map(jnp.asarray, rng.normal(size=(3, 4, 4)))
    W_mm = W_mm * jnp.sign(jnp.sum((W - W_fin) * W_mm))
    best = svm.with_finite_part(W, W_fin, W_mm)
    C = np.linalg.lstsq(np.ravel(W_mm)[:, None], np.ravel(W - W_fin), rcond=None)[0][0]
    assert C > 0
    assert_close(best, W_fin + C * W_mm)
    assert_close(svm.with_finite_part(W, W_fin, -W_mm), W_fin, rtol=0)
    assert_close(svm.with_finite_part(W, W_fin, 1e150 * W_mm), best)


def test_without_a_max_margin_part_there_is_the_finite_one():
    W = jnp.ones((2, 2))
    lanes = jnp.stack([jnp.zeros((2, 2)), W])
    found = jax.vmap(svm.with_finite_part, in_axes=(None, None, 0))(3 * W, W, lanes)
    assert_close(found, jnp.stack([W, 3 * W]))


def test_equations_that_are_written_twice_change_nothing(norm):
    posed = full(multi_token(0))
    D, kinds = np.array(posed.differences), np.array(posed.equal)
    # Input 2 has two equalities and one inequality: two more groups repeat it, one with all rows doubled.
    doubled = np.concatenate([D, D[2:], 2 * D[2:]])
    more = posed._replace(
        differences=jnp.asarray(doubled),
        queries=jnp.concatenate([posed.queries, posed.queries[2:], posed.queries[2:]]),
        targets=jnp.where(np.concatenate([kinds, kinds[2:], kinds[2:]]), 0.0, 1.0),
        equal=jnp.asarray(np.concatenate([kinds, kinds[2:], kinds[2:]])),
        present=jnp.ones((5, 3), bool),
    )
    once, twice = solved([posed], norm), svm.solve(more, norm)
    assert Status(int(twice.status)) is Status.OPTIMAL
    np.testing.assert_allclose(twice.primal, once.primal[0], rtol=1e-9)


def test_inconsistent_equations_are_infeasible_with_a_proof(norm):
    D, Z = np.array(multi_token(0).differences), np.array(multi_token(0).queries)
    D[1, 0], Z[1] = 2 * D[0, 0], Z[0]
    equal = np.zeros((3, 3), bool)
    equal[:2, 0] = True
    many = []
    # Path following takes a shortfall of 1e-7 for rounding, and leaves such equations undecided.
    for target in (1.0, 1e-3, 1e-5, 1e-6, *([1e-7] if norm == "frobenius" else [])):
        # <A, W> = target and <2 A, W> = -target.
        targets = np.ones((3, 3))
        targets[0, 0], targets[1, 0] = target, -target
        many.append(svm.Constraints(*map(jnp.asarray, (D, Z, targets)), equal=jnp.asarray(equal)))
    solutions = solved(many, norm)
    np.testing.assert_array_equal(solutions.status, Status.INFEASIBLE)
    for one, a in zip(many, solutions.duals, strict=True):
        assert np.linalg.norm(np.einsum("nm,nmde->de", a, instances.matrices(one))) < 1e-14
        assert np.sum(a * one.targets) > 0
        np.testing.assert_allclose(np.abs(a).sum(), 1, rtol=1e-12)
        # Its signs are free on equalities only.
        assert np.all(a[~equal] >= 0)


def test_a_margin_inside_a_set_of_equal_tokens_is_infeasible(norm):
    # The token outside lies between two inside: their logits are equal, so is its own.
    problem = instances.problem()
    X = np.array(problem.X)
    X[0, 1] = 0.25 * X[0, 0] + 0.75 * X[0, 2]
    between = Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v)
    solution = instances.lane(solved([svm.set_constraints(between, SELECTED)], norm), 0)
    assert Status(int(solution.status)) is Status.INFEASIBLE


def test_more_equations_than_unknowns_are_solved_or_refuted():
    # In d = 3 there are nine unknowns: consistent equations, and random ones.
    rng = np.random.default_rng(0)
    D, Z, truth = rng.normal(size=(64, 6, 3, 3)), rng.normal(size=(64, 6, 3)), rng.normal(size=(64, 3, 3))
    equal, margins = np.ones((64, 6, 3), bool), np.einsum("lnmd,lde,lne->lnm", D, truth, Z)
    equal[:, :, 2] = False
    posed = svm.Constraints(*map(jnp.asarray, (D, Z, np.where(equal, margins, 1.0))), equal=jnp.asarray(equal))
    only = posed._replace(present=jnp.asarray(equal))
    consistent = svm.solve_batch(only)
    np.testing.assert_array_equal(consistent.status, Status.OPTIMAL)
    assert_close(consistent.W, truth, rtol=1e-9)
    random = svm.solve_batch(only._replace(targets=jnp.asarray(rng.normal(size=(64, 6, 3)))))
    np.testing.assert_array_equal(random.status, Status.INFEASIBLE)


def test_a_row_of_target_zero_may_have_no_difference():
    # A token of O_i and its copy: 0 = 0.
    problem = instances.problem()
    X = problem.X.at[0, 2].set(problem.X[0, 0])
    copies = Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v)
    for norm in NORMS:
        assert solved([svm.set_constraints(copies, SELECTED)], norm).status[0] == Status.OPTIMAL


@pytest.mark.parametrize("c", [1e-6, 1e5])
def test_equations_times_c_have_the_solution_over_c(norm, c):
    # Also with targets of 1e-12: what is small is not zero.
    posed = finite(0)
    scaled = posed._replace(differences=c * posed.differences)
    small = posed._replace(targets=1e-12 * cons.rows(posed).targets)
    found = solved([posed, scaled, small], norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(c * found.primal[1], found.primal[0], rtol=1e-8)
    np.testing.assert_allclose(1e12 * found.primal[2], found.primal[0], rtol=1e-8)


@pytest.mark.slow
def test_single_precision_is_certified_to_its_own_tolerance(norm):
    many = instances.stacked([full(multi_token(seed)) for seed in range(4)])
    single = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype(np.float32), many)
    found = svm.solve_batch(single, norm, chunk=LANES)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal, svm.solve_batch(many, norm, chunk=LANES).primal, rtol=2e-4)


def test_a_price_on_an_equality_is_refused():
    posed = multi_token(0)
    with pytest.raises(ValueError, match=r"^constraints: expected a penalty of inf on every equality, found 0\.5"):
        svm.solve(posed._replace(penalty=jnp.full((n, T - 1), 0.5)))
    of = cons.rows(posed._replace(penalty=jnp.full((n, T - 1), 0.5)))
    np.testing.assert_array_equal(of.hard, posed.equal)
