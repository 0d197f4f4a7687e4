"""The door to the solvers: agreement with an outside solver, lifting, scale, precision, and wrong arguments."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, metrics, svm, tokens
from jaxattn.svm import ActiveSet, Candidate, Cvxpy, InteriorPoint, Norm, Status
from tests import instances
from tests.instances import NUMPY_NORMS, assert_close

pytestmark = pytest.mark.compiled

LANES = 4
SOLVERS = {"active set": ("frobenius", ActiveSet()), "interior point": ("nuclear", InteriorPoint())}
NORMS = sorted(NUMPY_NORMS)
# What differently compiled code may differ by. The interior point's last Newton systems are singular to
# nine digits (the gap is 1e-10), which leaves W the other seven; the active set's are well conditioned.
ROUNDING = {"frobenius": 1e-10, "nuclear": 1e-8}


def planted(seed, n, T, d):
    return svm.token_constraints(*instances.planted(seed, n, T, d))


def near_hull() -> svm.Constraints:
    """Select tokens that lie 0.1 outside the hull of the others: feasible, with a solution of norm 30.

    At 0.01 (norm 300) Clarabel's own answer has a gap above 1e-8, so there would be no witness.
    """
    problem = instances.problem()
    mixture = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(3), size=3))
    X = problem.X.at[:, 0].set(jnp.einsum("nt,ntd->nd", mixture, problem.X[:, 1:]) + 0.1 * problem.X[:, 0])
    return svm.token_constraints(Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v), [0, 0, 0])


def self_attention() -> svm.Constraints:
    problem = instances.problem(1)
    itself = Problem(X=problem.X, Z=problem.X[:, 0], Y=problem.Y, v=problem.v)
    return svm.token_constraints(itself, tokens.selected(instances.free(), itself))


PROBLEMS = {
    "sphere": lambda: instances.lane(instances.constraints(LANES), 1),
    "self-attention": self_attention,
    "near the hull": near_hull,
    "more inputs than dimensions": lambda: planted(0, 7, 4, 3),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_agrees_with_clarabel(solver, problem):
    pytest.importorskip("cvxpy")
    constraints, (norm, value) = PROBLEMS[problem](), SOLVERS[solver]
    ours = svm.solve(constraints, norm=norm, solver=value)
    theirs = svm.solve(constraints, norm=norm, solver=Cvxpy())
    assert [int(ours.status), int(theirs.status)] == [Status.OPTIMAL] * 2
    np.testing.assert_allclose(ours.primal, theirs.primal, rtol=1e-6)
    np.testing.assert_allclose(ours.dual, theirs.dual, rtol=1e-6)
    assert 1 - metrics.correlation(ours.W, theirs.W) < 1e-6
    np.testing.assert_allclose(np.min(svm.margins(constraints, ours.W)), 1, rtol=1e-9)


@pytest.fixture(scope="module", params=NORMS)
def norm(request):
    return request.param


@pytest.fixture(scope="module")
def batch():
    return instances.constraints(LANES)


@pytest.fixture(scope="module")
def solutions(batch, norm):
    return svm.solve_batch(batch, norm=norm)


def test_every_lane_of_a_batch_is_a_lone_solution(batch, norm, solutions):
    assert all(type(leaf) is np.ndarray for leaf in solutions)
    for i in range(LANES):
        lone = svm.solve(instances.lane(batch, i), norm=norm)
        found = instances.lane(solutions, i)
        assert found.status == lone.status == Status.OPTIMAL
        assert found.iterations == lone.iterations
        assert_close(found.W, lone.W, rtol=ROUNDING[norm])
        assert_close(found.duals, lone.duals, rtol=ROUNDING[norm])
        assert_close((found.primal, found.dual), (lone.primal, lone.dual), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("lift", ["jit", "vmap"])
def test_solutions_under_jit_and_vmap_are_those_outside(batch, norm, solutions, lift):
    solve = partial(svm.solve, norm=norm)
    if lift == "jit":
        lifted, expected = jax.jit(solve)(instances.lane(batch, 0)), instances.lane(solutions, 0)
    else:
        lifted, expected = jax.vmap(solve)(batch), solutions
    np.testing.assert_array_equal(lifted.status, Status.OPTIMAL)
    # Under vmap the first solver of the ladder runs alone; both stop within the certificate's gap.
    assert_close(lifted.W, expected.W, rtol=1e-4)
    assert_close(lifted.primal, expected.primal, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [3, 100])
def test_the_chunk_does_not_show_in_the_solutions(batch, chunk):
    assert_close(svm.solve_batch(batch, chunk=chunk).W, svm.solve_batch(batch).W, rtol=1e-10)


@pytest.mark.parametrize("c", [1e-6, 3.0, 1e5])
@pytest.mark.parametrize("what", ["tokens", "queries"])
def test_data_times_c_have_the_solution_over_c(batch, norm, solutions, what, c):
    for i in (0, 2):
        differences, queries, *_ = instances.lane(batch, i)
        scaled = (c * differences, queries) if what == "tokens" else (differences, c * queries)
        solution = svm.solve(svm.Constraints(*scaled), norm=norm)
        assert Status(int(solution.status)) is Status.OPTIMAL
        np.testing.assert_allclose(c * solution.primal, solutions.primal[i], rtol=1e-10)
        # In the nuclear norm W of lane 0 differs by 1e-7: its path amplifies rounding, and ends by the gap.
        if norm == "frobenius" or i == 2:
            assert_close(c * solution.W, solutions.W[i], rtol=1e-10)


def test_the_order_of_tokens_and_inputs_does_not_change_the_solution(norm):
    problem = instances.problem()
    alpha, order = np.asarray(tokens.optimal(problem)), np.array([2, 0, 3, 1])
    shuffled = Problem(X=problem.X[::-1, order], Z=problem.Z[::-1], Y=problem.Y[::-1], v=problem.v)
    one = svm.solve(svm.token_constraints(problem, alpha), norm=norm)
    two = svm.solve(svm.token_constraints(shuffled, np.argsort(order)[alpha[::-1]]), norm=norm)
    np.testing.assert_allclose(two.primal, one.primal, rtol=1e-8)
    assert 1 - metrics.correlation(one.W, two.W) < 1e-8


@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_an_infeasible_problem_comes_with_a_proof(norm, kind):
    constraints, _ = instances.INFEASIBLE[kind]()
    solution = svm.solve(constraints, norm=norm)
    assert Status(int(solution.status)) is Status.INFEASIBLE
    A, a = instances.matrices(constraints), np.asarray(solution.duals)
    assert np.all(a >= 0)
    np.testing.assert_allclose(a.sum(), 1, rtol=1e-12)
    assert np.abs(np.einsum("nm,nmde->de", a, A)).max() < 1e-13
    np.testing.assert_array_equal(solution.W, 0)
    assert solution.primal == solution.gap == np.inf
    assert solution.dual > 1e13


def test_a_token_to_be_told_from_its_copy_is_infeasible(norm):
    problem = instances.problem()
    X = problem.X.at[1, 2].set(problem.X[1, 0])
    twice = Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v)
    assert svm.solve(svm.token_constraints(twice, [0, 0, 0]), norm=norm).status == Status.INFEASIBLE
    assert svm.solve(svm.token_constraints(twice, [0, 1, 0]), norm=norm).status == Status.OPTIMAL


@pytest.mark.slow
@pytest.mark.parametrize("x64", [True, False])
def test_single_precision_is_certified_to_its_own_tolerance(batch, norm, solutions, x64):
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), batch)
    with jax.enable_x64(x64):
        found = svm.solve_batch(single, norm=norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    assert found.W.dtype == found.duals.dtype == found.gap.dtype == np.float32
    assert np.max(np.abs(found.gap)) <= 1e-4
    np.testing.assert_allclose(found.primal, solutions.primal, rtol=2e-4)
    for i in range(LANES):
        assert 1 - metrics.correlation(*map(jnp.asarray, (found.W[i].astype(float), solutions.W[i]))) < 1e-4


@pytest.mark.slow
def test_a_single_precision_answer_is_not_certified_to_double_precision(batch, norm):
    found = instances.lane(svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), batch), norm=norm), 0)
    W, duals = jnp.asarray(found.W, float), jnp.asarray(found.duals, float)
    candidate = Candidate(W * (1 + 1e-5 * jnp.eye(5)), duals, jnp.asarray(0))
    again = svm.solve(instances.lane(batch, 0), norm=norm, solver=lambda constraints, norm: candidate)
    assert Status(int(again.status)) is Status.NOT_CONVERGED


def test_of_several_solvers_the_next_gets_what_the_last_left_undecided(batch, norm, solutions):
    asked = []

    def gives_up(constraints, norm):
        n, m, d = constraints.differences.shape
        asked.append("gives up")
        return Candidate(jnp.zeros((d, d)), jnp.zeros((n, m)), jnp.asarray(0))

    good = ActiveSet() if norm == "frobenius" else InteriorPoint()
    for chain, status in (((gives_up, good), Status.OPTIMAL), ((gives_up,), Status.NOT_CONVERGED)):
        np.testing.assert_array_equal(svm.solve_batch(batch, norm=norm, solver=chain).status, status)
        assert svm.solve(instances.lane(batch, 0), norm=norm, solver=chain).status == status
    asked.clear()
    decided = svm.solve_batch(batch, norm=norm, solver=(good, gives_up))
    assert asked == []
    np.testing.assert_allclose(decided.primal, solutions.primal, rtol=1e-8)


def test_an_unknown_norm_is_refused_with_the_known_ones(batch):
    for solve, constraints in ((svm.solve, instances.lane(batch, 0)), (svm.solve_batch, batch)):
        with pytest.raises(
            ValueError, match=r"^norm: expected one of \[.*'frobenius', .*'sign', 'spectral'\].* found 'l2'"
        ):
            solve(constraints, norm="l2")


def test_a_norm_without_a_solver_is_refused(batch):
    rows = Norm("rows", value=lambda W: jnp.abs(W).sum(axis=1).max(), dual=lambda W: jnp.abs(W).max(axis=1).sum())
    with pytest.raises(ValueError, match=r"^solver: expected one for norm 'rows'.*frobenius, nuclear"):
        svm.solve(instances.lane(batch, 0), norm=rows)


def test_a_chunk_of_no_problem_is_refused(batch):
    with pytest.raises(ValueError, match=r"^chunk: expected at least 1, found 0"):
        svm.solve_batch(batch, chunk=0)
