"""Penalties on the attention, for example on its entropy, added to the risk in training, in the log domain.

A penalty is a pure function from the logarithms of the attention probabilities, log s, (n, T), to the derivative of
each input's penalty with respect to s, (n, T). `train(..., penalty=...)` minimizes `mean_i (loss(Y_i f_i) +
penalty(s_i))`. Since log s is finite where s underflows, the gradient of the penalty is as exact as that of the risk,
however far the softmax has saturated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import checks
from jaxattn.checks import Number
from jaxattn.descent import gradients
from jaxattn.losses import Loss

__all__ = ["Penalty", "entropy", "unpenalized"]

# Maps log s to the derivative with respect to s. The result is ignored for tokens that an input cannot see.
Penalty = Callable[[Float[Array, "n T"]], Float[Array, "n T"]]


def unpenalized(log_probabilities: Float[Array, "n T"]) -> Float[Array, "n T"]:
    """Return the derivative of no penalty, 0: training minimizes the risk alone.

    Example:
        >>> float(jnp.abs(descent.unpenalized(jnp.zeros((3, 4)))).max())
        0.0
    """
    return jnp.zeros_like(log_probabilities)


@checks.remembered
def entropy(weight: Number) -> Penalty:
    """Return the penalty `weight * H(s_i)` on the entropy of the attention.

    The entropies of several heads are added.

    Args:
        weight: positive to favour attention on few tokens, negative to favour spread attention.

    Raises:
        ValueError: a weight that is not finite.

    Example:
        >>> run = descent.train(start, problem, penalty=descent.entropy(0.1), steps=10)
    """
    return _Entropy(checks.number("weight", weight, "a finite number", math.isfinite))


@dataclass(frozen=True)
class _Entropy:
    weight: Number

    def __call__(self, log_probabilities: Float[Array, "n T"]) -> Float[Array, "n T"]:
        return -self.weight * (log_probabilities + 1)


def added(rule: gradients.Rule, penalty: Penalty) -> gradients.Rule:
    """Return the rule that forms the gradient of risk plus penalty, as `direction` and `exact` form that of the risk.

    For each token it adds the derivatives of the risk, `n c_i w_it`, and of the penalty, both divided by the larger
    one. So neither overflows, and neither is lost where the other one underflows.
    """

    def whole(step: Int[Array, ""], logits: Array, Y: Array, read: gradients.Reading, loss: Loss) -> gradients.Slope:
        probabilities = jax.nn.softmax(logits, axis=1)
        predictions, worth = read(step, probabilities)
        margins = Y * predictions
        sign, exponent = gradients.log_slope(loss, margins)
        # A constant may be subtracted from an input's derivatives. Subtract that of the selected token, so that small
        # terms are not lost.
        slopes = penalty(jax.nn.log_softmax(logits, axis=1))
        if jnp.shape(slopes) != logits.shape:
            raise ValueError(
                f"penalty: expected one derivative for each probability, {logits.shape}, found {jnp.shape(slopes)}"
            )
        of_selected = jnp.take_along_axis(slopes, jnp.argmax(logits, axis=1)[:, None], axis=1)
        slopes = jnp.where(logits > -jnp.inf, slopes - of_selected, 0)
        largest = jnp.max(jnp.abs(slopes), axis=1)
        larger = jnp.maximum(exponent, jnp.log(largest))
        finite = jnp.where(jnp.isfinite(larger), larger, 0)
        of_risk, of_penalty = Y * sign * jnp.exp(exponent - finite), jnp.exp(jnp.log(largest) - finite)
        relative = slopes / jnp.where(largest > 0, largest, 1)[:, None]
        both = of_risk[:, None] * worth + of_penalty[:, None] * relative
        terms = gradients.Slope(jax.vmap(loss)(margins), probabilities, both, larger)
        slope = gradients.factored(step, logits, terms, jnp.ones_like(Y))
        return slope if rule is gradients.direction else gradients.multiplied(step, slope)

    return rule if penalty is unpenalized else whole
