"""Internal: the units of the path-following solvers, in which rows and solution have length about 1."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float

from jaxattn.lengths import euclidean
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import LAST, AnyArray, module_of, positive
from jaxattn.svm.rounding import per_row


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
    b: Float[AnyArray, "*lanes n m"]
    C: Float[AnyArray, "*lanes n m"] | None
    equal: Bool[AnyArray, "*lanes n m"]
    W: Float[AnyArray, "*lanes p q"]
    separable: Bool[AnyArray, "*lanes"]
    scale: Float[AnyArray, "*lanes"]
    lengths: Float[AnyArray, "*lanes n m"]
    unit: Float[AnyArray, "*lanes"]
    original: Constraints
    equations: cons.Equations | None

    def restored(self, W: Float[AnyArray, "*lanes p q"], a: Float[AnyArray, "*lanes n m"]) -> tuple[AnyArray, AnyArray]:
        """Return a solution and its multipliers in the units of the original problem."""
        W = per_row(self.scale) * W
        if self.equations is not None:
            # Rounding along the path violates the equalities by more than the certificate allows.
            W = cons.onto(self.original, self.equations, W)
        a = per_row(self.unit) * a / self.lengths
        return W, module_of(a).where(cons.rows(self.original).present, a, 0.0)


def normalize_rows(constraints: Constraints, W: Float[AnyArray, "*lanes p q"], squared: bool) -> NormalizedRows:
    """Return the problem in units of its Frobenius solution W, or of a guess if all rows are soft.

    `squared` means that the objective is half the squared norm, which has other units of multipliers.
    """
    every, xp = constraints, module_of(W)
    equations = None if constraints.equal is None else cons.equations(constraints)
    if equations is not None:
        of = cons.rows(constraints)
        implied = of.equal & ~equations.taken.reshape(of.equal.shape)
        constraints = constraints._replace(present=of.present & ~implied)
    of = cons.rows(constraints)
    worst = cons.worst_margin(constraints, W)
    W = W / per_row(positive(worst))
    # Check all rows: dependent equations may be inconsistent.
    separable = (worst > 0) & (cons.violation(every, W) <= 1e3 * tolerance_of(W.dtype).violation)
    lengths = cons.unit_lengths(constraints)
    length = euclidean(W)
    reach = xp.max(xp.where(of.present, xp.abs(of.targets) / lengths, 0.0), axis=LAST)
    if squared and constraints.penalty is not None:
        # With all multipliers at their bounds, W is no longer than this, and costs no more than W = 0.
        full = xp.where(of.present & ~of.hard, of.upper, 0.0)
        dearest = xp.sqrt(2 * xp.sum(full * xp.abs(of.targets), axis=LAST))
        reach = xp.minimum(euclidean(cons.combination(constraints, full)), dearest)
    scale = xp.where(separable & (length > 0), length, positive(reach))
    unit = scale if squared else xp.ones_like(scale)
    differences = xp.where(of.present[..., None], constraints.differences / lengths[..., None], 0.0)
    prices = None
    if constraints.penalty is not None:
        prices = xp.where(of.hard | ~of.present, xp.inf, of.upper * lengths / per_row(unit))
    return NormalizedRows(
        rows=constraints._replace(differences=differences),
        b=xp.where(of.present, of.targets / (per_row(scale) * lengths), 0.0),
        C=prices,
        equal=of.equal | ~of.present,
        W=W / per_row(scale),
        separable=separable,
        scale=scale,
        lengths=lengths,
        unit=unit,
        original=constraints,
        equations=equations,
    )
