"""The curvature of the risks of a text, at drawn W and along descent, and the largest step that descends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from jaxattn import language, losses, metrics
from jaxattn.descent import curvature
from jaxattn.language.model import Attention
from jaxattn.study.settings.texts import choices_of

# Products with a second derivative at one W in the power iteration.
_PRODUCTS = 16
# An increase of the risk below this fraction of its initial value counts as rounding.
_ROUNDING = 1e-12


def texts(record: xarray.Dataset) -> language.Choices:
    """Return the texts of a record, embeddings in coordinates of their span, which contains all second derivatives."""
    return language.compact(choices_of({str(name): record[name].values for name in record.data_vars}))


def tied(choices: language.Choices) -> language.Choices:
    """Return choices whose scores are `e_t . e_next`, so that the attended score grows with the embeddings."""
    return choices._replace(scores=choices.E[choices.next] @ choices.E.T)


def logistic(
    W: Float[Array, "d d"], choices: language.Choices, attention: Attention = language.softmax
) -> Float[Array, ""]:
    """Return the mean logistic loss of the attended score, with the scores of `tied`, ()."""
    return language.risk(W, tied(choices), loss=losses.logistic, attention=attention)


def scaled(
    choices: language.Choices, words: UInt32[np.ndarray, "seeds words"], scales: Float[np.ndarray, " scales"]
) -> tuple[language.Choices, UInt32[np.ndarray, "lanes words"], Float[np.ndarray, " lanes"]]:
    """Return lanes for every text at every scale of its embeddings, scale varying fastest: texts, words, scale."""
    of_each = jax.tree.map(lambda leaf: np.repeat(leaf, len(scales), axis=0), choices)
    scale = np.tile(scales, len(words))
    embeddings = of_each.E * scale[:, None, None]
    return of_each._replace(E=embeddings), np.repeat(words, len(scales), axis=0), scale


def drawn(
    choices: language.Choices,
    words: UInt32[Array, " words"],
    shortest: Float[Array, ""],
    longest: Float[Array, ""],
    count: int,
) -> Float[Array, "count d d"]:
    """Draw W with norms log-uniform between two bounds: alternately free, of uniform direction, and ties.

    A tie `(e_next + b e_t) e_last^T` belongs to one input and another word t, with b such that their two logits differ
    by up to 6: there attention is split between two words, and the curvature is largest.
    """
    V, share = choices.E.shape[-2], jnp.cumsum(choices.weight) / jnp.sum(choices.weight)

    def one(key: PRNGKeyArray, tie: Array) -> Array:
        of_free, of_numbers = jax.random.split(key)
        free = jax.random.normal(of_free, (choices.E.shape[-1] ** 2,)).reshape(2 * choices.E.shape[-1:])
        u = jax.random.uniform(of_numbers, (4,))
        length = shortest * (longest / shortest) ** u[0]
        i = jnp.argmax(share > u[1])
        word, asking = choices.E[choices.next[i]], choices.E[choices.last[i]]
        other = choices.E[(choices.next[i] + 1 + jnp.floor(u[2] * (V - 1)).astype(int)) % V]
        reach = length * metrics.norm(asking) * metrics.norm(other) / jnp.sqrt(2.0)
        lean = jnp.clip((12 * u[3] - 6) / reach, -1.0, 1.0)
        W = jnp.where(tie, jnp.outer(word + (1 + lean) * other, asking), free)
        return length * W / metrics.norm(W)

    return jax.vmap(one)(jax.random.split(jax.random.wrap_key_data(words), count), jnp.arange(count) % 2 == 1)


def largest_at(
    function: Callable[[Array], Array], W: Float[Array, "places d d"], words: UInt32[Array, " words"]
) -> tuple[Float[Array, " places"], Float[Array, " places"]]:
    """Return a lower bound of the largest eigenvalue (in size) of the second derivative at each W, and its residual."""

    def of_one(W: Array) -> tuple[Array, Array]:
        found = curvature.largest(function, W, jax.random.wrap_key_data(words), _PRODUCTS)
        return jnp.abs(found.value), found.residual

    return jax.lax.map(of_one, W)


def descent(
    function: Callable[[Array], Array], start: Float[Array, "d d"], step: Float[Array, ""], kept: Int[Array, " kept"]
) -> Float[Array, "kept d d"]:
    """Return the W of plain descent after increasing numbers of steps."""
    slope = jax.grad(function)

    def further(W: Array, times: Array) -> tuple[Array, Array]:
        W = jax.lax.fori_loop(0, times, lambda _, W: W - step * slope(W), W)
        return W, W

    return jax.lax.scan(further, start, jnp.diff(kept, prepend=0))[1]


class Largest(NamedTuple):
    """The largest step of plain descent such that all smaller steps tried descend.

    It is a lower bound; the upper end of the interval if all steps of the grid descend, the lower end if that one does
    not. Also whether each step of the grid `descends` (beyond the threshold some may again), and whether with it the
    risk ever `exceeds` its start, or is not finite.
    """

    step: Float[Array, ""]
    descends: Bool[Array, " points"]
    exceeds: Bool[Array, " points"]


def largest_step(
    function: Callable[[Array], Array],
    start: Float[Array, "d d"],
    low: Float[Array, ""],
    high: Float[Array, ""],
    steps: int,
    points: int,
    halvings: int,
) -> Largest:
    """Return the largest step between two ends that descends: the risk rises in none of `steps` steps.

    A logarithmic grid of so many points is tried first; so many halvings between the first step that does not descend
    and the one below it then find the threshold.
    """
    risk_and_slope = jax.value_and_grad(function)
    at_start = function(start)

    def descends(step: Array) -> tuple[Array, Array]:
        def told(risk: Array, before: Array, falls: Array, exceeds: Array) -> tuple[Array, Array]:
            # A comparison with NaN is false.
            falls = falls & (risk <= before + _ROUNDING * at_start)
            return falls, exceeds | ~(risk <= at_start * (1 + _ROUNDING))

        def one(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            W, *so_far = state
            risk, slope = risk_and_slope(W)
            return W - step * slope, risk, *told(risk, *so_far)

        none = jnp.zeros((), bool)
        W, *so_far = jax.lax.fori_loop(0, steps, one, (start, at_start, ~none, none))
        return told(function(W), *so_far)

    grid = jnp.linspace(jnp.log(low), jnp.log(high), points)
    falls, exceeds = jax.vmap(descends)(jnp.exp(grid))
    first = jnp.argmin(falls)
    ends = grid[jnp.maximum(first - 1, 0)], grid[first]

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        good = descends(jnp.exp(middle))[0]
        return jnp.where(good, middle, ends[0]), jnp.where(good, ends[1], middle)

    below, _ = jax.lax.fori_loop(0, halvings, halve, ends)
    step = jnp.where(jnp.all(falls), grid[-1], jnp.where(falls[0], below, grid[0]))
    return Largest(jnp.exp(step), falls, exceeds)
