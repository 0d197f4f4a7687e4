"""Internal: the norm whose unit ball is the convex hull of the sign matrices `x y^T`, and its dual norm.

The dual norm is the maximum of `x^T M y` (the norm from l_inf to l_1), found by enumerating the 2^(d-1) sign vectors x
of the shorter side. The norm is the linear program `min sum lambda_k  s.t. sum_k lambda_k x_k y_k^T = W`, solved by
column generation with the same enumeration. The error of the computed decomposition is added, entry by entry (a matrix
`e_i r^T` with one nonzero row has norm `max |r_j|`), so the value is an upper bound.
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
# The relative gap at which column generation stops; the largest number of rounds; the most columns added per round.
_ENOUGH, _ROUNDS, _TOGETHER = 1e-11, 300, 512
# The number of initial sign matrices.
_PLANES = 400
# Options of HiGHS, tried in order until it finds a solution: tightest tolerances, then without presolve, then defaults.
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_WAYS = _TIGHT, _TIGHT | {"presolve": False}, {}
# SciPy's status of a program that HiGHS proved infeasible.
_INFEASIBLE = 2


def check(shape: tuple[int, ...]) -> None:
    """Raise ValueError for matrices with too many sign vectors to enumerate."""
    if min(shape) > MOST:
        raise ValueError(
            f"norm 'sign': expected matrices with a side of at most {MOST}, of which all signs can be enumerated, "
            f"found {tuple(shape)}"
        )


def _upright(M: Any) -> Any:
    """Return the matrix or its transpose, with the shorter side first."""
    return M if M.shape[0] <= M.shape[1] else M.T


def _products(M: Float[Array, "a b"]) -> tuple[Array, Array]:
    """Return all sign vectors x of the first side, up to their sign, and `x^T M`."""
    bits = (jnp.arange(2 ** (M.shape[0] - 1))[:, None] >> jnp.arange(M.shape[0])[None, :]) & 1
    signs = (1 - 2 * bits).astype(M.dtype)
    return signs, signs @ M


def dual(M: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return the maximum of `x^T M y` over sign vectors x and y, with a bound of the rounding error added.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(M.shape)
    M = _upright(M)
    sizes = jnp.abs(M)
    # Cancellation in `x^T M` can hide this much: add it.
    hidden = (M.shape[0] + 2) * jnp.finfo(M.dtype).eps * jnp.sum(sizes)
    return jnp.max(jnp.sum(jnp.abs(_products(M)[1]), axis=1)) + hidden


def maximizer(M: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return the first sign matrix with the largest inner product with M; columns that contribute nothing are 0.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(M.shape)
    upright = _upright(M)
    signs, products = _products(upright)
    best = jnp.argmax(jnp.sum(jnp.abs(products), axis=1))
    best_signs = signs[best][:, None] * jnp.sign(products[best])[None, :]
    return best_signs if M.shape[0] <= M.shape[1] else best_signs.T


def value(W: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return an upper bound of the norm, (), about 1e-11 above it, computed on the host.

    Raises:
        ValueError: both sides are longer than 16.
    """
    check(W.shape)
    # Pass 32-bit words: JAX runs the callback in another thread. If `jax.enable_x64` is on in the caller's thread only,
    # that thread would round doubles to single precision.
    words = jax.lax.bitcast_convert_type(W, jnp.uint32)
    shape = jax.ShapeDtypeStruct(words.shape[W.ndim :], jnp.uint32)
    norm = jax.pure_callback(_on_host(W.dtype.name), shape, words, vmap_method="sequential")
    return jax.lax.bitcast_convert_type(norm, W.dtype)


@lru_cache(maxsize=2)
def _on_host(precision: str) -> Callable[[Any], np.ndarray]:
    """Return the norm of a matrix of this precision as a function of 32-bit words."""
    number = np.dtype(precision).type

    def of_words(words: Any) -> np.ndarray:
        given = np.ascontiguousarray(words).view(number)
        given = given[..., 0] if given.ndim > 2 else given
        norm = number(_once(given.astype(float).tobytes(), given.shape))
        # Rounding to single precision may make the value smaller: round up.
        norm = norm if number is np.float64 else np.nextafter(norm, number(np.inf))
        return np.asarray(norm)[None].view(np.uint32).reshape(np.shape(words)[2:])

    return of_words


# Batches are padded with copies of their lanes, so results repeat.
@lru_cache(maxsize=256)
def _once(W: bytes, shape: tuple[int, ...]) -> float:
    return decomposed(np.frombuffer(W).reshape(shape))


@lru_cache(maxsize=MOST)
def _all_signs(d: int) -> np.ndarray:
    bits = (np.arange(2 ** (d - 1))[:, None] >> np.arange(d)) & 1
    return 1.0 - 2.0 * bits


class Priced(NamedTuple):
    """Sign matrices that the multipliers undervalue, the most undervalued first.

    Attributes:
        largest: the dual norm of the matrix of multipliers.
        left: their row signs x, (k, d).
        right: their column signs y, (k, e).
    """

    largest: float
    left: np.ndarray
    right: np.ndarray


def priced(M: Float[np.ndarray, "d e"], above: float, most: int = _TOGETHER) -> Priced:
    """Return the sign matrices with inner products with M above a threshold, largest first, and the largest product."""
    upright = _upright(M)
    signs = _all_signs(upright.shape[0])
    products = signs @ upright
    totals = np.abs(products).sum(axis=1)
    order = np.argsort(-totals, kind="stable")[:most]
    order = order[totals[order] > above]
    pair = signs[order], np.where(products[order] < 0, -1.0, 1.0)
    return Priced(float(totals.max()), *(pair if M.shape[0] <= M.shape[1] else pair[::-1]))


def minimized(cost: Float[np.ndarray, " k"], **rows: Any) -> Any:
    """Return SciPy's result for `min cost @ x` over x >= 0; its x is None if HiGHS finds none with any options.

    Args:
        cost: the cost of each entry of x.
        rows: `A_ub`, `b_ub`, `A_eq`, `b_eq` of `scipy.optimize.linprog`.
    """
    from scipy.optimize import linprog

    result: Any = None
    for options in _WAYS:
        result = linprog(cost, method="highs", options=options, **rows)
        if result.x is not None or result.status == _INFEASIBLE:
            break
    return result


def decomposed(W: Float[np.ndarray, "d e"]) -> float:
    """Return an upper bound of the norm of a matrix, tight to about 1e-11; NaN if the matrix is not finite.

    Raises:
        RuntimeError: the linear programs do not reach that accuracy.
    """
    size = float(np.abs(W).max())
    if size == 0 or not np.isfinite(size):
        return 0.0 if size == 0 else float("nan")
    W = W / size
    d, e = W.shape
    pool = np.concatenate([initial_pool(W), _columns(_rounded(W))], axis=1)
    best, proven = np.inf, 0.0
    for _ in range(_ROUNDS):
        solution = minimized(np.ones(pool.shape[1]), A_eq=pool, b_eq=W.ravel())
        if solution.x is None:
            break
        weights = np.maximum(solution.x, 0.0)
        missed = np.abs(W - (pool @ weights).reshape(d, e))
        # A bound of the rounding error of the sum of products.
        missed += (np.count_nonzero(weights) + 2) * np.finfo(float).eps * (1 + weights.sum())
        remainder = min(missed.max(axis=0).sum(), missed.max(axis=1).sum())
        best = min(best, (weights.sum() + remainder) * (1 + weights.size * np.finfo(float).eps))
        M = solution.eqlin.marginals.reshape(d, e)
        more = priced(M, 1.0)
        proven = max(proven, float(np.sum(M * W)) / max(more.largest, 1.0))
        if best - proven <= _ENOUGH * best or (following := renewed(pool, weights, M, more)) is None:
            break
        pool = following
    if best - proven > 1e3 * _ENOUGH * best:
        raise RuntimeError(
            f"norm 'sign': expected bounds of the norm that meet, found {proven * size} and {best * size}"
        )
    return best * size


def _rounded(W: Float[np.ndarray, "d e"]) -> Priced:
    """Return sign matrices whose mean resembles W: signs of its scaled singular vectors on fixed random hyperplanes.

    Half of the hyperplanes pass through the origin, as in Krivine's rounding. The shifted ones represent the magnitudes
    of the entries of a rank-one matrix.
    """
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    rng = np.random.default_rng(0)
    planes, shifts = rng.normal(size=(_PLANES, len(s))), rng.uniform(-1, 1, size=(2, _PLANES, 1))
    shifts[:, ::2] = 0.0
    left, right = (planes @ (factor * np.sqrt(s)).T for factor in (U, Vt.T))
    cut = [
        np.where(side + shift * np.abs(side).max(axis=1, keepdims=True) < 0, -1.0, 1.0)
        for side, shift in zip((left, right), shifts, strict=True)
    ]
    return Priced(0.0, *cut)


def _columns(matrices: Priced) -> np.ndarray:
    """Return the sign matrices as columns, (d e, k)."""
    (k, d), e = matrices.left.shape, matrices.right.shape[1]
    return np.einsum("ki,kj->ijk", matrices.left, matrices.right).reshape(d * e, k)


def initial_pool(M: Float[np.ndarray, "d e"]) -> np.ndarray:
    """Return a pool of columns, (d e, k): single entries of +-1, and the sign matrices nearest to M.

    Single entries have norm 1; with them every matrix has a decomposition.
    """
    return np.concatenate([np.eye(M.size), -np.eye(M.size), _columns(priced(M, 0.0))], axis=1)


def renewed(
    pool: np.ndarray, weights: Float[np.ndarray, " k"], M: Float[np.ndarray, "d e"], undervalued: Priced
) -> np.ndarray | None:
    """Return a pool with the undervalued sign matrices that it lacks; None if it lacks none.

    Multipliers are accurate to the tolerance of HiGHS, so that they may undervalue matrices of the pool for ever.

    Args:
        pool: the columns of the last linear program, `initial_pool` or what followed it.
        weights: its solution.
        M: its multipliers.
        undervalued: the sign matrices that these undervalue.
    """
    found = _columns(undervalued)
    missing = found[:, (pool.T @ found == M.size).sum(axis=0) == 0]
    if missing.size == 0:
        return None
    # Drop columns with large reduced costs to keep the programs small.
    spare = 1.0 - pool.T @ M.ravel()
    kept = (np.arange(len(spare)) < 2 * M.size) | (weights > 0) | (spare < 0.3)
    return np.concatenate([pool[:, kept], missing], axis=1)
