"""Equalities: the multi-token problem and its finite part, dependent and inconsistent equations, their proofs."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, svm
from jaxattn.svm import Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import T, assert_close, n, slow
from tests.svm.problems import full

NORMS = {"frobenius": svm.frobenius, "nuclear": svm.nuclear}
SEEDS = range(6)
SELECTED = np.array([[True, False, True, False], [False, False, False, True], [False, True, True, True]])
EQUAL = np.isin(np.arange(9), (0, 3)).reshape(3, 3)


@pytest.fixture(scope="module", params=NORMS)
def norm(request):
    return request.param


def multi_token(seed: int) -> svm.Constraints:
    return svm.set_constraints(instances.problem(seed), np.roll(SELECTED, seed, axis=1))


def finite(seed: int) -> svm.Constraints:
    problem = instances.problem(seed)
    logits = attention.logits(instances.free(seed), problem)
    return svm.finite_constraints(problem, np.roll(SELECTED, seed, axis=1), logits)


def moved(token, weights) -> svm.Constraints:
    """A multi-token problem in which a token of the first input is this combination of its tokens."""
    problem = instances.problem()
    X = problem.X.at[0, token].set(jnp.asarray(weights) @ problem.X[0])
    return svm.set_constraints(Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v), SELECTED)


def inconsistent(target: float) -> svm.Constraints:
    """`<A, W> = target` and `<2 A, W> = -target`."""
    D, Z = np.array(multi_token(0).differences), np.array(multi_token(0).queries)
    D[1, 0], Z[1] = 2 * D[0, 0], Z[0]
    targets = np.ones((3, 3))
    targets[0, 0], targets[1, 0] = target, -target
    return svm.Constraints(*map(jnp.asarray, (D, Z, targets)), equal=jnp.asarray(EQUAL))


@cache
def table() -> dict[str, svm.Constraints]:
    """Problems by name, all solved in one program."""
    alone = np.arange(T)[None, :] == np.array([[1], [0], [2]])
    return {
        **{f"multi-token {seed}": multi_token(seed) for seed in SEEDS},
        **{f"finite {seed}": finite(seed) for seed in SEEDS},
        "one token": svm.finite_constraints(instances.problem(), alone, jnp.ones((n, T))),
        "equal attention": svm.finite_constraints(instances.problem(), SELECTED, jnp.ones((n, T))),
        **{f"inconsistent {target:g}": inconsistent(target) for target in (1.0, 1e-3, 1e-5, 1e-6, 1e-7)},
        # The token outside lies between two inside: their logits are equal, so is its own.
        "between": moved(1, [0.25, 0.0, 0.75, 0.0]),
        # A token of O_i and its copy: 0 = 0.
        "a copy": moved(2, [1.0, 0.0, 0.0, 0.0]),
        **{f"times {c:g}": finite(0)._replace(differences=c * finite(0).differences) for c in (1e-6, 1e5)},
        "small targets": finite(0)._replace(targets=1e-12 * cons.rows(finite(0)).targets),
    }


@cache
def solved(norm: str) -> svm.Solution:
    solutions = svm.solve_batch(instances.stacked([full(rows) for rows in table().values()]), norm)
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    return solutions


def of(norm: str, name: str) -> svm.Solution:
    return instances.lane(solved(norm), list(table()).index(name))


def equations(rows: svm.Constraints) -> tuple[np.ndarray, np.ndarray]:
    """The equalities written out: matrices, one a row, and targets."""
    kinds = jax.tree.map(np.asarray, cons.rows(rows))
    return instances.matrices(rows)[kinds.equal].reshape(kinds.equal.sum(), -1), kinds.targets[kinds.equal]


def test_every_problem_is_decided(norm):
    statuses = dict(zip(table(), solved(norm).status.tolist(), strict=True))
    if norm == "nuclear":
        # Path following takes a shortfall of 1e-7 for rounding, and leaves such equations undecided.
        statuses.pop("inconsistent 1e-07")
    for name, status in statuses.items():
        assert status == (Status.INFEASIBLE if name.startswith(("inconsistent", "between")) else Status.OPTIMAL), name


def test_equations_hold_and_the_finite_part_has_the_least_norm(norm):
    for seed in SEEDS:
        found, (A, b) = of(norm, f"finite {seed}"), equations(finite(seed))
        least = np.linalg.lstsq(A, b, rcond=None)[0].reshape(5, 5)
        np.testing.assert_allclose(A @ found.W.ravel(), b, atol=1e-11)
        if norm == "frobenius":
            assert_close(found.W, least, rtol=1e-11)
            np.testing.assert_allclose(found.primal, np.linalg.norm(least), rtol=1e-12)
        else:
            assert found.primal <= np.linalg.norm(least, "nuc") * (1 + 1e-8)
        A, b = equations(multi_token(seed))
        np.testing.assert_allclose(A @ of(norm, f"multi-token {seed}").W.ravel(), b, atol=1e-11)


def test_one_selected_token_an_input_or_equal_attention_has_the_finite_part_zero(norm):
    alone = of(norm, "one token")
    np.testing.assert_array_equal(alone.W, 0)
    assert alone.primal == alone.dual == 0
    np.testing.assert_allclose(of(norm, "equal attention").W, 0, atol=1e-15)


@pytest.mark.parametrize("c", [0.0, 0.3, 7.0, 1e4])
def test_w_is_recovered_from_its_finite_part_and_its_share_of_the_max_margin_part(c):
    W_fin, W_mm = (jnp.asarray(of("frobenius", f"{what} 0").W) for what in ("finite", "multi-token"))
    W = W_fin + c * W_mm
    assert_close(svm.with_finite_part(W, W_fin, W_mm), W, rtol=1e-12)


def test_the_finite_part_and_the_max_margin_part_keep_their_attention_at_any_share():
    # W_mm is the same inside O_i: adding it changes no ratio there, and takes the others' attention away.
    problem, W = instances.problem(), instances.free()
    W_fin, W_mm = of("frobenius", "finite 0").W, of("frobenius", "multi-token 0").W
    s = np.asarray(attention.probabilities(W, problem)) * SELECTED
    limit = np.asarray(attention.probabilities(jnp.asarray(W_fin + 200 * W_mm), problem))
    np.testing.assert_allclose(limit, s / s.sum(axis=1, keepdims=True), atol=1e-11)


def test_the_share_is_the_best_one_and_never_negative():
    rng = np.random.default_rng(0)
    W, W_fin, W_mm = map(jnp.asarray, rng.normal(size=(3, 5, 5)))
    W_mm = W_mm * jnp.sign(jnp.sum((W - W_fin) * W_mm))
    best = svm.with_finite_part(W, W_fin, W_mm)
    C = np.linalg.lstsq(np.ravel(W_mm)[:, None], np.ravel(W - W_fin), rcond=None)[0][0]
    assert C > 0
    assert_close(best, W_fin + C * W_mm)
    assert_close(svm.with_finite_part(W, W_fin, -W_mm), W_fin, rtol=0)
    assert_close(svm.with_finite_part(W, W_fin, 1e150 * W_mm), best)
    # Without a max-margin part there is the finite one, also beside lanes that have both.
    lanes = jax.vmap(svm.with_finite_part, in_axes=(None, None, 0))(W, W_fin, jnp.stack([0 * W_mm, W_mm]))
    assert_close(lanes, jnp.stack([W_fin, best]))


@pytest.mark.parametrize("norm", ["frobenius", slow("nuclear")])
def test_equations_that_are_written_twice_change_nothing(norm):
    # Input 2 has two equalities and one inequality: two more groups repeat it, one with all rows doubled.
    rows = full(multi_token(0))
    repeated = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[2:], leaf[2:]]), rows)
    repeated = repeated._replace(
        differences=repeated.differences.at[4].multiply(2.0), targets=jnp.where(repeated.equal, 0.0, repeated.targets)
    )
    twice = svm.solve(repeated, norm)
    assert Status(int(twice.status)) is Status.OPTIMAL
    np.testing.assert_allclose(twice.primal, of(norm, "multi-token 0").primal, rtol=1e-9)


def test_inconsistent_equations_are_infeasible_with_a_proof(norm):
    for target in (1.0, 1e-3, 1e-5, 1e-6, *([1e-7] if norm == "frobenius" else [])):
        rows, a = inconsistent(target), of(norm, f"inconsistent {target:g}").duals
        assert np.linalg.norm(np.einsum("nm,nmde->de", a, instances.matrices(rows))) < 1e-14
        assert rows.targets is not None
        assert np.sum(a * rows.targets) > 0
        np.testing.assert_allclose(np.abs(a).sum(), 1, rtol=1e-12)
        # Its signs are free on equalities only.
        assert np.all(a[~EQUAL] >= 0)


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


@pytest.mark.parametrize("c", [1e-6, 1e5])
def test_equations_times_c_have_the_solution_over_c(norm, c):
    found = of(norm, "finite 0").primal
    np.testing.assert_allclose(c * of(norm, f"times {c:g}").primal, found, rtol=1e-8)
    # Also with targets of 1e-12: what is small is not zero.
    np.testing.assert_allclose(1e12 * of(norm, "small targets").primal, found, rtol=1e-8)
