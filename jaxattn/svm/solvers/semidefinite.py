"""Internal: the central paths of the spectral norm and of gamma_2: semidefinite X and Z with `X Z = mu I`.

Spectral norm: `||W|| <= t` if and only if `X = [t I, W; W^T, t I]` is positive semidefinite. Its dual variable is `Z =
[P, -M; -M^T, Q]` with `tr Z = 2` (`2 t` for a squared norm), which makes the nuclear norm of M at most 1.

Newton steps are taken in the singular vectors of W, where X is diagonal. There the complementarity `Z + dZ = mu X^{-1}
- (Z dX X^{-1} + X^{-1} dX Z) / 2` relates each entry of dZ to one entry of dX, except through the off-diagonal entries
of Z, which are 0 on the path. These are omitted from the Newton matrix, and accounted for by Mehrotra's correction. The
remaining system pairs `W_ij` with `W_ji`, and is inverted in closed form by sums of positive terms. All other equations
are linear and hold exactly, so the multipliers give valid bounds wherever a step ends.

`gamma_2(W) <= t` if and only if some `X = [A, W; W^T, B]` is positive semidefinite with diagonal t. Its dual variable
is `Z = [Diag(p), -M; -M^T, Diag(q)]` with entries p, q of sum 2 (`2 t` for a squared norm); on the path `X Z = mu I`.
Only the diagonal of Z and M are free, so steps are taken in them (Helmberg, Rendl, Vanderbei and Wolkowicz 1996): `X +
dX = mu Z^-1 - (X dZ Z^-1 + Z^-1 dZ X) / 2`, with a diagonal equal to the size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.svm.pivoting import diagonal, inverse_root, is_positive_definite, positive
from jaxattn.svm.solvers.norm_path import Aim, Begin, Geometry, Local, Point, Task

# Steps tried in this order, as fractions of the longest step that the rows allow; the fraction of the distance to the
# boundary that is taken.
_SHARES = (1.0, 0.95, 0.85, 0.7, 0.45, 0.2, 0.05)
_INSIDE = 0.97
# The smallest eigenvalue of X Z, as a fraction of their mean, which keeps the terms omitted from the Newton matrix
# small. The second value applies if no step satisfies the first.
_NEAR = 0.1, 1e-3


class _SingularPart(NamedTuple):
    """W, and the blocks P, Q and M of Z."""

    W: Float[Array, "p q"]
    P: Float[Array, "p p"]
    Q: Float[Array, "q q"]
    M: Float[Array, "p q"]


class _Move(NamedTuple):
    """Changes of these, and of X and Z in the singular basis."""

    W: Float[Array, "p q"]
    P: Float[Array, "p p"]
    Q: Float[Array, "q q"]
    M: Float[Array, "p q"]
    X: Float[Array, "s s"]
    Z: Float[Array, "s s"]


@dataclass(frozen=True)
class Singular(Geometry):
    """The path of the spectral norm."""

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        p, q = W.shape
        W = 2 * W
        length = metrics.norm(W)
        size = 1.2 * positive(length)
        level = 2 * (size if task.squared else jnp.ones_like(size)) / (p + q)
        eye_p, eye_q = jnp.eye(p, dtype=W.dtype), jnp.eye(q, dtype=W.dtype)
        return (
            _SingularPart(W, level * eye_p, level * eye_q, jnp.zeros_like(W)),
            size,
            lambda M: metrics.norm(M) / level,
        )

    def blank(self, part: _SingularPart) -> Float[Array, "s s"]:
        """Return zero second-order terms."""
        s = sum(part.W.shape)
        return jnp.zeros((s, s), part.W.dtype)

    def at(self, task: Task, part: _SingularPart, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point without the off-diagonal entries of Z."""
        W, P, Q, _ = part
        p, q = W.shape
        r = min(p, q)
        U, sigma, Vt = jnp.linalg.svd(W)
        H = jnp.asarray(_eigenvectors(p, q), W.dtype)
        x = size + jnp.concatenate([sigma, -sigma, jnp.zeros(abs(p - q), W.dtype)])

        def hat(M: Array) -> Array:
            return U.T @ M @ Vt.T

        M_hat = hat(M)
        Z = H.T @ _blocks(U.T @ P @ U, -M_hat, Vt @ Q @ Vt.T) @ H
        zeta = diagonal(Z)
        K = zeta[:, None] / x[None, :]
        K = (K + K.T) / 2
        k = diagonal(K)
        plus, minus, mixed = K[:r, :r], K[r : 2 * r, r : 2 * r], K[:r, r : 2 * r]
        same, other = 2 / (plus + minus), 2 / (mixed + mixed.T)
        beside = 2 / (K[2 * r :, :r] + K[2 * r :, r : 2 * r])

        def answer(M: Array) -> tuple[Array, Array, Array]:
            """Return dW for an excess of M, in the singular basis: its symmetric part, its other part, and the rest."""
            square, rest = M[:r, :r], M[r:] if p > r else M[:, r:].T
            turned = square.T
            return same * (square + turned) / 2, other * (square - turned) / 2, beside * rest

        def joined(S: Array, T: Array, B: Array) -> Array:
            return jnp.concatenate([S + T, B], 0) if p > r else jnp.concatenate([S + T, B.T], 1)

        def between(S: Array, T: Array, B: Array) -> Array:
            """Return the change of X, formed without cancellation: where K is large it equals that of the slacks."""
            B = math.sqrt(0.5) * B
            C = -B if p > r else B
            return jnp.block([[S, -T, B.T], [T, -S, C.T], [B, C, jnp.zeros((abs(p - q),) * 2, W.dtype)]])

        left, right = task.problem.rows.differences @ U, task.problem.rows.queries @ Vt.T
        A = jnp.einsum("nmp,nq->nmpq", left, right).reshape(-1, p, q)
        high, low = k[:r], k[r : 2 * r]
        tilt = (high - low) / (high + low)
        rate = -jnp.sum(4 * high * low / (high + low)) - jnp.sum(k[2 * r :]) - 2.0
        across = jnp.diagonal(A, axis1=1, axis2=2) @ tilt
        flat = A.reshape(-1, p * q)
        matrix = (
            flat @ jax.vmap(lambda one: joined(*answer(one)))(A).reshape(-1, p * q).T
            - 2 * jnp.outer(across, across) / rate
        )

        by_size = (H @ (k[:, None] * H.T))[:p, p:]

        def follow(aim: Aim, dM: Array, dsize: Array) -> _Move:
            first = jnp.diag(aim.mu / x) - aim.of_norm
            # M cancels against the first term. Doing this once gives the same rounding in every round.
            excess = M_hat + (H @ first @ H.T)[:p, p:]
            parts = answer(excess + (hat(dM) - dsize * by_size))
            dX = between(*parts) + dsize * jnp.eye(p + q, dtype=W.dtype)
            new = first - K * dX
            whole = H @ new @ H.T
            dP, dQ = U @ whole[:p, :p] @ U.T - P, Vt.T @ whole[p:, p:] @ Vt - Q
            return _Move(U @ joined(*parts) @ Vt, dP, dQ, M + dM - part.M, dX, new - Z)

        def missing(move: _Move, dsize: Array) -> Array:
            trace = jnp.trace(P + move.P) + jnp.trace(Q + move.Q)
            return trace - 2 * (size + dsize if task.squared else 1.0)

        def second(move: _Move, share: Array) -> Array:
            # The shorter the step that could be made, the less its second-order term counts.
            both = (Z + share * move.Z) @ move.X / x[None, :]
            return share * ((both + both.T) / 2 - K * move.X)

        return Local(matrix, across.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""

        def inside(share: Array, near: Array) -> Array:
            part = self.moved(now.part, move.part, share / _INSIDE)
            size = now.size + share / _INSIDE * move.size
            W, P, Q, M = part
            left, pairs = self.products(part, size)
            R = inverse_root(_blocks(P, -M, Q))
            X = _blocks(size * jnp.eye(P.shape[0], dtype=P.dtype), W, size * jnp.eye(Q.shape[0], dtype=Q.dtype))
            nearer = is_positive_definite(X - near * left / pairs * R.T @ R)
            return (left > 0) & (diagonal(R) > 0).all() & nearer

        shares = most * jnp.asarray(_SHARES, most.dtype)
        near = jnp.asarray(_NEAR, most.dtype)
        holds = jax.vmap(jax.vmap(inside, (0, None)), (None, 0))(shares, near)
        best = jnp.max(jnp.where(holds, shares[None, :], 0.0), axis=1)
        return jnp.where(best[0] > 0, best[0], best[1])

    def products(self, part: _SingularPart, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return the sum of the products that equal mu on the path, `<X, Z>`, and their number."""
        trace = jnp.trace(part.P) + jnp.trace(part.Q)
        return size * trace - 2 * jnp.sum(part.W * part.M), sum(part.W.shape)

    def bounds(self, part: _SingularPart, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return upper bounds of the norm of W and of the dual norm of M, from X and Z."""
        return size, (jnp.trace(part.P) + jnp.trace(part.Q)) / 2


def _blocks(P: Float[Array, "p p"], M: Float[Array, "p q"], Q: Float[Array, "q q"]) -> Float[Array, "s s"]:
    return jnp.block([[P, M], [M.T, Q]])


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


class _ProductPart(NamedTuple):
    """X, the diagonal y of Z, and the off-diagonal blocks W of X and M of -Z."""

    X: Float[Array, "s s"]
    y: Float[Array, " s"]
    W: Float[Array, "p q"]
    M: Float[Array, "p q"]


@dataclass(frozen=True)
class InnerProducts(Geometry):
    """The path of gamma_2."""

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        p, q = W.shape
        W = 2 * W
        size = 1.2 * positive(metrics.norm(W))
        level = 2 * (size if task.squared else jnp.ones_like(size)) / (p + q)
        X = size * jnp.eye(p + q, dtype=W.dtype) + _beside(W)
        part = _ProductPart(X, jnp.full(p + q, level), W, jnp.zeros_like(W))
        return part, size, lambda M: metrics.norm(M) / level

    def blank(self, part: _ProductPart) -> Float[Array, "s s"]:
        """Return zero second-order terms."""
        return jnp.zeros_like(part.X)

    def at(self, task: Task, part: _ProductPart, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point."""
        X, y, _, _ = part
        p, _ = M.shape
        root = inverse_root(jnp.diag(y) - _beside(part.M))
        inverse = root.T @ root
        of_diagonal = inverse_root(X * inverse)
        n, m, _ = task.problem.rows.differences.shape
        left, right = task.problem.rows.differences.reshape(n * m, -1), jnp.repeat(task.problem.rows.queries, m, axis=0)
        (XL, XR), (ZL, ZR) = ((left @ one[:p], right @ one[p:]) for one in (X, inverse))

        def solved(of: Array) -> Array:
            return of_diagonal.T @ (of_diagonal @ of)

        def gram(of: Array) -> tuple[Array, Array, Array, Array]:
            """Return the products of the rows' left and right vectors with a matrix, given their images under it."""
            L, R = left @ of[:p], right @ of[p:]
            return L[:, :p] @ left.T, L[:, p:] @ right.T, R[:, :p] @ left.T, R[:, p:] @ right.T

        (LL, LR, RL, RR), (ll, lr, rl, rr) = gram(X), gram(inverse)
        pulled = XL * ZR + XR * ZL
        through = pulled @ of_diagonal.T
        matrix = (RL * rl.T + RR * ll.T + LL * rr.T + LR * lr.T - through @ through.T) / 2
        ones = solved(jnp.ones_like(y))
        of_size = pulled @ ones / 2
        rate = -jnp.sum(ones) - 2.0
        matrix = (matrix + matrix.T) / 2 - 2 * jnp.outer(of_size, of_size) / rate
        off = M - part.M

        def changed(dZ: Array) -> Array:
            both = X @ dZ @ inverse
            return (both + both.T) / 2

        def follow(aim: Aim, dM: Array, dsize: Array) -> _ProductPart:
            dM = off + dM
            known = aim.mu * inverse - aim.of_norm + changed(_beside(dM))
            dy = solved(diagonal(known) - size - dsize)
            dX = known - changed(jnp.diag(dy)) - X
            return _ProductPart(dX, dy, dX[:p, p:], dM)

        def missing(move: _ProductPart, dsize: Array) -> Array:
            return jnp.sum(y + move.y) - 2 * (size + dsize if task.squared else 1.0)

        def second(move: _ProductPart, share: Array) -> Array:
            both = move.X @ (jnp.diag(move.y) - _beside(move.M)) @ inverse
            # The shorter the step that could be made, the less its second-order term counts.
            return share * (both + both.T) / 2

        return Local(matrix, -of_size.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""

        def inside(share: Array) -> Array:
            part = self.moved(now.part, move.part, share / _INSIDE)
            return is_positive_definite(part.X) & is_positive_definite(jnp.diag(part.y) - _beside(part.M))

        shares = most * jnp.asarray(_SHARES, most.dtype)
        return jnp.max(jnp.where(jax.vmap(inside)(shares), shares, 0.0))

    def products(self, part: _ProductPart, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return the sum of the products that equal mu on the path, `<X, Z>`, and their number."""
        return jnp.sum(diagonal(part.X) * part.y) - 2 * jnp.sum(part.W * part.M), sum(part.W.shape)

    def bounds(self, part: _ProductPart, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return upper bounds of the norm of W and of the dual norm of M, from X and Z."""
        return jnp.max(diagonal(part.X)), jnp.sum(part.y) / 2


def _beside(M: Float[Array, "p q"]) -> Float[Array, "s s"]:
    """Return the symmetric matrix with off-diagonal block M and zero diagonal blocks."""
    p, q = M.shape
    return jnp.block([[jnp.zeros((p, p), M.dtype), M], [M.T, jnp.zeros((q, q), M.dtype)]])
