"""Internal: the norm whose unit ball is the convex hull of the sign matrices `x y^T`, and its dual norm.

The dual norm is the largest `x^T M y`, from infinity to one, exact by enumeration of the 2^(d-1) signs x of the shorter
side. The norm is the linear program `min sum lambda_k  s.t. sum_k lambda_k x_k y_k^T = W`, solved by column generation:
the same enumeration finds the sign matrices that its multipliers undervalue. What an explicit decomposition misses of W
is added, entry by entry: a row r at place i, `e_i r^T`, has norm `max |r_j|`. So the value errs upwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The longest shorter side: 2^15 signs.
MOST = 16
# The relative gap between the bounds at which the columns suffice; rounds at most; columns that a round adds at most.
_ENOUGH, _ROUNDS, _TOGETHER = 1e-11, 300, 512
# Sign matrices to begin with.
_PLANES = 400
# How HiGHS is asked, until it has an answer: with its tolerances at their least, also without presolving, as it comes.
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_WAYS = _TIGHT, _TIGHT | {"presolve": False}, {}
# What SciPy calls a program that HiGHS proved infeasible.
_INFEASIBLE = 2


def check(shape: tuple[int, ...]) -> None:
    """Raise ValueError for matrices whose signs are too many to enumerate."""
    if min(shape) > MOST:
        raise ValueError(
            f"norm 'sign': expected matrices with a side of at most {MOST}, of which all signs can be enumerated, "
            f"found {tuple(shape)}"
        )


def _upright(M: Any) -> Any:
    """Return the matrix with its shorter side first."""
    return M if M.shape[0] <= M.shape[1] else M.T


def _products(M: Float[Array, "a b"]) -> tuple[Array, Array]:
    """Return all signs x of the first side, up to their sign, and `x^T M`."""
    bits = (jnp.arange(2 ** (M.shape[0] - 1))[:, None] >> jnp.arange(M.shape[0])[None, :]) & 1
    signs = (1 - 2 * bits).astype(M.dtype)
    return signs, signs @ M


def dual(M: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return the largest `x^T M y` over signs x and y, no less but for the roundings of a sum of positive numbers.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(M.shape)
    M = _upright(M)
    sizes = jnp.abs(M)
    # Digits cancel in `x^T M`: what that may hide is added.
    hidden = (M.shape[0] + 2) * jnp.finfo(M.dtype).eps * jnp.sum(sizes)
    return jnp.max(jnp.sum(jnp.abs(_products(M)[1]), axis=1)) + hidden


def maximizer(M: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return the first sign matrix whose inner product with M is the largest; 0 in columns that do not count.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(M.shape)
    upright = _upright(M)
    signs, products = _products(upright)
    best = jnp.argmax(jnp.sum(jnp.abs(products), axis=1))
    found = signs[best][:, None] * jnp.sign(products[best])[None, :]
    return found if M.shape[0] <= M.shape[1] else found.T


def value(W: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return the least sum of multiples of sign matrices that W is, on the host, no less and by about 1e-11 more.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(W.shape)
    # As words of 32 bits: JAX calls back in a thread of its own, and where 64 bits are switched on for the caller alone
    # (`jax.enable_x64`) it would there round doubles to single precision.
    words = jax.lax.bitcast_convert_type(W, jnp.uint32)
    shape = jax.ShapeDtypeStruct(words.shape[W.ndim :], jnp.uint32)
    found = jax.pure_callback(_on_host(W.dtype.name), shape, words, vmap_method="sequential")
    return jax.lax.bitcast_convert_type(found, W.dtype)


@lru_cache(maxsize=2)
def _on_host(precision: str) -> Callable[[Any], np.ndarray]:
    """Return the value of a matrix of this precision as a function of words of 32 bits."""
    number = np.dtype(precision).type

    def of_words(words: Any) -> np.ndarray:
        given = np.ascontiguousarray(words).view(number)
        given = given[..., 0] if given.ndim > 2 else given
        found = number(_once(given.astype(float).tobytes(), given.shape))
        # Rounded to single precision it may be less.
        found = found if number is np.float64 else np.nextafter(found, number(np.inf))
        return np.asarray(found)[None].view(np.uint32).reshape(np.shape(words)[2:])

    return of_words


# A batch is filled up with copies of its lanes.
@lru_cache(maxsize=256)
def _once(W: bytes, shape: tuple[int, ...]) -> float:
    return decomposed(np.frombuffer(W).reshape(shape))


@lru_cache(maxsize=MOST)
def _all_signs(d: int) -> np.ndarray:
    bits = (np.arange(2 ** (d - 1))[:, None] >> np.arange(d)) & 1
    return 1.0 - 2.0 * bits


class Priced(NamedTuple):
    """Sign matrices that multipliers undervalue, the worst first.

    Attributes:
        largest: the dual norm of the multipliers' matrix.
        left: their x, (k, d).
        right: their y, (k, e).
    """

    largest: float
    left: np.ndarray
    right: np.ndarray


def priced(M: Float[np.ndarray, "d e"], above: float, most: int = _TOGETHER) -> Priced:
    """Return the sign matrices whose inner product with M exceeds a number, the largest first, and the largest."""
    upright = _upright(M)
    signs = _all_signs(upright.shape[0])
    products = signs @ upright
    totals = np.abs(products).sum(axis=1)
    order = np.argsort(-totals, kind="stable")[:most]
    order = order[totals[order] > above]
    pair = signs[order], np.where(products[order] < 0, -1.0, 1.0)
    return Priced(float(totals.max()), *(pair if M.shape[0] <= M.shape[1] else pair[::-1]))


def minimized(cost: Float[np.ndarray, " k"], **rows: Any) -> Any:
    """Return SciPy's result for the least `cost @ x` over x >= 0; its x is None if HiGHS finds none in any way.

    Args:
        cost: of each entry of x.
        rows: `A_ub`, `b_ub`, `A_eq`, `b_eq` of `scipy.optimize.linprog`.
    """
    from scipy.optimize import linprog

    found: Any = None
    for options in _WAYS:
        found = linprog(cost, method="highs", options=options, **rows)
        if found.x is not None or found.status == _INFEASIBLE:
            break
    return found


def decomposed(W: Float[np.ndarray, "d e"]) -> float:
    """Return an upper bound of the norm of a matrix, tight to about 1e-11; NaN of one that is not finite.

    Raises:
        RuntimeError: the linear programs do not come that close.
    """
    size = float(np.abs(W).max())
    if size == 0 or not np.isfinite(size):
        return 0.0 if size == 0 else float("nan")
    W = W / size
    d, e = W.shape
    # A single entry of 1 has norm 1: with these columns there is always a decomposition.
    pool = np.concatenate([np.eye(d * e), -np.eye(d * e)], axis=1)
    pool = np.concatenate([pool, columns(priced(W, 0.0)), columns(_rounded(W))], axis=1)
    best, proven = np.inf, 0.0
    for _ in range(_ROUNDS):
        found = minimized(np.ones(pool.shape[1]), A_eq=pool, b_eq=W.ravel())
        if found.x is None:
            break
        weights = np.maximum(found.x, 0.0)
        missed = np.abs(W - (pool @ weights).reshape(d, e))
        # Of the sum of products, what rounding may hide.
        missed += (np.count_nonzero(weights) + 2) * np.finfo(float).eps * (1 + weights.sum())
        beside = min(missed.max(axis=0).sum(), missed.max(axis=1).sum())
        best = min(best, (weights.sum() + beside) * (1 + weights.size * np.finfo(float).eps))
        M = found.eqlin.marginals.reshape(d, e)
        more = priced(M, 1.0)
        proven = max(proven, float(np.sum(M * W)) / max(more.largest, 1.0))
        if best - proven <= _ENOUGH * best or more.left.size == 0:
            break
        # Columns that are dear are let go, so that the programs stay small.
        spare = 1.0 - pool.T @ M.ravel()
        kept = (np.arange(len(spare)) < 2 * d * e) | (weights > 0) | (spare < 0.3)
        pool = np.concatenate([pool[:, kept], columns(more)], axis=1)
    if best - proven > 1e3 * _ENOUGH * best:
        raise RuntimeError(
            f"norm 'sign': expected bounds of the norm that meet, found {proven * size} and {best * size}"
        )
    return best * size


def _rounded(W: Float[np.ndarray, "d e"]) -> Priced:
    """Return sign matrices whose mean resembles W: of its singular vectors, cut by planes in the same places each time.

    Half of the planes pass through the origin, as Krivine's do; shifted ones tell the sizes of a matrix of rank one.
    """
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    rng = np.random.default_rng(0)
    planes, shifts = rng.normal(size=(_PLANES, len(s))), rng.uniform(-1, 1, size=(2, _PLANES, 1))
    shifts[:, ::2] = 0.0
    left, right = (planes @ (factor * np.sqrt(s)).T for factor in (U, Vt.T))
    cut = [
        np.where(one + shift * np.abs(one).max(axis=1, keepdims=True) < 0, -1.0, 1.0)
        for one, shift in zip((left, right), shifts, strict=True)
    ]
    return Priced(0.0, *cut)


def columns(found: Priced) -> np.ndarray:
    """Return sign matrices as columns, (d e, k)."""
    return np.einsum("ki,kj->ijk", found.left, found.right).reshape(-1, len(found.left))
