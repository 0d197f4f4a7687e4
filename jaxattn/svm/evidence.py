"""Internal: upper bounds from a matrix and lower bounds from multipliers that hold in exact arithmetic.

They are bounds for the floating-point numbers returned. The error of sums of products, where digits cancel, is bounded
by `rounding`. Values of norms are assumed to be accurate to `2 (d + e)` roundings, since sums of positive numbers and
singular values are computed that accurately relative to the largest one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import metrics
from jaxattn.norms import Norm
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Rows
from jaxattn.svm.pivoting import after, positive
from jaxattn.svm.rounding import Enclosed, dot, exactly, power_below, unit
from jaxattn.svm.scaled import Scaled


class Primal(NamedTuple):
    """What a matrix proves.

    Attributes:
        W: scaled to worst margin 1 if its scale is free, in the units of the problem, (d, e).
        small: the same matrix in the units of `scaled`.
        violation: an upper bound of the shortfall of the worst hard row, measured as in `constraints.violation`.
        cost: an upper bound of the cost of its shortfalls, in the units of `scaled`.
        directed: whether all hard rows with a required sign have it.
    """

    W: Float[Array, "d e"]
    small: Float[Array, "d e"]
    violation: Float[Array, ""]
    cost: Float[Array, ""]
    directed: Bool[Array, ""]


def primal(problem: Scaled, targets: Float[Array, "n m"], W: Float[Array, "d e"]) -> Primal:
    """Measure a finite matrix; `targets` are those of the problem in its own units."""
    of = problem.of
    least = float(jnp.finfo(W.dtype).tiny)
    # If the scale is free, the worst margin determines it.
    free = cons.is_free(problem.constraints) & ~(of.present & ~of.hard).any()
    small = W / jnp.where(free, positive(power_below(jnp.max(jnp.abs(W)))), problem.whole)
    worst = cons.worst_margin(problem.constraints, small)
    W = small / positive(worst) * problem.whole
    W = jnp.where((jnp.abs(W) >= least) & jnp.isfinite(W).all(), W, 0.0)
    small = W / problem.whole
    reached = _margins(problem, small)
    off = of.targets - reached.head
    short = off - reached.tail
    error = 1.0625 * (reached.error + unit(W.dtype) * (jnp.abs(off) + jnp.abs(short)))
    most = jnp.maximum(jnp.where(of.equal, jnp.abs(short), short) + error, 0.0)
    largest = jnp.max(jnp.where(of.hard, jnp.abs(targets), 0.0))
    measure = jnp.where(largest > 0, jnp.minimum(largest, 1.0), 1.0)
    violation = most * (problem.rows * problem.whole) / measure
    priced = of.present & ~of.hard
    cost = jnp.sum(jnp.where(priced, jnp.where(priced, of.upper, 0.0) * most, 0.0))
    slack = (most.size + 8) * unit(W.dtype)
    return Primal(
        W=W,
        small=small,
        violation=(1 + slack) * jnp.max(jnp.where(of.hard, violation, 0.0)),
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

    duals: Float[Array, "n m"]
    bound: Float[Array, ""]
    farkas: Float[Array, ""]


def dual(problem: Scaled, norm: Norm, own: Rows, duals: Float[Array, "n m"], farkas: float) -> Dual:
    """Measure finite multipliers.

    Args:
        problem: the scaled problem.
        norm: the norm.
        own: the rows of the problem in its own units.
        duals: multipliers at any scale, without bounds.
        farkas: the threshold below which multipliers prove infeasibility.
    """
    of, eps, least = problem.of, unit(duals.dtype), float(jnp.finfo(duals.dtype).tiny)
    # First ignore rounding, to find the best scale and whether the hard rows combine to zero.
    duals = jnp.clip(duals, own.lower, own.upper)
    duals = duals / positive(jnp.max(jnp.abs(duals)))
    a = duals * (problem.rows / jnp.max(problem.rows))
    d, e = problem.constraints.differences.shape[-1], problem.constraints.queries.shape[-1]
    # A matrix with entries up to 1 has at most the norm of the all-ones matrix if the norm depends on absolute values
    # or lengths, and at most sqrt(rank) times that if it depends on singular values.
    ones = min(d, e) ** 0.5 * norm.dual(jnp.ones((d, e), a.dtype))
    combined, worth = after(ones, cons.combination(problem.constraints, a)), jnp.sum(a * of.targets)
    best = jnp.clip(a * _length(norm, of, a, norm.dual(combined), worth), of.lower, of.upper)
    best = jnp.clip(best / problem.multipliers, own.lower, own.upper)
    best = jnp.where((jnp.abs(best) >= least) & jnp.isfinite(best).all(), best, 0.0)
    if problem.constraints.penalty is not None:
        a = jnp.where(of.hard, a, 0.0)
        combined, worth = cons.combination(problem.constraints, a), jnp.sum(a * of.targets)
    proves = _farkas(problem, a, metrics.norm(combined), worth) <= 4 * farkas
    hard = jnp.where(of.hard, duals, 0.0)
    hard = hard / positive(jnp.sum(jnp.abs(hard)))
    hard = jnp.where(jnp.abs(hard) >= least, hard, 0.0)
    # Then bound the rounding errors for the multipliers that are returned.
    a = jnp.where(proves, hard * problem.rows, best * problem.multipliers)
    M = _combination(problem, a)
    worths = a * of.targets
    worth = jnp.maximum(jnp.sum(worths) - 2 * (a.size + 1) * eps * jnp.sum(jnp.abs(worths)) - a.size * least, 0.0)
    roundings = 1 + 2 * (d + e) * eps
    nearest = M.head + M.tail
    above = roundings * (norm.dual(nearest) + M.error * ones)
    frobenius = roundings * (metrics.norm(nearest) + M.error * (d * e) ** 0.5)
    # Multipliers of hard rows may be scaled freely; the other ones may not.
    ray = jnp.where(worth > 0, worth / positive(above), 0.0)
    ray = jnp.where((worth > 0) & (above <= 0), jnp.inf, ray)
    if norm.power == 2:
        bound = jnp.where(proves, 0.5 * ray**2, worth - 0.5 * above**2 - 4 * eps * worth)
    else:
        bound = jnp.where(proves, ray, jnp.minimum(worth, ray))
    # A decomposition that failed gives NaN, and so no bound.
    bound = jnp.where(jnp.isnan(above), 0.0, bound)
    return Dual(
        duals=jnp.where(proves, hard, best),
        bound=jnp.maximum((1 - 8 * eps) * bound, 0.0),
        farkas=jnp.where(proves, _farkas(problem, a, frobenius, worth), jnp.inf),
    )


def _margins(problem: Scaled, W: Float[Array, "d e"]) -> Enclosed:
    """Return `<A_k, W>`, (n, m)."""
    differences, queries, *_ = problem.constraints
    head, tail, small, error = dot(queries.T, exactly(W.T))
    along = Enclosed(head[..., None], tail[..., None], small, error)
    head, tail, small, error = dot(jnp.swapaxes(differences, -1, -2), along)
    return Enclosed(head[..., 0], tail[..., 0], small, error)


def _combination(problem: Scaled, a: Float[Array, "n m"]) -> Enclosed:
    """Return `sum_k a_k A_k`, (d, e)."""
    differences, queries, *_ = problem.constraints
    # A zero row contributes exactly 0, so it must not add to the bound of flushed numbers.
    a = jnp.where((differences != 0).any(axis=-1) & (queries != 0).any(axis=-1)[:, None], a, 0.0)
    head, tail, small, error = dot(differences, exactly(a[..., None]))
    head, tail, small, error = dot(queries, Enclosed(head[..., 0], tail[..., 0], small, error))
    return Enclosed(head.T, tail.T, small, error)


def _length(
    norm: Norm, of: Rows, duals: Float[Array, "n m"], bound: Float[Array, ""], worth: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the factor of the multipliers, at least 0, that gives the best lower bound within their box."""
    limit = jnp.where(duals > 0, of.upper, -of.lower)
    bounded = (duals != 0) & jnp.isfinite(limit)
    room = jnp.min(jnp.where(bounded, limit / jnp.where(bounded, jnp.abs(duals), 1.0), jnp.inf))
    best = jnp.where(bound > 0, (worth if norm.power == 2 else 1.0) / positive(bound) ** norm.power, jnp.inf)
    length = jnp.minimum(best, room)
    # Without an upper limit of the factor, the multipliers can only prove infeasibility.
    return jnp.where((worth > 0) & jnp.isfinite(length), length, 0.0)


def _farkas(
    problem: Scaled, hard: Float[Array, "n m"], combined: Float[Array, ""], worth: Float[Array, ""]
) -> Float[Array, ""]:
    """Return how close multipliers of hard rows combine them to zero; inf if `<a, b>` is not positive."""
    of, size = problem.of, jnp.abs(hard)
    # Multipliers of rows with target 0 may cancel at any scale: they must not widen what counts as zero.
    counted = jnp.where(of.targets != 0, size * cons.lengths(problem.constraints), 0.0)
    share = combined / positive(jnp.sum(counted)) * (jnp.sum(size * jnp.abs(of.targets)) / positive(worth))
    share = jnp.where(jnp.sum(counted) > 0, share, jnp.where(combined > 0, jnp.inf, 0.0))
    return jnp.where(worth > 0, share, jnp.inf)
