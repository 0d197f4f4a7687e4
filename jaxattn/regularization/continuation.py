"""Internal: follow minimizers of a risk on a ball from radius to radius."""

from __future__ import annotations

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
    task: Task, x: Float[Array, "a b"], radii: Float[Array, " radii"], most: int, count: Int[Array, ""] | None = None
) -> Branch:
    """Find a point of small residual on each radius, starting from the point on the previous one.

    On each radius steps are made until the residual is small, or `most` times. In a batch each seed proceeds through
    the radii independently, so that all wait only for the seed with the most steps in total.

    Args:
        task: the risk and the ball.
        x: initial coordinates, at any scale.
        radii: the radii in the order to follow, increasing or decreasing.
        most: the largest number of steps on one radius.
        count: the number of radii to follow. Default: all.
    """
    count = jnp.asarray(radii.size) if count is None else count
    sharp = jnp.finfo(x.dtype).eps ** 0.4
    lengths = task.ball.length(radii)

    def on_sphere(x: Array, length: Array) -> Array:
        return x * length / jnp.sqrt(jnp.sum(x * x))

    def advance(now: _State) -> _State:
        found = step(task, now.x, radii[now.number], now.damping, now.good)
        steps, solved = now.steps + 1, found.residual <= sharp
        leaves = solved | (steps >= most)
        done = Branch(now.done.x.at[now.number].set(found.x), now.done.steps.at[now.number].set(steps))
        following = jnp.minimum(now.number + 1, count - 1)
        ahead = found.x + (lengths[following] - lengths[now.number]) * jnp.where(solved, found.tangent, 0.0)
        return _State(
            number=now.number + leaves,
            steps=jnp.where(leaves, 0, steps),
            failed=jnp.where(leaves, jnp.where(solved, 0, now.failed + 1), now.failed),
            x=jnp.where(leaves, on_sphere(task.ball.kicked(ahead), lengths[following]), found.x),
            damping=jnp.where(leaves, _FIRST, found.damping),
            good=leaves | found.good,
            done=done,
        )

    zero = jnp.zeros((), int)
    empty = Branch(jnp.zeros((radii.size, *x.shape), x.dtype), jnp.zeros(radii.size, int))
    first = on_sphere(x, lengths[0])
    start = _State(zero, zero, zero, first, jnp.asarray(_FIRST, x.dtype), jnp.ones((), bool), empty)
    return jax.lax.while_loop(lambda now: (now.number < count) & (now.failed < _ENDS), advance, start).done
