"""The certificate: what a matrix and multipliers prove, independently of the solver that found them.

A row requires `<A_k, W> >= b_k`, and its multiplier lies in a box: `a_k >= 0`; `a_k <= C` if a unit of shortfall costs
C; any sign if the row is an equality. Weak duality: with `M = sum_k a_k A_k` in the box and `||M||_dual <= 1`, `<a, b>`
is a lower bound of `||W|| + C sum of shortfalls`. For `||W||^2 / 2` instead of the norm, the bound is `<a, b> -
||M||_dual^2 / 2`. Multipliers of hard rows may be scaled freely, so that `||W|| >= <a, b> / ||M||_dual` for every
feasible W. If M is nearly 0, there is no feasible W of ordinary size (Farkas).

All statements hold in exact arithmetic for the floating-point numbers returned: bounds of the rounding errors in a
shortfall, an objective or M count against the candidate (see `evidence` and `rounding`). Constraints whose scaled
numbers leave the normal range of floating point are not judged.

A rank bound only raises the optimum, so both bounds stay valid. A W of that rank that attains the lower bound is
optimal. Otherwise W is at least known to be stationary if it satisfies the first-order conditions (see `stationarity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn.norms import Norm, OfRank, named
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.evidence import dual, primal
from jaxattn.svm.pivoting import after, positive
from jaxattn.svm.rounding import unit
from jaxattn.svm.scaled import is_posed, scaled
from jaxattn.svm.solution import Candidate, Solution, Status, Unique
from jaxattn.svm.stationarity import is_of_rank, stationarity
from jaxattn.svm.unique import is_strictly_convex

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
    lower = dual(problem, norm, own, jnp.where(finite, candidate.duals, 0.0), tolerance.farkas)
    upper = primal(problem, own.targets, after(lower.bound, jnp.where(finite, candidate.W, 0.0)))
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
