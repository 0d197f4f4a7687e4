"""Internal: the central path for Schatten norms, 1 < p < inf.

Their balls are smooth, so the path needs no barrier for the norm: at every point W is the gradient of the dual norm at
M, times the size if the norm is not squared, and only the rows have slacks. In the singular vectors of M that gradient
is `f(s) = s^(q-1)`, `q = p / (p - 1)`, up to a factor, and its derivative is a divided difference of f (Daleckii and
Krein 1951). For q < 2 this is infinite at `s = 0`, so `f(s) = s (s^2 + least^2)^(q/2-1)` is used instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.norms import Schatten, conjugate
from jaxattn.svm.pivoting import positive
from jaxattn.svm.solvers.norm_path import Aim, Begin, Geometry, Local, Point, Task

# Two singular values count as equal if they differ by less than this fraction of their sum, in double and in single
# precision.
_EQUAL = 1e-5, 1e-3
# Singular values below this are smoothed if q < 2, in double and in single precision.
_LEAST = 1e-7, 1e-4
# The largest second-order term of a step, as a fraction of the step.
_BEND = 0.3
# The largest change of M in a step, as a fraction of its length.
_CHANGE = 2.0


class Part(NamedTuple):
    """W, the matrix M whose dual-norm gradient it is, and the factor of that gradient."""

    W: Float[Array, "p q"]
    M: Float[Array, "p q"]
    factor: Float[Array, ""]


@dataclass(frozen=True)
class Powers(Geometry):
    """The path of a Schatten norm."""

    norm: Schatten
    squared: bool

    def _gradient(self, M: Float[Array, "p q"], factor: Float[Array, ""]) -> Float[Array, "p q"]:
        U, s, Vt = jnp.linalg.svd(M, full_matrices=False)
        f, _, length = self._slopes(s)
        return (U * ((length if self.squared else factor) * f)[None]) @ Vt

    def _slopes(self, s: Float[Array, " k"]) -> tuple[Array, Array, Array]:
        """Return the dual norm's gradient at singular values, its derivative at fixed length, and the length."""
        q = conjugate(self.norm.p)
        least = 0.0 if q >= 2 else _of(s, _LEAST)
        scale = positive(jnp.max(s))
        t = s / scale
        base = t**2 + (least / scale) ** 2 + jnp.finfo(s.dtype).tiny
        length = jnp.sum(base ** (q / 2)) ** (1 / q)
        power = base ** (q / 2 - 1) / length ** (q - 1)
        return power * t, power * (1 + (q - 2) * t**2 / base) / scale, scale * length

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        U, s, Vt = jnp.linalg.svd(2 * W, full_matrices=False)
        # The solution may have directions in which W vanishes.
        s = jnp.maximum(s, 0.1 * positive(jnp.max(s)))
        length = self.norm.value(jnp.diag(s))
        powers = (s / length) ** (self.norm.p - 1)
        M = (U * ((length if self.squared else 1.0) * powers)[None]) @ Vt
        part = Part(self._gradient(M, length), M, length)
        dual = self.norm.dual(M)
        return part, dual if self.squared else length, lambda M: self.norm.dual(M) / dual

    def blank(self, part: Part) -> Float[Array, "p q"]:
        """Return zero second-order terms."""
        return jnp.zeros_like(part.W)

    def at(self, task: Task, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point."""
        q = conjugate(self.norm.p)
        U, s, Vt = jnp.linalg.svd(part.M)
        f, slope, length = self._slopes(s)
        r, (p, _) = len(s), part.M.shape
        total, apart = s[:, None] + s[None, :], s[:, None] - s[None, :]
        near = jnp.abs(apart) <= _of(s, _EQUAL) * positive(total)
        _, middle, _ = jax.vmap(lambda t: self._held(t, s))(total.ravel() / 2)
        same = jnp.where(near, middle.reshape(r, r), (f[:, None] - f[None, :]) / jnp.where(near, 1.0, apart))
        other = self._ratio(total, f[:, None] + f[None, :], slope)
        beside = self._ratio(s, f, slope)
        gradient = (U[:, :r] * f[None]) @ Vt[:r]
        factor = length if self.squared else part.factor
        along = (2 - q) if self.squared else (1 - q) * part.factor / positive(length)

        def slope_along(dM: Array) -> Array:
            """Return the change of the gradient at fixed length, in the singular basis."""
            square, rest = dM[:r, :r], dM[r:] if p > r else dM[:, r:].T
            turned = square.T
            inner = same * (square + turned) / 2 + other * (square - turned) / 2
            rest = rest * beside[None]
            return jnp.concatenate([inner, rest], 0) if p > r else jnp.concatenate([inner, rest.T], 1)

        def moved_W(dM: Array) -> Array:
            hat = U.T @ dM @ Vt.T
            return factor * (U @ slope_along(hat) @ Vt) + along * jnp.sum(gradient * dM) * gradient

        left, right = task.problem.rows.differences @ U, task.problem.rows.queries @ Vt.T
        A = jnp.einsum("nmp,nq->nmpq", left, right).reshape(task.problem.b.size, -1)
        slopes = jax.vmap(lambda one: slope_along(one.reshape(part.M.shape)).ravel())(A)
        of_gradient = task.A @ gradient.ravel()
        shared = along if self.squared else along + 1.0
        matrix = factor * A @ slopes.T + shared * jnp.outer(of_gradient, of_gradient)
        across = jnp.zeros_like(task.problem.b) if self.squared else -of_gradient.reshape(task.problem.b.shape)
        off = M - part.M

        def follow(aim: Aim, dM: Array, dsize: Array) -> Part:
            change = off + dM
            by_size = 0.0 if self.squared else dsize * gradient
            return Part(moved_W(change) + by_size + aim.of_norm, change, dsize)

        def missing(move: Part, dsize: Array) -> Array:
            after = length + jnp.sum(gradient * move.M)
            return after - (size + dsize if self.squared else 1.0)

        def second(move: Part, share: Array) -> Array:
            new = self.moved(part, move, share)
            first = share * (moved_W(move.M) + (0.0 if self.squared else move.factor * gradient))
            bend = new.W - part.W - first
            # A second-order term larger than the move means that the move was too long for the expansion.
            return bend * jnp.minimum(1.0, _BEND * metrics.norm(first) / positive(metrics.norm(bend)))

        return Local(matrix, across, jnp.full_like(size, -1.0), follow, missing, second)

    def _held(self, t: Float[Array, ""], s: Float[Array, " k"]) -> tuple[Array, Array, Array]:
        """Return what `_slopes` does for one value, with the scale and length of other values."""
        f, slope, length = self._slopes(jnp.concatenate([t[None], s]))
        _, _, own = self._slopes(s)
        ratio = (length / own) ** (conjugate(self.norm.p) - 1)
        return f[0] * ratio, slope[0] * ratio, own

    def _ratio(self, s: Array, f: Array, slope: Array) -> Array:
        """Return `f / s`, or the slope at 0 for s = 0."""
        return jnp.where(s > 0, f / jnp.where(s > 0, s, 1.0), slope[-1])

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far the part can go, at most `most`: as far as its linearized equations are meaningful."""
        change = metrics.norm(move.part.M) / positive(metrics.norm(now.part.M))
        return jnp.minimum(most, _CHANGE / jnp.maximum(change, 1e-30))

    def moved(self, part: Part, move: Part, share: Float[Array, ""]) -> Part:
        """Return the part after a fraction of a move."""
        M, factor = part.M + share * move.M, part.factor + share * move.factor
        return Part(self._gradient(M, factor), M, factor)

    def products(self, part: Part, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return 0 and 0: no products equal mu on this path."""
        return jnp.zeros_like(size), 0

    def bounds(self, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return the norm of W and the dual norm of M."""
        return self.norm.value(part.W), self.norm.dual(M)


def _of(values: Float[Array, "*shape"], levels: tuple[float, float]) -> float:
    """Return the first of two levels for double precision, the second for single."""
    return levels[0] if jnp.finfo(values.dtype).bits >= 64 else levels[1]
