"""Sequence-to-sequence and causal self-attention: every position an input, which may see a part of the tokens."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, data, descent, heads, initial, losses, metrics, regularization, svm, tokens
from jaxattn.descent import engines, gradients, loops, smoothness
from jaxattn.descent.factored_engine import Keys
from jaxattn.descent.gram_engine import Gram, Queries
from jaxattn.problem import every_position, every_prefix, of_arrays
from tests import instances
from tests.instances import assert_close, slow

n, T, d = 2, 4, 5
STEP = jnp.zeros((), int)
RNG = np.random.default_rng(0)
X, Y, v = RNG.normal(size=(n, T, d)), RNG.choice([-1.0, 1.0], size=(n, T)), RNG.normal(size=d)
W = jnp.asarray(RNG.normal(size=(d, d)))
FACTORS = attention.Factored(*jnp.asarray(RNG.normal(size=(2, d, 3))))
MAKERS = {"every position": every_position, "every prefix": every_prefix}
# Some inputs do not see their first token, one sees a single token.
HOLES = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]], bool)


def with_holes() -> Problem:
    return replace(instances.problem(), present=HOLES)


def of_whole_sequences(W, X, Y, v, causal: bool):
    """The risk written for whole sequences, `softmax(X W^T X^T + mask) X v` with position by position its row."""
    total = 0.0
    for sequence, labels in zip(X, Y, strict=True):
        logits = sequence @ W.T @ sequence.T
        if causal:
            logits = logits + np.where(np.tri(len(sequence), dtype=bool), 0.0, -1e9)
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        predictions = (e / e.sum(axis=1, keepdims=True)) @ sequence @ v
        total += np.log1p(np.exp(-labels * predictions)).sum()
    return total / Y.size


def slope_of(rule, weights, problem, head: heads.Head = heads.linear):
    logits = attention.logits(weights, problem)
    return rule(STEP, logits, problem.Y, gradients.reading(problem, head), losses.logistic)


def each_loss(W, problem):
    """The loss of every input."""
    outputs = attention.attended(attention.probabilities(W, problem), problem)
    return losses.logistic(problem.Y * (outputs @ problem.v))


@pytest.mark.parametrize("name", MAKERS)
def test_the_risk_is_that_of_whole_sequences(name):
    found = jax.jit(lambda *given: [losses.risk(one, MAKERS[name](*given)) for one in (W, FACTORS)])(X, Y, v)
    for risk, matrix in zip(found, (W, FACTORS.W), strict=True):
        expected = of_whole_sequences(np.asarray(matrix), X, Y, v, causal=name == "every prefix")
        np.testing.assert_allclose(risk, expected, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_a_position_alone_is_a_problem_of_what_it_sees(name):
    problem = MAKERS[name](X, Y, v)
    found = jax.jacobian(each_loss)(W, problem).reshape(n, T, d, d)
    for j in range(1, T):
        seen = X[:, : j + 1] if name == "every prefix" else X
        alone = Problem(X=seen, Z=X[:, j], Y=Y[:, j], v=v)
        assert_close(found[:, j], jax.jacobian(each_loss)(W, alone), rtol=1e-12)
    if name == "every prefix":
        np.testing.assert_array_equal(found[:, 0], 0)


def test_later_tokens_change_nothing_earlier():
    last = T - 2
    changed = X.copy()
    changed[:, last:] = RNG.normal(size=changed[:, last:].shape)
    before, after = (every_prefix(one, Y, v) for one in (X, changed))
    read = {
        "probabilities": attention.probabilities,
        "losses": each_loss,
        "gradients": jax.jacobian(each_loss),
        "coefficients": lambda W, problem: slope_of(gradients.gradient, W, problem).coefficients,
        "selected": tokens.selected,
        "optimal": lambda W, problem: tokens.optimal(problem),
    }
    all_of = jax.jit(lambda problem: {name: function(W, problem) for name, function in read.items()})
    of_before, of_after = (jax.tree.map(np.asarray, all_of(one)) for one in (before, after))
    for name in read:
        first, second = (one[name].reshape(n, T, *one[name].shape[1:]) for one in (of_before, of_after))
        np.testing.assert_array_equal(first[:, :last], second[:, :last], err_msg=name)
        assert not np.array_equal(first[:, last:], second[:, last:]) or first.dtype.kind == "i"
    # Without the mask they do.
    whole = [each_loss(W, every_position(one, Y, v)).reshape(n, T) for one in (X, changed)]
    assert not np.isclose(whole[0][:, :last], whole[1][:, :last]).any()


@pytest.mark.parametrize("name", MAKERS)
def test_a_rotation_of_everything_turns_the_gradient_with_it(name):
    U = jnp.asarray(np.linalg.qr(RNG.normal(size=(d, d)))[0])
    problem, turned = MAKERS[name](X, Y, v), MAKERS[name](X @ U, Y, v @ U)
    slope = jax.jit(jax.grad(losses.risk))
    assert_close(slope(U.T @ W @ U, turned), U.T @ slope(W, problem) @ U, rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "head", "scale"),
    [(W, heads.linear, 1.0), (FACTORS, heads.Quadratic(0.3), 1.0), (W, heads.linear, 1e5)],
    ids=["free", "factored", "saturated"],
)
def test_tokens_that_are_not_seen_count_for_nothing(weights, head, scale):
    problem, weights = with_holes(), jax.tree.map(lambda leaf: scale * leaf, weights)
    garbage = replace(problem, X=jnp.where(HOLES[..., None], problem.X, 1e6))
    probabilities = np.asarray(attention.probabilities(weights, problem))
    np.testing.assert_array_equal(probabilities[~HOLES], 0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-15)
    for one in (problem, garbage):
        assert HOLES[np.arange(3), tokens.selected(weights, one)].all()
        assert HOLES[np.arange(3), tokens.optimal(one, head)].all()
        np.testing.assert_array_equal(np.asarray(tokens.scores(one, head))[~HOLES], -np.inf)
        assert_close(attention.probabilities(weights, one), probabilities, rtol=0)

    @jax.jit
    def slopes(one):
        rules = (gradients.gradient, gradients.exact, gradients.direction)
        return jax.value_and_grad(partial(losses.risk, problem=one, head=head))(weights), [
            slope_of(rule, weights, one, head) for rule in rules
        ]

    ((risk, of_risk), of_rules), ((with_garbage, of_garbage), of_others) = map(slopes, (problem, garbage))
    assert np.isfinite([risk, with_garbage]).all()
    assert_close(of_garbage, of_risk, rtol=1e-14)
    for found, other in zip(of_rules, of_others, strict=True):
        assert_close(other.coefficients, found.coefficients, rtol=1e-14)
        np.testing.assert_array_equal(np.asarray(found.coefficients)[~HOLES], 0)
        # The input that sees one token has nothing to choose.
        np.testing.assert_array_equal(found.coefficients[2], 0)
        if scale == 1:
            of_W = np.einsum("nt,ntd,ne->de", found.coefficients, problem.X, problem.Z) * np.exp(found.log_scale)
            expected = jax.jit(jax.grad(partial(losses.risk, problem=problem, head=head)))(attention.matrix(weights))
            assert_close(of_W, np.asarray(expected), rtol=1e-12)


def test_the_smoothness_constant_is_that_of_the_tokens_that_are_seen():
    problem = with_holes()
    garbage = replace(problem, X=jnp.where(HOLES[..., None], problem.X, 1e6))
    np.testing.assert_allclose(smoothness.bound(garbage), smoothness.bound(problem), rtol=1e-14)
    assert smoothness.bound(problem) < smoothness.bound(instances.problem())


# Under the quadratic head normalized steps circle around a minimum, where rounding grows from step to step.
@pytest.mark.slow
@pytest.mark.parametrize(("head", "d", "steps"), [(heads.linear, 3, 500), slow(heads.Quadratic(0.3), 40, 50)])
def test_every_engine_gives_one_trajectory(head, d, steps):
    drawn = data.sphere(jax.random.key(1), 3, 4, d)
    problem = replace(drawn, present=HOLES, X=jnp.where(HOLES[..., None], drawn.X, 1e3))
    full, factored = (law(jax.random.key(2), d) for law in (initial.free, initial.factored))
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)

    def run(engine, start, steps):
        train = loops.trainer(descent.Rule(rule, steps, head=head), engine(rule.update))
        return train(start, problem, rule.init(start), None, (), jnp.array([10, steps]))

    for start, until, spanned in ((full, steps, (Queries, Gram)), (factored, 50, (Keys,))):
        direct, *others = (run(engine, start, until) for engine in (engines.Direct, *spanned))
        assert np.isfinite(direct.loss).all()
        for other in others:
            assert_close(other.snapshots, direct.snapshots, rtol=1e-10)
            assert_close((other.loss, other.probability), (direct.loss, direct.probability), rtol=1e-10)


def test_a_mask_of_all_tokens_is_no_mask():
    plain, start = instances.problem(), instances.free()
    masked = replace(plain, present=np.ones(plain.X.shape[:2], bool))
    assert_close(attention.logits(start, masked), attention.logits(start, plain), rtol=0)
    assert_close(tokens.scores(masked), tokens.scores(plain), rtol=0)
    found, expected = (descent.train(start, one, steps=100, snapshots=(100,)) for one in (masked, plain))
    assert_close(found, expected, rtol=1e-12)


def test_the_rows_of_causal_attention_are_those_of_its_positions():
    problem = every_prefix(X, Y, v)
    alpha = np.asarray(tokens.selected(W, problem))
    posed = svm.token_constraints(problem, alpha)
    at = [(i, j, alpha[i * T + j]) for i in range(n) for j in range(T)]
    groups = [[X[i, a] - X[i, t] for t in range(j + 1) if t != a] for i, j, a in at]
    listed = svm.listed([np.reshape(group, (-1, d)) for group in groups], X.reshape(-1, d))
    assert posed.present is not None
    np.testing.assert_array_equal(np.sum(posed.present, axis=1), list(range(T)) * n)
    np.testing.assert_array_equal(np.asarray(posed.differences)[~np.asarray(posed.present)], 0)
    solution = svm.solve(posed)
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    assert_close(solution.W, svm.solve(listed).W, rtol=1e-10)
    np.testing.assert_array_equal(tokens.selected(solution.W, problem), alpha)


def test_sets_and_finite_parts_leave_out_what_is_not_seen():
    problem, weights = with_holes(), instances.free()
    selected = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], bool)
    garbage = replace(problem, X=jnp.where(HOLES[..., None], problem.X, 1e6))
    for one in (problem, garbage):
        posed = svm.set_constraints(one, selected)
        # First against t = 1, 2, 3 of input 0; token 1 against 3 of input 1; nothing of input 2.
        np.testing.assert_array_equal(posed.present, [[1, 1, 1], [0, 0, 1], [0, 0, 0]])
        found = svm.solve(posed)
        logits = np.asarray(attention.logits(found.W, one))
        np.testing.assert_allclose([logits[0, 0], logits[1, 1]], [logits[0, 2], logits[1, 3]], atol=1e-12)
        np.testing.assert_allclose(logits[0, 0] - max(logits[0, 1], logits[0, 3]), 1, rtol=1e-12)
        finite = svm.finite_constraints(one, selected, attention.logits(weights, one))
        assert finite.targets is not None
        np.testing.assert_array_equal(finite.present, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
        assert np.isfinite(finite.targets).all()
        assert svm.Status(int(svm.solve(finite).status)) is svm.Status.OPTIMAL


def test_a_token_that_is_not_seen_cannot_be_selected():
    problem, wrong = with_holes(), np.array([0, 0, 3])
    selected = np.arange(4)[None, :] == wrong[:, None]
    with pytest.raises(ValueError, match=r"^alpha: expected tokens that their inputs can see.* inputs \[1, 2\]"):
        svm.token_constraints(problem, wrong)
    with pytest.raises(ValueError, match=r"^selected: expected tokens that their inputs can see.* inputs \[1, 2\]"):
        svm.set_constraints(problem, selected)
    for pose, chosen in ((svm.token_constraints, wrong), (svm.set_constraints, selected)):
        posed = jax.jit(pose)(problem, jnp.asarray(chosen))
        np.testing.assert_array_equal(np.isnan(posed.differences).all(axis=(1, 2)), [False, True, True])
        with pytest.raises(ValueError, match="NaN"):
            svm.solve(posed)


def test_an_input_that_sees_one_token_changes_no_solution():
    problem = with_holes()
    rows = svm.token_constraints(problem, [1, 3, 2])
    fewer = svm.token_constraints(Problem(problem.X[:2], problem.Z[:2], problem.Y[:2], problem.v, HOLES[:2]), [1, 3])
    assert_close(svm.solve(rows).W, svm.solve(fewer).W, rtol=1e-10)


@pytest.mark.slow
def test_descent_on_sequences_turns_to_their_solution():
    problem, rule = data.causal(jax.random.key(1), 2, 3, 12), descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    weights = descent.train(jnp.zeros((12, 12)), problem, optimizer=rule, steps=20_000).weights
    solution = svm.solve(svm.token_constraints(problem, tokens.selected(weights, problem)))
    assert metrics.correlation(jnp.asarray(weights), solution.W) > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("ball", [regularization.FROBENIUS, regularization.NUCLEAR])
def test_a_regularization_path_knows_what_is_seen(ball):
    problem, radii = with_holes(), np.geomspace(1, 1000, 7)
    garbage = replace(problem, X=jnp.where(HOLES[..., None], problem.X, 1e3))
    found, other = (regularization.path(one, radii, ball) for one in (problem, garbage))
    assert found.solved.all()
    assert_close(other.risk, found.risk, rtol=1e-6)
    W = attention.matrix(found.weights)[-1]
    solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)), norm=ball.name)
    assert metrics.correlation(W, solution.W) > 0.999


def test_the_laws_draw_the_same_sequences():
    key = jax.random.key(3)
    whole, causal = data.sequence(key, n, T, d), data.causal(key, n, T, d)
    assert whole.present is None
    assert causal.present is not None
    assert_close(replace(causal, present=None), whole, rtol=0)
    assert (whole.n, whole.T, whole.d) == (n * T, T, d)
    np.testing.assert_allclose(np.linalg.norm(whole.X, axis=-1), 1, rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(whole.v), 1, rtol=1e-14)
    at = np.asarray(whole.X).reshape(n, T, T, d)
    for j in range(T):
        np.testing.assert_array_equal(at[:, j], at[:, 0])
        np.testing.assert_array_equal(np.asarray(whole.Z).reshape(n, T, d)[:, j], at[:, j, j])
        np.testing.assert_array_equal(np.asarray(causal.present).reshape(n, T, T)[:, j], [np.arange(T) <= j] * n)


@pytest.mark.parametrize("name", MAKERS)
def test_sequences_may_have_batch_axes(name):
    many = MAKERS[name](np.stack([X, 2 * X]), np.stack([Y, -Y]), np.stack([v, v]))
    assert_close(instances.lane(many, 1), MAKERS[name](2 * X, -Y, v), rtol=0)
    lifted = jax.jit(jax.vmap(MAKERS[name]))(np.stack([X, 2 * X]), np.stack([Y, -Y]), np.stack([v, v]))
    assert_close(lifted, many, rtol=0)
    assert_close(of_arrays(many.arrays), many, rtol=0)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, Y[:, 0], v), r"^Y: expected a label of every position.*found \(2,\) and \(2, 4, 5\)"),
        ((X[0], Y[0], v), r"^Y: expected a label of every position.*found \(4,\) and \(4, 5\)"),
        ((X, 2 * Y, v), r"^Y: expected labels \+1 or -1"),
        ((X, Y, v[:3]), r"^v: expected shape \(5,\)"),
        ((X[:, :1], Y[:, :1], v), r"^X: expected at least T = 2 tokens"),
    ],
)
def test_sequences_that_do_not_fit_are_refused(name, given, message):
    with pytest.raises(ValueError, match=message):
        MAKERS[name](*given)


@pytest.mark.parametrize(
    ("present", "message"),
    [
        (HOLES.astype(int), r"^present: expected truth values of shape \(3, 4\).*found shape \(3, 4\) of int64"),
        (HOLES[:2], r"^present: expected truth values of shape \(3, 4\).*found shape \(2, 4\) of bool"),
        (HOLES[:, :, None], r"^present: expected truth values .*found shape \(3, 4, 1\)"),
        (HOLES & [[True], [False], [True]], r"^present: expected at least one token .* none of input \(1,\)"),
        (np.eye(3, 4, dtype=bool), r"^present: expected an input with at least two tokens"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(present, message):
    for kind in (np.asarray, jnp.asarray, np.ndarray.tolist):
        with pytest.raises(ValueError, match=message):
            replace(instances.problem(), present=kind(present))
