"""Attention to words: logits, probabilities, risks and margins against loops, and against the general library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, language, losses
from tests import instances
from tests.instances import assert_close
from tests.language import texts
from tests.language.texts import CANDIDATES, N, V, d

W = texts.matrix()
LOSSES = {
    "cross entropy": (losses.cross_entropy, lambda x: -np.log(x)),
    "logistic": (losses.logistic, lambda x: np.log1p(np.exp(-x))),
    "exponential": (losses.exponential, lambda x: np.exp(-x)),
}


@pytest.fixture(scope="module", params=CANDIDATES)
def choices(request):
    """A text of the shared shape, with either kind of candidates."""
    return texts.drawn(request.param)


def positionwise(choices, i, W=W, attend=None):
    """The candidate words of an input, repeated, and the attention to each occurrence, in NumPy."""
    E, words = np.asarray(choices.E), texts.positions(choices, i)
    logits = np.array([E[word] @ np.asarray(W) @ E[choices.last[i]] for word in words])
    if attend == "linear":
        return words, logits / len(words)
    e = np.exp(logits - logits.max())
    return words, e / e.sum()


def weighted_mean(choices, of_input):
    """The mean over inputs, as often as each counts."""
    kept = [i for i in range(N) if choices.weight[i] > 0]
    weight = [float(choices.weight[i]) for i in kept]
    return np.dot(weight, [of_input(i) for i in kept]) / np.sum(weight)


def weighted(choices):
    """The same text with inputs that count differently."""
    return choices._replace(weight=choices.weight * (1 + jnp.arange(N)))


def test_the_table_holds_the_logits_of_all_pairs_of_words(choices):
    E = np.asarray(choices.E)
    table, logits = language.table(W, choices), language.logits(W, choices)
    for a in range(V):
        for t in range(V):
            np.testing.assert_allclose(table[a, t], E[t] @ np.asarray(W) @ E[a], rtol=1e-12)
    for i in range(N):
        np.testing.assert_array_equal(logits[i], table[choices.last[i]])


@pytest.mark.parametrize("kind", ["factored", "spanned"])
def test_weights_of_any_kind_are_read(choices, kind):
    factors = texts.matrix(1)[:, :2], texts.matrix(2)[:, :2]
    pairs = texts.matrix(3, V)
    weights = attention.Factored(*factors) if kind == "factored" else language.weights(pairs, choices)
    assert_close(language.risk(weights, choices), language.risk(weights.W, choices))


def test_attention_to_words_is_that_to_their_positions_added_up(choices):
    logits = language.logits(W, choices)
    for attend, name in ((language.softmax, "softmax"), (language.linear, "linear")):
        attended = attend(logits, choices)
        for i in range(N):
            words, of_positions = positionwise(choices, i, attend=name)
            expected = np.bincount(words, weights=of_positions, minlength=V)
            np.testing.assert_allclose(attended[i], expected, atol=1e-14)
        if name == "softmax":
            np.testing.assert_allclose(np.sum(attended, axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weigh", [lambda one: one, weighted], ids=["equal", "weighted"])
def test_the_risk_is_the_mean_loss_of_the_attended_score(choices, name, weigh):
    loss, in_numpy = LOSSES[name]
    text = weigh(choices)
    for attend in ("softmax", "linear"):
        if attend == "linear" and name == "cross entropy":
            continue  # Linear attention may be negative.

        def of_input(i, attend=attend):
            words, p = positionwise(text, i, attend=attend)
            return in_numpy(p[words == int(text.next[i])].sum())

        risk = language.risk(W, text, loss=loss, attention=getattr(language, attend))
        np.testing.assert_allclose(risk, weighted_mean(text, of_input), rtol=1e-12)


def test_scores_of_ones_own_take_the_place_of_the_next_word(choices):
    scores = jnp.asarray(np.random.default_rng(2).normal(size=(N, V)))
    text = choices._replace(scores=scores)

    def of_input(i):
        words, p = positionwise(text, i)
        return np.log1p(np.exp(-(p @ np.asarray(scores)[i, words])))

    np.testing.assert_allclose(language.risk(W, text, loss=losses.logistic), weighted_mean(text, of_input), rtol=1e-12)


@pytest.mark.parametrize("attend", ["softmax", "linear"])
def test_the_squared_risk_is_of_the_distance_to_the_next_embedding(choices, attend):
    E = np.asarray(choices.E)

    def of_input(i):
        words, p = positionwise(choices, i, attend=attend)
        return np.sum((p @ E[words] - E[int(choices.next[i])]) ** 2) / 2

    risk = language.squared_risk(W, choices, attention=getattr(language, attend))
    np.testing.assert_allclose(risk, weighted_mean(choices, of_input), rtol=1e-12)


def test_margins_are_of_the_next_word_over_every_other_candidate(choices):
    E, margins = np.asarray(choices.E), language.margins(W, choices)
    for i in range(N):
        candidates = set(texts.positions(choices, i)) if choices.weight[i] > 0 else set()
        for t in range(V):
            expected = np.inf
            if t in candidates - {int(choices.next[i])}:
                expected = (E[int(choices.next[i])] - E[t]) @ np.asarray(W) @ E[int(choices.last[i])]
            np.testing.assert_allclose(margins[i, t], expected, rtol=1e-11)
    assert np.isfinite(margins).sum() == np.sum(choices.others) > 0


def test_over_the_vocabulary_cross_entropy_is_that_of_multinomial_regression():
    choices = texts.drawn()
    logits = np.asarray(choices.E)[np.asarray(choices.last)] @ np.asarray(W).T @ np.asarray(choices.E).T
    log_p = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    expected = -np.mean(log_p[np.arange(N), np.asarray(choices.next)])
    np.testing.assert_allclose(language.risk(W, choices), expected, rtol=1e-12)


@pytest.mark.parametrize("risk", [language.risk, language.squared_risk])
def test_gradients_are_finite_where_prefixes_are_left_out(risk):
    # Some attend to their next word with probability 0.
    choices = texts.drawn("prefix")
    left_out = np.asarray(choices.weight) == 0
    assert np.any(language.softmax(language.logits(W, choices), choices)[np.arange(N), choices.next][left_out] == 0)
    slope = jax.grad(risk)(W, choices)
    assert np.isfinite(slope).all()
    kept = jax.tree.map(lambda leaf: leaf if leaf is choices.E else leaf[~left_out], choices)
    assert_close(slope, jax.grad(risk)(W, kept), rtol=1e-13)


def general(choices):
    """The same text as inputs of positions with a label of 1, of the general library."""
    words = [texts.positions(choices, i) for i in range(N)]
    longest = max(map(len, words))
    present = np.array([np.arange(longest) < len(one) for one in words])
    padded = np.array([np.pad(one, (0, longest - len(one))) for one in words])
    E = np.asarray(choices.E)
    v = np.random.default_rng(5).normal(size=d)
    scores = jnp.broadcast_to(jnp.asarray(E @ v)[None], (N, V))
    # All inputs count there.
    text = choices._replace(scores=scores, weight=jnp.ones(N))
    return text, Problem(X=E[padded], Z=E[np.asarray(choices.last)], Y=np.ones(N), v=v, present=present), padded


@pytest.mark.parametrize("loss", [losses.logistic, losses.exponential])
def test_it_is_a_problem_of_the_general_library(choices, loss):
    text, problem, padded = general(choices)
    ours, theirs = language.softmax(language.logits(W, text), text), attention.probabilities(W, problem)
    for i in range(N):
        added = np.bincount(padded[i], weights=np.asarray(theirs)[i], minlength=V)
        np.testing.assert_allclose(ours[i], added, rtol=0, atol=1e-12)
    value, slope = jax.value_and_grad(lambda W: language.risk(W, text, loss=loss))(W)
    expected, of_general = jax.value_and_grad(lambda W: losses.risk(W, problem, loss=loss))(W)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert_close(slope, of_general, rtol=1e-12)


def test_a_lane_of_jit_and_vmap_is_a_lone_text():
    batch = texts.batch_of("prefix")
    for of in (language.risk, language.squared_risk, language.margins):
        lifted = jax.jit(jax.vmap(of, in_axes=(None, 0)))(W, batch)
        for i in range(3):
            np.testing.assert_allclose(lifted[i], of(W, instances.lane(batch, i)), rtol=1e-12)


def test_single_precision_stays_single():
    with jax.enable_x64(False):
        text = texts.single(texts.drawn("prefix"))
        risk = language.risk(np.asarray(W, np.float32), text)
    assert risk.dtype == np.float32
    np.testing.assert_allclose(risk, language.risk(W, texts.drawn("prefix")), rtol=1e-5)


def test_weights_that_do_not_fit_are_refused():
    for of in (language.table, language.logits, language.margins, language.risk, language.squared_risk):
        with pytest.raises(ValueError, match=r"^W: expected shape \(6, 6\) for embeddings of d = 6, found \(5, 5\)"):
            of(jnp.zeros((5, 5)), texts.drawn())
