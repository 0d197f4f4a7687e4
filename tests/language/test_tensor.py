"""The tensor trick: entries of the Kronecker form, and its risks and gradients against those of the engine."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language, losses
from jaxattn.language import tensor
from tests.instances import assert_close
from tests.language import texts
from tests.language.texts import V, d, m, n

W = texts.matrix()
A1, A2 = (jnp.asarray(np.random.default_rng(seed).normal(size=(4, d))) for seed in (1, 2))


def sequences(choices):
    """The words of a text, (m, n)."""
    last, following = (np.asarray(words).reshape(m, n - 1) for words in (choices.last, choices.next))
    return jnp.asarray(np.concatenate([last, following[:, -1:]], axis=1))


def test_scores_are_those_of_the_matrix_form_row_by_row():
    scores = tensor.kronecker(A1, A2) @ tensor.stacked(W)
    assert tensor.kronecker(A1, A2).shape == (16, d * d)
    for i in range(4):
        for j in range(4):
            # What position i asks of position j.
            np.testing.assert_allclose(scores[4 * i + j], A2[j] @ W @ A1[i], rtol=1e-12)
    assert_close(scores.reshape(4, 4), A1 @ W.T @ A2.T)


def test_attention_has_a_sum_for_each_row_and_is_causal():
    p = np.asarray(tensor.attention(tensor.stacked(W), tensor.kronecker(A1, A1)))
    for i in range(4):
        e = np.exp([A1[j] @ W @ A1[i] for j in range(i + 1)])
        np.testing.assert_allclose(p[i, : i + 1], e / e.sum(), rtol=1e-12)
        np.testing.assert_array_equal(p[i, i + 1 :], 0)


@pytest.mark.parametrize("loss", [losses.cross_entropy, losses.logistic, losses.exponential, "squared"])
@pytest.mark.parametrize("seed", range(3))
def test_risk_and_gradient_are_those_of_the_engine(seed, loss):
    choices, weights = texts.drawn("prefix", seed), texts.matrix(seed)
    x, words = tensor.stacked(weights), sequences(choices)
    if loss == "squared":
        found, risk = tensor.squared_slope(x, choices.E, words), language.squared_risk
    else:
        found, risk = tensor.slope(x, choices.E, words, loss), partial(language.risk, loss=loss)
    value, gradient = jax.jit(jax.value_and_grad(risk))(weights, choices)
    np.testing.assert_allclose(found.value, value, rtol=1e-13)
    assert_close(found.gradient, tensor.stacked(gradient), rtol=1e-13)


@pytest.mark.parametrize("of", [tensor.slope, tensor.squared_slope])
def test_the_gradient_is_that_of_its_own_value(of):
    choices = texts.drawn("prefix")
    x, words = tensor.stacked(W), sequences(choices)
    automatic = jax.jit(jax.grad(lambda x: of(x, choices.E, words).value))(x)
    assert_close(of(x, choices.E, words).gradient, automatic, rtol=1e-13)


def test_sums_over_all_rows_together_would_not_do():
    # One sum for all positions, in place of one a row: a D(X) of another size.
    x, whole = tensor.stacked(W), tensor.kronecker(A1, A1)
    rows = jnp.tri(4) * jnp.exp(whole @ x).reshape(4, 4)
    assert np.max(np.abs(rows / jnp.sum(rows) - tensor.attention(x, whole))) > 1e-2


def test_a_text_in_which_no_prefix_chooses_has_no_risk_and_no_gradient():
    words, E = jnp.asarray([[0, 1, 2, 3]]), texts.drawn().E
    for of in (tensor.slope, tensor.squared_slope):
        found = of(tensor.stacked(W), E, words)
        assert found.value == 0
        np.testing.assert_array_equal(found.gradient, 0)
    assert E.shape == (V, d)
