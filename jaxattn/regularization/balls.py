"""Balls of matrices to minimize a risk on, with coordinates in which the boundary is a sphere.

One is `||W||_F <= R`, with W itself as coordinates. Another is `||K||_F^2 + ||Q||_F^2 <= 2 R` for `W = K Q^T`. Factors
of min(d, n) columns or more reach exactly the W with `||W||_* <= R` (2308.16898, KQ-path). K and Q are stacked in one
array.

The logits `l_k = <A_k, W>` have the rows A_k (`svm.constraints`). For a function of the logits whose gradient with
respect to W is `G = sum_k a_k A_k`, a ball returns the gradient in its coordinates, and the part `lambda I + S` of the
Lagrangian's Hessian that does not come from the function's own curvature.
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

# How often a matrix is squared to find its largest eigenvalue, which is then accurate to 2^-_SQUARINGS.
_SQUARINGS = 40
# Perturbation of the factors before the next radius, relative to their length: a zero column would stay zero.
_KICK = 1e-4


class Ball(Protocol):
    """A ball of matrices with coordinates x; its boundary is `||x|| = length(R)`."""

    @property
    def name(self) -> str:
        """The name of the norm in `svm.solve`."""
        ...

    def length(self, R: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the length of the coordinates on the boundary of the ball of radius R."""
        ...

    def toward(self, G: Float[Array, "p q"]) -> Float[Array, "a b"]:
        """Return coordinates, at any scale, of roughly the point of the ball that maximizes `<G, W>`."""
        ...

    def matrix(self, x: Float[Array, "a b"], rows: Constraints) -> Float[Array, "p q"]:
        """Return W."""
        ...

    def weights(self, x: Float[Array, "a b"], reduction: cons.Reduction) -> Weights:
        """Return the attention weights in the original coordinates of tokens and queries."""
        ...

    def dual_norm(self, G: Float[Array, "p q"]) -> Float[Array, ""]:
        """Return the maximum of `<G, W>` over the ball of radius 1."""
        ...

    def residual(
        self,
        x: Float[Array, "a b"],
        W: Float[Array, "p q"],
        G: Float[Array, "p q"],
        dual: Float[Array, ""],
        R: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Return a residual for a risk with gradient G: zero if and only if x satisfies the first-order conditions."""
        ...

    def logits(self, x: Float[Array, "a b"], move: Float[Array, "a b"], rows: Constraints) -> Float[Array, "n m"]:
        """Return the derivative of the logits along a move of the coordinates."""
        ...

    def gradient(self, x: Float[Array, "a b"], G: Float[Array, "p q"]) -> Float[Array, "a b"]:
        """Return the gradient in the coordinates, which is the adjoint of `logits` applied to a."""
        ...

    def least(self, G: Float[Array, "p q"], dual: Float[Array, ""]) -> Float[Array, ""]:
        """Return the least lambda for which `lambda I + S` has no negative eigenvalue, given the dual norm of G."""
        ...

    def bent(self, v: Float[Array, "a b"], G: Float[Array, "p q"], level: Float[Array, ""]) -> Float[Array, "a b"]:
        """Return `(lambda I + S) v` for lambda = level."""
        ...

    def inverse(
        self, x: Float[Array, "a b"], G: Float[Array, "p q"], level: Float[Array, ""], rows: Constraints
    ) -> tuple[Callable[[Array], Array], Float[Array, "c c"]]:
        """Return the inverse P of `lambda I + S` as a function, and `J P J^T` for J the derivative of the logits."""
        ...

    def kicked(self, x: Float[Array, "a b"]) -> Float[Array, "a b"]:
        """Return slightly perturbed coordinates, for a next solution that needs more freedom than this one has."""
        ...


@dataclass(frozen=True)
class Frobenius:
    """The ball `||W||_F <= R` with coordinates W."""

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
        """Return `1 - <-G, W> / (||G||_dual R)`, which is at least zero up to rounding."""
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
        """Return division by the level, and the Gram matrix divided by it."""
        del x, G
        return lambda v: v / level, cons.gram(rows) / level

    def kicked(self, x: Array) -> Array:
        """Return x."""
        return x


@dataclass(frozen=True)
class Nuclear:
    """The ball `||K||_F^2 + ||Q||_F^2 <= 2 R`, or `||K Q^T||_* <= R`; coordinates K above Q, (p + q, min(p, q))."""

    name: str = "nuclear"

    def length(self, R: Array) -> Array:
        """Return `sqrt(2 R)`."""
        return jnp.sqrt(2 * R)

    def toward(self, G: Array) -> Array:
        """Return factors of G that emphasize its first singular vectors but have full rank."""
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
        """Return `1 - <-G, W> / (||G||_dual R)`, which is at least zero up to rounding."""
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
        """Return `level v` plus the gradient at v of the function `<G, W>` in the factors."""
        return level * v + self.gradient(v, G)

    def inverse(self, x: Array, G: Array, level: Array, rows: Constraints) -> tuple[Callable[[Array], Array], Array]:
        """Return multiplication by a matrix of p + q rows, and a sum of products of Gram matrices."""
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
        """Return factors without zero columns."""
        off = _numbers(x.shape, x)
        return x + _KICK * metrics.norm(x) / metrics.norm(off) * off


@dataclass(frozen=True)
class Narrow(Nuclear):
    """The same with factors of m columns: the W with `||W||_* <= R` and rank at most m, a set that is not convex.

    Attributes:
        m: the number of columns, at least 1.
    """

    m: int = 1

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m: expected at least 1, found {self.m}")

    def toward(self, G: Array) -> Array:
        """Return factors close to the first singular vectors of G, without zero columns."""
        wide = super().toward(G)
        return wide @ _numbers((wide.shape[1], self.m), G)

    def residual(self, x: Array, W: Array, G: Array, dual: Array, R: Array) -> Array:
        """Return the sine of the angle between x and the direction of steepest descent; 1 if the angle is not acute."""
        del W, dual, R
        g = self.gradient(x, G)
        square, along = jnp.sum(x * x), -jnp.sum(g * x)
        off, length = metrics.norm(g + (along / square) * x), metrics.norm(g)
        return jnp.where(length > 0, jnp.where(along > 0, off / jnp.where(length > 0, length, 1.0), 1.0), 0.0)

    def least(self, G: Array, dual: Array) -> Array:
        """Return 0: with m columns `lambda I + S` may have negative eigenvalues at a minimizer."""
        return FROBENIUS.least(G, dual)


def _short_of(
    W: Float[Array, "p q"], G: Float[Array, "p q"], dual: Float[Array, ""], R: Float[Array, ""]
) -> Float[Array, ""]:
    residual = 1 + jnp.sum(G * W) / (jnp.where(dual > 0, dual, 1.0) * R)
    return jnp.where(dual > 0, residual, 0.0)


def _factors(x: Float[Array, "r m"], p: int) -> tuple[Float[Array, "p m"], Float[Array, "q m"]]:
    return x[:p], x[p:]


def _numbers(shape: tuple[int, ...], like: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return irregular fixed numbers, so that a gradient is unlikely to be orthogonal to them."""
    return jnp.cos(jnp.arange(1.0, math.prod(shape) + 1) ** 2).reshape(shape).astype(like.dtype)


def _power(square: Float[Array, "q q"], squarings: int) -> Float[Array, "q q"]:
    """Return a positive semidefinite matrix to the power `2^squarings`, scaled to trace 1; 0 for the zero matrix."""

    def scaled(matrix: Array) -> Array:
        trace = jnp.trace(matrix)
        return matrix / jnp.where(trace > 0, trace, 1.0)

    return jax.lax.fori_loop(0, squarings, lambda _, now: scaled(now @ now), scaled(square))


FROBENIUS, NUCLEAR = Frobenius(), Nuclear()
