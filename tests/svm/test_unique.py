"""Whether a solution is unique: known answers, second optima that are certified, and what no certificate can tell."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import metrics, svm
from jaxattn.norms import named
from jaxattn.svm import Candidate, Status, Unique
from jaxattn.svm import constraints as cons
from jaxattn.svm.faces import faces
from jaxattn.svm.uniqueness import is_strictly_convex, optima, uniqueness
from tests import instances
from tests.svm import problems

INF = float("inf")
NORMS = ("nuclear", "spectral", "l1", "max")


def objective(norm: svm.Norm, rows: svm.Constraints, W) -> tuple[float, float]:
    """The objective at W, and how far the worst hard row falls short, in NumPy: no certificate decides."""
    value = problems.NORMS[norm.plain.name.removesuffix(" of rank 2")][0](W)
    of = jax.tree.map(np.asarray, cons.rows(rows))
    short = of.targets - np.einsum("nmd,de,ne->nm", rows.differences, W, rows.queries)
    short = np.where(of.present, np.where(of.equal, np.abs(short), np.maximum(short, 0)), 0)
    price = np.where(np.isfinite(of.upper), of.upper, 0)
    return value**norm.power / norm.power + float((price * short).sum()), float(
        short[np.isinf(of.upper)].max(initial=0)
    )


def judged(rows: svm.Constraints, W, duals, norm: svm.Norm = svm.nuclear, dtype: Any = float) -> svm.Solution:
    """What is said of W and multipliers that certify each other; second optima are refereed in NumPy."""
    W, duals = np.asarray(W, dtype), np.asarray(duals, dtype)
    (value, violation), zero = objective(norm, rows, W), np.zeros(())
    assert violation < 1e-6
    optimal, unknown = np.asarray(Status.OPTIMAL), np.asarray(Unique.UNKNOWN)
    fields: Any = (W, duals, zero + value, zero + value, zero, zero, optimal, zero, unknown)
    solution = svm.Solution(*fields)
    first = partial(jax.tree.map, lambda leaf: np.asarray(leaf)[None])
    tolerance = 1e-8 if dtype is float else 1e-4

    def refereed(several: svm.Constraints, candidates: Candidate) -> svm.Solution:
        second, short = objective(norm, instances.lane(several, 0), np.asarray(candidates.W[0]))
        gap = abs(second - value) / value
        proven = gap < tolerance and short < tolerance / 10
        proven = proven and np.linalg.matrix_rank(candidates.W[0], tol=1e-6) <= getattr(norm, "rank", 9)
        status = Status.OPTIMAL if proven else Status.NOT_CONVERGED
        return first(solution._replace(W=candidates.W[0], gap=zero + gap, status=np.asarray(status)))

    (unique,) = uniqueness(first(rows), norm, first(solution), refereed)
    return solution._replace(unique=unique)


def code(solution: svm.Solution) -> Unique:
    return Unique(int(solution.unique))


def single(A, **kinds) -> svm.Constraints:
    """The one row `x^T W z >= 1`, with A = (x, z)."""
    x, z = (jnp.asarray(part, float) for part in A)
    return svm.Constraints(x[None, None], z[None], **kinds)


def found(rows: svm.Constraints, solution: svm.Solution, norm: svm.Norm):
    """What is known of the optima of one problem."""
    first = partial(jax.tree.map, lambda leaf: np.asarray(leaf)[None])
    known = faces(norm)
    assert known is not None
    return optima(first(rows), norm, known, np.asarray(solution.W)[None], np.asarray(solution.duals)[None])


def distance(one, other) -> float:
    return float(np.linalg.norm(np.asarray(one) - np.asarray(other)) / np.linalg.norm(other))


@pytest.mark.parametrize("seed", range(3))
def test_as_many_rows_as_the_face_has_dimensions_fix_a_nuclear_solution_and_fewer_do_not(seed):
    # Rank 2: U S V^T has three coordinates.
    three, two = problems.nuclear(seed), problems.nuclear(seed, n=2)
    assert code(judged(three.constraints, three.W, three.duals)) is Unique.YES
    assert code(judged(two.constraints, two.W, two.duals)) is Unique.NO


def test_the_bound_holds_the_distance_of_an_inexact_solution_from_the_known_one():
    known, rng = problems.nuclear(0), np.random.default_rng(0)
    for size in (1e-9, 1e-7, 1e-5):
        W = known.W + size * rng.normal(size=known.W.shape)
        W = W / np.einsum("nmd,de,ne->nm", known.constraints.differences, W, known.constraints.queries).min()
        solution = judged(known.constraints, W, known.duals)
        bound = found(known.constraints, solution, svm.nuclear).diameter[0]
        assert distance(known.W, solution.W) < bound < 1e3 * np.sqrt(size)


def test_two_spectral_optima_of_one_problem_point_elsewhere_and_each_is_said_not_to_be_unique():
    rng = np.random.default_rng(0)
    x, z = (np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2))
    rows, rest = single((x[0], z[0])), x[1:].T @ z[1:]
    pair = [np.outer(x[0], z[0]) + sign * 0.4 * rest for sign in (1, -1)]
    assert 0.16 < metrics.correlation(*map(jnp.asarray, pair)) < 0.3
    for W in pair:
        solution = judged(rows, W, np.ones((1, 1)), svm.spectral)
        assert code(solution) is Unique.NO
        second = found(rows, solution, svm.spectral).second[0]
        assert distance(second, W) > 1e-2
        assert objective(svm.spectral, rows, second) == pytest.approx((1, 0), abs=1e-9)


def test_a_spectral_solution_is_unique_where_the_multipliers_have_full_rank():
    # sum_k a_k A_k = I / 3, whose polar factor alone is optimal.
    rows = svm.Constraints(jnp.eye(3)[:, None], jnp.eye(3))
    assert code(judged(rows, np.eye(3), np.ones((3, 1)), svm.spectral)) is Unique.YES


@pytest.mark.parametrize(
    ("p", "x", "W", "unique"),
    [
        (1.0, (2.0, 1.0), [[0.5, 0.0], [0.0, 0.0]], Unique.YES),
        (1.0, (2.0, 2.0), [[0.25, 0.0], [0.25, 0.0]], Unique.NO),
        (INF, (2.0, 1.0), [[1 / 3, 0.0], [1 / 3, 0.0]], Unique.NO),
        (1.5, (2.0, 2.0), [[0.25, 0.0], [0.25, 0.0]], Unique.YES),
    ],
)
def test_one_row_in_the_norms_of_entries(p, x, W, unique):
    norm, rows = svm.entrywise(p), single((x, (1.0, 0.0)))
    assert code(judged(rows, W, np.ones((1, 1)), norm)) is unique


def test_every_sign_is_fixed_where_no_multiplier_is_zero_in_l_inf():
    rows = single(((2.0, 1.0), (1.0, 1.0)))
    assert code(judged(rows, np.full((2, 2), 1 / 6), np.ones((1, 1)), svm.entrywise(INF))) is Unique.YES


@pytest.mark.parametrize("norm", [svm.frobenius, svm.entrywise(3.0)], ids=lambda norm: norm.name)
@pytest.mark.parametrize(("price", "unique"), [(2.0, Unique.YES), (1.0, Unique.NO)])
def test_a_norm_that_is_not_squared_grows_along_a_ray_as_the_price_falls(norm, price, unique):
    # ||W|| + C max(0, 1 - W_11) is flat from 0 to 1 if C = 1.
    rows = svm.soft(single(((1.0, 0.0), (1.0, 0.0))), price)
    W = np.diag([1.0 if unique is Unique.YES else 0.5, 0.0])
    assert code(judged(rows, W, np.ones((1, 1)), norm)) is unique
    assert not is_strictly_convex(rows, norm)
    assert is_strictly_convex(rows, svm.squared(norm))
    assert is_strictly_convex(rows._replace(penalty=None), norm)


@pytest.mark.parametrize("norm", [svm.nuclear, svm.squared(svm.nuclear)], ids=["nuclear", "squared"])
def test_rows_of_every_kind_are_read(norm):
    # Rank 1: the face has one dimension, and a row with a multiplier inside its bounds fixes it.
    for seed in range(3):
        known = problems.mixed(seed, norm)
        assert code(judged(known.constraints, known.W, known.duals, norm)) is Unique.YES
    # Rows that are not present fix nothing, whatever their numbers are.
    two = problems.nuclear(0, n=2)
    three = problems.nuclear(0)
    rows = three.constraints._replace(
        differences=three.constraints.differences.at[:2].set(two.constraints.differences),
        queries=three.constraints.queries.at[:2].set(two.constraints.queries),
        present=jnp.ones((3, 3), bool).at[2].set(False),
    )
    duals = np.concatenate([two.duals, three.duals[2:]])
    assert code(judged(rows, two.W, np.where(np.asarray(rows.present), duals, 0.0))) is Unique.NO


def test_a_bound_on_the_rank_takes_optima_away_and_adds_none():
    three, two = problems.nuclear(0), problems.nuclear(0, n=2)
    assert code(judged(three.constraints, three.W, three.duals, svm.nuclear_of_rank(2))) is Unique.YES
    # All optima of the face that are found have rank 2.
    assert code(judged(two.constraints, two.W, two.duals, svm.nuclear_of_rank(2))) is Unique.NO


def test_in_single_precision_a_second_optimum_is_found_and_nothing_is_said_to_be_unique_that_the_gap_leaves_open():
    for n, unique in ((2, Unique.NO), (3, Unique.UNKNOWN)):
        known = problems.nuclear(0, n=n)
        assert code(judged(known.constraints, known.W, known.duals, dtype=np.float32)) is unique


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e12, 1e150])
def test_the_units_of_the_tokens_do_not_matter_until_products_leave_the_range_of_numbers(scale):
    for n, unique in ((3, Unique.YES), (2, Unique.NO)):
        known = problems.nuclear(0, n=n)
        rows = known.constraints._replace(differences=known.constraints.differences * scale)
        # Multipliers of the norm, not of the rows: the objective is in units of W.
        found_out = code(judged(rows, known.W / scale, known.duals / scale))
        assert found_out is (unique if 1e-30 < scale < 1e30 else Unique.UNKNOWN)


def test_nothing_is_known_of_a_norm_of_ones_own():
    assert faces(replace(svm.nuclear, name="own")) is None
    assert all(one.message for one in Unique)


def test_lanes_say_what_each_says_alone_whatever_the_others_are():
    lanes = [problems.nuclear(0), problems.nuclear(1), problems.nuclear(5, r=1), problems.nuclear(2)]
    rows = instances.stacked([one.constraints for one in lanes])
    alone = [judged(one.constraints, one.W, one.duals) for one in lanes]
    open_lanes = [one._replace(unique=np.asarray(Unique.UNKNOWN)) for one in alone]
    open_lanes[3] = open_lanes[3]._replace(status=np.asarray(Status.NOT_CONVERGED))
    together = svm.with_uniqueness(rows, jax.tree.map(lambda *leaves: np.stack(leaves), *open_lanes), "nuclear")
    assert together.unique.tolist() == [*(one.unique for one in alone[:3]), Unique.UNKNOWN]
    assert together.unique.tolist() == [Unique.YES, Unique.YES, Unique.YES, Unique.UNKNOWN]


@pytest.mark.slow
def test_both_doors_say_what_the_certificate_can_prove():
    rows = instances.constraints(4)
    for norm, unique in (("frobenius", Unique.YES), ("nuclear", Unique.YES), ("spectral", Unique.NO)):
        batch = svm.solve_batch(rows, norm)
        assert batch.unique.tolist() == [unique] * 4
        alone = svm.solve(instances.lane(rows, 1), norm)
        assert code(alone) is unique
        assert alone.unique.dtype == alone.status.dtype
        inside = jax.jit(partial(svm.solve, norm=norm))(instances.lane(rows, 1))
        assert code(inside) is (Unique.YES if norm == "frobenius" else Unique.UNKNOWN)
        assert svm.with_uniqueness(instances.lane(rows, 1), inside, norm).unique == unique


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**31 - 1))
def test_a_second_optimum_is_certified_and_far_and_a_unique_one_stays_where_a_slack_row_is_added(name, seed):
    norm = named(name)
    rows = instances.lane(instances.constraints(1, seed % 1000), 0)
    rng = np.random.default_rng(seed)
    # A further row, first not counted, then just not tight at W.
    more = jnp.concatenate([rows.differences, jnp.asarray(rng.normal(size=(3, 1, 5)))], axis=1)
    absent = jnp.ones((3, 4), bool).at[:, 3].set(False)
    rows = rows._replace(differences=more, present=absent)
    solution = svm.solve(rows, norm)
    if code(solution) is Unique.NO:
        second = found(rows, solution, norm).second[0]
        other = svm.certify(rows, norm, Candidate(jnp.asarray(second), solution.duals, jnp.asarray(0)), svm.DOUBLE)
        assert Status(int(other.status)) is Status.OPTIMAL
        assert distance(other.W, solution.W) > 1e-2
    if code(solution) is Unique.YES:
        margin = svm.margins(rows, solution.W)[:, 3]
        scaled = more.at[:, 3].set(more[:, 3] * (1.02 / margin)[:, None])
        moved = svm.solve(rows._replace(differences=scaled, present=absent.at[:, 3].set(True)), norm)
        assert distance(moved.W, solution.W) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", ["hard", "soft", "equal"])
def test_another_solver_finds_a_far_optimum_of_a_tilted_objective_where_there_is_one_and_only_there(name, kind):
    cp = pytest.importorskip("cvxpy")
    value = {
        "nuclear": cp.normNuc,
        "spectral": cp.sigma_max,
        "l1": lambda W: cp.sum(cp.abs(W)),
        "max": lambda W: cp.max(cp.abs(W)),
    }[name]
    for seed in range(4):
        rows, rng = instances.lane(instances.constraints(1, seed), 0), np.random.default_rng(seed)
        price = 0.3 if kind == "soft" else np.inf
        equal = (rng.random((3, 3)) < 0.3) & (kind == "equal")
        posed = rows if kind == "hard" else svm.soft(rows, price) if kind == "soft" else rows._replace(equal=equal)
        solution = svm.solve(posed, name)
        W = cp.Variable((5, 5))
        short, limits = 0.0, []
        for i, k in np.ndindex(3, 3):
            margin = np.asarray(rows.differences)[i, k] @ W @ np.asarray(rows.queries)[i]
            if kind == "soft":
                short = short + price * cp.pos(1 - margin)
            else:
                limits.append(margin == 1 if equal[i, k] else margin >= 1)
        # A tilt that is far above Clarabel's accuracy, and moves a unique solution little.
        farthest = 0.0
        for _ in range(3):
            tilt = cp.sum(cp.multiply(1e-5 * rng.normal(size=(5, 5)), W))
            cp.Problem(cp.Minimize(value(W) + short + tilt), limits).solve(solver=cp.CLARABEL)
            farthest = max(farthest, distance(W.value, solution.W))
        if code(solution) is Unique.YES:
            assert farthest < 1e-2
        if code(solution) is Unique.NO:
            assert farthest > 1e-2
        assert kind == "soft" or code(solution) is not Unique.UNKNOWN
