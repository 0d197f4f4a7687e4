"""Soft margins: solutions known beforehand, an outside solver, the limits of the price, degenerate rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import metrics, svm
from jaxattn.svm import ActiveSet, Cvxpy, Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import assert_close
from tests.svm import constructed

NORMS = {norm.name: norm for norm in (svm.frobenius, svm.nuclear, svm.squared(svm.frobenius), svm.squared(svm.nuclear))}
LANES = 8


# Each norm compiles for tens of seconds: one plain and one squared in the short run of the tests.
SLOW = ("frobenius", "squared nuclear")
PARAMS = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NORMS]


@pytest.fixture(scope="module", params=PARAMS)
def norm(request):
    return NORMS[request.param]


def full(constraints: svm.Constraints) -> svm.Constraints:
    """The same rows with every field written out, so that all kinds of problems share one program."""
    of = cons.rows(constraints)
    penalty = jnp.where(of.hard | ~of.present, jnp.inf, of.upper)
    return constraints._replace(targets=of.targets, equal=of.equal, present=of.present, penalty=penalty)


def solved(constraints: list[svm.Constraints], norm) -> svm.Solution:
    """Solve problems of the shared shape in one program a norm."""
    solutions = svm.solve_batch(instances.stacked([full(one) for one in constraints]), norm, chunk=LANES)
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    return solutions


def drawn(seed: int) -> svm.Constraints:
    return instances.lane(instances.constraints(4), seed)


@pytest.mark.slow
def test_a_constructed_solution_with_rows_of_every_kind_is_found(norm):
    known = [constructed.mixed(seed, norm) for seed in range(LANES)]
    solutions = solved([one.constraints for one in known], norm)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    np.testing.assert_allclose(solutions.primal, [one.value for one in known], rtol=1e-8)
    np.testing.assert_allclose(solutions.dual, [one.value for one in known], rtol=1e-8)
    if norm.power == 2 and norm.plain == svm.frobenius:
        # Strictly convex: W is unique. Its error is of the order of the gap's root.
        for i, one in enumerate(known):
            assert_close(solutions.W[i], one.W, rtol=1e-5)


@pytest.mark.parametrize("C", [0.05, 0.5, 5.0])
def test_it_agrees_with_clarabel(norm, C):
    pytest.importorskip("cvxpy")
    many = [svm.soft(drawn(i), C) for i in range(4)]
    solutions = solved(many, norm)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    for i, one in enumerate(many):
        # Clarabel's own gap may exceed the certificate's: its two values bracket ours.
        theirs = svm.solve(one, norm, solver=Cvxpy(), tolerance=svm.Tolerance(gap=1e-6))
        assert Status(int(theirs.status)) is Status.OPTIMAL
        np.testing.assert_allclose(solutions.primal[i], theirs.primal, rtol=1e-6)
        assert theirs.dual <= solutions.primal[i] * (1 + 1e-8)
        assert solutions.dual[i] <= theirs.primal * (1 + 1e-8)


def test_a_high_price_gives_the_hard_margin(norm):
    hard = [drawn(i) for i in range(4)]
    solutions = solved([svm.soft(one, 1e4) for one in hard] + hard, norm)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    np.testing.assert_allclose(solutions.primal[:4], solutions.primal[4:], rtol=1e-7)
    for i in range(4):
        assert 1 - metrics.correlation(*map(jnp.asarray, (solutions.W[i], solutions.W[i + 4]))) < 1e-6


def test_a_price_above_every_multiplier_gives_the_hard_margin_exactly():
    # The hard margin's multipliers lie inside the box: it is the solution of the soft one too.
    posed, norm = drawn(0), svm.squared(svm.frobenius)
    hard = instances.lane(solved([posed], norm), 0)
    C = 1.01 * float(np.max(hard.duals))
    soft, less = solved([svm.soft(posed, C), svm.soft(posed, 0.9 * C)], norm).primal
    np.testing.assert_allclose(soft, hard.primal, rtol=1e-8)
    assert less < hard.primal * (1 - 1e-6)


def test_a_low_price_has_a_closed_form(norm):
    # Every multiplier at its price, while all shortfalls are positive: W = C sum A, or W = 0 under a norm.
    C = 1e-3
    posed = drawn(1)
    A = instances.matrices(posed)
    M = C * A.sum(axis=(0, 1))
    found = instances.lane(solved([svm.soft(posed, C)], norm), 0)
    assert Status(int(found.status)) is Status.OPTIMAL
    np.testing.assert_allclose(found.duals, C, rtol=1e-6)
    if norm.power == 1:
        assert np.linalg.norm(M) < 1
        np.testing.assert_allclose(found.primal, C * A.shape[0] * A.shape[1], rtol=1e-8)
        # W = 0 itself is worth this; what is left of W costs no more than the gap.
        assert np.linalg.norm(found.W) <= 1e-8 * found.primal
        return
    left, s, right = np.linalg.svd(M)
    frobenius = norm.plain == svm.frobenius
    expected, size = (M, np.linalg.norm(M)) if frobenius else (s[0] * np.outer(left[:, 0], right[0]), s[0])
    assert np.einsum("nmde,de->nm", A, expected).max() < 1
    np.testing.assert_allclose(found.primal, C * A.shape[0] * A.shape[1] - size**2 / 2, rtol=1e-8)
    if frobenius:
        # 1e-8 of the primal value bounds the distance by its root.
        assert np.linalg.norm(found.W - expected) <= np.sqrt(2e-8 * found.primal)


def test_the_value_rises_with_the_price_and_stays_below_the_hard_one(norm):
    prices = [0.01, 0.1, 1.0, 10.0, 100.0]
    values = solved([svm.soft(drawn(2), C) for C in prices], norm).primal
    assert np.all(np.diff(values) >= -1e-8 * values[1:])
    assert values[-1] <= solved([drawn(2)], norm).primal[0] * (1 + 1e-8)


@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_what_no_matrix_separates_has_a_soft_margin(norm, kind):
    pytest.importorskip("cvxpy")
    posed = svm.soft(instances.INFEASIBLE[kind]()[0], 2.0)
    found = instances.lane(solved([posed], norm), 0)
    assert Status(int(found.status)) is Status.OPTIMAL
    theirs = svm.solve(posed, norm, solver=Cvxpy())
    np.testing.assert_allclose(found.primal, theirs.primal, rtol=1e-6)


def test_hard_rows_that_contradict_each_other_are_infeasible_whatever_the_soft_ones(norm):
    posed, proof = instances.pair_of_opposites()
    price = np.full(proof.shape, 0.7)
    price[proof > 0] = np.inf
    found = instances.lane(solved([posed._replace(penalty=jnp.asarray(price))], norm), 0)
    assert Status(int(found.status)) is Status.INFEASIBLE
    assert_close(found.duals, proof / proof.sum(), rtol=1e-12)
    np.testing.assert_array_equal(found.W, 0)


def test_hard_rows_that_soft_ones_push_beyond_their_margin(norm):
    # The soft rows ask for three times the margin at a high price: every hard row is slack at the solution.
    posed = drawn(0)
    targets, price = np.full((3, 3), 3.0), np.full((3, 3), 1e3)
    targets[:, 0], price[:, 0] = 1.0, np.inf
    soft = posed._replace(targets=jnp.asarray(targets), penalty=jnp.asarray(price))
    # At that price it is the problem of hard rows with these targets.
    found = solved([soft, posed._replace(targets=jnp.asarray(targets))], norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal[0], found.primal[1], rtol=1e-7)


def test_one_hard_row_that_is_slack_beside_one_soft_row():
    # (1, 0, ..) hard with target 1, (1, 0.2, ..) at a price with target 3: W along the second.
    D, Z, targets, price = np.zeros((3, 3, 5)), np.zeros((3, 5)), np.ones((3, 3)), np.full((3, 3), np.inf)
    D[0, 0, 0], D[0, 1, :2], Z[0, 0], targets[0, 1], price[0, 1] = 1.0, [1.0, 0.2], 1.0, 3.0, 100.0
    present = np.zeros((3, 3), bool)
    present[0, :2] = True
    posed = svm.Constraints(
        *map(jnp.asarray, (D, Z, targets)), present=jnp.asarray(present), penalty=jnp.asarray(price)
    )
    found = instances.lane(solved([posed], svm.squared(svm.frobenius)), 0)
    assert Status(int(found.status)) is Status.OPTIMAL
    expected = np.zeros((5, 5))
    expected[:2, 0] = np.array([3.0, 0.6]) / 1.04
    assert np.linalg.norm(found.W - expected) < 1e-6


@pytest.mark.parametrize("target", [0.0, -1.0, 1e-13])
def test_soft_rows_of_any_target_stay_soft(norm, target):
    pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    many = []
    for _ in range(LANES):
        D, Z = rng.normal(size=(3, 3, 5)), rng.normal(size=(3, 5))
        targets = np.where(rng.random((3, 3)) < 0.5, target, 1.0)
        many.append(svm.soft(svm.Constraints(*map(jnp.asarray, (D, Z, targets))), 0.3))
    solutions = solved(many, norm)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    theirs = svm.solve(many[0], norm, solver=Cvxpy())
    np.testing.assert_allclose(solutions.primal[0], theirs.primal, rtol=1e-6)


def test_a_copy_of_a_row_adds_its_price(norm):
    # Two equal rows at C are one row at 2 C.
    posed = drawn(3)
    D, price = np.array(posed.differences), np.full((3, 3), 0.4)
    D[:, 1] = D[:, 0]
    absent, one = price.copy(), np.ones((3, 3), bool)
    absent[:, 0], one[:, 1] = 0.8, False
    twice = posed._replace(differences=jnp.asarray(D), penalty=jnp.asarray(price))
    once = twice._replace(penalty=jnp.asarray(absent), present=jnp.asarray(one))
    found = solved([twice, once], norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal[0], found.primal[1], rtol=1e-8)


@pytest.mark.parametrize("what", ["parallel tokens", "parallel queries", "opposite tokens", "a token and its copy"])
def test_nearly_degenerate_rows_are_solved(norm, what):
    rng = np.random.default_rng(5)
    many = []
    for e in np.logspace(-13, -5, LANES):
        D, Z = rng.normal(size=(3, 3, 5)), rng.normal(size=(3, 5))
        if what == "parallel queries":
            Z[1] = Z[0] + e * Z[1]
        elif what == "a token and its copy":
            D[1, 2] = 0.0
        else:
            D[0, 1] = (1.3 if what == "parallel tokens" else -1.0) * D[0, 0] + e * D[0, 1]
        many.append(svm.soft(svm.Constraints(jnp.asarray(D), jnp.asarray(Z)), 1.0))
    np.testing.assert_array_equal(solved(many, norm).status, Status.OPTIMAL)


def test_the_shortfall_of_a_token_and_its_copy_is_paid_in_full():
    D = drawn(0).differences.at[1, 2].set(0.0)
    absent = svm.Constraints(D, drawn(0).queries, present=jnp.ones((3, 3), bool).at[1, 2].set(False))
    whole, rest = solved([svm.soft(svm.Constraints(D, drawn(0).queries), 0.5), svm.soft(absent, 0.5)], svm.nuclear)[2]
    np.testing.assert_allclose(whole, rest + 0.5, rtol=1e-8)


@pytest.mark.parametrize("c", [1e-6, 1e5])
def test_data_times_c_at_the_price_that_goes_with_it_have_the_solution_over_c(norm, c):
    # ||W|| is over c, its square over c^2; so is the price.
    power, posed = norm.power, drawn(0)
    scaled = posed._replace(differences=c * posed.differences)
    found = solved([svm.soft(posed, 1.0), svm.soft(scaled, 1.0 / c**power)], norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal[1] * c**power, found.primal[0], rtol=1e-8)
    assert 1 - metrics.correlation(*map(jnp.asarray, found.W[:2])) < 1e-8


def test_lanes_of_every_outcome_keep_to_themselves(norm):
    posed, proof = instances.pair_of_opposites()
    price = np.where(proof > 0, np.inf, 0.7)
    many = [full(one) for one in (svm.soft(drawn(0), 1.0), posed._replace(penalty=jnp.asarray(price)), drawn(1))]
    batch = solved(many, norm)
    assert list(batch.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
    for i, one in enumerate(many):
        alone = instances.lane(solved([one], norm), 0)
        assert alone.status == batch.status[i]
        assert alone.iterations == batch.iterations[i]
        assert_close(batch.W[i], alone.W, rtol=1e-12)
        assert_close(batch.duals[i], alone.duals, rtol=1e-12)


@pytest.mark.slow
def test_single_precision_is_certified_to_its_own_tolerance():
    norm = svm.squared(svm.nuclear)
    many = instances.stacked([full(svm.soft(drawn(i), C)) for i in range(4) for C in (0.1, 10.0)])
    single = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype(np.float32), many)
    found, double = svm.solve_batch(single, norm), svm.solve_batch(many, norm, chunk=LANES)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    assert found.W.dtype == found.primal.dtype == np.float32
    np.testing.assert_allclose(found.primal, double.primal, rtol=2e-4)


def test_the_active_set_refuses_a_price():
    with pytest.raises(ValueError, match=r"^ActiveSet: expected hard rows, found a penalty"):
        svm.solve(svm.soft(drawn(0)), solver=ActiveSet())
