"""The gradient of a text's risk with respect to the logits of pairs of words.

If each word is a candidate once, all prefixes with the same last word have the same attention. The counts of word pairs
then determine the risk, and a step costs the same for any number of prefixes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import losses
from jaxattn.descent import gradients
from jaxattn.language.choices import Choices, followers

__all__ = ["PairSlope", "input_slopes", "pair_slopes"]


class PairSlope(NamedTuple):
    """The gradient with respect to the logits of pairs, `exp(log_scale) * coefficients`.

    Attributes:
        coefficients: (V, V); row a, column t: for the logit of word t with query word a.
        log_scale: (), as in `gradients.Slope`.
        risk: the mean loss over the prefixes, ().
        probability: the mean attention to the next word, ().
    """

    coefficients: Float[Array, "V V"]
    log_scale: Float[Array, ""]
    risk: Float[Array, ""]
    probability: Float[Array, ""]


# Maps the number of the current step, and the logits as returned by `language.table`, to the gradient.
PairSlopes = Callable[[Int[Array, ""], Float[Array, "V V"]], PairSlope]


def pair_slopes(
    choices: Choices, loss: losses.Loss = losses.cross_entropy, rule: gradients.Rule = gradients.exact
) -> PairSlopes:
    """Return the gradient as a function of step and logits; what does not depend on these is computed once.

    The loss is one of the attended score. The rule `gradients.direction` gives the gradient up to `exp(log_scale)`.

    Example:
        >>> of_pairs = language.pair_slopes(text)
        >>> of_pairs(jnp.asarray(0), jnp.zeros((5, 5))).coefficients.shape
        (5, 5)
    """
    if choices.counts is None and choices.scores is None:
        return _of_followers(choices, loss, rule)
    return _of_inputs(choices, loss, rule)


def _of_followers(choices: Choices, loss: losses.Loss, rule: gradients.Rule) -> PairSlopes:
    """Treat each query word as one input with the weighted sum of the losses of the words that follow it."""
    share = followers(choices._replace(weight=choices.share))
    V = len(share)
    of_each = jax.vmap(jax.vmap(jax.value_and_grad(loss)))

    def read(_: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        # Do not evaluate the loss of a word that does not follow: it may be infinite.
        values, slopes = of_each(jnp.where(share > 0, probabilities, 1.0))
        return jnp.sum(share * values, axis=1), share * slopes

    def at(step: Int[Array, ""], table: Float[Array, "V V"]) -> PairSlope:
        # Rules divide by the number of inputs.
        slope = rule(step, table, jnp.ones(V, table.dtype), read, _itself)
        probability = jnp.sum(share * slope.probabilities)
        return PairSlope(slope.coefficients * V, slope.log_scale, jnp.sum(slope.losses), probability)

    return at


def _itself(risk: Float[Array, ""]) -> Float[Array, ""]:
    return risk


def _of_inputs(choices: Choices, loss: losses.Loss, rule: gradients.Rule) -> PairSlopes:
    slopes, share = input_slopes(choices, loss, rule), choices.share

    def at(step: Int[Array, ""], table: Float[Array, "V V"]) -> PairSlope:
        of_inputs, slope = slopes(step, table)
        of_pairs = jax.ops.segment_sum(of_inputs, choices.last, num_segments=len(table))
        of_next = jnp.take_along_axis(slope.probabilities, choices.next[:, None], axis=1)[:, 0]
        return PairSlope(of_pairs, slope.log_scale, jnp.sum(share * slope.losses), jnp.sum(share * of_next))

    return at


def input_slopes(
    choices: Choices, loss: losses.Loss = losses.cross_entropy, rule: gradients.Rule = gradients.exact
) -> Callable[[Int[Array, ""], Float[Array, "V V"]], tuple[Float[Array, "N V"], gradients.Slope]]:
    """Return the gradient before it is summed over prefixes with the same last word, (N, V), and the Slope.

    Both are one function of step and logits; the arguments are those of `pair_slopes`.

    Example:
        >>> own = language.of_text(jnp.eye(4), jnp.array([[0, 1, 0, 3]]), candidates=language.prefix)
        >>> of_inputs = language.input_slopes(own)
    """
    share = choices.share
    counts = None if choices.counts is None else jnp.log(choices.counts)
    # For an excluded input all words have the same score, so it has no gradient.
    worth = jnp.where(choices.weight[:, None] > 0, choices.worth, 1.0)

    def read(_: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        return jnp.sum(probabilities * worth, axis=1), worth

    def at(step: Int[Array, ""], table: Float[Array, "V V"]) -> tuple[Array, gradients.Slope]:
        logits = table[choices.last] if counts is None else table[choices.last] + counts
        slope = rule(step, logits, jnp.ones_like(choices.weight), read, loss)
        return slope.coefficients * (share * len(share))[:, None], slope

    return at
