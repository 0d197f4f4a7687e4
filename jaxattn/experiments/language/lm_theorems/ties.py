"""The words with attention at the minimum of the logistic risk of a text, whatever logits lead there.

A word that asks for two different next words cannot have both. The risk is convex in the attention, and its minimum may
be at a mixture: then several words stay selected, and the max-margin problem of the direction ties them. Descent can
also keep other words, if a better one is so far behind along its direction that its gradient vanishes: the locally
optimal tokens of 2308.16898.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import losses
from jaxattn.language import Choices

# Steps of the exponentiated gradient, with step size 1 / (largest second derivative of the logistic loss).
_TURNS, _LENGTH = 5000, 4.0
# Words with more attention than the first are selected, those with less than the second are not; between them it is
# undecided.
_SELECTED, _NONE = 1e-4, 1e-8


def best_attention(choices: Choices) -> Float[Array, "V V"]:
    """Return the attention of least logistic risk, (V, V): row a is the distribution over the words if word a asks.

    Uses exponentiated gradient, whose step is safe for scores within [-1, 1]; a losing word decays geometrically. The
    row of a word that never asks is uniform.

    Raises:
        ValueError: choices with other candidates, whose attention is not one distribution per word.
    """
    if choices.counts is not None:
        raise ValueError("best_attention: expected the whole vocabulary as candidates, found counts")
    V, worth = choices.E.shape[0], choices.worth
    asked = jax.ops.segment_sum(choices.weight, choices.last, num_segments=V)
    share = choices.weight / asked[choices.last]
    slope = jax.vmap(jax.grad(losses.logistic))

    def turn(_: Array, log_q: Array) -> Array:
        attended = jnp.sum(jnp.exp(log_q[choices.last]) * worth, axis=1)
        rise = -(jnp.where(share > 0, share, 0.0) * slope(attended))[:, None] * worth
        rise = jax.ops.segment_sum(rise, choices.last, num_segments=V)
        return jax.nn.log_softmax(log_q + _LENGTH * rise, axis=1)

    return jnp.exp(jax.lax.fori_loop(0, _TURNS, turn, jnp.full((V, V), -jnp.log(V), worth.dtype)))


def selected(attention: Float[Array, "V V"], choices: Choices) -> tuple[Bool[Array, "V V"], Bool[Array, ""]]:
    """Return which words keep attention, (V, V), by asking word, and whether this is clear for all that ask."""
    asked = jax.ops.segment_sum(choices.weight, choices.last, num_segments=len(attention)) > 0
    between = (attention > _NONE) & (attention < _SELECTED)
    return attention >= _SELECTED, ~jnp.any(between & asked[:, None])


def kept(table: Float[Array, "V V"], length: Float[Array, ""]) -> Bool[Array, "V V"]:
    """Return which words of a table of logits continue to receive attention: less than half a margin behind the first.

    The margin of losing words is by now `length`, the norm of W over that of a max-margin solution.
    """
    return jnp.max(table, axis=1, keepdims=True) - table < length / 2
