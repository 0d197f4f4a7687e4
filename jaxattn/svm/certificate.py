"""The certificate: what a primal matrix and multipliers prove, whoever found them.

A row asks `<A_k, W> >= b_k`, and its multiplier lies in a box: `a_k >= 0`, `a_k <= C` where a unit of
shortfall costs C, any sign where the row is an equality. Weak duality: with `M = sum_k a_k A_k` in the
box and `||M||_dual <= 1`, `<a, b>` bounds `||W|| + C sum of shortfalls` from below; for `||W||^2 / 2` in
place of the norm, `<a, b> - ||M||_dual^2 / 2` does. If `M = 0` with `<a, b> > 0` on hard rows, no W
satisfies these (Farkas).

A bound on the rank only raises the optimum: both hold under it too. A W of that rank that meets the bound is optimal;
one that does not is at least known to be stationary where its first-order conditions hold (see `stationarity`).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import metrics
from jaxattn.norms import Norm, OfRank
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import after, positive
from jaxattn.svm.solution import Candidate, Solution, Status, Unique
from jaxattn.svm.stationarity import is_of_rank, stationarity
from jaxattn.svm.unique import is_strictly_convex

__all__ = ["DOUBLE", "SINGLE", "Tolerance", "certify"]


@dataclass(frozen=True)
class Tolerance:
    """What counts as proven.

    Attributes:
        gap: largest relative primal-dual gap of an optimal solution.
        violation: largest shortfall of its worst margin, in units of the largest target if that is below 1.
        farkas: largest `||sum a_k A_k||_F / sum |a_k| ||A_k||_F`, times `sum |a_k b_k| / <a, b>`, of a
            proof of infeasibility, the sums below over rows with a target other than 0. To rounding that is
            zero; strictly, it proves that no W of norm below `min_k |b_k| / ||A_k||_F / farkas` satisfies
            the constraints.
        stationarity: largest residual of the first-order conditions under a bound on the rank, and how far a
            tight row may be above its target, as a share of the largest target.
    """

    gap: float = 1e-8
    violation: float = 1e-9
    farkas: float = 1e-13
    stationarity: float = 1e-7


DOUBLE = Tolerance()
SINGLE = Tolerance(gap=1e-4, violation=1e-5, farkas=1e-6, stationarity=1e-3)


def tolerance_of(dtype: jnp.dtype) -> Tolerance:
    """Return the tolerance of a precision: 1e-8 of double, 1e-4 of single."""
    return DOUBLE if jnp.finfo(dtype).bits >= 64 else SINGLE


def certify(constraints: Constraints, norm: Norm, candidate: Candidate, tolerance: Tolerance) -> Solution:
    """Return what `candidate` proves about `min ||W||^k / k + penalties  s.t. <A_k, W> >= b_k`.

    The status is read off the numbers returned, never taken from the solver. Works under `jit` and
    `vmap`. A candidate with NaN or infinite entries proves nothing and is reported as zero; so is any for
    constraints with such entries, which only `jit` and `vmap` let through.

    Example:
        >>> candidate = svm.Candidate(solution.W, solution.duals, solution.iterations)
        >>> svm.Status(int(svm.certify(constraints, norms.frobenius, candidate, svm.DOUBLE).status)).name
        'OPTIMAL'
    """
    posed = _is_posed(constraints)
    constraints = jax.tree.map(lambda leaf: jnp.where(posed, leaf, jnp.zeros_like(leaf)), constraints)
    of = cons.rows(constraints)
    finite = posed & jnp.isfinite(candidate.W).all() & jnp.isfinite(candidate.duals).all()
    W = jnp.where(finite, candidate.W, 0.0)
    duals = jnp.where(finite, jnp.clip(candidate.duals, of.lower, of.upper), 0.0)
    # Of any length, so that sums neither over- nor underflow; the box is put back by `_scaled`.
    duals = duals / positive(jnp.max(jnp.abs(duals)))

    worst = cons.worst_margin(constraints, W)
    W = W / positive(worst)
    violation = cons.violation(constraints, W)
    separates = posed & (worst > 0) & (violation <= tolerance.violation)
    combined = cons.combination(constraints, duals)
    bound, worth = norm.dual(combined), jnp.sum(duals * of.targets)
    scaled = _scaled(norm, of, duals, bound, worth)
    dual = scaled * worth - (0.5 * (scaled * bound) ** 2 if norm.power == 2 else 0.0)
    length = norm.value(after(bound, W))
    stationary = jnp.zeros((), bool)
    if isinstance(norm, OfRank):
        local = stationarity(constraints, after(length, W), norm.rank, tolerance.stationarity)
        separates = separates & is_of_rank(local, W)
        stationary = separates & (local.residual <= tolerance.stationarity)
    objective = 0.5 * length**2 if norm.power == 2 else length
    if constraints.penalty is not None:
        short = of.targets - cons.margins(constraints, W)
        short = jnp.where(of.present & ~of.hard, jnp.maximum(short, 0.0), 0.0)
        objective = objective + jnp.sum(jnp.where(short > 0, of.upper, 0.0) * short)
    gap = jnp.where(separates, (objective - dual) / positive(objective), jnp.inf)
    optimal = separates & (jnp.abs(gap) <= tolerance.gap)
    hard = jnp.where(of.hard, duals, 0.0)
    proof = _is_proof(constraints, of, hard, tolerance) & ~optimal
    status = jnp.where(stationary, Status.STATIONARY, Status.NOT_CONVERGED)
    status = jnp.where(optimal, Status.OPTIMAL, jnp.where(proof, Status.INFEASIBLE, status))
    return Solution(
        W=jnp.where(proof, 0.0, W),
        duals=jnp.where(proof, hard / positive(jnp.sum(jnp.abs(hard))), duals * scaled),
        primal=jnp.where(proof | ~separates, jnp.inf, objective),
        dual=jnp.where(proof, jnp.inf, dual),
        gap=jnp.where(proof, jnp.inf, gap),
        violation=jnp.where(proof, cons.violation(constraints, jnp.zeros_like(W)), violation),
        status=status,
        iterations=candidate.iterations,
        unique=jnp.where(optimal & is_strictly_convex(constraints, norm), Unique.YES, Unique.UNKNOWN),
    )


def _scaled(
    norm: Norm, of: cons.Rows, duals: Float[Array, "n m"], bound: Float[Array, ""], worth: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the factor on the multipliers that gives the best lower bound within their box, at least 0."""
    limit = jnp.where(duals > 0, of.upper, -of.lower)
    bounded = (duals != 0) & jnp.isfinite(limit)
    room = jnp.min(jnp.where(bounded, limit / jnp.where(bounded, jnp.abs(duals), 1.0), jnp.inf))
    best = jnp.where(bound > 0, (worth if norm.power == 2 else 1.0) / positive(bound) ** norm.power, jnp.inf)
    scaled = jnp.minimum(best, room)
    # Without a bound of either kind the multipliers can only be a proof of infeasibility.
    return jnp.where((worth > 0) & jnp.isfinite(scaled), scaled, 0.0)


def _is_posed(constraints: Constraints) -> Bool[Array, ""]:
    """Whether all numbers are such as `constraints.check` asks for, as far as these can be read there."""
    differences, queries, targets, _, _, penalty = constraints
    numbers = (leaf for leaf in (differences, queries, targets) if leaf is not None)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in numbers]).all()
    return finite if penalty is None else finite & (penalty > 0).all()


def _is_proof(
    constraints: Constraints, of: cons.Rows, hard: Float[Array, "n m"], tolerance: Tolerance
) -> Bool[Array, ""]:
    """Whether multipliers of hard rows combine them to zero, and their targets to more than zero."""
    worth, size = jnp.sum(hard * of.targets), jnp.abs(hard)
    combined = metrics.norm(cons.combination(constraints, hard))
    # Rows of target 0 may cancel at any length: they must not widen what counts as zero.
    counted = jnp.where(of.targets != 0, size * cons.lengths(constraints), 0.0)
    allowed = tolerance.farkas * jnp.sum(counted) * worth
    return (worth > 0) & (combined * jnp.sum(size * jnp.abs(of.targets)) <= allowed)
