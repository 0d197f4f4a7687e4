"""The certificate: what a matrix and multipliers prove, independently of the solver that found them.

A row requires `<A_k, W> >= b_k`, and its multiplier lies in a box: `a_k >= 0`; `a_k <= C` if a unit of shortfall costs
C; any sign if the row is an equality. Weak duality: with `M = sum_k a_k A_k` in the box and `||M||_dual <= 1`, `<a, b>`
is a lower bound of `||W|| + C sum of shortfalls`. For `||W||^2 / 2` instead of the norm, the bound is `<a, b> -
||M||_dual^2 / 2`. Multipliers of hard rows may be scaled freely, so that `||W|| >= <a, b> / ||M||_dual` for every
feasible W. If M is nearly 0, there is no feasible W of ordinary size (Farkas).

All statements hold in exact arithmetic for the floating-point numbers returned: bounds of the rounding errors in a
shortfall, an objective or M count against the candidate (see `rounding`). Values of norms are assumed to be accurate to
`2 (d + e)` roundings, since sums of positive numbers and singular values are computed that accurately relative to the
largest one. Constraints whose scaled numbers leave the normal range of floating point are not judged.

A rank bound only raises the optimum, so both bounds stay valid. A W of that rank that attains the lower bound is
optimal. Otherwise W is at least known to be stationary if it satisfies the first-order conditions (see `stationarity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import metrics
from jaxattn.norms import Norm, OfRank, named
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.pivoting import after, positive
from jaxattn.svm.rounding import Enclosed, Scaled, dot, exactly, is_posed, power_below, scaled, unit
from jaxattn.svm.solution import Candidate, Solution, Status, Unique
from jaxattn.svm.stationarity import is_of_rank, stationarity
from jaxattn.svm.uniqueness import is_strictly_convex

__all__ = ["DOUBLE", "SINGLE", "Tolerance", "certify"]


@dataclass(frozen=True)
class Tolerance:
    """What counts as proven.

    Attributes:
        gap: the largest relative primal-dual gap of an optimal solution.
        violation: the largest shortfall of its worst margin, relative to the largest target if that is below 1.
        farkas: the largest `||sum a_k A_k||_F / sum |a_k| ||A_k||_F`, times `sum |a_k b_k| / <a, b>`, of a proof of
            infeasibility, where the sums in denominators run over rows with a nonzero target. Such a value is zero up
            to rounding. Strictly, it proves that no W with a Frobenius norm below `min_k |b_k| / ||A_k||_F / farkas` is
            feasible; `Solution.dual` is the bound that was proved.
        stationarity: the largest residual of the first-order conditions with a rank bound, and the largest excess of a
            tight row over its target, relative to the largest target.
    """

    gap: float = 1e-8
    violation: float = 1e-9
    farkas: float = 1e-13
    stationarity: float = 1e-7


DOUBLE = Tolerance()
SINGLE = Tolerance(gap=1e-4, violation=1e-5, farkas=1e-6, stationarity=1e-3)


def tolerance_of(dtype: jnp.dtype) -> Tolerance:
    """Return the default tolerance of a precision: 1e-8 for double, 1e-4 for single."""
    return DOUBLE if jnp.finfo(dtype).bits >= 64 else SINGLE


def check_tolerance(tolerance: Any) -> None:
    """Raise ValueError unless the argument is a Tolerance."""
    fits = isinstance(tolerance, Tolerance)
    if not fits:
        raise ValueError(f"tolerance: expected a Tolerance such as svm.Tolerance(gap=1e-6), found {tolerance!r}")


def certify(constraints: Constraints, norm: str | Norm, candidate: Candidate, tolerance: Tolerance) -> Solution:
    """Return what `candidate` proves about `min ||W||^k / k + penalties  s.t. <A_k, W> >= b_k`.

    The status is computed from the numbers returned, never taken from the solver. Works under `jit` and `vmap`. A
    candidate with NaN or infinite entries proves nothing and is reported as zero. So is every candidate for constraints
    with such entries, which can occur only under `jit` and `vmap`.

    Raises:
        ValueError: an argument of the wrong type, or a candidate whose shape does not fit the constraints.

    Example:
        >>> candidate = svm.Candidate(solution.W, solution.duals, solution.iterations)
        >>> svm.Status(int(svm.certify(constraints, norms.frobenius, candidate, svm.DOUBLE).status)).name
        'OPTIMAL'
    """
    norm = _checked(constraints, norm, candidate, tolerance)
    posed = is_posed(constraints)
    constraints = jax.tree.map(lambda leaf: jnp.where(posed, leaf, jnp.zeros_like(leaf)), constraints)
    own, problem = cons.rows(constraints), scaled(constraints, norm.power)
    finite = posed & problem.fits & jnp.isfinite(candidate.W).all() & jnp.isfinite(candidate.duals).all()
    lower = _dual(problem, norm, own, jnp.where(finite, candidate.duals, 0.0), tolerance.farkas)
    upper = _primal(problem, own.targets, after(lower.bound, jnp.where(finite, candidate.W, 0.0)))
    W = upper.W
    separates = finite & upper.directed & (upper.violation <= tolerance.violation)
    length = norm.value(upper.small)
    stationary = jnp.zeros((), bool)
    if isinstance(norm, OfRank):
        local = stationarity(constraints, after(length, W), norm.rank, tolerance.stationarity)
        separates = separates & is_of_rank(local, W)
        stationary = separates & (local.residual <= tolerance.stationarity)
    length = length * (1 + 2 * sum(W.shape) * unit(W.dtype))
    objective = (0.5 * length**2 if norm.power == 2 else length) + upper.cost
    separates = separates & jnp.isfinite(objective)
    gap = jnp.where(separates, (objective - lower.bound) / positive(objective), jnp.inf)
    optimal = separates & (jnp.abs(gap) <= tolerance.gap)
    proof = finite & (lower.farkas <= tolerance.farkas) & ~optimal
    status = jnp.where(stationary, Status.STATIONARY, Status.NOT_CONVERGED)
    status = jnp.where(optimal, Status.OPTIMAL, jnp.where(proof, Status.INFEASIBLE, status))
    # Scaling back to the problem's units must not round an upper bound to 0 or a lower bound to inf.
    numbers, whole = jnp.finfo(W.dtype), problem.whole**norm.power
    value = jnp.where(objective > 0, jnp.maximum(objective * whole, float(numbers.tiny)), 0.0)
    bound = jnp.minimum(lower.bound * whole, float(numbers.max))
    return Solution(
        W=jnp.where(proof, 0.0, W),
        duals=lower.duals,
        primal=jnp.where(proof | ~separates, jnp.inf, value),
        dual=jnp.where(jnp.isinf(lower.bound), jnp.inf, bound),
        gap=jnp.where(proof, jnp.inf, gap),
        violation=jnp.where(
            posed & problem.fits,
            jnp.where(proof, cons.violation_of_zero(constraints), upper.violation),
            jnp.inf,
        ),
        status=status,
        iterations=candidate.iterations,
        unique=jnp.where(optimal & is_strictly_convex(constraints, norm), Unique.YES, Unique.UNKNOWN),
    )


def _checked(constraints: Any, norm: str | Norm, candidate: Any, tolerance: Any) -> Norm:
    """Return the norm after checking the types and shapes of all four arguments."""
    cons.check_kind(constraints)
    check_tolerance(tolerance)
    fits = isinstance(candidate, Candidate)
    if not fits:
        raise ValueError(f"candidate: expected a Candidate, found {candidate!r:.80}")
    rows, columns = constraints.differences.shape, constraints.queries.shape[-1]
    for name, shape in (("W", (rows[-1], columns)), ("duals", rows[:-1])):
        if jnp.shape(getattr(candidate, name)) != shape:
            raise ValueError(f"candidate: expected {name} {shape}, found {jnp.shape(getattr(candidate, name))}")
    return named(norm)


class _Primal(NamedTuple):
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


def _primal(problem: Scaled, targets: Float[Array, "n m"], W: Float[Array, "d e"]) -> _Primal:
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
    return _Primal(
        W=W,
        small=small,
        violation=(1 + slack) * jnp.max(jnp.where(of.hard, violation, 0.0)),
        cost=(1 + slack) * cost,
        directed=worst > 0,
    )


class _Dual(NamedTuple):
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


def _dual(problem: Scaled, norm: Norm, own: Rows, duals: Float[Array, "n m"], farkas: float) -> _Dual:
    """Measure finite multipliers of any scale, without bounds; `own` are the rows in the problem's own units.

    Multipliers whose measure is at most `farkas` prove infeasibility.
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
    return _Dual(
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
