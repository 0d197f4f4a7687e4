"""Attention to words: logits, probabilities, risks and margins against loops, and against the general library."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, language, losses
from tests.instances import assert_close
from tests.language import texts
from tests.language.texts import N, V, d, weighted

W = texts.matrix()
LOSSES = {
    "cross entropy": (losses.cross_entropy, lambda x: -np.log(x)),
    "logistic": (losses.logistic, lambda x: np.log1p(np.exp(-x))),
    "exponential": (losses.exponential, lambda x: np.exp(-x)),
}
ATTENTIONS = {"softmax": language.softmax, "linear": language.linear}


def positionwise(choices, i, attend="softmax"):
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
    return np.average([of_input(i) for i in kept], weights=np.asarray(choices.weight)[kept])


def test_the_table_holds_the_logits_of_all_pairs_of_words_and_margins_are_their_differences(choices):
    E = np.asarray(choices.E)
    table, logits, margins = (of(W, choices) for of in (language.table, language.logits, language.margins))
    np.testing.assert_allclose(table, np.einsum("td,de,ae->at", E, W, E), rtol=1e-12)
    np.testing.assert_array_equal(logits, table[choices.last])
    for i in range(N):
        others = texts.others(choices, i)
        expected = [(E[choices.next[i]] - E[t]) @ np.asarray(W) @ E[choices.last[i]] for t in others]
        np.testing.assert_allclose(np.asarray(margins[i])[others], expected, rtol=1e-11)
        assert np.isfinite(margins[i]).sum() == len(others)
    assert np.isfinite(margins).any()


@pytest.mark.parametrize("kind", ["factored", "spanned"])
def test_weights_of_any_kind_are_read(choices, kind):
    factored = attention.Factored(texts.matrix(1)[:, :2], texts.matrix(2)[:, :2])
    weights = factored if kind == "factored" else language.weights(texts.matrix(3, V), choices)
    assert_close(language.risk(weights, choices), language.risk(weights.W, choices))


@pytest.mark.parametrize("attend", ATTENTIONS)
def test_attention_to_words_is_that_to_their_positions_added_up(choices, attend):
    attended = ATTENTIONS[attend](language.logits(W, choices), choices)
    for i in range(N):
        words, of_positions = positionwise(choices, i, attend)
        np.testing.assert_allclose(attended[i], np.bincount(words, of_positions, minlength=V), atol=1e-14)


# Linear attention may be negative, where cross entropy is not defined.
RISKS = [(loss, attend) for loss in LOSSES for attend in ATTENTIONS if (loss, attend) != ("cross entropy", "linear")]


@pytest.mark.parametrize(("name", "attend"), RISKS)
def test_the_risk_is_the_mean_loss_of_the_attended_score(choices, name, attend):
    loss, in_numpy = LOSSES[name]
    scores = jnp.asarray(np.random.default_rng(2).normal(size=(N, V)))
    for text in (choices, weighted(choices), choices._replace(scores=scores)):
        if text.scores is not None and name == "cross entropy":
            continue

        def of_input(i, text=text):
            words, p = positionwise(text, i, attend)
            return in_numpy(p @ np.asarray(text.worth)[i, words])

        risk = language.risk(W, text, loss=loss, attention=ATTENTIONS[attend])
        np.testing.assert_allclose(risk, weighted_mean(text, of_input), rtol=1e-12)


@pytest.mark.parametrize("attend", ATTENTIONS)
def test_the_squared_risk_is_of_the_distance_to_the_next_embedding(choices, attend):
    E = np.asarray(choices.E)

    def of_input(i):
        words, p = positionwise(choices, i, attend)
        return np.sum((p @ E[words] - E[int(choices.next[i])]) ** 2) / 2

    risk = language.squared_risk(W, choices, attention=ATTENTIONS[attend])
    np.testing.assert_allclose(risk, weighted_mean(choices, of_input), rtol=1e-12)


@pytest.mark.parametrize("risk", [language.risk, language.squared_risk])
def test_gradients_are_finite_where_prefixes_are_left_out(risk):
    choices = texts.drawn("prefix")
    excluded = np.asarray(choices.weight) == 0
    # Some attend to their next word with probability 0.
    p = language.softmax(language.logits(W, choices), choices)
    assert np.any(p[np.arange(N), choices.next][excluded] == 0)
    slope_of = jax.jit(jax.grad(risk))
    slope = slope_of(W, choices)
    assert np.isfinite(slope).all()
    kept = jax.tree.map(lambda leaf: leaf if leaf is choices.E else leaf[~excluded], choices)
    assert_close(slope, slope_of(W, kept), rtol=1e-13)


@pytest.mark.parametrize("loss", [losses.logistic, losses.exponential])
def test_it_is_a_problem_of_the_general_library(choices, loss):
    """The same text as inputs of positions with a label of 1, all of which count."""
    words = [texts.positions(choices, i) for i in range(N)]
    longest = max(map(len, words))
    present = np.array([np.arange(longest) < len(own) for own in words])
    padded = np.array([np.pad(own, (0, longest - len(own))) for own in words])
    E, v = np.asarray(choices.E), np.random.default_rng(5).normal(size=d)
    text = choices._replace(scores=jnp.broadcast_to(jnp.asarray(E @ v)[None], (N, V)), weight=jnp.ones(N))
    problem = Problem(X=E[padded], Z=E[np.asarray(choices.last)], Y=np.ones(N), v=v, present=present)

    @jax.jit
    def both(W, text, problem):
        risks = (partial(language.risk, choices=text), partial(losses.risk, problem=problem))
        attended = language.softmax(language.logits(W, text), text), attention.probabilities(W, problem)
        return attended, *(jax.value_and_grad(lambda W, of=of: of(W, loss=loss))(W) for of in risks)

    (ours, theirs), found, expected = both(W, text, problem)
    for i in range(N):
        np.testing.assert_allclose(ours[i], np.bincount(padded[i], theirs[i], minlength=V), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert_close(found[1], expected[1], rtol=1e-12)


def test_weights_that_do_not_fit_are_refused():
    for of in (language.table, language.logits, language.margins, language.risk, language.squared_risk):
        with pytest.raises(ValueError, match=r"^W: expected shape \(6, 6\) for embeddings of d = 6, found \(5, 5\)"):
            of(jnp.zeros((5, 5)), texts.drawn())
