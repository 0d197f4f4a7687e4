"""The two balls that a risk is minimized on, in coordinates in which each is a sphere.

W itself is `||W||_F <= R`. In `W = K Q^T` with `||K||_F^2 + ||Q||_F^2 <= 2 R`, where factors of min(d, n) columns or
more reach every W with `||W||_* <= R` and no other (2308.16898, KQ-path), K and Q stand above each other in one array.

A ball knows the logits `l_k = <A_k, W>` of the rows A_k (`svm.constraints`), and of a function of them whose gradient
with respect to W is `G = sum_k a_k A_k` what its coordinates see: the gradient in them, and the part `lambda I + S` of
the Lagrangian's Hessian that is not from the function's own curvature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.attention import Factored, Weights
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import inverse_root

__all__ = ["Ball", "Frobenius", "Narrow", "Nuclear"]

# Powers of two that a matrix is raised to for its largest eigenvalue, which is then exact to 2^-_SQUARINGS.
_SQUARINGS = 40
# What is added to the factors before the next radius, as a share of their length: a column of zeros stays one.
_KICK = 1e-4


class Ball(Protocol):
    """A ball of matrices, and the coordinates x of its boundary, `||x|| = length(R)`."""

    @property
    def name(self) -> str:
        """The norm, as `svm.solve` names it."""
        ...

    def length(self, R: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the length of the coordinates on the ball of radius R."""
        ...

    def toward(self, G: Float[Array, "p q"]) -> Float[Array, "a b"]:
        """Return coordinates, of any length, of about the point of the ball that has the largest `<G, W>`."""
        ...

    def matrix(self, x: Float[Array, "a b"], rows: Constraints) -> Float[Array, "p q"]:
        """Return W."""
        ...

    def weights(self, x: Float[Array, "a b"], reduction: cons.Reduction) -> Weights:
        """Return the attention weights in the coordinates of the tokens and queries."""
        ...

    def dual_norm(self, G: Float[Array, "p q"]) -> Float[Array, ""]:
        """Return the largest `<G, W>` on the ball of radius 1."""
        ...

    def residual(
        self,
        x: Float[Array, "a b"],
        W: Float[Array, "p q"],
        G: Float[Array, "p q"],
        dual: Float[Array, ""],
        R: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Return zero if and only if x satisfies the first-order conditions of a risk of gradient G on the ball."""
        ...

    def logits(self, x: Float[Array, "a b"], move: Float[Array, "a b"], rows: Constraints) -> Float[Array, "n m"]:
        """Return the derivative of the logits along a move of the coordinates."""
        ...

    def gradient(self, x: Float[Array, "a b"], G: Float[Array, "p q"]) -> Float[Array, "a b"]:
        """Return the gradient in the coordinates: the adjoint of `logits` applied to a."""
        ...

    def least(self, G: Float[Array, "p q"], dual: Float[Array, ""]) -> Float[Array, ""]:
        """Return the lambda from which on `lambda I + S` has no negative eigenvalue; the dual norm of G is given."""
        ...

    def bent(self, v: Float[Array, "a b"], G: Float[Array, "p q"], level: Float[Array, ""]) -> Float[Array, "a b"]:
        """Return `(lambda I + S) v` for lambda = level."""
        ...

    def inverse(
        self, x: Float[Array, "a b"], G: Float[Array, "p q"], level: Float[Array, ""], rows: Constraints
    ) -> tuple[Callable[[Array], Array], Float[Array, "c c"]]:
        """Return the inverse `P` of that, and `J P J^T` for J the derivative of the logits."""
        ...

    def kicked(self, x: Float[Array, "a b"]) -> Float[Array, "a b"]:
        """Return coordinates a little off those of a solution that has less freedom than the next one may need."""
        ...


@dataclass(frozen=True)
class Frobenius:
    """`||W||_F <= R`; the coordinates are W."""

    name: str = "frobenius"

    def length(self, R: Array) -> Array:
        """Return R."""
        return R

    def toward(self, G: Array) -> Array:
        """Return G."""
        return G

    def matrix(self, x: Array, rows: Constraints) -> Array:
        """Return x."""
        del rows
        return x

    def weights(self, x: Array, reduction: cons.Reduction) -> Weights:
        """Return W, (d, d)."""
        return reduction.lift(x)

    def dual_norm(self, G: Array) -> Array:
        """Return the Frobenius norm."""
        return metrics.norm(G)

    def residual(self, x: Array, W: Array, G: Array, dual: Array, R: Array) -> Array:
        """Return `1 - <-G, W> / (||G||_dual R)`, never below zero but by rounding."""
        del x
        return _short_of(W, G, dual, R)

    def logits(self, x: Array, move: Array, rows: Constraints) -> Array:
        """Return the margins of the move."""
        del x
        return cons.margins(rows, move)

    def gradient(self, x: Array, G: Array) -> Array:
        """Return G."""
        del x
        return G

    def least(self, G: Array, dual: Array) -> Array:
        """Return 0."""
        del dual
        return jnp.zeros((), G.dtype)

    def bent(self, v: Array, G: Array, level: Array) -> Array:
        """Return `level v`."""
        del G
        return level * v

    def inverse(self, x: Array, G: Array, level: Array, rows: Constraints) -> tuple[Callable[[Array], Array], Array]:
        """Return the division by the level, and the Gram matrix over it."""
        del x, G
        return lambda v: v / level, cons.gram(rows) / level

    def kicked(self, x: Array) -> Array:
        """Return x."""
        return x


@dataclass(frozen=True)
class Nuclear:
    """`||K||_F^2 + ||Q||_F^2 <= 2 R`, that is `||K Q^T||_* <= R`; the coordinates are K above Q, (p + q, min(p, q))."""

    name: str = "nuclear"

    def length(self, R: Array) -> Array:
        """Return `sqrt(2 R)`."""
        return jnp.sqrt(2 * R)

    def toward(self, G: Array) -> Array:
        """Return factors of G, weighted towards its first singular vectors, but of full rank."""
        square = G.T @ G if G.shape[0] >= G.shape[1] else G @ G.T
        first = _power(square, 8)
        right = first + 1e-3 * jnp.eye(first.shape[0], dtype=G.dtype)
        left = G @ right if G.shape[0] >= G.shape[1] else G.T @ right
        left = left * metrics.norm(right) / metrics.norm(left)
        return jnp.concatenate([left, right] if G.shape[0] >= G.shape[1] else [right, left])

    def matrix(self, x: Array, rows: Constraints) -> Array:
        """Return `K Q^T`."""
        K, Q = _factors(x, rows.differences.shape[-1])
        return K @ Q.T

    def weights(self, x: Array, reduction: cons.Reduction) -> Weights:
        """Return K and Q, (d, m) each."""
        K, Q = _factors(x, reduction.left.shape[1])
        return Factored(reduction.left @ K, reduction.right @ Q)

    def dual_norm(self, G: Array) -> Array:
        """Return the largest singular value."""
        square = G.T @ G if G.shape[0] >= G.shape[1] else G @ G.T
        power = _power(square, _SQUARINGS)
        return jnp.sqrt(jnp.sum(square * power) / jnp.trace(power))

    def residual(self, x: Array, W: Array, G: Array, dual: Array, R: Array) -> Array:
        """Return `1 - <-G, W> / (||G||_dual R)`, never below zero but by rounding."""
        del x
        return _short_of(W, G, dual, R)

    def logits(self, x: Array, move: Array, rows: Constraints) -> Array:
        """Return the margins of `dK Q^T + K dQ^T`."""
        p = rows.differences.shape[-1]
        (K, Q), (dK, dQ) = _factors(x, p), _factors(move, p)
        return cons.margins(rows, dK @ Q.T + K @ dQ.T)

    def gradient(self, x: Array, G: Array) -> Array:
        """Return `G Q` above `G^T K`."""
        K, Q = _factors(x, G.shape[0])
        return jnp.concatenate([G @ Q, G.T @ K])

    def least(self, G: Array, dual: Array) -> Array:
        """Return the largest singular value."""
        del G
        return dual

    def bent(self, v: Array, G: Array, level: Array) -> Array:
        """Return `level v` and the gradient that a function linear in W has at v."""
        return level * v + self.gradient(v, G)

    def inverse(self, x: Array, G: Array, level: Array, rows: Constraints) -> tuple[Callable[[Array], Array], Array]:
        """Return the product with a matrix of p + q rows, and a sum of products of Gram matrices."""
        n, m, p = rows.differences.shape
        S = jnp.block([[level * jnp.eye(p, dtype=G.dtype), G], [G.T, level * jnp.eye(G.shape[1], dtype=G.dtype)]])
        R = inverse_root(S)
        P = R.T @ R
        (K, Q), left, right = _factors(x, p), rows.differences.reshape(n * m, p), jnp.repeat(rows.queries, m, axis=0)
        keys, queries = left @ K, right @ Q
        mixed = (left @ P[:p, p:] @ right.T) * (keys @ queries.T).T
        N = (left @ P[:p, :p] @ left.T) * (queries @ queries.T) + (right @ P[p:, p:] @ right.T) * (keys @ keys.T)
        return lambda v: P @ v, N + mixed + mixed.T

    def kicked(self, x: Array) -> Array:
        """Return factors none of whose columns is zero."""
        off = _numbers(x.shape, x)
        return x + _KICK * metrics.norm(x) / metrics.norm(off) * off


@dataclass(frozen=True)
class Narrow(Nuclear):
    """The same in factors of m columns: the W of rank at most m among those with `||W||_* <= R`, which are not convex.

    Attributes:
        m: columns, at least 1.
    """

    m: int = 1

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m: expected at least 1, found {self.m}")

    def toward(self, G: Array) -> Array:
        """Return factors of about the first singular vectors of G, none of whose columns is zero."""
        wide = super().toward(G)
        return wide @ _numbers((wide.shape[1], self.m), G)

    def residual(self, x: Array, W: Array, G: Array, dual: Array, R: Array) -> Array:
        """Return the sine of the angle between x and the step that the risk falls most along; 1 if it is not acute."""
        del W, dual, R
        g = self.gradient(x, G)
        square, along = jnp.sum(x * x), -jnp.sum(g * x)
        off, length = metrics.norm(g + (along / square) * x), metrics.norm(g)
        return jnp.where(length > 0, jnp.where(along > 0, off / jnp.where(length > 0, length, 1.0), 1.0), 0.0)

    def least(self, G: Array, dual: Array) -> Array:
        """Return 0: among m columns `lambda I + S` may have negative eigenvalues at a minimizer."""
        return FROBENIUS.least(G, dual)


def _short_of(
    W: Float[Array, "p q"], G: Float[Array, "p q"], dual: Float[Array, ""], R: Float[Array, ""]
) -> Float[Array, ""]:
    residual = 1 + jnp.sum(G * W) / (jnp.where(dual > 0, dual, 1.0) * R)
    return jnp.where(dual > 0, residual, 0.0)


def _factors(x: Float[Array, "r m"], p: int) -> tuple[Float[Array, "p m"], Float[Array, "q m"]]:
    return x[:p], x[p:]


def _numbers(shape: tuple[int, ...], like: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return numbers without a pattern that a gradient could be orthogonal to."""
    return jnp.cos(jnp.arange(1.0, math.prod(shape) + 1) ** 2).reshape(shape).astype(like.dtype)


def _power(square: Float[Array, "q q"], squarings: int) -> Float[Array, "q q"]:
    """Return a positive semidefinite matrix to the power `2^squarings`, scaled to trace 1; 0 for the zero matrix."""

    def scaled(matrix: Array) -> Array:
        trace = jnp.trace(matrix)
        return matrix / jnp.where(trace > 0, trace, 1.0)

    return jax.lax.fori_loop(0, squarings, lambda _, now: scaled(now @ now), scaled(square))


FROBENIUS, NUCLEAR = Frobenius(), Nuclear()
