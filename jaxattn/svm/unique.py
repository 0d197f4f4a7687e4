"""Whether an optimal solution is the only one."""

from __future__ import annotations

from jaxattn.norms import Entrywise, Norm, frobenius
from jaxattn.svm.constraints import Constraints

__all__: list[str] = []


def is_strictly_convex(constraints: Constraints, norm: Norm) -> bool:
    """Whether the problem has one solution at most, whatever its numbers.

    The balls of the norm are strictly convex, and the norm is squared or all rows are hard: two optima then have the
    same norm, and what lies between them a lower one. A norm that is not squared grows linearly along a ray, as the
    price of shortfalls may fall.
    """
    round_ball = norm.plain == frobenius or (isinstance(norm, Entrywise) and 1 < norm.p < float("inf"))
    return round_ball and (norm.power == 2 or constraints.penalty is None)
