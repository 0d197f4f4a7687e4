"""What a head writes: the mean of the values by the attention, with a gradient that does not cancel once it is hard."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def attended(logits: Float[Array, "*batch u t"], values: Float[Array, "*batch t d"]) -> Float[Array, "*batch u d"]:
    """Return the mean of the values by `softmax(logits)`.

    The derivative by the logit of token t is `s_t sum_w s_w (c_t - c_w)`, with c the inner products of the values and
    the derivative by the mean. Taken term by term it keeps its digits for the selected token too, where the usual
    `s_t (c_t - sum_w s_w c_w)` cancels to an error of 1e-16.
    """
    return jax.nn.softmax(logits, axis=-1) @ values


def _forward(logits: Array, values: Array) -> tuple[Array, Any]:
    probabilities = jax.nn.softmax(logits, axis=-1)
    return probabilities @ values, (probabilities, values)


def _backward(kept: Any, slope: Array) -> tuple[Array, Array]:
    probabilities, values = kept
    worth = slope @ values.mT
    ahead = worth[..., :, None] - worth[..., None, :]
    of_logits = probabilities * jnp.sum(ahead * probabilities[..., None, :], axis=-1)
    return of_logits, probabilities.mT @ slope


attended.defvjp(_forward, _backward)


def hard(logits: Float[Array, "*batch u t"], values: Float[Array, "*batch t d"]) -> Float[Array, "*batch u d"]:
    """Return the value of the token of largest logit: what the head would write if W were infinitely long."""
    return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1]) @ values
