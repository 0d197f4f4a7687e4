"""The certificate: what a primal matrix and multipliers prove, whoever found them.

Weak duality for `min ||W||  s.t. <A_k, W> >= 1`: any `a >= 0` gives the lower bound
`sum a / ||sum_k a_k A_k||_dual`, and any W with worst margin 1 the upper bound `||W||`. If
`sum_k a_k A_k = 0` with `sum a > 0`, no W satisfies the constraints (Farkas).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.norms import Norm
from jaxattn.svm.pivoting import after
from jaxattn.svm.solution import Candidate, Solution, Status


@dataclass(frozen=True)
class Tolerance:
    """What counts as proven.

    Attributes:
        gap: largest relative primal-dual gap of an optimal solution.
        violation: largest shortfall of its worst margin.
        farkas: largest `||sum a_k A_k||_F / sum a_k ||A_k||_F` of a proof of infeasibility. To
            rounding that is zero; strictly, it proves that no W of norm below
            `1 / (farkas * max_k ||A_k||_F)` satisfies the constraints.
    """

    gap: float = 1e-8
    violation: float = 1e-9
    farkas: float = 1e-13


DOUBLE = Tolerance()
SINGLE = Tolerance(gap=1e-4, violation=1e-5, farkas=1e-6)


def tolerance_of(dtype: jnp.dtype) -> Tolerance:
    """Return the tolerance of a precision: 1e-8 of double, 1e-4 of single."""
    return DOUBLE if jnp.finfo(dtype).bits >= 64 else SINGLE


def certify(constraints: Constraints, norm: Norm, candidate: Candidate, tolerance: Tolerance) -> Solution:
    """Return what `candidate` proves about `min ||W|| s.t. <A_k, W> >= 1`.

    The status is read off the numbers returned, never taken from the solver. Works under `jit` and
    `vmap`. A candidate with NaN or infinite entries proves nothing and is reported as zero.
    """
    finite = jnp.isfinite(candidate.W).all() & jnp.isfinite(candidate.duals).all()
    W = jnp.where(finite, candidate.W, 0.0)
    duals = jnp.where(finite, jnp.maximum(candidate.duals, 0.0), 0.0)

    worst = jnp.min(cons.margins(constraints, W))
    separates = worst > 0
    W = W / jnp.where(separates, worst, 1.0)
    violation = jnp.maximum(0.0, 1.0 - jnp.min(cons.margins(constraints, W)))
    duals = duals / _positive(jnp.sum(duals))
    combined = cons.combination(constraints, duals)
    bound = norm.dual(combined)
    length = norm.value(after(bound, W))
    primal = jnp.where(separates, length, jnp.inf)
    proves_infeasible = (jnp.sum(duals) > 0) & (
        metrics.norm(combined) <= tolerance.farkas * jnp.sum(duals * cons.lengths(constraints))
    )
    dual = jnp.where(bound > 0, jnp.sum(duals) / _positive(bound), 0.0)

    gap = jnp.where(separates, (primal - dual) / _positive(length), jnp.inf)
    optimal = separates & (jnp.abs(gap) <= tolerance.gap) & (violation <= tolerance.violation)
    infeasible = proves_infeasible & ~optimal
    status = jnp.where(optimal, Status.OPTIMAL, jnp.where(infeasible, Status.INFEASIBLE, Status.NOT_CONVERGED))
    return Solution(
        W=jnp.where(infeasible, 0.0, W),
        duals=jnp.where(infeasible, duals, duals * dual / _positive(jnp.sum(duals))),
        primal=jnp.where(infeasible, jnp.inf, primal),
        dual=jnp.where(infeasible, jnp.inf, dual),
        gap=jnp.where(infeasible, jnp.inf, gap),
        violation=jnp.where(infeasible, 1.0, violation),
        status=status,
        iterations=candidate.iterations,
    )


def _positive(x: Float[Array, ""]) -> Float[Array, ""]:
    """Return x, or 1 in place of 0: a divisor that leaves 0/0 at 0."""
    return jnp.where(x > 0, x, 1.0)
