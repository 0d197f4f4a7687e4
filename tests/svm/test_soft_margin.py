"""Soft margins: solutions known beforehand, an outside solver, the limits of the cost, degenerate rows."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import metrics, svm
from jaxattn.svm import Cvxpy, Status
from tests import instances
from tests.instances import assert_close, single, slow
from tests.svm import problems
from tests.svm.problems import full

NORMS = {norm.name: norm for norm in (svm.frobenius, svm.nuclear, svm.squared(svm.frobenius), svm.squared(svm.nuclear))}
# Each norm compiles for tens of seconds: one plain and one squared in the short run of the tests.
SLOW = ("frobenius", "squared nuclear")
PARAMS = [slow(name) if name in SLOW else name for name in NORMS]
COSTS, RISING, SEEDS, TARGETS = (0.05, 0.5, 5.0), (0.01, 0.5, 100.0), 4, (0.0, -1.0, 1e-13)
DEGENERATE = ("parallel tokens", "parallel queries", "opposite tokens", "a token and its copy")


@pytest.fixture(scope="module", params=PARAMS)
def norm(request):
    return NORMS[request.param]


def drawn(seed: int) -> svm.Constraints:
    return instances.lane(instances.constraints(4), seed)


def priced(rows: svm.Constraints, cost, **changes) -> svm.Constraints:
    return rows._replace(penalty=jnp.asarray(cost), **{name: jnp.asarray(leaf) for name, leaf in changes.items()})


def slack_hard_row() -> svm.Constraints:
    """(1, 0, ..) hard with target 1, (1, 0.2, ..) at a cost with target 3: W along the second."""
    D, Z, targets, cost = np.zeros((3, 3, 5)), np.zeros((3, 5)), np.ones((3, 3)), np.full((3, 3), np.inf)
    D[0, 0, 0], D[0, 1, :2], Z[0, 0], targets[0, 1], cost[0, 1] = 1.0, [1.0, 0.2], 1.0, 3.0, 100.0
    rows = svm.Constraints(*map(jnp.asarray, (D, Z, targets)))
    return priced(rows, cost, present=np.isin(np.arange(9), (0, 1)).reshape(3, 3))


def degenerate(what: str) -> list[svm.Constraints]:
    rng, many = np.random.default_rng(5), []
    for e in np.logspace(-13, -5, SEEDS):
        D, Z = rng.normal(size=(3, 3, 5)), rng.normal(size=(3, 5))
        if what == "parallel queries":
            Z[1] = Z[0] + e * Z[1]
        elif what == "a token and its copy":
            D[1, 2] = 0.0
        else:
            D[0, 1] = (1.3 if what == "parallel tokens" else -1.0) * D[0, 0] + e * D[0, 1]
        many.append(svm.soft(svm.Constraints(jnp.asarray(D), jnp.asarray(Z)), 1.0))
    return many


def with_targets(target: float) -> list[svm.Constraints]:
    rng, many = np.random.default_rng(0), []
    for _ in range(SEEDS):
        D, Z = rng.normal(size=(3, 3, 5)), rng.normal(size=(3, 5))
        targets = np.where(rng.random((3, 3)) < 0.5, target, 1.0)
        many.append(svm.soft(svm.Constraints(*map(jnp.asarray, (D, Z, targets))), 0.3))
    return many


@cache
def table(norm: svm.Norm) -> dict[str, svm.Constraints]:
    """Problems by name, all solved in one program."""
    opposites, proof = instances.pair_of_opposites()
    copied = drawn(3).differences.at[:, 1].set(drawn(3).differences[:, 0])
    first, last = np.array([True, False, False]), np.array([False, True, True])
    D, Z, *_ = drawn(0)
    zero = D.at[1, 2].set(0.0)
    beyond = priced(drawn(0), np.full((3, 3), np.inf), targets=np.where(first, 1.0, 3.0) * np.ones((3, 3)))
    one = np.ones((3, 3), bool)
    one[:, 1] = False
    return {
        **{f"planted {seed}": problems.mixed(seed, norm).constraints for seed in range(SEEDS)},
        **{f"hard {i}": drawn(i) for i in range(3)},
        **{f"{i} at {C:g}": svm.soft(drawn(i), C) for i in range(2) for C in (*COSTS, 1e4, 1.0, 1e-3)},
        **{f"2 rising to {C:g}": svm.soft(drawn(2), C) for C in RISING},
        **{kind: svm.soft(make()[0], 2.0) for kind, make in instances.INFEASIBLE.items()},
        "contradictory": priced(opposites, np.where(proof > 0, np.inf, 0.7)),
        "pushed beyond": beyond._replace(penalty=jnp.asarray(np.where(last, 1e3, np.inf) * np.ones((3, 3)))),
        "beyond": beyond,
        "slack": slack_hard_row(),
        **{f"targets {target:g}, {i}": rows for target in TARGETS for i, rows in enumerate(with_targets(target))},
        "twice": priced(drawn(3), np.full((3, 3), 0.4), differences=copied),
        "once": priced(drawn(3), np.where(first, 0.8, 0.4) * np.ones((3, 3)), differences=copied, present=one),
        **{f"{what} {i}": rows for what in DEGENERATE for i, rows in enumerate(degenerate(what))},
        "with a zero row": svm.soft(svm.Constraints(zero, Z), 0.5),
        "without it": svm.soft(svm.Constraints(zero, Z, present=jnp.ones((3, 3), bool).at[1, 2].set(False)), 0.5),
        **{f"times {c:g}": svm.soft(svm.Constraints(c * D, Z), 1.0 / c**norm.power) for c in (1e-6, 1e5)},
    }


def solve(rows: list[svm.Constraints], norm: svm.Norm, solver=None) -> svm.Solution:
    found = svm.solve_batch(instances.stacked([full(one, priced=True) for one in rows]), norm, solver)
    assert not any(np.isnan(leaf).any() for leaf in found)
    return found


@cache
def solved(norm: svm.Norm) -> svm.Solution:
    return solve(list(table(norm).values()), norm)


def of(norm: svm.Norm, name: str) -> svm.Solution:
    return instances.lane(solved(norm), list(table(norm)).index(name))


def test_every_problem_is_decided(norm):
    statuses = dict(zip(table(norm), solved(norm).status.tolist(), strict=True))
    assert statuses.pop("contradictory") == Status.INFEASIBLE
    assert set(statuses.values()) == {Status.OPTIMAL}


def test_a_planted_solution_with_rows_of_every_kind_is_found(norm):
    for seed in range(SEEDS):
        known, found = problems.mixed(seed, norm), of(norm, f"planted {seed}")
        np.testing.assert_allclose((found.primal, found.dual), known.value, rtol=1e-8)
        if norm.power == 2 and norm.plain == svm.frobenius:
            # Strictly convex: W is unique. Its error is of the order of the gap's root.
            assert_close(found.W, known.W, rtol=1e-5)


def test_it_agrees_with_clarabel(norm):
    pytest.importorskip("cvxpy")
    names = [f"{i} at {C:g}" for C in COSTS for i in range(2)] + list(instances.INFEASIBLE)
    names += [f"targets {target:g}, 0" for target in TARGETS]
    # Clarabel's own gap may exceed the certificate's: its two values bracket ours.
    theirs = solve([table(norm)[name] for name in names], norm, solver=Cvxpy())
    for i, name in enumerate(names):
        ours = of(norm, name)
        assert abs(theirs.gap[i]) < 1e-6, name
        np.testing.assert_allclose(ours.primal, theirs.primal[i], rtol=1e-6, err_msg=name)
        assert theirs.dual[i] <= ours.primal * (1 + 1e-8), name
        assert ours.dual <= theirs.primal[i] * (1 + 1e-8), name


def test_a_high_cost_gives_the_hard_margin(norm):
    for i in range(2):
        soft, hard = of(norm, f"{i} at 10000"), of(norm, f"hard {i}")
        np.testing.assert_allclose(soft.primal, hard.primal, rtol=1e-7)
        assert 1 - metrics.correlation(*map(jnp.asarray, (soft.W, hard.W))) < 1e-6


@pytest.mark.slow
def test_a_cost_above_every_multiplier_gives_the_hard_margin_exactly():
    # The hard margin's multipliers lie inside the box: it is the solution of the soft one too.
    norm = NORMS["squared frobenius"]
    hard = of(norm, "hard 0")
    C = 1.01 * float(np.max(hard.duals))
    soft, less = solve([svm.soft(drawn(0), C), svm.soft(drawn(0), 0.9 * C)], norm).primal
    np.testing.assert_allclose(soft, hard.primal, rtol=1e-8)
    assert less < hard.primal * (1 - 1e-6)


def test_a_low_cost_has_a_closed_form(norm):
    # Every multiplier at its bound, while all shortfalls are positive: W = C sum A, or W = 0 under a norm.
    C, found, A = 1e-3, of(norm, "1 at 0.001"), instances.matrices(drawn(1))
    M = C * A.sum(axis=(0, 1))
    np.testing.assert_allclose(found.duals, C, rtol=1e-6)
    if norm.power == 1:
        assert np.linalg.norm(M) < 1
        np.testing.assert_allclose(found.primal, C * 9, rtol=1e-8)
        # W = 0 itself is worth this; what is left of W costs no more than the gap.
        assert np.linalg.norm(found.W) <= 1e-8 * found.primal
        return
    left, s, right = np.linalg.svd(M)
    is_frobenius = norm.plain == svm.frobenius
    expected, size = (M, np.linalg.norm(M)) if is_frobenius else (s[0] * np.outer(left[:, 0], right[0]), s[0])
    assert np.einsum("nmde,de->nm", A, expected).max() < 1
    np.testing.assert_allclose(found.primal, C * 9 - size**2 / 2, rtol=1e-8)
    if is_frobenius:
        # 1e-8 of the primal value bounds the distance by its root.
        assert np.linalg.norm(found.W - expected) <= np.sqrt(2e-8 * found.primal)


def test_the_value_rises_with_the_cost_and_stays_below_the_hard_one(norm):
    values = np.array([of(norm, f"2 rising to {C:g}").primal for C in RISING])
    assert np.all(np.diff(values) >= -1e-8 * values[1:])
    assert values[-1] <= of(norm, "hard 2").primal * (1 + 1e-8)


def test_hard_rows_that_contradict_each_other_are_infeasible_whatever_the_soft_ones(norm):
    found, (_, proof) = of(norm, "contradictory"), instances.pair_of_opposites()
    assert_close(found.duals, proof / proof.sum(), rtol=1e-12)
    np.testing.assert_array_equal(found.W, 0)


def test_hard_rows_that_soft_ones_push_beyond_their_margin(norm):
    # The soft rows ask for three times the margin at a high cost: as the problem of hard rows with these targets.
    np.testing.assert_allclose(of(norm, "pushed beyond").primal, of(norm, "beyond").primal, rtol=1e-7)


def test_one_hard_row_that_is_slack_beside_one_soft_row():
    expected = np.zeros((5, 5))
    expected[:2, 0] = np.array([3.0, 0.6]) / 1.04
    assert np.linalg.norm(of(NORMS["squared frobenius"], "slack").W - expected) < 1e-6


def test_a_copy_of_a_row_adds_its_cost(norm):
    # Two equal rows at C are one row at 2 C; a zero row falls short by its whole target.
    np.testing.assert_allclose(of(norm, "twice").primal, of(norm, "once").primal, rtol=1e-8)
    np.testing.assert_allclose(of(norm, "with a zero row").primal, of(norm, "without it").primal + 0.5, rtol=1e-8)


@pytest.mark.parametrize("c", [1e-6, 1e5])
def test_data_times_c_at_the_cost_that_goes_with_it_have_the_solution_over_c(norm, c):
    # ||W|| is over c, its square over c^2; so is the cost.
    found, scaled = of(norm, "0 at 1"), of(norm, f"times {c:g}")
    np.testing.assert_allclose(scaled.primal * c**norm.power, found.primal, rtol=1e-8)
    assert 1 - metrics.correlation(*map(jnp.asarray, (found.W, scaled.W))) < 1e-8


@pytest.mark.slow
def test_single_precision_is_certified_to_its_own_tolerance():
    norm = NORMS["squared nuclear"]
    many = instances.stacked([full(svm.soft(drawn(i), C), priced=True) for i in range(4) for C in (0.1, 10.0)])
    found, double = svm.solve_batch(single(many), norm), svm.solve_batch(many, norm)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    assert found.W.dtype == found.primal.dtype == np.float32
    np.testing.assert_allclose(found.primal, double.primal, rtol=2e-4)
