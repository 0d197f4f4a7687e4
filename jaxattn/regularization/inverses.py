"""Internal: solve the equations of a Newton step on the sphere of a ball's coordinates.

The risk depends on x only through n (T - 1) logits: `A = (lambda I + S) + J^T B J`, with J the derivative of the
logits, B the risk's Hessian with respect to them (one block per input), and `lambda I + S` from the ball (see `balls`).
If the latter is positive definite, with inverse P and `C C^T = J P J^T`, then

    (A + tau)^{-1} = P - P J^T (B - B C (I + C^T B C)^{-1} C^T B) J P,

so that only matrices of the size of the number of logits, and the ball's own, are factored, and `A + tau` is positive
definite if and only if `I + C^T B C` is. If it need not be positive definite, as with few columns, `A + tau` itself is
formed and factored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.regularization.balls import Ball
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import cholesky, inverse_of_lower, is_positive_definite


class Linear(NamedTuple):
    """The equations of a step.

    Attributes:
        x: coordinates.
        G: the risk's gradient with respect to W, divided by a positive factor.
        level: lambda + tau.
        B: the risk's Hessian with respect to the logits, divided by the same factor.
    """

    x: Float[Array, "a b"]
    G: Float[Array, "p q"]
    level: Float[Array, ""]
    B: Float[Array, "n m m"]


class Solved(NamedTuple):
    """The solution operators of the equations.

    Attributes:
        inside: whether `A + tau` is positive definite on moves along the sphere.
        solved: maps v to the d with `(A + tau) d = v + nu x`, `<x, d> = 0`.
        applied: maps v to `(A + tau) v`.
    """

    inside: Bool[Array, ""]
    solved: Callable[[Array], Array]
    applied: Callable[[Array], Array]


Inverse = Callable[[Ball, Constraints, Linear], Solved]


def by_logits(ball: Ball, rows: Constraints, equations: Linear) -> Solved:
    """Solve in the space of the logits; requires a positive definite `lambda I + S`."""
    x, G, level, B = equations
    n, m = B.shape[:2]
    anywhere, gram = ball.inverse(x, G, level, rows)
    # Restrict the inverse to moves along the sphere, `<x, d> = 0`; along x the risk may be concave.
    Px = anywhere(x)
    xPx, JPx = jnp.sum(x * Px), ball.logits(x, Px, rows).ravel()

    def P(v: Array) -> Array:
        found = anywhere(v)
        return found - Px * (jnp.sum(x * found) / xPx)

    C, _ = cholesky(gram - jnp.outer(JPx, JPx) / xPx)
    BC = jnp.einsum("nst,ntc->nsc", B, C.reshape(n, m, -1)).reshape(C.shape)
    L, pivots = cholesky(jnp.eye(n * m, dtype=x.dtype) + C.T @ BC)
    inside = (pivots > 0).all()
    root = inverse_of_lower(L)

    def solved(v: Array) -> Array:
        first = ball.logits(x, P(v), rows)
        rest = BC @ (root.T @ (root @ (BC.T @ first.ravel())))
        return P(v - _back(ball, rows, x, jnp.einsum("nst,nt->ns", B, first) - rest.reshape(n, m)))

    return Solved(inside, solved, lambda v: _applied(ball, rows, equations, v))


def by_coordinates(ball: Ball, rows: Constraints, equations: Linear) -> Solved:
    """Solve in the coordinates, which are few; `lambda I + S` may be indefinite."""
    x = equations.x
    u = x.ravel() / jnp.sqrt(jnp.sum(x * x))
    A = _on_sphere(_matrix(ball, rows, equations), u)
    root = inverse_of_lower(cholesky(A)[0])

    def solved(v: Array) -> Array:
        along = v.ravel() - u * (u @ v.ravel())
        found = root.T @ (root @ along)
        return (found - u * (u @ found)).reshape(x.shape)

    return Solved(is_positive_definite(A), solved, lambda v: _applied(ball, rows, equations, v))


def _matrix(ball: Ball, rows: Constraints, equations: Linear) -> Float[Array, "k k"]:
    x, G, level, B = equations
    basis = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    J = jax.vmap(lambda move: ball.logits(x, move, rows))(basis)
    own = jax.vmap(lambda move: ball.bent(move, G, level))(basis).reshape(x.size, x.size)
    curved = own + jnp.einsum("ins,nst,jnt->ij", J, B, J, optimize=True)
    return (curved + curved.T) / 2


def _on_sphere(A: Float[Array, "k k"], u: Float[Array, " k"]) -> Float[Array, "k k"]:
    """Return the matrix restricted to the complement of u, with about the same size along u."""
    Au = A @ u
    size = jnp.sqrt(jnp.sum(A * A) / u.size)
    return A - jnp.outer(u, Au) - jnp.outer(Au, u) + (u @ Au + size) * jnp.outer(u, u)


def _back(ball: Ball, rows: Constraints, x: Float[Array, "a b"], b: Float[Array, "n m"]) -> Float[Array, "a b"]:
    return ball.gradient(x, cons.combination(rows, b))


def _applied(ball: Ball, rows: Constraints, equations: Linear, v: Float[Array, "a b"]) -> Float[Array, "a b"]:
    x, G, level, B = equations
    return ball.bent(v, G, level) + _back(ball, rows, x, jnp.einsum("nst,nt->ns", B, ball.logits(x, v, rows)))
