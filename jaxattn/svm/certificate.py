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

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn.norms import Norm, OfRank, named
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.evidence import measured, of_each, of_rank, proved
from jaxattn.svm.pivoting import LAST, AnyArray, after, module_of, positive
from jaxattn.svm.rounding import is_posed, per_row, scaled, unit
from jaxattn.svm.solution import Candidate, Solution, Status, Unique
from jaxattn.svm.stationarity import is_of_rank, stationarity
from jaxattn.svm.uniqueness import is_strictly_convex

__all__ = ["DOUBLE", "SINGLE", "Tolerance", "certify"]

# The bytes of the differences of the lanes that are certified together, of which there are about ten copies.
_MEMORY = 2**21


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
    constraints, candidate = jax.tree.map(jnp.asarray, (constraints, candidate))
    return _certified(constraints, norm, candidate, tolerance)


def certify_lanes(constraints: Constraints, norm: Norm, candidates: Candidate, tolerance: Tolerance) -> Solution:
    """Return what each of a batch of candidates proves, all as NumPy arrays; a lane does not depend on the others.

    The same as `certify` of each lane. Only the norms are compiled, in programs that take a few widths: compiling the
    whole certificate takes a hundred times as long as certifying a hundred problems.
    """
    lanes = len(candidates.W)
    together = max(1, _MEMORY // constraints.differences[0].nbytes)
    parts = []
    for start in range(0, lanes, together):
        part = slice(start, start + together)
        given = jax.tree.map(lambda leaf, part=part: np.asarray(leaf)[part], (constraints, candidates))
        # Divisions by zero are replaced after they are made.
        with np.errstate(all="ignore"):
            parts.append(_certified(given[0], norm, given[1], tolerance))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _certified(constraints: Constraints, norm: Norm, candidate: Candidate, tolerance: Tolerance) -> Solution:
    xp = module_of(constraints.queries)
    posed = is_posed(constraints)
    lanes = posed.ndim

    def kept(leaf: AnyArray) -> AnyArray:
        return xp.where(xp.expand_dims(posed, tuple(range(lanes, leaf.ndim))), leaf, xp.zeros_like(leaf))

    constraints = jax.tree.map(kept, constraints)
    own, problem = cons.rows(constraints), scaled(constraints, norm.power)
    finite = posed & problem.fits
    for leaf in (candidate.W, candidate.duals):
        finite = finite & xp.isfinite(leaf).all(axis=LAST)
    lower = proved(problem, norm, own, xp.where(per_row(finite), candidate.duals, 0.0), tolerance.farkas)
    W = after(lower.bound, xp.where(per_row(finite), candidate.W, 0.0))
    upper = measured(problem, own.targets, W)
    W = upper.W
    separates = finite & upper.directed & (upper.violation <= tolerance.violation)
    length = of_rank(norm, norm.value, upper.small, constraints.queries.shape[-2])
    stationary = xp.zeros_like(separates)
    if isinstance(norm, OfRank):
        local = of_each(_stationarity(norm.rank, tolerance.stationarity), constraints, after(length, W))
        separates = separates & is_of_rank(local, W)
        stationary = separates & (local.residual <= tolerance.stationarity)
    length = length * (1 + 2 * sum(W.shape[-2:]) * unit(W.dtype))
    objective = (0.5 * length**2 if norm.power == 2 else length) + upper.cost
    separates = separates & xp.isfinite(objective)
    gap = xp.where(separates, (objective - lower.bound) / positive(objective), xp.inf)
    optimal = separates & (xp.abs(gap) <= tolerance.gap)
    proof = finite & (lower.farkas <= tolerance.farkas) & ~optimal
    status = xp.where(stationary, int(Status.STATIONARY), int(Status.NOT_CONVERGED))
    status = xp.where(optimal, int(Status.OPTIMAL), xp.where(proof, int(Status.INFEASIBLE), status))
    # Scaling back to the problem's units must not round an upper bound to 0 or a lower bound to inf.
    numbers, whole = jnp.finfo(W.dtype), problem.whole**norm.power
    value = xp.where(objective > 0, xp.maximum(objective * whole, float(numbers.tiny)), 0.0)
    bound = xp.minimum(lower.bound * whole, float(numbers.max))
    strict = is_strictly_convex(constraints, norm)
    return Solution(
        W=xp.where(per_row(proof), 0.0, W),
        duals=cast(Any, lower.duals),
        primal=xp.where(proof | ~separates, xp.inf, value),
        dual=xp.where(xp.isinf(lower.bound), xp.inf, bound),
        gap=xp.where(proof, xp.inf, gap),
        violation=xp.where(
            posed & problem.fits,
            xp.where(proof, cons.violation_of_zero(constraints), upper.violation),
            xp.inf,
        ),
        status=status,
        iterations=candidate.iterations,
        unique=xp.where(optimal & strict, int(Unique.YES), int(Unique.UNKNOWN)),
    )


@lru_cache(maxsize=64)
def _stationarity(rank: int, tight: float) -> Callable[..., Any]:
    return lambda constraints, W: stationarity(constraints, W, rank, tight)


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
