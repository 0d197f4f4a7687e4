"""Internal: what a matrix proves about the optimal value of a problem, and what multipliers prove.

The bounds and their assumptions are those of `certificate`. All functions take one problem of JAX's arrays, or NumPy
arrays with a leading axis of lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxattn.lengths import euclidean
from jaxattn.norms import Norm, of_singular_values
from jaxattn.parallel import batch, effort
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Rows
from jaxattn.svm.pivoting import LAST, AnyArray, after, module_of, positive
from jaxattn.svm.rounding import Enclosed, Scaled, dot, exactly, per_row, power_below, unit

# How many lanes a program takes that evaluates a norm, for a few lanes and for more: some norms take milliseconds each.
# Matrices of more bytes are taken one by one.
_FEW, _TOGETHER, _LARGE = 4, 32, 2**17
# A matrix is compressed to its range if the rank that it should have is at most this fraction of its size, and if what
# is lost is at most this multiple of the root of the rounding unit.
_THIN, _LOST = 1 / 8, 0.03


def of_each(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function of each lane of NumPy arrays, or of one problem of JAX's arrays."""
    if not isinstance(arguments[-1], np.ndarray):
        return function(*arguments)
    lanes = len(arguments[-1])
    lifted = batch.compiled(function, len(arguments), effort=effort.SOLVING)
    width, found = _width(arguments[-1]), []
    for start in range(0, lanes, width):
        part = np.minimum(np.arange(start, start + width), lanes - 1)
        with batch.ONE_AT_A_TIME:
            result = jax.tree.map(np.asarray, lifted(*jax.tree.map(lambda leaf, part=part: leaf[part], arguments)))
        found.append(jax.tree.map(lambda leaf, start=start: leaf[: lanes - start], result))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


def _width(leaf: np.ndarray) -> int:
    if leaf[0].nbytes > _LARGE:
        return 1
    return _FEW if len(leaf) <= _FEW else _TOGETHER


def of_rank(
    norm: Norm, function: Callable[[AnyArray], AnyArray], M: Float[AnyArray, "*lanes d e"], rank: int
) -> Float[AnyArray, "*lanes"]:
    """Return an upper bound of a norm, or its dual, of matrices that should have a low rank; their value if not.

    `function` is the value or the dual of `norm`. If only singular values count, `||M|| <= ||Q^T M|| + ||M - Q Q^T M||`
    with orthonormal columns Q that nearly span the range of M, and the last norm is at most `sqrt(min(d, e))` times the
    Frobenius norm. The decomposition of a (768, 768) matrix takes seconds.
    """
    k, least = rank + 2, min(M.shape[-2:])
    if not isinstance(M, np.ndarray) or not of_singular_values(norm) or k > _THIN * least:
        return of_each(function, M)
    Q = np.linalg.qr(M @ np.random.default_rng(0).normal(size=(M.shape[-1], k)).astype(M.dtype))[0]
    core = Q.mT @ M
    rest = least**0.5 * euclidean(M - Q @ core)
    if not (rest <= _LOST * jnp.finfo(M.dtype).eps ** 0.5 * euclidean(M)).all():
        return of_each(function, M)
    # Its transposed triangular factor has the same singular values.
    return of_each(function, np.linalg.qr(core.mT)[1]) + rest


def _dual_of_ones(norm: Norm, like: Float[AnyArray, "*lanes d e"]) -> Float[AnyArray, ""] | float:
    """Return a bound of the dual norm of matrices with entries up to 1.

    If the norm depends on absolute values or lengths, that of the all-ones matrix is one; if it depends on singular
    values, at most `sqrt(rank)` times that.
    """
    *_, d, e = like.shape
    if isinstance(like, np.ndarray):
        if of_singular_values(norm):
            # It has one singular value.
            return min(d, e) ** 0.5 * (d * e) ** 0.5
        return min(d, e) ** 0.5 * _known_dual_of_ones(norm, d, e, like.dtype, _width(like))
    return min(d, e) ** 0.5 * norm.dual(jnp.ones((d, e), like.dtype))


@lru_cache(maxsize=256)
def _known_dual_of_ones(norm: Norm, d: int, e: int, dtype: Any, width: int) -> float:
    with batch.ONE_AT_A_TIME:
        return float(batch.compiled(norm.dual, effort=effort.SOLVING)(np.ones((width, d, e), dtype))[0])


class Primal(NamedTuple):
    """What a matrix proves.

    Attributes:
        W: scaled to worst margin 1 if its scale is free, in the units of the problem, (d, e).
        small: the same matrix in the units of `scaled`.
        violation: an upper bound of the shortfall of the worst hard row, measured as in `constraints.violation`.
        cost: an upper bound of the cost of its shortfalls, in the units of `scaled`.
        directed: whether all hard rows with a required sign have it.
    """

    W: Float[AnyArray, "*lanes d e"]
    small: Float[AnyArray, "*lanes d e"]
    violation: Float[AnyArray, "*lanes"]
    cost: Float[AnyArray, "*lanes"]
    directed: Bool[AnyArray, "*lanes"]


def measured(problem: Scaled, targets: Float[AnyArray, "*lanes n m"], W: Float[AnyArray, "*lanes d e"]) -> Primal:
    """Measure a finite matrix; `targets` are those of the problem in its own units."""
    of, xp = problem.of, module_of(W)
    least, whole = float(jnp.finfo(W.dtype).tiny), per_row(problem.whole)
    # If the scale is free, the worst margin determines it.
    free = cons.is_free(problem.constraints) & ~(of.present & ~of.hard).any(axis=LAST)
    own = positive(power_below(xp.max(xp.abs(W), axis=LAST)))
    small = W / per_row(xp.where(free, own, problem.whole))
    reached = _margins(problem, small)
    worst = cons.worst_of(problem.constraints, reached.head + reached.tail)
    W = small / per_row(positive(worst)) * whole
    W = xp.where((xp.abs(W) >= least) & per_row(xp.isfinite(W).all(axis=LAST)), W, 0.0)
    small = W / whole
    reached = _margins(problem, small)
    off = of.targets - reached.head
    short = off - reached.tail
    error = 1.0625 * (per_row(reached.error) + unit(W.dtype) * (xp.abs(off) + xp.abs(short)))
    most = xp.maximum(xp.where(of.equal, xp.abs(short), short) + error, 0.0)
    largest = xp.max(xp.where(of.hard, xp.abs(targets), 0.0), axis=LAST)
    measure = xp.where(largest > 0, xp.minimum(largest, 1.0), 1.0)
    violation = most * (problem.rows * whole) / per_row(measure)
    priced = of.present & ~of.hard
    cost = xp.sum(xp.where(priced, xp.where(priced, of.upper, 0.0) * most, 0.0), axis=LAST)
    slack = (math.prod(most.shape[-2:]) + 8) * unit(W.dtype)
    return Primal(
        W=W,
        small=small,
        violation=(1 + slack) * xp.max(xp.where(of.hard, violation, 0.0), axis=LAST),
        cost=(1 + slack) * cost,
        directed=worst > 0,
    )


class Dual(NamedTuple):
    """What multipliers prove.

    Attributes:
        duals: the multipliers in the units of the problem, (n, m): within their bounds, or, for a proof of
            infeasibility, with absolute sum 1.
        bound: a lower bound of the optimal value, in the units of `scaled`.
        farkas: an upper bound of how far the hard rows' multipliers are from combining the rows to zero (see
            `Tolerance`); inf if this is no proof.
    """

    duals: Float[AnyArray, "*lanes n m"]
    bound: Float[AnyArray, "*lanes"]
    farkas: Float[AnyArray, "*lanes"]


def proved(problem: Scaled, norm: Norm, own: Rows, duals: Float[AnyArray, "*lanes n m"], farkas: float) -> Dual:
    """Measure finite multipliers of any scale, without bounds; `own` are the rows in the problem's own units.

    Multipliers whose measure is at most `farkas` prove infeasibility.
    """
    of, xp = problem.of, module_of(duals)
    eps, least = unit(duals.dtype), float(jnp.finfo(duals.dtype).tiny)
    # First ignore rounding, to find the best scale and whether the hard rows combine to zero.
    duals = xp.clip(duals, own.lower, own.upper)
    duals = duals / per_row(positive(xp.max(xp.abs(duals), axis=LAST)))
    a = duals * (problem.rows / xp.max(problem.rows, axis=LAST, keepdims=True))
    d, (rank, e) = problem.constraints.differences.shape[-1], problem.constraints.queries.shape[-2:]
    combined, worth = cons.combination(problem.constraints, a), xp.sum(a * of.targets, axis=LAST)
    ones = _dual_of_ones(norm, combined)
    combined = after(ones, combined)
    length = per_row(_length(norm, of, a, of_rank(norm, norm.dual, combined, rank), worth))
    best = xp.clip(a * length, of.lower, of.upper)
    best = xp.clip(best / problem.multipliers, own.lower, own.upper)
    best = xp.where((xp.abs(best) >= least) & per_row(xp.isfinite(best).all(axis=LAST)), best, 0.0)
    if problem.constraints.penalty is not None:
        a = xp.where(of.hard, a, 0.0)
        combined, worth = cons.combination(problem.constraints, a), xp.sum(a * of.targets, axis=LAST)
    proves = _farkas(problem, a, euclidean(combined), worth) <= 4 * farkas
    hard = xp.where(of.hard, duals, 0.0)
    hard = hard / per_row(positive(xp.sum(xp.abs(hard), axis=LAST)))
    hard = xp.where(xp.abs(hard) >= least, hard, 0.0)
    # Then bound the rounding errors for the multipliers that are returned.
    a = xp.where(per_row(proves), hard * problem.rows, best * problem.multipliers)
    M = _combination(problem, a)
    worths, size = a * of.targets, math.prod(a.shape[-2:])
    sums = xp.sum(worths, axis=LAST), xp.sum(xp.abs(worths), axis=LAST)
    worth = xp.maximum(sums[0] - 2 * (size + 1) * eps * sums[1] - size * least, 0.0)
    roundings = 1 + 2 * (d + e) * eps
    nearest = M.head + M.tail
    above = roundings * (of_rank(norm, norm.dual, nearest, rank) + M.error * ones)
    frobenius = roundings * (euclidean(nearest) + M.error * (d * e) ** 0.5)
    # Multipliers of hard rows may be scaled freely; the other ones may not.
    ray = xp.where(worth > 0, worth / positive(above), 0.0)
    ray = xp.where((worth > 0) & (above <= 0), xp.inf, ray)
    if norm.power == 2:
        bound = xp.where(proves, 0.5 * ray**2, worth - 0.5 * above**2 - 4 * eps * worth)
    else:
        bound = xp.where(proves, ray, xp.minimum(worth, ray))
    # A decomposition that failed gives NaN, and so no bound.
    bound = xp.where(xp.isnan(above), 0.0, bound)
    return Dual(
        duals=xp.where(per_row(proves), hard, best),
        bound=xp.maximum((1 - 8 * eps) * bound, 0.0),
        farkas=xp.where(proves, _farkas(problem, a, frobenius, worth), xp.inf),
    )


def _margins(problem: Scaled, W: Float[AnyArray, "*lanes d e"]) -> Enclosed:
    """Return `<A_k, W>`, (n, m)."""
    differences, queries, *_ = problem.constraints
    head, tail, small, error = dot(queries.mT, exactly(W.mT, problem.whole.ndim))
    along = Enclosed(head[..., None], tail[..., None], small, error)
    head, tail, small, error = dot(differences.mT, along)
    return Enclosed(head[..., 0], tail[..., 0], small, error)


def _combination(problem: Scaled, a: Float[AnyArray, "*lanes n m"]) -> Enclosed:
    """Return `sum_k a_k A_k`, (d, e)."""
    differences, queries, *_ = problem.constraints
    # A zero row contributes exactly 0, so it must not add to the bound of flushed numbers.
    nonzero = (differences != 0).any(axis=-1) & (queries != 0).any(axis=-1)[..., None]
    a = module_of(a).where(nonzero, a, 0.0)
    head, tail, small, error = dot(differences, exactly(a[..., None], problem.whole.ndim))
    head, tail, small, error = dot(queries, Enclosed(head[..., 0], tail[..., 0], small, error))
    return Enclosed(head.mT, tail.mT, small, error)


def _length(
    norm: Norm,
    of: Rows,
    duals: Float[AnyArray, "*lanes n m"],
    bound: Float[AnyArray, "*lanes"],
    worth: Float[AnyArray, "*lanes"],
) -> Float[AnyArray, "*lanes"]:
    """Return the factor of the multipliers, at least 0, that gives the best lower bound within their box."""
    xp = module_of(duals)
    limit = xp.where(duals > 0, of.upper, -of.lower)
    bounded = (duals != 0) & xp.isfinite(limit)
    room = xp.where(bounded, limit / xp.where(bounded, xp.abs(duals), 1.0), xp.inf).min(axis=LAST)
    best = xp.where(bound > 0, (worth if norm.power == 2 else 1.0) / positive(bound) ** norm.power, xp.inf)
    length = xp.minimum(best, room)
    # Without an upper limit of the factor, the multipliers can only prove infeasibility.
    return xp.where((worth > 0) & xp.isfinite(length), length, 0.0)


def _farkas(
    problem: Scaled,
    hard: Float[AnyArray, "*lanes n m"],
    combined: Float[AnyArray, "*lanes"],
    worth: Float[AnyArray, "*lanes"],
) -> Float[AnyArray, "*lanes"]:
    """Return how close multipliers of hard rows combine them to zero; inf if `<a, b>` is not positive."""
    of, xp = problem.of, module_of(hard)
    size = xp.abs(hard)
    # Multipliers of rows with target 0 may cancel at any scale: they must not widen what counts as zero.
    counted = xp.where(of.targets != 0, size * cons.lengths(problem.constraints), 0.0).sum(axis=LAST)
    share = combined / positive(counted) * (xp.sum(size * xp.abs(of.targets), axis=LAST) / positive(worth))
    share = xp.where(counted > 0, share, xp.where(combined > 0, xp.inf, 0.0))
    return xp.where(worth > 0, share, xp.inf)
