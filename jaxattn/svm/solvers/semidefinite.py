"""Internal: the central path of the spectral norm: semidefinite X and Z with `X Z = mu I`.

Spectral norm: `||W|| <= t` if and only if `X = [t I, W; W^T, t I]` is positive semidefinite. Its dual variable is `Z =
[P, -M; -M^T, Q]` with `tr Z = 2` (`2 t` for a squared norm), which makes the nuclear norm of M at most 1.

Newton steps are taken in the singular vectors of W, where X is diagonal. There the complementarity `Z + dZ = mu X^{-1}
- (Z dX X^{-1} + X^{-1} dX Z) / 2` relates each entry of dZ to one entry of dX, except through the off-diagonal entries
of Z, which are 0 on the path. These are omitted from the Newton matrix, and accounted for by Mehrotra's correction. The
remaining system pairs `W_ij` with `W_ji`, and is inverted in closed form by sums of positive terms. All other equations
are linear and hold exactly, so the multipliers give valid bounds wherever a step ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxattn.lengths import euclidean
from jaxattn.svm.pivoting import LAST, AnyArray, diagonal, inverse_root, is_positive_definite, module_of, positive
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solvers.norm_path import Aim, Begin, Geometry, Local, Matrix, Number, Point, Task

# Steps tried in this order, as fractions of the longest step that the rows allow; the fraction of the distance to the
# boundary that is taken.
_SHARES = (1.0, 0.95, 0.85, 0.7, 0.45, 0.2, 0.05)
WITHIN = 0.97
# The smallest eigenvalue of X Z after a step, as a fraction of their mean: it keeps the terms omitted from the Newton
# matrix small. The second value applies if no step satisfies the first: without it the path stops on some problems of
# rows that a decoder has learned.
_NEAR = 0.08, 1e-3

Square = Float[AnyArray, "*lanes s s"]


class _SingularPart(NamedTuple):
    """W, and the blocks P, Q and M of Z."""

    W: Matrix
    P: Float[AnyArray, "*lanes p p"]
    Q: Float[AnyArray, "*lanes q q"]
    M: Matrix


class _Move(NamedTuple):
    """Changes of these, and of X and Z in the singular basis, with the trace of Z after the move."""

    W: Matrix
    P: Float[AnyArray, "*lanes p p"]
    Q: Float[AnyArray, "*lanes q q"]
    M: Matrix
    X: Square
    Z: Square
    trace: Number


@dataclass(frozen=True)
class Singular(Geometry):
    """The path of the spectral norm, for one problem of JAX's arrays or lanes of NumPy arrays."""

    squared: bool

    def begin(self, task: Task, W: Matrix) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        (p, q), xp = W.shape[-2:], module_of(W)
        W = 2 * W
        size = 1.2 * positive(euclidean(W))
        level = 2 * (size if self.squared else xp.ones_like(size)) / (p + q)
        P, Q = (per_row(level) * xp.eye(k, dtype=W.dtype) for k in (p, q))
        return _SingularPart(W, P, Q, xp.zeros_like(W)), size, lambda M: euclidean(M) / level

    def blank(self, part: _SingularPart) -> Square:
        """Return zero second-order terms."""
        *lanes, p, q = part.W.shape
        return module_of(part.W).zeros((*lanes, p + q, p + q), part.W.dtype)

    def at(self, task: Task, part: _SingularPart, size: Number, M: Matrix) -> Local:
        """Return the path's equations, linearized at a point without the off-diagonal entries of Z."""
        W, P, Q, _ = part
        *lanes, p, q = W.shape
        r, xp = min(p, q), module_of(W)
        U, sigma, Vt = xp.linalg.svd(W)
        H, eye = xp.asarray(_eigenvectors(p, q), W.dtype), xp.eye(p + q, dtype=W.dtype)
        x = size[..., None] + xp.concatenate([sigma, -sigma, xp.zeros((*lanes, abs(p - q)), W.dtype)], axis=-1)

        def hat(M: AnyArray) -> AnyArray:
            return U.mT @ M @ Vt.mT

        M_hat = hat(M)
        Z = H.T @ _blocks(U.mT @ P @ U, -M_hat, Vt @ Q @ Vt.mT) @ H
        K = diagonal(Z)[..., :, None] / x[..., None, :]
        K = (K + K.mT) / 2
        k = diagonal(K)
        plus, minus, mixed = K[..., :r, :r], K[..., r : 2 * r, r : 2 * r], K[..., :r, r : 2 * r]
        same, other = 2 / (plus + minus), 2 / (mixed + mixed.mT)
        beside = 2 / (K[..., 2 * r :, :r] + K[..., 2 * r :, r : 2 * r])

        def answer(M: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
            """Return dW for an excess of M, or of each of a lane's rows, in the singular basis.

            These are its symmetric part, its other part, and the rest.
            """
            square, rest = M[..., :r, :r], M[..., r:, :] if p > r else M[..., r:].mT
            turned, of_rows = square.mT, (...,) + (None,) * (M.ndim - W.ndim) + (slice(None), slice(None))
            return same[of_rows] * (square + turned) / 2, other[of_rows] * (square - turned) / 2, beside[of_rows] * rest

        def joined(S: AnyArray, T: AnyArray, B: AnyArray) -> AnyArray:
            return xp.concatenate([S + T, B], -2) if p > r else xp.concatenate([S + T, B.mT], -1)

        def between(S: AnyArray, T: AnyArray, B: AnyArray) -> AnyArray:
            """Return the change of X, formed without cancellation: where K is large it equals that of the slacks."""
            B = math.sqrt(0.5) * B
            C = -B if p > r else B
            nothing = xp.zeros((*lanes, abs(p - q), abs(p - q)), W.dtype)
            return xp.block([[S, -T, B.mT], [T, -S, C.mT], [B, C, nothing]])

        left, right = task.problem.rows.differences @ U[..., None, :, :], task.problem.rows.queries @ Vt.mT
        A = (left[..., None] * right[..., None, None, :]).reshape(*lanes, -1, p, q)
        high, low = k[..., :r], k[..., r : 2 * r]
        tilt = (high - low) / (high + low)
        rate = -xp.sum(4 * high * low / (high + low), axis=-1) - xp.sum(k[..., 2 * r :], axis=-1) - 2.0
        across = xp.diagonal(A, axis1=-2, axis2=-1) @ tilt[..., None]
        flat = A.reshape(*lanes, -1, p * q)
        matrix = flat @ joined(*answer(A)).reshape(flat.shape).mT - 2 * across * across.mT / per_row(rate)

        by_size = (H @ (k[..., :, None] * H.T))[..., :p, p:]

        def follow(aim: Aim, dM: AnyArray, dsize: AnyArray) -> _Move:
            first = (aim.mu[..., None] / x)[..., None] * eye - aim.of_norm
            # M cancels against the first term. Doing this once gives the same rounding in every round.
            excess = M_hat + (H @ first @ H.T)[..., :p, p:]
            parts = answer(excess + (hat(dM) - per_row(dsize) * by_size))
            dX = between(*parts) + per_row(dsize) * eye
            new = first - K * dX
            whole = H @ new @ H.T
            dP, dQ = U @ whole[..., :p, :p] @ U.mT - P, Vt.mT @ whole[..., p:, p:] @ Vt - Q
            return _Move(U @ joined(*parts) @ Vt, dP, dQ, M + dM - part.M, dX, new - Z, _trace(new))

        def missing(move: _Move, dsize: AnyArray) -> AnyArray:
            return move.trace - 2 * (size + dsize if self.squared else 1.0)

        def second(move: _Move, share: AnyArray) -> AnyArray:
            # The shorter the step that could be made, the less its second-order term counts.
            both = (Z + per_row(share) * move.Z) @ move.X / x[..., None, :]
            return per_row(share) * ((both + both.mT) / 2 - K * move.X)

        return Local(matrix, across.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Number) -> Number:
        """Return how far part and size can go, at most `most`, less a safety margin."""
        given = now.part, now.size, move.part, move.size
        if module_of(most) is not np:
            of_near = jax.vmap(lambda near: longest_tried(lambda share: self._inside(*given, share, near), most))
            usual, last = of_near(jnp.asarray(_NEAR, most.dtype))
            return jnp.where(usual > 0, usual, last)
        best = np.zeros_like(most)
        for near, share in itertools.product(_NEAR, _SHARES):
            # Most lanes take one of the first.
            others = np.flatnonzero(best == 0)
            if not others.size:
                break
            tried = share * most[others]
            part, size, move_of_part, of_size = jax.tree.map(itemgetter(others), given)
            best[others] = np.where(self._inside(part, size, move_of_part, of_size, tried, near), tried, 0.0)
        return best

    def _inside(
        self, part: _SingularPart, size: Number, move: _Move, of_size: Number, share: Number, near: Number | float
    ) -> Bool[AnyArray, "*lanes"]:
        """Return whether X and Z keep that near to the path after somewhat more than a share of a move."""
        share, (*_, p, q), xp = share / WITHIN, part.W.shape, module_of(size)
        part, size = self.moved(part, move, share), size + share * of_size
        left, pairs = self.products(part, size)
        t, least = per_row(positive(size)), per_row(near * left / pairs)
        # By elimination of its first block the inverse of X is `[I / t, 0; 0, 0] + V^T V`.
        eye, first = xp.eye(q, dtype=t.dtype), xp.asarray(np.diag(np.arange(p + q) < p), t.dtype)
        rest = t * eye - part.W.mT @ part.W / t
        # NumPy's root of a matrix that is not definite takes far longer; a compiled one tells by itself.
        definite = (size > 0) & (left > 0) & (is_positive_definite(rest) if xp is np else True)
        R = inverse_root(xp.where(per_row(definite), rest, eye))
        V = xp.concatenate([-R @ part.W.mT / t, R], axis=-1)
        Z = _blocks(part.P, -part.M, part.Q) - least * (V.mT @ V + first / t)
        return definite & (diagonal(R) > 0).all(axis=-1) & is_positive_definite(Z)

    def products(self, part: _SingularPart, size: Number) -> tuple[Number, int]:
        """Return the sum of the products that equal mu on the path, `<X, Z>`, and their number."""
        of_W = module_of(size).sum(part.W * part.M, axis=LAST)
        return size * (_trace(part.P) + _trace(part.Q)) - 2 * of_W, sum(part.W.shape[-2:])

    def bounds(self, part: _SingularPart, size: Number, M: Matrix) -> tuple[AnyArray, AnyArray]:
        """Return upper bounds of the norm of W and of the dual norm of M, from X and Z."""
        return size, (_trace(part.P) + _trace(part.Q)) / 2


def longest_tried(inside: Callable[[Array], Array], most: Float[Array, ""]) -> Float[Array, ""]:
    """Return the longest of the steps tried that `inside` allows, or 0, for one problem."""
    shares = most * jnp.asarray(_SHARES, most.dtype)
    return jnp.max(jnp.where(jax.vmap(inside)(shares), shares, 0.0))


def _trace(A: Square) -> Number:
    return diagonal(A).sum(axis=-1)


def _blocks(P: Float[AnyArray, "*lanes p p"], M: Matrix, Q: Float[AnyArray, "*lanes q q"]) -> Square:
    return module_of(M).block([[P, M], [M.mT, Q]])


def _eigenvectors(p: int, q: int) -> np.ndarray:
    """Return the eigenvectors of X for diagonal W: those of `t + sigma`, of `t - sigma`, and of t."""
    r, half = min(p, q), math.sqrt(0.5)
    H = np.zeros((p + q, p + q))
    i = np.arange(r)
    H[i, i], H[p + i, i], H[i, r + i], H[p + i, r + i] = half, half, half, -half
    rest = np.arange(2 * r, p + q)
    # The rows beyond r of the longer side.
    H[rest - r if p > r else rest, rest] = 1.0
    return H
