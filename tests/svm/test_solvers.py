"""Every solver on one table of problems: known answers, outside solvers, infeasible problems, scales, precision."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from jaxattn import data, metrics, svm
from jaxattn.norms import named
from jaxattn.svm import ActiveSet, Candidate, ColumnGeneration, Cvxpy, InteriorPoint, PathFollowing, Status, Unique
from tests import instances
from tests.instances import assert_close, single, slow
from tests.svm import problems
from tests.svm.problems import NORMS, full, one_row, planted, table
from tests.test_signs import sign_matrices

pytestmark = pytest.mark.compiled

# Each norm compiles for 4 s, the spectral one for 10.
SLOW = ("spectral", "schatten_4", "l1", "l_1.5", "max", "2,inf of columns", "2,1 of columns", "2,1")
LIFTED = ("frobenius", "nuclear", "schatten_1.5", "l_3", "2,inf", "2,1 of columns")


def params(*names: str):
    return [slow(name) if name in SLOW else name for name in names]


@cache
def batch(name: str = "") -> svm.Constraints:
    """The table, and the problems with known answers in a norm."""
    rows = [rows for rows, _ in table().values()]
    return instances.stacked(rows + [one.constraints for one in planted(name)] if name else rows)


@cache
def solved(name: str) -> svm.Solution:
    """All of these in one program; the norms that NumPy has no value of are gamma2 and sign."""
    return svm.solve_batch(batch(name if name in NORMS else ""), name)


def of(name: str, problem: str) -> svm.Solution:
    return instances.lane(solved(name), list(table()).index(problem))


def assert_certified(solutions: svm.Solution) -> None:
    """Hold that every lane is optimal, to a gap of 1e-8, and nothing is NaN."""
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    assert np.abs(solutions.gap).max() < 1e-8
    assert solutions.violation.max() <= 1e-9


@pytest.mark.parametrize("name", [*params(*NORMS), "gamma2", "sign"])
def test_every_problem_of_the_table_is_decided_with_evidence(name):
    solutions, statuses = solved(name), [status for _, status in table().values()]
    assert all(type(leaf) is np.ndarray for leaf in solutions)
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    assert [Status(int(status)) for status in solutions.status[: len(statuses)]] == statuses
    for i, status in enumerate(solutions.status):
        A = instances.matrices(instances.lane(batch(name if name in NORMS else ""), i))
        found = instances.lane(solutions, i)
        M = np.einsum("nm,nmde->de", found.duals, A)
        assert np.all(found.duals >= 0)
        if status == Status.INFEASIBLE:
            np.testing.assert_allclose(found.duals.sum(), 1, rtol=1e-12)
            assert np.abs(M).max() < 1e-13
            np.testing.assert_array_equal(found.W, 0)
            assert found.primal == found.gap == np.inf
            assert found.dual > 1e13
            continue
        assert_certified(jax.tree.map(lambda leaf: leaf[None], found))
        margins = np.einsum("nmde,de->nm", A, found.W)
        np.testing.assert_allclose(margins.min(), 1, rtol=1e-9)
        if name == "frobenius":
            assert np.max(found.duals * (margins - 1)) < 1e-11 * found.duals.max()
        if name in NORMS:
            value, dual = NORMS[name]
            np.testing.assert_allclose(found.primal, value(found.W), rtol=1e-10)
            np.testing.assert_allclose(found.dual, found.duals.sum() / dual(M), rtol=1e-8)


@pytest.mark.parametrize("name", [*params(*NORMS), "gamma2", "sign"])
@pytest.mark.parametrize("problem", problems.UNEVEN)
def test_rows_of_very_different_lengths_are_no_harder(name, problem):
    entries = 1 / np.asarray(problems.UNEVEN[problem])
    expected = NORMS[name][0](np.diag(entries)) if name in NORMS else entries.max()
    np.testing.assert_allclose(of(name, problem).primal, expected, rtol=1e-8)


@pytest.mark.parametrize("norm", [svm.spectral, slow(svm.gamma2)])
def test_a_path_begins_with_slacks_of_comparable_sizes(norm):
    lengths = np.stack([np.logspace(-3, 3, 6), np.logspace(-5, 5, 6), np.logspace(0, 3, 6)])
    eye = np.broadcast_to(np.eye(6), (3, 6, 6))
    rows = svm.Constraints(jnp.asarray((lengths[..., None] * eye)[:, :, None]), jnp.asarray(eye))
    solutions = svm.solve_batch(rows, norm)
    assert_certified(solutions)
    np.testing.assert_allclose(solutions.primal, [1e3, 1e5, 1.0], rtol=1e-8)


@pytest.mark.parametrize("name", params(*(name for name in NORMS if planted(name))))
def test_a_planted_solution_is_recovered(name):
    for i, known in enumerate(planted(name), start=len(table())):
        found = instances.lane(solved(name), i)
        assert Status(int(found.status)) is Status.OPTIMAL
        np.testing.assert_allclose(found.primal, known.value, rtol=1e-11 if name == "frobenius" else 1e-8)
        if name == "frobenius":
            assert_close(found.W, known.W, rtol=1e-10)
            assert_close(found.duals, known.duals, rtol=1e-9)
        elif name == "nuclear":
            # The certificate's gap of 1e-8 bounds the distance only by the square root of that.
            assert 1 - metrics.correlation(jnp.asarray(found.W), jnp.asarray(known.W)) < 1e-8
            assert_close(found.duals, known.duals, rtol=1e-3)
            assert metrics.rank(jnp.asarray(found.W)) == np.linalg.matrix_rank(known.W, tol=1e-9)
        else:
            np.testing.assert_allclose(found.W, known.W, atol=1e-4 * np.abs(known.W).max())
            assert found.unique == Unique.YES


@pytest.mark.parametrize("name", [*params(*NORMS), "gamma2", "sign"])
def test_scales_repeated_rows_and_order_do_not_change_the_solution(name):
    first, close = of(name, "sphere 0"), 1e-8
    for what in ("tokens", "queries"):
        for c in (1e-6, 3.0, 1e5):
            scaled = of(name, f"{what} times {c:g}")
            np.testing.assert_allclose(c * scaled.primal, first.primal, rtol=1e-10 if name in LIFTED[:2] else close)
            if name == "frobenius":
                assert_close(c * scaled.W, first.W, rtol=1e-10)
    shuffled = of(name, "inputs and tokens in another order")
    np.testing.assert_allclose(shuffled.primal, first.primal, rtol=close)
    if name in ("frobenius", "nuclear"):
        assert 1 - metrics.correlation(*map(jnp.asarray, (first.W, shuffled.W))) < close
    # A repeated row takes the place of another one.
    assert of(name, "a repeated row").primal <= first.primal * (1 + close)
    np.testing.assert_allclose(of(name, "an implied row").primal, of(name, "a repeated row").primal, rtol=close)


@pytest.mark.parametrize("name", [*params(*NORMS), "gamma2", "sign"])
def test_one_row_has_the_dual_norm_for_its_value(name):
    found, A = of(name, "one row"), np.outer([3.0, 0, 4, 0, 0], [0.0, 2, 0, 0, 0])
    # Of rank one both gamma2 and the norm of sign matrices have the sum of all entries for their dual.
    dual = NORMS[name][1](A) if name in NORMS else np.abs(A).sum()
    np.testing.assert_allclose(found.primal, 1 / dual, rtol=1e-8)
    if name in ("frobenius", "nuclear"):
        assert_close(found.W, A / 100, rtol=1e-8)


@pytest.mark.parametrize("name", params("frobenius", "nuclear", *(name for name in NORMS if name[0] in "2lm")))
def test_it_agrees_with_clarabel(name):
    pytest.importorskip("cvxpy")
    for problem in ("sphere 0", *(("sphere 1", "self-attention", "near the hull") if name in LIFTED[:2] else ())):
        found, theirs = of(name, problem), svm.solve(table()[problem][0], name, solver=Cvxpy())
        assert abs(theirs.gap) < 1e-5
        np.testing.assert_allclose(found.primal, theirs.primal, rtol=1e-5 if name[0] in "lm" else 1e-6)
        if name in LIFTED[:2]:
            np.testing.assert_allclose(found.dual, theirs.dual, rtol=1e-6)
            assert 1 - metrics.correlation(jnp.asarray(found.W), theirs.W) < 1e-6


def test_gamma2_agrees_with_clarabel():
    cp = pytest.importorskip("cvxpy")
    rows, d = table()["sphere 0"][0], instances.d
    X = cp.Variable((2 * d, 2 * d), PSD=True)
    asked = [instances.matrices(rows).reshape(-1, d * d) @ cp.vec(X[:d, d:], order="C") >= 1]
    theirs = cp.Problem(cp.Minimize(cp.max(cp.diag(X))), asked).solve(solver="CLARABEL")
    np.testing.assert_allclose(of("gamma2", "sphere 0").primal, theirs, rtol=1e-6)


@pytest.mark.parametrize("C", [None, 0.05])
def test_sign_is_the_solution_of_the_program_with_all_sign_matrices(C):
    rows = table()["sphere 0"][0]
    primal = of("sign", "sphere 0").primal if C is None else svm.solve(svm.soft(rows, C), "sign").primal
    # Up to their sign, since -x y^T is one, too.
    ball = sign_matrices(5, 5)[: 2**9 * 2]
    ball = np.concatenate([ball, -ball])
    margins = np.einsum("nmde,kde->nmk", instances.matrices(rows), ball, optimize=True).reshape(-1, len(ball))
    cost = np.concatenate([np.ones(len(ball)), np.full(len(margins), C or 1e3)])
    whole = linprog(
        cost, A_ub=-np.concatenate([margins, np.eye(9)], axis=1), b_ub=-np.ones(len(margins)), method="highs"
    )
    np.testing.assert_allclose(primal, whole.fun, rtol=1e-7)


def test_norms_of_one_matrix_order_their_optimal_values():
    frobenius, nuclear = of("frobenius", "sphere 0"), of("nuclear", "sphere 0")
    assert frobenius.primal <= nuclear.primal <= np.linalg.norm(frobenius.W, "nuc")
    assert metrics.correlation(*map(jnp.asarray, (frobenius.W, nuclear.W))) < 0.9999


@pytest.mark.slow
def test_the_optimal_value_falls_with_p_between_those_of_the_nuclear_and_the_spectral_norm():
    names = ("nuclear", "schatten_1.5", "frobenius", "schatten_4", "spectral")
    values = [solved(name).primal[:4] for name in names]
    assert (np.diff(values, axis=0) < 0).all()


@pytest.mark.parametrize("name", ["frobenius", "nuclear", *map(slow, ("l_3", "schatten_1.5"))])
def test_a_lone_problem_has_the_solution_of_its_lane(name):
    # What differently compiled code may differ by. The interior point's last Newton systems are singular to nine digits
    # (the gap is 1e-10), which leaves W the other seven; the active set's are well conditioned.
    for problem in ("sphere 0", "opposites"):
        lone, found = svm.solve(table()[problem][0], norm=name), of(name, problem)
        assert found.status == lone.status == table()[problem][1]
        assert found.iterations == lone.iterations
        np.testing.assert_allclose((found.primal, found.dual), (lone.primal, lone.dual), rtol=1e-9)
        if name in LIFTED[:2]:
            np.testing.assert_allclose((found.primal, found.dual), (lone.primal, lone.dual), rtol=1e-10)
            assert_close((found.W, found.duals), (lone.W, lone.duals), rtol=1e-10 if name == "frobenius" else 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIFTED)
def test_solutions_under_jit_and_vmap_are_those_outside(name):
    rows, expected = instances.constraints(4), jax.tree.map(lambda leaf: leaf[:4], solved(name))
    lifted = jax.jit(jax.vmap(partial(svm.solve, norm=name)))(rows)
    np.testing.assert_array_equal(lifted.status, Status.OPTIMAL)
    # Under vmap the first of several solvers runs alone; both stop within the certificate's gap.
    assert_close(lifted.W, expected.W, rtol=1e-4)
    assert_close(lifted.primal, expected.primal, rtol=1e-8)
    if name in ("frobenius", "schatten_1.5", "l_3"):
        np.testing.assert_array_equal(lifted.unique, Unique.YES)
    alone = jax.jit(partial(svm.solve, norm=name))(instances.lane(rows, 0))
    assert_close((alone.W, alone.primal), (expected.W[0], expected.primal[0]), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [3, 100])
def test_the_chunk_does_not_show_in_the_solutions(chunk):
    rows = instances.constraints(4)
    assert_close(svm.solve_batch(rows, chunk=chunk).W, svm.solve_batch(rows).W, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LIFTED, "spectral", "gamma2", "sign"])
def test_single_precision_is_certified_to_its_own_tolerance(name):
    rows, expected = single(instances.constraints(4)), jax.tree.map(lambda leaf: leaf[:4], solved(name))
    for x64 in (True, False) if name in LIFTED[:2] else (True,):
        with jax.enable_x64(x64):
            found = svm.solve_batch(rows, name)
        np.testing.assert_array_equal(found.status, Status.OPTIMAL)
        assert found.W.dtype == found.duals.dtype == found.gap.dtype == found.primal.dtype == np.float32
        assert np.max(np.abs(found.gap)) <= 1e-4
        np.testing.assert_allclose(found.primal, expected.primal, rtol=2e-4)
        if name in LIFTED[:2]:
            for i in range(4):
                assert 1 - metrics.correlation(jnp.asarray(found.W[i], float), jnp.asarray(expected.W[i])) < 1e-4
            W, duals = (jnp.asarray(leaf[0], float) for leaf in (found.W, found.duals))
            candidate = Candidate(W * (1 + 1e-5 * jnp.eye(5)), duals, jnp.asarray(0))
            again = svm.certify(instances.lane(instances.constraints(4), 0), name, candidate, svm.DOUBLE)
            assert Status(int(again.status)) is Status.NOT_CONVERGED


@pytest.mark.parametrize("kind", ["soft", *map(slow, ("hard", "sets"))])
def test_single_precision_stays_single_beside_double(kind):
    rows = problems.of_kind(kind)
    found = jax.eval_shape(partial(PathFollowing(), norm=svm.spectral), instances.lane(single(rows), 0))
    assert found.W.dtype == found.duals.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft", "squared", "sets"])
@pytest.mark.parametrize("name", [*(name for name in NORMS if name not in LIFTED[:2]), "gamma2", "sign"])
def test_rows_of_every_kind_are_solved(name, kind):
    if name == "sign" and kind == "squared":
        pytest.skip("it refuses the square of its norm with soft rows")
    norm = svm.squared(name) if kind == "squared" else named(name)
    rows = problems.of_kind(kind)
    found = svm.solve_batch(rows, norm)
    assert_certified(found)
    if name[0] in "2lm":
        pytest.importorskip("cvxpy")
        theirs = svm.solve(instances.lane(rows, 0), norm, solver=Cvxpy(), tolerance=svm.Tolerance(gap=1e-5))
        np.testing.assert_allclose(found.primal[0], theirs.primal, rtol=1e-5 if name[0] in "lm" else 1e-6)


@pytest.mark.slow
def test_the_square_of_sign_has_half_the_square_for_its_value():
    found = svm.solve(one_row([3.0, 0.0, -4.0], [1.0, 2.0, 0.0]), svm.squared("sign"))
    np.testing.assert_allclose(found.primal, 0.5 / 21**2, rtol=1e-8)


def test_equations_hold_and_negative_targets_alone_are_met_by_zero():
    sets, plain = problems.of_kind("sets"), full(table()["sphere 0"][0])._replace(present=None)
    assert plain.targets is not None
    lanes = [*(instances.lane(sets, i) for i in range(3)), plain._replace(targets=-plain.targets)]
    found = svm.solve_batch(instances.stacked(lanes), svm.entrywise(3.0))
    assert_certified(found)
    margins = np.stack([svm.margins(rows, jnp.asarray(W)) for rows, W in zip(lanes, found.W, strict=True)])
    np.testing.assert_allclose(margins[:3][np.asarray(sets.equal)], 0, atol=1e-11)
    np.testing.assert_array_equal(found.W[3], 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spectral", "l1", "l_1.5", "l_3", "max"])
def test_implied_equations_are_left_out_beside_inequalities_and_alone(name):
    def column(rows, targets, equal) -> svm.Constraints:
        arrays = (jnp.asarray(leaf, kind)[:, None] for leaf, kind in ((rows, float), (targets, float), (equal, bool)))
        return svm.Constraints((part := list(arrays))[0], jnp.ones((len(rows), 1)), *part[1:])

    both = [[1, 0, 0], [0, 1, 0], [1, 1, 0]]
    many = [
        column([*both, [0, 0, 1]], [1, 1, 2, 1], [1, 1, 1, 0]),
        column([*both, [2, 2, 0]], [1, 1, 2, 4], [1, 1, 1, 1]),
        column([*both, [0, 0, 0]], [1, 1, 2, 0], [1, 1, 1, 1]),
        column([*both, [0, 0, 1]], [1, 1, 2.5, 1], [1, 1, 1, 0]),
    ]
    found = svm.solve_batch(instances.stacked(many), name)
    assert list(found.status) == [Status.OPTIMAL] * 3 + [Status.INFEASIBLE]
    for W, expected in zip(found.W, ([1, 1, 1], [1, 1, 0], [1, 1, 0]), strict=False):
        if name not in ("max", "spectral"):  # Of these the third entry is free.
            np.testing.assert_allclose(W[:, 0], expected, atol=1e-6)
        np.testing.assert_allclose(W[:2, 0], 1.0, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spectral", "l1", "l_1.5", "l_3", "max"])
def test_soft_rows_that_are_hard_to_satisfy_or_contradict_are_decided(name):
    # Queries that are nearly or quite the same for all inputs, so that large W or shortfalls are the answer; equations
    # of zeros and implied ones beside soft rows, where queries differ: beside equal ones some are left undecided.
    rng = np.random.default_rng(0)
    D, Z = rng.normal(size=(24, 4, 4, 6)), rng.normal(size=(24, 4, 6))
    Z[8:16] += 100.0
    Z[16:] = Z[16:, :1]
    D[:16:4, 0, 0] = 0.0
    D[1:16:4, 0, 2] = D[1:16:4, 0, 0] + D[1:16:4, 0, 1]
    equal, targets = np.zeros((24, 4, 4), bool), np.ones((24, 4, 4))
    equal[:16:4, 0, 0], targets[:16:4, 0, 0] = True, 0.0
    equal[1:16:4, 0, :3], targets[1:16:4, 0, 2] = True, 2.0
    hard = svm.Constraints(*map(jnp.asarray, (D, Z, targets, equal)))
    found = [svm.solve_batch(jax.vmap(partial(svm.soft, C=C))(hard), name).status for C in (0.1, 10.0, 1e3)]
    # One of them is undecided in the spectral norm at C = 10.
    assert (np.concatenate(found) != Status.OPTIMAL).sum() <= (name == "spectral")


@pytest.mark.parametrize(
    ("p", "near"), [(1.001, "nuclear"), *(slow(*case) for case in ((1.005, "nuclear"), (200.0, "spectral")))]
)
def test_schatten_norms_of_steep_exponents_are_solved_or_bounded_by_the_norm_next_to_them(p, near):
    rows, d = table()["sphere 0"][0], instances.d
    neighbor, solution = (svm.solve(rows, norm=norm) for norm in (near, svm.schatten(p)))
    apart = d ** (1 - 1 / p if near == "nuclear" else 1 / p)
    at_least, at_most = (1 / apart, 1) if near == "nuclear" else (1, apart)
    assert neighbor.status == Status.OPTIMAL
    assert neighbor.primal * at_least * (1 - 1e-9) <= solution.dual <= solution.primal
    assert solution.primal <= neighbor.primal * at_most * (1 + 1e-9)
    assert np.isfinite(solution.W).all()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.sampled_from([(1, 2, 1), (7, 4, 3), (3, 4, 5)]), st.integers(0, 2**31 - 1))
def test_a_separable_problem_of_any_shape_is_solved_and_certified(shape, seed):
    assert_solved("frobenius", shape, seed)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.sampled_from([(7, 4, 3), (3, 4, 5)]), st.integers(0, 2**31 - 1))
def test_a_separable_problem_of_any_shape_is_solved_and_certified_in_the_nuclear_norm(shape, seed):
    assert_solved("nuclear", shape, seed)


def assert_solved(name: str, shape, seed: int) -> None:
    rows = svm.token_constraints(*instances.planted(seed, *shape))
    solution, A, (value, dual) = svm.solve(rows, norm=name), instances.matrices(rows), NORMS[name]
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(np.einsum("nmde,de->nm", A, solution.W).min(), 1, rtol=1e-12)
    bound = np.sum(solution.duals) / dual(np.einsum("nm,nmde->de", solution.duals, A))
    np.testing.assert_allclose(value(solution.W), bound, rtol=1e-8)


@pytest.mark.slow
def test_nearly_inseparable_problems_in_the_plane_are_decided():
    # Where the Frobenius solver decides, so does the nuclear one; the norms of the solutions reach thousands.
    keys = jax.random.split(jax.random.key(17), 512)
    drawn = jax.vmap(data.five_tokens)(keys)
    alpha = np.random.default_rng(1).integers(0, drawn.T, (keys.size, drawn.n))
    rows = jax.vmap(svm.token_constraints)(drawn, alpha)
    frobenius, nuclear = (svm.solve_batch(rows, norm) for norm in ("frobenius", "nuclear"))
    assert frobenius.primal[frobenius.status == Status.OPTIMAL].max() > 1e3
    np.testing.assert_array_equal(nuclear.status, frobenius.status)


def test_a_token_and_its_copy_are_refuted_in_every_lane():
    # The proof is one row of length 0: rounding in the other multipliers must not stand beside it.
    rng = np.random.default_rng(0)
    D, Z = rng.normal(size=(1024, 3, 3, 5)), rng.normal(size=(1024, 3, 5))
    D[:, 1, 2] = 0.0
    solutions = svm.solve_batch(svm.Constraints(jnp.asarray(D), jnp.asarray(Z)), solver=ActiveSet())
    np.testing.assert_array_equal(solutions.status, Status.INFEASIBLE)
    np.testing.assert_array_equal(solutions.duals[:, 1, 2], 1)


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("frobenius", ActiveSet(sweeps=0)),
        ("nuclear", InteriorPoint(most=3)),
        slow("l_3", PathFollowing(most=3)),
    ],
)
def test_too_few_iterations_are_not_certified(name, solver):
    solution, whole = svm.solve(table()["sphere 0"][0], name, solver=solver), of(name, "sphere 0")
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    assert not any(np.isnan(leaf).any() for leaf in solution)
    assert solution.dual <= whole.dual * (1 + 1e-8)
    assert solution.primal >= whole.primal * (1 - 1e-8)


def test_nan_that_only_jit_and_vmap_let_through_ends_undecided_and_without_nan():
    rows = instances.constraints(2)
    broken = rows._replace(differences=rows.differences.at[1, 1].set(jnp.nan), present=jnp.ones((2, 3, 3), bool))
    found, expected = problems.LIFTED(broken), of("frobenius", "sphere 0")
    np.testing.assert_array_equal(found.status, [Status.OPTIMAL, Status.NOT_CONVERGED])
    assert not any(np.isnan(leaf).any() for leaf in found)
    assert_close(found.W[0], expected.W, rtol=1e-10)


@pytest.mark.parametrize("name", ["frobenius", slow("nuclear")])
def test_of_several_solvers_the_next_gets_what_the_last_left_undecided(name):
    rows, asked = instances.constraints(4), []

    def gives_up(constraints, norm):
        asked.append("gives up")
        return Candidate(jnp.zeros((5, 5)), jnp.zeros((3, 3)), jnp.asarray(0))

    good = ActiveSet() if name == "frobenius" else InteriorPoint()
    for chain, status in (((gives_up, good), Status.OPTIMAL), ((gives_up,), Status.NOT_CONVERGED)):
        np.testing.assert_array_equal(svm.solve_batch(rows, norm=name, solver=chain).status, status)
        assert svm.solve(instances.lane(rows, 0), norm=name, solver=chain).status == status
    asked.clear()
    decided = svm.solve_batch(rows, norm=name, solver=(good, gives_up))
    assert asked == []
    np.testing.assert_allclose(decided.primal, solved(name).primal[:4], rtol=1e-8)


def spectral(W):
    return jnp.linalg.norm(W, 2)


@pytest.mark.parametrize("name", ["frobenius", "nuclear"])
def test_cvxpy_recovers_a_planted_solution_and_proves_infeasibility_to_its_accuracy(name):
    pytest.importorskip("cvxpy")
    known = planted(name)[1]
    solutions = svm.solve_batch(instances.stacked([known.constraints, known.constraints]), name, solver=Cvxpy())
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    np.testing.assert_allclose(solutions.primal, known.value, rtol=1e-8)
    assert 1 - metrics.correlation(*map(jnp.asarray, (solutions.W[1], known.W))) < 1e-8
    assert_close(solutions.duals[0], known.duals, rtol=1e-3)
    for make in instances.INFEASIBLE.values():
        # An interior-point combination is zero to about 1e-8, not to rounding: the tolerance says so.
        found = svm.solve(make()[0], name, solver=Cvxpy(), tolerance=svm.Tolerance(farkas=1e-6))
        assert Status(int(found.status)) is Status.INFEASIBLE
        assert np.linalg.norm(np.einsum("nm,nmde->de", found.duals, instances.matrices(make()[0]))) < 1e-5
        np.testing.assert_allclose(np.sum(found.duals), 1, rtol=1e-12)
        assert np.min(found.duals) >= 0


def test_a_norm_of_the_users_own_is_solved_with_cvxpy_and_certified():
    pytest.importorskip("cvxpy")
    norm = svm.Norm("spectral", value=spectral, dual=lambda W: jnp.linalg.norm(W, "nuc"))
    rows = table()["sphere 0"][0]
    solution = svm.solve(rows, norm=norm, solver=Cvxpy(atom=lambda cp, W: cp.norm(W, 2)))
    assert Status(int(solution.status)) is Status.OPTIMAL
    # The spectral solution has the smallest largest singular value of the three.
    assert all(solution.primal < np.linalg.norm(of(name, "sphere 0").W, 2) for name in ("frobenius", "nuclear"))
    with pytest.raises(ValueError, match=r"^Cvxpy: expected a norm among .*frobenius.*nuclear.* found 'spectral'"):
        svm.solve(rows, norm=norm, solver=Cvxpy())


@pytest.mark.parametrize("solver", [Cvxpy(), ColumnGeneration()])
@pytest.mark.parametrize("lift", [jax.jit, jax.vmap])
def test_a_solver_on_the_host_refuses_to_run_under_jit_and_vmap(solver, lift):
    if isinstance(solver, Cvxpy):
        pytest.importorskip("cvxpy")
    rows = instances.constraints(4) if lift is jax.vmap else table()["sphere 0"][0]
    norm = "frobenius" if isinstance(solver, Cvxpy) else "sign"
    with pytest.raises(TypeError, match=rf"^{type(solver).__name__}: expected arrays of numbers, found tracers"):
        lift(partial(svm.solve, norm=norm, solver=solver))(rows)


@pytest.mark.parametrize("lift", [jax.jit, jax.vmap])
def test_a_problem_that_is_no_argument_of_a_traced_function_is_solved(lift):
    many = instances.constraints(2)
    rows = instances.lane(many, 0)
    found = lift(lambda c: (c * svm.solve(rows).primal, c * svm.solve_batch(many).primal[0]))(jnp.ones(2))
    np.testing.assert_array_equal(found, np.full((2, 2), [[svm.solve(rows).primal], [svm.solve_batch(many).primal[0]]]))


@pytest.mark.parametrize(
    ("rows", "norm", "solver", "message"),
    [
        ("hard", "nuclear", ActiveSet(), "ActiveSet: expected norm 'frobenius', found 'nuclear'"),
        ("soft", "frobenius", ActiveSet(), "ActiveSet: expected hard rows, found a penalty"),
        ("hard", "spectral", InteriorPoint(), "InteriorPoint: expected norm 'nuclear' or .*, found 'spectral'"),
        ("hard", "nuclear", PathFollowing(), "PathFollowing: expected norm 'spectral' or .*, found 'nucl"),
        ("hard", "nuclear", ColumnGeneration(), "ColumnGeneration: expected norm 'sign', found 'nuclear'"),
        ("soft", svm.squared("sign"), None, "ColumnGeneration: expected hard rows, or a norm that is not"),
        ("wide", "sign", None, "norm 'sign': expected matrices with a side of at most 16"),
        ("hard", "nuclear", svm.LowRank(), "LowRank: expected a norm as `nuclear_of_rank` makes it, found 'nuclear'"),
        ("soft", svm.nuclear_of_rank(1), None, "LowRank: expected hard rows .*, found a penalty"),
        *(
            ("hard", svm.nuclear_of_rank(1), solver, ".*found 'nuclear of rank 1'")
            for solver in (ActiveSet(), InteriorPoint(), PathFollowing(), Cvxpy())
        ),
        ("hard", "l2", None, r"norm: expected one of \[.*'frobenius', .*'sign', 'spectral'\].* found 'l2'"),
        ("hard", svm.Norm("own", spectral, spectral), None, "solver: expected one for norm 'own'.*frobenius, nuclear"),
        ("hard", "frobenius", Cvxpy, "solver: expected a solver such as svm.ActiveSet.*found <class"),
        (
            "hard",
            "frobenius",
            lambda rows, norm: np.eye(5),
            "solver: expected .* a Candidate of shapes .*found ndarray",
        ),
        (
            "hard",
            "frobenius",
            lambda rows, norm: Candidate(jnp.eye(4), jnp.ones((3, 3)), jnp.asarray(0)),
            r"solver: expected .*'W': \(5, 5\).*found .*'W': \(4, 4\)",
        ),
    ],
)
def test_what_a_solver_cannot_do_is_refused(rows, norm, solver, message):
    if isinstance(solver, Cvxpy):
        pytest.importorskip("cvxpy")
    hard = table()["sphere 0"][0]
    given = {"hard": hard, "soft": svm.soft(hard), "wide": svm.Constraints(jnp.ones((1, 1, 17)), jnp.ones((1, 18)))}
    solve = partial(svm.solve, solver=solver)
    if isinstance(solver, PathFollowing | svm.LowRank):
        # It is asked itself: `solve` would first make a program of the start that it improves on.
        first = Candidate(jnp.eye(5), jnp.ones((3, 3)), jnp.asarray(0))
        solve = lambda rows, norm: solver.improve(rows, named(norm), first)  # noqa: E731
    with pytest.raises(ValueError, match=f"^{message}"):
        solve(given[rows], norm)
