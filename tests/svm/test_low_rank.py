"""The nuclear norm under a bound on the rank: known solutions, stationary points, proofs, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from jaxattn import svm
from jaxattn.svm import Candidate, LowRank, Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import slow

DRAWN = 4


def full(posed: svm.Constraints) -> svm.Constraints:
    """The same rows in the shared shape with every kind written out, so that all problems share one program."""
    of = jax.jit(cons.rows)(posed)
    shape = (instances.n, instances.T - 1, instances.d)
    free = [(0, most - found) for most, found in zip(shape, posed.differences.shape, strict=True)]
    sizes = (free, (free[0], free[2]), free[:2], free[:2], free[:2])
    leaves = (posed.differences, posed.queries, of.targets, of.equal, of.present)
    return svm.Constraints(*(jnp.asarray(np.pad(leaf, size)) for leaf, size in zip(leaves, sizes, strict=True)))


def single_row() -> svm.Constraints:
    return svm.Constraints(jnp.asarray([[[3.0, 0.0]]]), jnp.asarray([[0.0, 0.5]]))


def identity_or_ones() -> svm.Constraints:
    """`W_11, W_22 >= 1`: of norm 2 are the identity, which the path leads to, and matrices of rank 1."""
    return svm.Constraints(jnp.asarray(np.eye(2)[:, None, :]), jnp.asarray(np.eye(2)))


def squeezed(least: float = 0.25) -> svm.Constraints:
    """`W_11, W_22 >= 1`, `|W_12| <= least`: if W has rank 1, `|W_21| >= 1 / least`; its norm is the sum of both."""
    e = np.eye(2)
    posed = svm.listed([e[:1], [e[1], e[0], -e[0]]], e)
    return posed._replace(targets=jnp.asarray([[1.0, 0.0, 0.0], [1.0, -least, -least]]))


def with_an_equality() -> svm.Constraints:
    """`W_11 = 1, W_22 >= 1, W_12 = 1/2`: of rank 1 with `W_21 = 2`."""
    e = np.eye(2)
    posed = svm.listed([e[:1], [e[1], e[0]]], e)
    return posed._replace(
        targets=jnp.asarray([[1.0, 0.0], [1.0, 0.5]]), equal=jnp.asarray([[True, False], [False, True]])
    )


# Norm of the best matrix of rank 1, and whether the convex bound reaches it.
KNOWN = {
    "a single row": (single_row, 1 / 1.5, True),
    "a face of solutions": (identity_or_ones, 2.0, True),
    "squeezed": (squeezed, 4.25, False),
    "with an equality": (with_an_equality, 2.5, False),
}


@pytest.fixture(scope="module")
def batch():
    drawn = [instances.lane(instances.constraints(DRAWN), i) for i in range(DRAWN)]
    infeasible = [make()[0] for make in instances.INFEASIBLE.values()]
    return instances.stacked([full(one) for one in (*drawn, *(make() for make, _, _ in KNOWN.values()), *infeasible)])


# Rank 1 has solutions that are only stationary; each rank is one more program.
@pytest.fixture(scope="module", params=[1, slow(2)])
def solved(request, batch):
    solution = svm.solve_batch(batch, svm.nuclear_of_rank(request.param))
    lost = {name: np.unique(np.nonzero(np.isnan(leaf))[0]) for name, leaf in solution._asdict().items()}
    assert not any(map(len, lost.values())), (lost, solution.status)
    return request.param, solution


@pytest.fixture(scope="module")
def convex(batch):
    return svm.solve_batch(batch, "nuclear")


def residual(posed: svm.Constraints, W: np.ndarray, m: int) -> float:
    """How far W is from `G V = U`, `G^T U = V` for some G of the tight rows, in NumPy."""
    of = cons.rows(posed)
    U, s, Vt = np.linalg.svd(W)
    r = int((s[:m] > 1e-9 * s[0]).sum())
    U, V = U[:, :r], Vt[:r].T
    A = instances.matrices(posed)
    over = np.einsum("nmde,de->nm", A, W) - np.asarray(of.targets)
    signs = [(A[k], 1.0) for k in zip(*np.nonzero(np.asarray(of.present) & (np.abs(over) < 1e-7)), strict=True)]
    signs += [(A[k], -1.0) for k in zip(*np.nonzero(np.asarray(of.equal)), strict=True)]
    columns = [sign * np.concatenate([(one @ V).ravel(), (one.T @ U).ravel()]) for one, sign in signs]
    return nnls(np.stack(columns, axis=1), np.concatenate([U.ravel(), V.ravel()]))[1]


def test_every_problem_is_decided(solved):
    m, solution = solved
    np.testing.assert_array_equal(solution.status[-2:], Status.INFEASIBLE)
    assert np.isin(solution.status[:-2], [Status.OPTIMAL, Status.STATIONARY]).all()
    if m == 1:
        assert (solution.status[:DRAWN] == Status.STATIONARY).any()


def test_what_is_reported_is_feasible_of_that_rank_and_stationary(batch, solved, convex):
    m, solution = solved
    for i in np.flatnonzero(solution.status != Status.INFEASIBLE):
        posed, W = instances.lane(batch, int(i)), solution.W[i]
        s = np.linalg.svd(W, compute_uv=False)
        assert s[m] <= 1e-13 * s[0]
        assert solution.violation[i] <= 1e-9
        np.testing.assert_allclose(solution.primal[i], s.sum(), rtol=1e-12)
        # A lower bound of all matrices, proven by the duals.
        assert solution.dual[i] <= convex.primal[i] * (1 + 1e-12)
        assert solution.primal[i] >= convex.dual[i] * (1 - 1e-12)
        np.testing.assert_allclose(solution.gap[i], 1 - solution.dual[i] / solution.primal[i], atol=1e-14)
        if solution.status[i] == Status.STATIONARY:
            assert solution.gap[i] > 1e-8
            assert residual(posed, W, m) < 1e-6


def test_a_convex_solution_of_that_rank_is_the_answer(solved, convex):
    m, solution = solved
    s = np.linalg.svd(convex.W, compute_uv=False)
    small = (convex.status == Status.OPTIMAL) & (s[:, m] <= 1e-6 * s[:, 0])
    assert small.any()
    np.testing.assert_array_equal(solution.status[small], Status.OPTIMAL)
    np.testing.assert_allclose(solution.primal[small], convex.primal[small], rtol=2e-8)


@pytest.mark.parametrize("name", KNOWN)
def test_the_known_optimum_of_rank_one_is_found(solved, name):
    m, solution = solved
    _, value, reached = KNOWN[name]
    i = DRAWN + list(KNOWN).index(name)
    if m == 1:
        np.testing.assert_allclose(solution.primal[i], value, rtol=1e-8)
        assert solution.status[i] == (Status.OPTIMAL if reached else Status.STATIONARY)
    else:
        assert solution.status[i] == Status.OPTIMAL


def test_nothing_is_believed_of_a_solver(batch, solved):
    m, solution = solved
    norm = svm.nuclear_of_rank(m)

    @jax.jit
    def status(posed, W, duals):
        return svm.certify(posed, norm, Candidate(W, duals, jnp.asarray(0)), svm.DOUBLE).status

    for i in np.flatnonzero(solution.status == Status.STATIONARY)[:3]:
        posed, duals = instances.lane(batch, int(i)), jnp.asarray(solution.duals[i])
        W = solution.W[i]
        noise = np.random.default_rng(0).normal(size=W.shape) * np.linalg.norm(W)
        U, s, Vt = np.linalg.svd(W + 1e-3 * noise)
        assert status(posed, jnp.asarray(W), duals) == Status.STATIONARY
        # Of a rank too large; and of the right rank, near by, but not stationary.
        assert status(posed, jnp.asarray(W + 1e-12 * noise), duals) == Status.NOT_CONVERGED
        assert status(posed, jnp.asarray((U[:, :m] * s[:m]) @ Vt[:m]), duals) == Status.NOT_CONVERGED


@pytest.mark.parametrize("m", [0, -1, 1.0, "2", None, True, [1]])
def test_a_rank_that_is_none_is_refused(m):
    with pytest.raises(ValueError, match=r"^m: expected an integer rank of at least 1, found"):
        svm.nuclear_of_rank(m)


def test_it_is_a_value():
    norm = svm.nuclear_of_rank(2)
    assert norm == svm.nuclear_of_rank(np.int64(2))
    assert {norm: 1}[svm.nuclear_of_rank(2)] == 1
    assert len({norm, svm.nuclear_of_rank(3), svm.squared(norm), svm.nuclear}) == 4
    assert svm.squared(norm).plain == norm


def test_too_few_starts_are_refused():
    with pytest.raises(ValueError, match=r"^LowRank: expected at least one start, found 0"):
        LowRank(starts=0)
