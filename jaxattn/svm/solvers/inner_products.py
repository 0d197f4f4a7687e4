"""Internal: the central path of gamma_2: semidefinite X and Z with `X Z = mu I`.

`gamma_2(W) <= t` if and only if some `X = [A, W; W^T, B]` is positive semidefinite with diagonal t. Its dual variable
is `Z = [Diag(p), -M; -M^T, Diag(q)]` with entries p, q of sum 2 (`2 t` for a squared norm); on the path `X Z = mu I`.
Only the diagonal of Z and M are free, so steps are taken in them (Helmberg, Rendl, Vanderbei and Wolkowicz 1996): `X +
dX = mu Z^-1 - (X dZ Z^-1 + Z^-1 dZ X) / 2`, with a diagonal equal to the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.svm.pivoting import diagonal, inverse_root, is_positive_definite, positive
from jaxattn.svm.solvers.norm_path import Aim, Begin, Geometry, Local, Point, Task
from jaxattn.svm.solvers.semidefinite import WITHIN, longest_tried


class _ProductPart(NamedTuple):
    """X, the diagonal y of Z, and the off-diagonal blocks W of X and M of -Z."""

    X: Float[Array, "s s"]
    y: Float[Array, " s"]
    W: Float[Array, "p q"]
    M: Float[Array, "p q"]


@dataclass(frozen=True)
class InnerProducts(Geometry):
    """The path of gamma_2."""

    squared: bool

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        p, q = W.shape
        W = 2 * W
        size = 1.2 * positive(metrics.norm(W))
        level = 2 * (size if self.squared else jnp.ones_like(size)) / (p + q)
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
            return jnp.sum(y + move.y) - 2 * (size + dsize if self.squared else 1.0)

        def second(move: _ProductPart, share: Array) -> Array:
            both = move.X @ (jnp.diag(move.y) - _beside(move.M)) @ inverse
            # The shorter the step that could be made, the less its second-order term counts.
            return share * (both + both.T) / 2

        return Local(matrix, -of_size.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""

        def inside(share: Array) -> Array:
            part = self.moved(now.part, move.part, share / WITHIN)
            return is_positive_definite(part.X) & is_positive_definite(jnp.diag(part.y) - _beside(part.M))

        return longest_tried(inside, most)

    def moved(self, part: _ProductPart, move: _ProductPart, share: Float[Array, ""]) -> _ProductPart:
        """Return the part after a fraction of a move."""
        return _ProductPart(*(one + share * change for one, change in zip(part, move, strict=True)))

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
