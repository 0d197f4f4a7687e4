"""Internal: the central path for norms of the lengths of rows or columns.

A row w with `|w| <= t` is a point `x = (t, w)` of a second-order cone. `y = (z, -m)`, with m the row of M and `|m| <=
z`, is a point of its dual. On the path `x o y = mu e` in the Jordan algebra of the cone. For the largest length all t
equal the size and the z sum to 1; for the sum of lengths all z are 1 and the t sum to the size. For half a squared norm
the size replaces this 1. A step is a Nesterov-Todd step: `dx + H dy = mu y^-1 - x`, where `H y = x`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.norms import Lengths
from jaxattn.svm.pivoting import positive
from jaxattn.svm.solvers.norm_path import INSIDE, Aim, Begin, Geometry, Local, Point, Task


class Part(NamedTuple):
    """`x = (t, w)` and `y = (z, -m)`, one row for each row or column of W; and W itself."""

    x: Float[Array, "k l"]
    y: Float[Array, "k l"]
    W: Float[Array, "p q"]


@dataclass(frozen=True)
class Cones(Geometry):
    """The path of the largest length or of the sum of lengths."""

    norm: Lengths
    squared: bool

    @property
    def _is_largest(self) -> bool:
        return self.norm.p != 1

    def _turned(self, W: Array) -> Array:
        return jnp.swapaxes(W, -1, -2) if self.norm.turned else W

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        W = 2 * W
        w = self._turned(W)
        k, floor = w.shape[0], positive(metrics.norm(W))
        lengths = jax.vmap(metrics.norm)(w)
        t = jnp.full(k, 1.2 * floor) if self._is_largest else jnp.sqrt(lengths**2 + floor**2 / k)
        size = t[0] if self._is_largest else jnp.sum(t)
        room = (size if self.squared else jnp.ones_like(size)) / (k if self._is_largest else 1)
        y = jnp.concatenate([jnp.full((k, 1), room), jnp.zeros_like(w)], axis=1)
        part = Part(jnp.concatenate([t[:, None], w], axis=1), y, W)
        return part, size, lambda M: jnp.max(jax.vmap(metrics.norm)(self._turned(M))) / room

    def blank(self, part: Part) -> Float[Array, "k l"]:
        """Return zero second-order terms."""
        return jnp.zeros_like(part.x)

    def at(self, task: Task, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point; rows are coupled only by the size."""
        x, y, _ = part
        theta, root = jax.vmap(_scaling)(x, y)
        H = jnp.square(theta)[:, None, None] * jnp.einsum("kab,kbc->kac", root, root)
        corner, edge, block = H[:, 0, 0], H[:, 0, 1:], H[:, 1:, 1:]
        inverse = _reflected(y) / jax.vmap(_determinant)(y)[:, None]
        off = self._turned(M) + y[:, 1:]
        if self._is_largest:
            by_size = edge / corner[:, None]
            weight = block - jnp.einsum("ka,kb->kab", edge, by_size)
            rate = -jnp.sum(1 / corner) - 1.0
        else:
            by_size = -edge if self.squared else jnp.zeros_like(edge)
            weight = block
            rate = -jnp.sum(corner) - 1.0 if self.squared else jnp.full_like(size, -2.0)

        n, m, _ = task.problem.rows.differences.shape
        left, right = task.problem.rows.differences.reshape(n * m, -1), jnp.repeat(task.problem.rows.queries, m, axis=0)
        if self.norm.turned:
            left, right = right, left
        along = jnp.einsum("ck,kab,cb->kca", left, weight, right, optimize="optimal")
        of_size = jnp.sum(left * (right @ by_size.T), axis=1)
        sign = -1.0 if self._is_largest else 1.0
        matrix = jnp.einsum("ck,kda,ca->cd", left, along, right, optimize="optimal")
        matrix = matrix + sign * jnp.outer(of_size, of_size) / rate

        def follow(aim: Aim, dM: Array, dsize: Array) -> Part:
            r = aim.mu * inverse - x - aim.of_norm
            dm = off + self._turned(dM)
            pulled = jnp.sum(edge * dm, axis=1)
            if self._is_largest:
                dt = jnp.broadcast_to(dsize, corner.shape)
                dz = (r[:, 0] - dsize + pulled) / corner
            else:
                dz = jnp.broadcast_to(dsize if self.squared else jnp.zeros_like(dsize), corner.shape)
                dt = r[:, 0] - corner * dz + pulled
            dw = r[:, 1:] - edge * dz[:, None] + jnp.einsum("kab,kb->ka", block, dm)
            beside = partial(jnp.concatenate, axis=1)
            return Part(beside([dt[:, None], dw]), beside([dz[:, None], -dm]), self._turned(dw))

        def missing(move: Part, dsize: Array) -> Array:
            if self._is_largest:
                return jnp.sum(y[:, 0] + move.y[:, 0]) - (size + dsize if self.squared else 1.0)
            return jnp.sum(x[:, 0] + move.x[:, 0]) - size - dsize

        def second(move: Part, share: Array) -> Array:
            return jax.vmap(_second)(theta, root, y, move.x, move.y)

        across = -of_size.reshape(task.problem.b.shape)
        return Local(matrix, across, rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""
        ends = [jax.vmap(_until)(*pair) for pair in ((now.part.x, move.part.x), (now.part.y, move.part.y))]
        return jnp.minimum(most, INSIDE * jnp.min(jnp.stack(ends)))

    def products(self, part: Part, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return the sum of the products that equal mu on the path, and their number."""
        return jnp.sum(part.x * part.y), part.x.shape[0]

    def bounds(self, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return the norm of W and the dual norm of M."""
        return self.norm.value(part.W), self.norm.dual(M)


def _determinant(x: Float[Array, " l"]) -> Float[Array, ""]:
    """Return `t^2 - |w|^2`."""
    length = metrics.norm(x[1:])
    return (x[0] - length) * (x[0] + length)


def _reflected(x: Float[Array, "*lanes l"]) -> Float[Array, "*lanes l"]:
    return jnp.concatenate([x[..., :1], -x[..., 1:]], axis=-1)


def _scaling(x: Float[Array, " l"], y: Float[Array, " l"]) -> tuple[Float[Array, ""], Float[Array, "l l"]]:
    """Return theta and the symmetric R with `(theta R)^2 y = x`: the scaling of Nesterov and Todd."""
    of_x, of_y = (jnp.sqrt(positive(_determinant(one))) for one in (x, y))
    x, y = x / of_x, y / of_y
    between = jnp.sqrt((1 + jnp.sum(x * y)) / 2)
    v = (x + _reflected(y)) / (2 * between)
    w = v[1:]
    inner = jnp.eye(len(w), dtype=w.dtype) + jnp.outer(w, w) / (1 + v[0])
    root = jnp.concatenate([v[None], jnp.concatenate([w[:, None], inner], axis=1)], axis=0)
    return jnp.sqrt(of_x / of_y), root


def _second(theta: Array, root: Array, y: Array, dx: Array, dy: Array) -> Float[Array, " l"]:
    """Return the second-order term of a cone: `theta R l^-1 (dx' o dy')`, dx', dy' and l = y' in scaled coordinates."""
    J = _reflected(jnp.ones_like(y))
    back = J[:, None] * root * J[None, :] / theta
    scaled, moved_x, moved_y = theta * (root @ y), back @ dx, theta * (root @ dy)
    product = jnp.concatenate([jnp.sum(moved_x * moved_y)[None], moved_x[0] * moved_y[1:] + moved_y[0] * moved_x[1:]])
    # The inverse of the arrow matrix of lambda.
    first = (scaled[0] * product[0] - jnp.sum(scaled[1:] * product[1:])) / positive(_determinant(scaled))
    rest = (product[1:] - first * scaled[1:]) / scaled[0]
    return theta * (root @ jnp.concatenate([first[None], rest]))


def _until(x: Float[Array, " l"], dx: Float[Array, " l"]) -> Float[Array, ""]:
    """Return how far `x + t dx` stays in the cone."""
    a, b, c = _determinant(dx), jnp.sum(x * _reflected(dx)), _determinant(x)
    inside = b * b - a * c
    slope = jnp.sqrt(jnp.maximum(inside, 0.0)) - b
    reaches = (inside >= 0) & (slope > 0)
    return jnp.where(reaches, jnp.maximum(c, 0.0) / jnp.where(reaches, slope, 1.0), jnp.inf)
