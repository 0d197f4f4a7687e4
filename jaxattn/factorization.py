"""Internal: upper bounds of gamma_2, `min (largest row of K)(largest row of Q)` over `W = K Q^T`, and of its dual norm.

`gamma_2(W) <= t` if and only if some positive semidefinite `X = [A, W; W^T, B]` has a diagonal of at most t.
Equivalently, gamma_2 is the maximum over probability vectors p, q of the nuclear norm of `D_p^1/2 W D_q^1/2`, a concave
function of p and q. The dual norm is the minimum of the spectral norm of `D_p^-1/2 M D_q^-1/2` (Linial and Shraibman
2007, by Grothendieck's factorization). Any p, q give a factorization of W by singular vectors, and so an upper bound.
The rounding error of the factorization is added to both diagonals. The values returned are the best upper bounds along
a Newton path: at least the norm, up to the rounding of row lengths, and about 1e-12 above it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Largest number of steps (a matrix needs 15 to 30), and the fraction of the distance to the boundary that a step takes.
_MOST, _INSIDE = 80, 0.95
# The fraction of the gap that a step aims at, and the smallest ratio of consecutive values of mu.
_NEARER = 0.3, 0.02
# Stop at a relative gap of eps to this power: 2e-12 in double precision, 6e-6 in single precision.
_DONE = 0.75


def value(W: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return an upper bound of gamma_2 of a matrix, (), about 1e-12 above it."""
    largest = jnp.max(jnp.abs(W))
    W = W / jnp.where(largest > 0, largest, 1.0)
    d, e = W.shape
    start = jnp.concatenate([jnp.full(d, 1 / d, W.dtype), jnp.full(e, 1 / e, W.dtype)])
    first = _bounds(W, start)
    mu = first.above / (d + e)
    point = _Point(start, jnp.full(d + e, 2.0, W.dtype) * mu / start, mu, first.above, first.below, jnp.zeros((), int))
    end = jax.lax.while_loop(_unfinished, lambda now: _nearer(W, now), point)
    return largest * jnp.where(largest > 0, end.above, 0.0)


class _Point(NamedTuple):
    """Multipliers y of both diagonals, slacks s (`y s = 2 mu` on the path), and the best bounds so far."""

    y: Float[Array, " s"]
    s: Float[Array, " s"]
    mu: Float[Array, ""]
    above: Float[Array, ""]
    below: Float[Array, ""]
    steps: Any


def _unfinished(now: _Point) -> Array:
    eps = jnp.finfo(now.y.dtype).eps
    wide = now.above - now.below > eps**_DONE * now.above
    return wide & (now.steps < _MOST) & (now.mu > eps * eps)


class _Bounds(NamedTuple):
    above: Float[Array, ""]
    below: Float[Array, ""]


def _bounds(W: Float[Array, "a b"], y: Float[Array, " s"]) -> _Bounds:
    """Return the bounds of gamma_2 that p and q prove; y need not be normalized."""
    d, e = W.shape
    p, q = y[:d] / jnp.sum(y[:d]), y[d:] / jnp.sum(y[d:])
    U, s, Vt = jnp.linalg.svd(jnp.sqrt(p)[:, None] * W * jnp.sqrt(q)[None, :], full_matrices=False)
    eps = jnp.finfo(W.dtype).eps
    counts = s > 4 * len(s) * eps * s[0]
    root = jnp.sqrt(jnp.where(counts, s, 0.0))[None, :]
    inverse = jnp.where(counts[None, :], 1 / jnp.where(counts[None, :], root, 1.0), 0.0)
    K, Q = U * root / jnp.sqrt(p)[:, None], Vt.T * root / jnp.sqrt(q)[:, None]
    # Dividing by a small weight amplifies the rounding of that row: correct it from the other factor.
    K = K + (W - K @ Q.T) @ (jnp.sqrt(q)[:, None] * Vt.T * inverse)
    Q = Q + (W - K @ Q.T).T @ (jnp.sqrt(p)[:, None] * U * inverse)
    rows, columns = jnp.sum(K * K, axis=1), jnp.sum(Q * Q, axis=1)
    # The error of the product, with a bound of the rounding in computing that error.
    sizes = jnp.abs(W) + jnp.sqrt(rows)[:, None] * jnp.sqrt(columns)[None, :]
    missed = jnp.abs(W - K @ Q.T) + (len(s) + 4) * eps * sizes
    largest = jnp.max(rows + jnp.sum(missed, axis=1)), jnp.max(columns + jnp.sum(missed, axis=0))
    above = jnp.sqrt(largest[0]) * jnp.sqrt(largest[1]) * (1 + (d + e) * eps)
    return _Bounds(jnp.where(jnp.isfinite(above), above, jnp.inf), jnp.sum(s))


def _nearer(W: Float[Array, "a b"], now: _Point) -> _Point:
    """Return the next point: a Newton step for the multipliers, with the diagonal blocks A and B as functions of them.

    With `D_p^1/2 W D_q^1/2 = U S V^T`, the blocks of X on the path are `U g U^T` and `V g V^T`, `g = mu + sqrt(mu^2 +
    s^2)`, in coordinates scaled by `D^1/2`. Their derivatives with respect to y have a closed form in these bases.
    """
    y, slack, mu, *_ = now
    d, e = W.shape
    p, q = jnp.sqrt(y[:d]), jnp.sqrt(y[d:])
    U, s, Vt = jnp.linalg.svd(p[:, None] * W * q[None, :])
    k = max(d, e)
    s = jnp.concatenate([s, jnp.zeros(k - len(s), s.dtype)])
    g = mu + jnp.sqrt(mu**2 + s**2)
    share = s / g
    both, mixed = g[:, None] * g[None, :] / (g[:, None] + g[None, :] - 2 * mu), share[:, None] * share[None, :]
    of_U, of_V = U / p[:, None], Vt.T / q[:, None]
    diagonal = jnp.concatenate([(of_U**2) @ g[:d], (of_V**2) @ g[:e]])
    # Entry (i, k) holds the products of the entries of rows i and k in each singular vector.
    left, right = of_U[:, None, :] * of_U[None, :, :], of_V[:, None, :] * of_V[None, :, :]
    r = min(d, e)
    # `sum_ab U_ia U_ib G_ab U_ka U_kb`, divided by the squares of the scaling of y.
    own = jnp.einsum("ika,ab,ikb->ik", left, both[:d, :d], left)
    other = jnp.einsum("jla,ab,jlb->jl", right, both[:e, :e], right)
    across = of_U[:, None, :r] * of_V[None, :, :r]
    cross = jnp.einsum("ija,ab,ijb->ij", across, (both * mixed)[:r, :r], across)
    H = jnp.block([[own, -cross], [-cross.T, other]]) + jnp.diag(slack / y)
    # p and q each sum to 1. Without these constraints `c p, q / c` factorizes W equally well, and H is nearly singular.
    sums = jnp.stack([jnp.arange(d + e) < d, jnp.arange(d + e) >= d], axis=1).astype(W.dtype)
    short = 1.0 - y @ sums
    weight = jnp.max(jnp.diagonal(H) * y) * (d + e)
    H = H + weight * sums @ sums.T
    wanted = jnp.concatenate([(diagonal + 2 * mu / y + weight * sums @ short)[:, None], sums], axis=1)
    root = jnp.sqrt(jnp.diagonal(H))
    solved = jnp.linalg.solve(H / root[:, None] / root[None, :], wanted / root[:, None]) / root[:, None]
    levels = jnp.linalg.solve(sums.T @ solved[:, 1:], sums.T @ solved[:, 0] - short)
    dy = solved[:, 0] - solved[:, 1:] @ levels
    ds = (2 * mu - slack * dy) / y - slack
    ends = jnp.concatenate([-dy / y, -ds / slack])
    step = jnp.minimum(1.0, _INSIDE / jnp.maximum(jnp.max(ends), 1e-30))
    new_y, new_slack = y + step * dy, slack + step * ds
    fine = jnp.isfinite(new_y).all() & jnp.isfinite(new_slack).all() & (new_y > 0).all() & (new_slack > 0).all()
    bounds = _bounds(W, jnp.where(fine, new_y, y))
    # On the path the gap is about `2 mu` per row and column. Reduce a larger gap before mu.
    aim = _NEARER[0] * (bounds.above - bounds.below) / (2 * y.size)
    aim = jnp.where(step > 0.5, jnp.minimum(mu, jnp.maximum(aim, _NEARER[1] * mu)), mu)
    return _Point(
        y=new_y,
        s=new_slack,
        mu=jnp.where(fine, aim, 0.0),
        above=jnp.minimum(now.above, bounds.above),
        below=jnp.maximum(now.below, bounds.below),
        steps=now.steps + 1,
    )


class _Dual(NamedTuple):
    """`X` with diagonal 1, the y of `Z = Diag(y) - C` (C has M / 2 as its off-diagonal block), and the least bound."""

    X: Float[Array, "s s"]
    y: Float[Array, " s"]
    above: Float[Array, ""]
    best: Float[Array, "s s"]
    width: Float[Array, ""]
    steps: Any


def dual(M: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return an upper bound of the dual norm, (): the maximum of `<M, W>` over W of inner products of unit vectors."""
    return _dual(M)[0]


def maximizer(M: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return a matrix of inner products of unit vectors that maximizes the inner product with M."""
    return _dual(M)[1]


def _dual(M: Float[Array, "a b"]) -> tuple[Float[Array, ""], Float[Array, "a b"]]:
    """Maximize `<C, X>` over positive semidefinite X of diagonal 1 (Helmberg, Rendl, Vanderbei and Wolkowicz 1996)."""
    largest = jnp.max(jnp.abs(M))
    M = M / jnp.where(largest > 0, largest, 1.0)
    (d, e), eps = M.shape, jnp.finfo(M.dtype).eps
    zeros = jnp.zeros((d, d), M.dtype), jnp.zeros((e, e), M.dtype)
    C = jnp.block([[zeros[0], M], [M.T, zeros[1]]]) / 2
    eye = jnp.eye(d + e, dtype=M.dtype)

    def spectral(y: Array) -> Array:
        p, q = y[:d] / jnp.sum(y[:d]), y[d:] / jnp.sum(y[d:])
        norm = jnp.linalg.svd(M / jnp.sqrt(p)[:, None] / jnp.sqrt(q)[None, :], compute_uv=False)[0]
        return jnp.where(jnp.isfinite(norm), norm, jnp.inf)

    def step(now: _Dual) -> _Dual:
        X, y = now.X, now.y
        inverse = jnp.linalg.inv(jnp.diag(y) - C)
        inverse = (inverse + inverse.T) / 2
        G = X * inverse

        def toward(mu: Array, second: Array) -> tuple[Array, Array]:
            known = mu * inverse - second
            dy = jnp.linalg.solve(G, jnp.diagonal(known) - 1.0)
            moved = (X * dy[None, :]) @ inverse
            return known - X - (moved + moved.T) / 2, dy

        mu = (jnp.sum(y) - jnp.sum(C * X)) / (d + e)
        dX, dy = toward(jnp.zeros_like(mu), jnp.zeros_like(X))
        ends = _reach(X, dX), _reach(jnp.diag(y) - C, jnp.diag(dy))
        ahead = jnp.sum((X + ends[0] * dX) * (jnp.diag(y + ends[1] * dy) - C)) / (d + e)
        second = (dX * dy[None, :]) @ inverse
        dX, dy = toward(jnp.clip((ahead / mu) ** 2, 1e-4, 0.9) * mu, (second + second.T) / 2)
        ends = _reach(X, dX), _reach(jnp.diag(y) - C, jnp.diag(dy))
        new_X, new_y = X + ends[0] * dX, y + ends[1] * dy
        fine = jnp.isfinite(new_X).all() & jnp.isfinite(new_y).all() & (new_y > 0).all()
        new_X, new_y = jnp.where(fine, new_X, X), jnp.where(fine, new_y, y)
        above = jnp.minimum(now.above, spectral(new_y))
        below = 2 * jnp.sum(C * new_X) / 2
        return _Dual(new_X, new_y, above, new_X, jnp.where(fine, above - below, 0.0), now.steps + 1)

    def unfinished(now: _Dual) -> Array:
        return (now.width > eps**_DONE * now.above) & (now.steps < _MOST)

    y = jnp.sum(jnp.abs(C), axis=1) + jnp.sum(jnp.abs(C)) / (d + e)
    first = spectral(y)
    end = jax.lax.while_loop(unfinished, step, _Dual(eye, y, first, eye, first, jnp.zeros((), int)))
    return largest * jnp.where(largest > 0, end.above, 0.0), end.X[:d, d:]


def _reach(A: Float[Array, "s s"], dA: Float[Array, "s s"]) -> Float[Array, ""]:
    """Return the largest t <= 1 with `A + t dA` positive definite, less a margin; 0 if A is not positive definite."""
    L = jnp.linalg.cholesky(A)
    inner = jax.scipy.linalg.solve_triangular(L, dA, lower=True)
    inner = jax.scipy.linalg.solve_triangular(L, inner.T, lower=True)
    # The eigenvalue solver may not terminate on NaN.
    known = jnp.isfinite(inner).all()
    least = jnp.linalg.eigvalsh(jnp.where(known, (inner + inner.T) / 2, 0.0))[0]
    return jnp.where(known, jnp.minimum(1.0, _INSIDE / jnp.maximum(-least, 1e-30)), 0.0)
