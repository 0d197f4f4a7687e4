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
from tests.language.texts import d, m, n

W = texts.matrix()
A1, A2 = (jnp.asarray(np.random.default_rng(seed).normal(size=(4, d))) for seed in (1, 2))


def test_scores_are_those_of_the_matrix_form_row_by_row():
    scores = tensor.kronecker(A1, A2) @ tensor.stacked(W)
    assert tensor.kronecker(A1, A2).shape == (16, d * d)
    # Row 4 i + j: what position i asks of position j.
    expected = [A2[j] @ W @ A1[i] for i in range(4) for j in range(4)]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_attention_has_a_sum_for_each_row_and_is_causal():
    x, whole = tensor.stacked(W), tensor.kronecker(A1, A1)
    p = np.asarray(tensor.attention(x, whole))
    for i in range(4):
        e = np.exp([A1[j] @ W @ A1[i] for j in range(i + 1)])
        np.testing.assert_allclose(p[i, : i + 1], e / e.sum(), rtol=1e-12)
        np.testing.assert_array_equal(p[i, i + 1 :], 0)
    # One sum for all positions, in place of one a row: a D(X) of another size.
    rows = jnp.tri(4) * jnp.exp(whole @ x).reshape(4, 4)
    assert np.max(np.abs(rows / jnp.sum(rows) - p)) > 1e-2


@pytest.mark.parametrize("loss", [losses.cross_entropy, losses.logistic, losses.exponential, "squared"])
def test_risk_and_gradient_are_those_of_the_engine_and_of_automatic_differentiation(loss):
    if loss == "squared":
        of_text, risk = tensor.squared_slope, language.squared_risk
    else:
        of_text, risk = partial(tensor.slope, loss=loss), partial(language.risk, loss=loss)
    engine = jax.jit(jax.value_and_grad(risk))
    own = jax.jit(lambda x, E, words: (of_text(x, E, words), jax.grad(lambda x: of_text(x, E, words).value)(x)))
    for seed in range(3):
        choices, weights = texts.drawn("prefix", seed), texts.matrix(seed)
        last, following = (np.asarray(words).reshape(m, n - 1) for words in (choices.last, choices.next))
        words = jnp.asarray(np.concatenate([last, following[:, -1:]], axis=1))
        found, automatic = own(tensor.stacked(weights), choices.E, words)
        value, gradient = engine(weights, choices)
        np.testing.assert_allclose(found.value, value, rtol=1e-13)
        assert_close(found.gradient, tensor.stacked(gradient), rtol=1e-13)
        assert_close(found.gradient, automatic, rtol=1e-13)


@pytest.mark.parametrize("of_text", [tensor.slope, tensor.squared_slope])
def test_a_text_in_which_no_prefix_chooses_has_no_risk_and_no_gradient(of_text):
    found = jax.jit(of_text)(tensor.stacked(W), texts.drawn().E, jnp.asarray([[0, 1, 2, 3]]))
    assert found.value == 0
    np.testing.assert_array_equal(found.gradient, 0)
