"""Internal: the units of the path-following solvers, in which rows and solution have length about 1."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import positive


class NormalizedRows(NamedTuple):
    """Rows `<A_k, W> >= b_k` of length 1 with penalties C, and how to return to the original problem.

    Attributes:
        rows: rows of length 1. A row that is not present, or is implied by equalities, becomes the equation 0 = 0,
            without slack or multiplier, which does not affect the path.
        b: targets.
        C: penalties, inf for hard rows; None if all rows are hard.
        equal: which rows are equalities.
        W: the Frobenius solution, of length 1 if there is one.
        separable: whether that solution nearly satisfies the hard rows; if not, there is a proof of infeasibility
            instead.
    """

    rows: Constraints
    b: Float[Array, "n m"]
    C: Float[Array, "n m"] | None
    equal: Bool[Array, "n m"]
    W: Float[Array, "p q"]
    separable: Bool[Array, ""]
    scale: Float[Array, ""]
    lengths: Float[Array, "n m"]
    unit: Float[Array, ""]
    original: Constraints
    equations: cons.Equations | None

    def restored(self, W: Float[Array, "p q"], a: Float[Array, "n m"]) -> tuple[Array, Array]:
        """Return a solution and its multipliers in the units of the original problem."""
        W = self.scale * W
        if self.equations is not None:
            # Rounding along the path violates the equalities by more than the certificate allows.
            W = cons.onto(self.original, self.equations, W)
        return W, jnp.where(cons.rows(self.original).present, self.unit * a / self.lengths, 0.0)


def normalize_rows(constraints: Constraints, W: Float[Array, "p q"], squared: bool) -> NormalizedRows:
    """Return the problem in units of its Frobenius solution W, or of a guess if all rows are soft.

    `squared` means that the objective is half the squared norm, which has other units of multipliers.
    """
    every = constraints
    equations = None if constraints.equal is None else cons.equations(constraints)
    if equations is not None:
        implied = cons.rows(constraints).equal & ~equations.taken.reshape(constraints.differences.shape[:2])
        constraints = constraints._replace(present=cons.rows(constraints).present & ~implied)
    of = cons.rows(constraints)
    worst = cons.worst_margin(constraints, W)
    W = W / positive(worst)
    # Check all rows: dependent equations may be inconsistent.
    separable = (worst > 0) & (cons.violation(every, W) <= 1e3 * tolerance_of(W.dtype).violation)
    lengths = cons.unit_lengths(constraints)
    length = metrics.norm(W)
    reach = jnp.max(jnp.where(of.present, jnp.abs(of.targets) / lengths, 0.0))
    if squared and constraints.penalty is not None:
        # With all multipliers at their bounds, W is no longer than this, and costs no more than W = 0.
        full = jnp.where(of.present & ~of.hard, of.upper, 0.0)
        dearest = jnp.sqrt(2 * jnp.sum(full * jnp.abs(of.targets)))
        reach = jnp.minimum(metrics.norm(cons.combination(constraints, full)), dearest)
    scale = jnp.where(separable & (length > 0), length, positive(reach))
    unit = scale if squared else jnp.ones_like(scale)
    differences = jnp.where(of.present[..., None], constraints.differences / lengths[..., None], 0.0)
    prices = None
    if constraints.penalty is not None:
        prices = jnp.where(jnp.logical_or(of.hard, ~of.present), jnp.inf, of.upper * lengths / unit)
    return NormalizedRows(
        rows=constraints._replace(differences=differences),
        b=jnp.where(of.present, of.targets / (scale * lengths), 0.0),
        C=prices,
        equal=jnp.logical_or(of.equal, ~of.present),
        W=W / scale,
        separable=separable,
        scale=scale,
        lengths=lengths,
        unit=unit,
        original=constraints,
        equations=equations,
    )
