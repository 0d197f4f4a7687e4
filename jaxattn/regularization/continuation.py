"""Internal: follow minimizers of a risk on a ball from radius to radius."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.regularization.newton import Task, step

# The damping of the first step on each radius, and the number of consecutive failures after which a path ends.
_FIRST, _ENDS = 1e-3, 3


class Branch(NamedTuple):
    """The points found on all radii, in the given order.

    Attributes:
        x: coordinates of the ball, (radii, a, b); zero for radii after the path was abandoned.
        steps: the number of steps on each radius, (radii).
    """

    x: Float[Array, "radii a b"]
    steps: Int[Array, " radii"]


class _State(NamedTuple):
    number: Int[Array, ""]
    steps: Int[Array, ""]
    failed: Int[Array, ""]
    x: Float[Array, "a b"]
    damping: Float[Array, ""]
    good: Bool[Array, ""]
    done: Branch


def follow(
    task: Task | Callable[[Int[Array, ""]], Task],
    x: Float[Array, "a b"],
    radii: Float[Array, " radii"],
    most: int,
    count: Int[Array, ""] | None = None,
    ahead: Float[Array, " radii"] | None = None,
) -> Branch:
    """Find a point of small residual on each radius, starting from the point on the previous one.

    On each radius steps are made until the residual is small, or `most` times. In a batch each seed proceeds through
    the radii independently, so that all wait only for the seed with the most steps in total.

    Args:
        task: the risk and the ball, or a function that returns those of the k-th radius.
        x: initial coordinates, at any scale.
        radii: the radii in the order to follow, increasing or decreasing.
        most: the largest number of steps on one radius.
        count: the number of radii to follow. Default: all.
        ahead: for each radius, how far from the last point it begins, in units of the last move between radii. Default:
            along the tangent of the path of one risk.
    """
    count = jnp.asarray(radii.size) if count is None else count
    sharp = jnp.finfo(x.dtype).eps ** 0.4
    at = task if callable(task) else lambda _: task
    zero = jnp.zeros((), int)
    ball = at(zero).ball
    lengths = ball.length(radii)

    def on_sphere(x: Array, length: Array) -> Array:
        return x * length / jnp.sqrt(jnp.sum(x * x))

    def advance(now: _State) -> _State:
        found = step(at(now.number), now.x, radii[now.number], now.damping, now.good)
        steps, solved = now.steps + 1, found.residual <= sharp
        leaves = solved | (steps >= most)
        done = Branch(now.done.x.at[now.number].set(found.x), now.done.steps.at[now.number].set(steps))
        following = jnp.minimum(now.number + 1, count - 1)
        if ahead is None:
            move = (lengths[following] - lengths[now.number]) * jnp.where(solved, found.tangent, 0.0)
        else:
            move = ahead[following] * (found.x - done.x[jnp.maximum(now.number - 1, 0)])
        return _State(
            number=now.number + leaves,
            steps=jnp.where(leaves, 0, steps),
            failed=jnp.where(leaves, jnp.where(solved, 0, now.failed + 1), now.failed),
            x=jnp.where(leaves, on_sphere(ball.kicked(found.x + move), lengths[following]), found.x),
            damping=jnp.where(leaves, _FIRST, found.damping),
            good=leaves | found.good,
            done=done,
        )

    empty = Branch(jnp.zeros((radii.size, *x.shape), x.dtype), jnp.zeros(radii.size, int))
    first = on_sphere(x, lengths[0])
    start = _State(zero, zero, zero, first, jnp.asarray(_FIRST, x.dtype), jnp.ones((), bool), empty)
    return jax.lax.while_loop(lambda now: (now.number < count) & (now.failed < _ENDS), advance, start).done
