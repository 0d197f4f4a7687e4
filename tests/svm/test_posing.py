"""Problems posed as constraints: every formula written out in NumPy, and what each refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, svm, tokens
from jaxattn.svm import Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import T, assert_close, d, n

# The first selected token at every place, one to all selected.
SELECTED = np.array([[True, False, True, False], [False, False, False, True], [False, True, True, True]])


def differences(X, i, t, u):
    return np.asarray(X[i, t] - X[i, u])


def asked(constraints: svm.Constraints) -> dict[str, list]:
    """Every present row as (difference, query, target), apart for inequalities and equalities."""
    of = jax.tree.map(np.asarray, cons.rows(constraints))
    found: dict[str, list] = {"at least": [], "equal": []}
    for i, k in np.argwhere(of.present):
        row = constraints.differences[i, k], constraints.queries[i], of.targets[i, k]
        found["equal" if of.equal[i, k] else "at least"].append(np.concatenate([np.ravel(part) for part in row]))
    return found


def assert_same_rows(found, expected) -> None:
    for kind, rows in expected.items():
        assert len(found[kind]) == len(rows)
        if rows:
            assert_close(np.array(found[kind]), np.array([np.concatenate([*map(np.ravel, row)]) for row in rows]))


def test_a_set_is_held_against_its_complement_and_inside_itself():
    problem = instances.problem()
    expected: dict[str, list] = {"at least": [], "equal": []}
    for i in range(n):
        first = int(np.argmax(SELECTED[i]))
        for t in range(T):
            if t != first:
                kind, target = ("equal", 0.0) if SELECTED[i, t] else ("at least", 1.0)
                expected[kind].append((differences(problem.X, i, first, t), problem.Z[i], target))
    assert_same_rows(asked(svm.set_constraints(problem, SELECTED)), expected)


def test_the_rows_of_a_set_imply_every_pair_of_the_paper():
    # eq. Gen-SVM runs over all pairs of O_i and its complement: T-1 rows ask for the same.
    problem = instances.problem()
    solution = svm.solve(svm.set_constraints(problem, SELECTED))
    assert Status(int(solution.status)) is Status.OPTIMAL
    logits = np.asarray(attention.logits(solution.W, problem))
    for i in range(n):
        inside, outside = logits[i, SELECTED[i]], logits[i, ~SELECTED[i]]
        np.testing.assert_allclose(inside, inside[0], atol=1e-12)
        if outside.size:
            assert np.min(inside[:, None] - outside[None, :]) >= 1 - 1e-12


ALPHA = np.array([2, 0, 3])


def tokens_posed() -> svm.Constraints:
    return svm.token_constraints(instances.problem(), ALPHA)


def test_differences_run_over_the_other_tokens_in_increasing_order():
    problem, W, posed = instances.problem(), instances.free(), tokens_posed()
    expected = [[problem.X[i, a] - problem.X[i, t] for t in range(T) if t != a] for i, a in enumerate(ALPHA)]
    assert_close((posed.differences, posed.queries), (np.array(expected), problem.Z), rtol=0)
    logits = np.asarray(attention.logits(W, problem))
    margins = [[logits[i, a] - logits[i, t] for t in range(T) if t != a] for i, a in enumerate(ALPHA)]
    assert_close(svm.margins(posed, W), np.array(margins))


@pytest.mark.parametrize("kind", [list, np.array, jnp.array, lambda a: np.array(a, np.uint8)])
def test_tokens_may_be_integers_of_any_kind(kind):
    assert_close(svm.token_constraints(instances.problem(), kind([2, 0, 3])), tokens_posed(), rtol=0)


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
    if "integers" in message:
        # Shapes and kinds can be read under jit too.
        with pytest.raises(ValueError, match=message):
            jax.jit(svm.token_constraints)(instances.problem(), jnp.asarray(alpha))


@pytest.mark.parametrize("alpha", [T, T + 5, -1, -T - 2])
def test_a_token_out_of_range_under_vmap_is_refused_by_the_solver(alpha):
    many, alphas = instances.problems(2), jnp.array([[0, 1, 2], [0, alpha, 2]])
    constraints = jax.jit(jax.vmap(svm.token_constraints))(many, alphas)
    assert np.isfinite(constraints.differences[0]).all()
    assert np.isnan(constraints.differences[1, 1]).all()
    with pytest.raises(ValueError, match=r"^constraints: expected finite differences, found 15 NaN .* alpha"):
        svm.solve_batch(constraints)
    with pytest.raises(ValueError, match=r"^constraints: expected finite differences, found 15 NaN .* alpha"):
        svm.solve(instances.lane(constraints, 1))


def test_one_token_a_set_is_the_tokens_own_problem():
    alone = svm.set_constraints(instances.problem(), np.arange(T)[None, :] == ALPHA[:, None])
    expected = tokens_posed()
    assert_close((alone.differences, alone.queries), (expected.differences, expected.queries), rtol=0)
    assert_close(svm.solve(alone).W, svm.solve(expected).W, rtol=1e-12)


def test_the_finite_part_has_the_ratios_of_the_attention():
    problem, W = instances.problem(), instances.free()
    logits, s = attention.logits(W, problem), np.asarray(attention.probabilities(W, problem))
    posed = svm.finite_constraints(problem, SELECTED, logits)
    expected: dict[str, list] = {"at least": [], "equal": []}
    for i in range(n):
        first, *others = np.flatnonzero(SELECTED[i])
        for t in others:
            row = differences(problem.X, i, first, t), problem.Z[i], np.log(s[i, first] / s[i, t])
            expected["equal"].append(row)
    assert_same_rows(asked(posed), expected)
    # W itself satisfies its own equations.
    assert cons.violation(posed, W) < 1e-12


def test_a_prompt_is_a_column():
    X, alpha = np.asarray(instances.problem().X), [1, 3, 0]
    posed = svm.prompt_constraints(X, alpha)
    assert posed.queries.shape == (n, 1)
    rows = np.array([X[i, alpha[i]] - X[i, t] for i in range(n) for t in range(T) if t != alpha[i]])
    p = np.random.default_rng(0).normal(size=d)
    assert_close(svm.margins(posed, jnp.asarray(p[:, None])).ravel(), rows @ p)
    found = svm.solve(posed)
    if found.status == Status.OPTIMAL:
        assert found.W.shape == (d, 1)
        np.testing.assert_allclose(np.min(rows @ found.W[:, 0]), 1, rtol=1e-12)


def causal(X, selected):
    """Next-token prediction: position t sees tokens 0..t, its own token is the query."""
    groups, queries = [], []
    for sequence, chosen in zip(X, selected, strict=True):
        for t, alpha in enumerate(chosen, start=1):
            groups.append(np.array([sequence[alpha] - sequence[u] for u in range(t + 1) if u != alpha]))
            queries.append(sequence[t])
    return groups, np.array(queries)


def test_causal_attention_is_a_ragged_list():
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(2, T, d)), rng.normal(size=(d, d))
    selected = [[int(np.argmax(x[: t + 1] @ W @ x[t])) for t in range(1, T)] for x in X]
    groups, queries = causal(X, selected)
    posed = svm.listed(groups, queries)
    assert posed.differences.shape == (2 * (T - 1), T - 1, d)
    np.testing.assert_array_equal(np.sum(cons.rows(posed).present, axis=1), [1, 2, 3] * 2)
    # The same rows, one to a group, so that nothing is filled up.
    flat = svm.listed([row[None] for group in groups for row in group], np.repeat(queries, [1, 2, 3] * 2, axis=0))
    assert flat.present is None
    ragged, by_hand = svm.solve(posed), svm.solve(flat)
    assert Status(int(ragged.status)) is Status.OPTIMAL
    assert_close(ragged.W, by_hand.W, rtol=1e-10)
    assert_close(np.asarray(ragged.duals)[np.asarray(posed.present)], by_hand.duals.ravel(), rtol=1e-8)
    np.testing.assert_array_equal(np.asarray(ragged.duals)[~np.asarray(posed.present)], 0)
    for x, chosen in zip(X, selected, strict=True):
        for t, alpha in enumerate(chosen, start=1):
            logits = x[: t + 1] @ ragged.W @ x[t]
            assert logits[alpha] - np.max(np.delete(logits, alpha)) >= 1 - 1e-12


def test_sequences_of_equal_lengths_are_the_problem_of_their_inputs():
    problem, alpha = instances.problem(), [1, 0, 2]
    expected = svm.token_constraints(problem, alpha)
    assert_close(svm.listed(list(expected.differences), problem.Z), expected)


def test_a_list_may_hold_an_empty_group_and_numbers_of_any_kind():
    posed = svm.listed([np.ones((2, 3), int), np.zeros((0, 3)), [[0.5, 0.25, 0.125]]], np.eye(3))
    assert posed.differences.dtype == np.float64
    np.testing.assert_array_equal(posed.differences[2, 0], [0.5, 0.25, 0.125])
    np.testing.assert_array_equal(posed.present, [[True, True], [False, False], [True, False]])


def test_a_price_is_put_on_every_row_but_the_equalities():
    posed = svm.set_constraints(instances.problem(), SELECTED)
    equal, each = cons.rows(posed).equal, np.random.default_rng(0).uniform(1, 2, size=(n, T - 1))
    for C in (3, 3.0, np.float64(3), jnp.asarray(3.0), each):
        soft = svm.soft(posed, C)
        assert_close(soft._replace(penalty=None), posed, rtol=0)
        np.testing.assert_array_equal(soft.penalty, np.where(equal, np.inf, np.broadcast_to(C, (n, T - 1))))
    np.testing.assert_array_equal(svm.soft(posed).penalty, np.where(equal, np.inf, 10.0))
    np.testing.assert_array_equal(jax.jit(svm.soft)(posed, 3.0).penalty, svm.soft(posed, 3.0).penalty)


def test_a_batch_is_priced_as_its_lanes_are():
    batch = instances.constraints(4)
    prices = jnp.arange(1.0, 5.0)
    lifted = jax.jit(jax.vmap(svm.soft))(batch, prices)
    for i in range(4):
        assert_close(instances.lane(lifted, i), svm.soft(instances.lane(batch, i), float(prices[i])), rtol=0)
    np.testing.assert_array_equal(svm.soft(batch, 2.0).penalty, np.full(batch.differences.shape[:-1], 2.0))


@pytest.mark.parametrize("pose", ["token", "set", "finite"])
def test_a_lane_of_jit_and_vmap_is_a_lone_call(pose):
    many, weights = instances.problems(2), instances.free()
    selected = np.stack([SELECTED, SELECTED[:, ::-1]])

    def posed(problem, chosen):
        if pose == "token":
            return svm.token_constraints(problem, jnp.argmax(chosen, axis=1))
        if pose == "set":
            return svm.set_constraints(problem, chosen)
        return svm.finite_constraints(problem, chosen, attention.logits(weights, problem))

    lifted = jax.jit(jax.vmap(posed))(many, jnp.asarray(selected))
    for i in range(2):
        assert_close(instances.lane(lifted, i), posed(instances.lane(many, i), selected[i]))


@pytest.mark.parametrize("pose", ["set", "finite"])
def test_an_empty_set_under_vmap_is_refused_by_the_solver(pose):
    many = instances.problems(2)
    selected = np.stack([SELECTED, SELECTED])
    selected[1, 2] = False
    if pose == "set":
        posed = jax.jit(jax.vmap(svm.set_constraints))(many, jnp.asarray(selected))
    else:
        posed = jax.jit(jax.vmap(svm.finite_constraints))(many, jnp.asarray(selected), jnp.ones((2, n, T)))
    assert np.isfinite(posed.differences[0]).all()
    assert np.isnan(posed.differences[1, 2]).all()
    with pytest.raises(ValueError, match=r"^constraints: expected finite differences, found 15 NaN"):
        svm.solve_batch(posed)


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        (SELECTED[:, :3], r"^selected: expected truth values \(3, 4\), found shape \(3, 3\) of bool"),
        (SELECTED[0], r"^selected: expected truth values \(3, 4\), found shape \(4,\) of bool"),
        (SELECTED.astype(int), r"^selected: expected truth values \(3, 4\), found shape \(3, 4\) of int64"),
        (SELECTED * 1.0, r"^selected: expected truth values \(3, 4\), found shape \(3, 4\) of float64"),
        (SELECTED & [[True], [False], [False]], r"^selected: expected a token in every input, found none in \[1, 2\]"),
    ],
)
def test_a_wrong_selection_is_refused(selected, message):
    problem = instances.problem()
    for kind in (np.asarray, jnp.asarray, np.ndarray.tolist):
        with pytest.raises(ValueError, match=message):
            svm.set_constraints(problem, kind(selected))
        with pytest.raises(ValueError, match=message):
            svm.finite_constraints(problem, kind(selected), jnp.ones((n, T)))
    if "found none" not in message:
        # Shapes and kinds can be read under jit too.
        with pytest.raises(ValueError, match=message):
            jax.jit(svm.set_constraints)(problem, jnp.asarray(selected))


def test_a_prompt_of_whole_numbers_is_posed_in_floating_point():
    posed = svm.prompt_constraints(np.array([[[3, 0], [1, 0]]]), [0])
    assert_close(svm.solve(posed).W, np.array([[0.5], [0.0]]))


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_att_solves_the_problem_with_these_tokens(norm):
    one = instances.problem()
    alpha = tokens.optimal(one)
    found = svm.att(np.asarray(one.X), np.asarray(one.Z), np.asarray(alpha), norm=norm)
    jax.tree.map(np.testing.assert_array_equal, found, svm.solve(svm.token_constraints(one, alpha), norm))


def test_att_takes_lists():
    """Two tokens in R^1, one query: W x z >= 1 with x - x' = 2 and z = 0.5."""
    np.testing.assert_allclose(svm.att([[[1.0], [-1.0]]], [[0.5]], [0]).W, [[1.0]], rtol=1e-12)


def finite(shape):
    return svm.finite_constraints(instances.problem(), SELECTED, jnp.ones(shape))


def priced(C):
    return svm.soft(instances.lane(instances.constraints(4), 0), C)


def att(X=None, Z=None, alpha=(0, 1, 2), norm="frobenius"):
    one = instances.problem()
    return svm.att(one.X if X is None else X, one.Z if Z is None else Z, list(alpha), norm=norm)


def test_lists_are_taken_for_arrays():
    problem = instances.problem()
    lists = Problem(**{name: np.asarray(array).tolist() for name, array in problem.arrays.items()})
    assert_close(svm.token_constraints(lists, ALPHA.tolist()), tokens_posed(), rtol=0)
    selected, logits = np.eye(T, dtype=bool)[ALPHA], np.zeros((n, T))
    found = svm.finite_constraints(problem, selected.tolist(), logits.tolist())
    jax.tree.map(np.testing.assert_array_equal, found, svm.finite_constraints(problem, selected, logits))


ONES, SINGLE = np.ones, np.ones((1, 2), np.float32)
REFUSED = [
    *(
        (finite, (shape,), rf"logits: expected shape \(3, 4\), found \({shape[0]},")
        for shape in ((n, T + 2), (n - 1, T), (T,), (n, T, 1))
    ),
    (svm.prompt_constraints, (ONES((3, 4)), [0, 0, 0]), r"X: expected shape \(n, T, d\), found \(3, 4\)"),
    (svm.prompt_constraints, (ONES((3, 1, 4)), [0, 0, 0]), "X: expected at least T = 2 tokens"),
    (svm.prompt_constraints, (np.full((1, 2, 2), np.nan), [0]), "X: expected finite numbers, found nan"),
    (svm.prompt_constraints, (ONES((3, 4, 2)), [0, 0, 4]), r"alpha: expected tokens 0\.\.3, found \[4\]"),
    (svm.prompt_constraints, (ONES((3, 4, 2)), [0, 0]), r"alpha: expected 3 integers, found shape \(2,\)"),
    (
        svm.listed,
        ([ONES((2, 3))], ONES((2, 3))),
        r"listed: .* found queries \(2, 3\) and 1 groups of shapes \[\(2, 3\)\]",
    ),
    (svm.listed, ([], ONES((0, 3))), "listed: .* and 0 groups"),
    (svm.listed, ([ONES((2, 3)), ONES((1, 2))], ONES((2, 3))), r"listed: .* groups of shapes \[\(1, 2\), \(2, 3\)\]"),
    (svm.listed, ([ONES(3)], ONES((1, 3))), r"listed: .* groups of shapes \[\(3,\)\]"),
    (svm.listed, ([ONES((2, 3))], ONES(1)), r"listed: .* found queries \(1,\)"),
    (svm.listed, ([ONES((0, 3))], ONES((1, 3))), "listed: expected at least one row, found 1 empty groups"),
    (svm.listed, ([ONES((1, 2)), SINGLE], ONES((2, 1))), r"listed: .* \['float32', 'float64'\]"),
    (
        svm.listed,
        ([ONES((1, 2)), [[1, np.inf]]], ONES((2, 1))),
        r"differences\[1\]: expected finite numbers, found inf",
    ),
    (svm.listed, ([ONES((1, 2))], [[np.nan]]), "queries: expected finite numbers, found nan"),
    *(
        (priced, (C,), "C: expected positive numbers, found (0|-1|-2|nan)")
        for C in (0, -1.0, np.nan, np.float64(-2), np.array(0.0), -ONES((n, T - 1)))
    ),
    *(
        (priced, (ONES(shape),), r"C: expected a number or one for each row, \(3, 3\), found shape")
        for shape in (3, (1, 3), (4, 3))
    ),
    (att, (ONES((3, 4)),), r"X: expected shape \(n, T, d\), found \(3, 4\)"),
    (att, (np.full((3, 4, 5), np.nan),), "X: expected finite numbers"),
    (att, (ONES((3, 1, 5)),), "X: expected at least T = 2 tokens"),
    (att, (None, ONES((3, 4))), r"Z: expected shape \(3, 5\)"),
    (att, (None, None, [0, 1, 4]), r"alpha: expected tokens 0\.\.3, found \[4\]"),
    (att, (None, None, [0, 1]), "alpha: expected 3 integers"),
    (att, (None, None, [0, 1, 2], "frobenus"), "norm: expected one of"),
]


@pytest.mark.parametrize(("call", "given", "message"), REFUSED)
def test_malformed_input_is_refused(call, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call(*given)
