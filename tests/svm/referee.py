"""An exact judge of certificates: every number that a `Solution` states is held against rational arithmetic.

Floating-point numbers are rational, so that margins, combinations and squares of norms are computed without rounding.
A norm of W is compared with a number by squares or by the signs of determinants, never by a root.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np

from jaxattn import svm
from jaxattn.svm import Status
from jaxattn.svm import constraints as cons

Exact = list[list[Fraction]]


class Problem:
    """One problem of hard and priced rows, written out exactly."""

    def __init__(self, constraints: svm.Constraints):
        differences, queries = np.asarray(constraints.differences), np.asarray(constraints.queries)
        of = cons.rows(constraints)
        targets, equal, present, upper = (np.asarray(leaf) for leaf in (of.targets, of.equal, of.present, of.upper))
        self.places = [k for k in np.ndindex(present.shape) if present[k]]
        self.A = [_outer(differences[k], queries[k[0]]) for k in self.places]
        self.b = [Fraction(float(targets[k])) for k in self.places]
        self.equal = [bool(equal[k]) for k in self.places]
        self.price = [None if np.isinf(upper[k]) else Fraction(float(upper[k])) for k in self.places]
        self.zero = [[Fraction(0)] * queries.shape[-1] for _ in range(differences.shape[-1])]

    def shortfalls(self, W: Exact) -> list[Fraction]:
        """How far each row falls short of its target, at least 0; of an equality on either side."""
        short = [b - _inner(A, W) for A, b in zip(self.A, self.b, strict=True)]
        return [abs(s) if equal else max(s, Fraction(0)) for s, equal in zip(short, self.equal, strict=True)]

    def violation(self, W: Exact) -> Fraction:
        """What `constraints.violation` says."""
        hard = [i for i, C in enumerate(self.price) if C is None]
        largest = max((abs(self.b[i]) for i in hard), default=Fraction(0))
        short = self.shortfalls(W)
        return max((short[i] for i in hard), default=Fraction(0)) / (min(largest, Fraction(1)) if largest else 1)

    def cost(self, W: Exact) -> Fraction:
        """The price of all shortfalls."""
        return sum((C * s for C, s in zip(self.price, self.shortfalls(W), strict=True) if C is not None), Fraction(0))


def mistakes(constraints: svm.Constraints, norm: svm.Norm, solution: svm.Solution) -> Iterator[str]:
    """Yield everything that a solution states of its problem and that is false."""
    problem = Problem(constraints)
    status = Status(int(solution.status))
    W = _exact(np.asarray(solution.W))
    a = [Fraction(float(np.asarray(solution.duals)[k])) for k in problem.places]
    primal, dual, gap, violation = (
        float(x) for x in (solution.primal, solution.dual, solution.gap, solution.violation)
    )
    if np.isnan([primal, dual, gap, violation]).any():
        yield "NaN"
        return
    if np.isfinite(violation) and problem.violation(W) > Fraction(violation):
        yield f"violation {violation:.3g} below the exact one"
    if np.isfinite(primal) and not _is_at_least(norm, Fraction(primal) - problem.cost(W), W):
        yield f"primal {primal!r} below the objective of W"
    if not dual >= 0 or not _is_proved(problem, norm, a, dual):
        yield f"dual {dual!r} not proved by the multipliers"
    if status == Status.OPTIMAL:
        exact = (Fraction(primal) - Fraction(dual)) / Fraction(primal) if primal else Fraction(0)
        if abs(exact) > Fraction(abs(gap)) + 4 * Fraction(float(np.finfo(np.asarray(solution.W).dtype).eps)):
            yield f"gap {gap:.3g} below the exact one"
        if not violation < 1:
            yield f"OPTIMAL with violation {violation}"
    if status == Status.INFEASIBLE and not dual > 0:
        yield "INFEASIBLE without a bound"


def least_squared(constraints: svm.Constraints) -> Fraction | None:
    """Return the square of the least Frobenius norm of what satisfies hard rows, exactly; None if nothing does.

    Every set of tight rows is tried: the solution is the combination of independent ones that reaches their targets,
    satisfies the others, and has multipliers of the right sign.
    """
    problem = Problem(constraints)
    rows = range(len(problem.A))
    gram = [[_inner(A, B) for B in problem.A] for A in problem.A]
    must = [i for i in rows if problem.equal[i]]
    for size in range(len(problem.zero) * len(problem.zero[0]) + 1):
        for tight in combinations(rows, size):
            a = _solved([[gram[i][j] for j in tight] for i in tight], [problem.b[i] for i in tight])
            if a is None or any(x < 0 and not problem.equal[i] for x, i in zip(a, tight, strict=True)):
                continue
            reached = [sum((x * gram[k][i] for x, i in zip(a, tight, strict=True)), Fraction(0)) for k in rows]
            if all(reached[k] == problem.b[k] if k in must else reached[k] >= problem.b[k] for k in rows):
                return sum((x * problem.b[i] for x, i in zip(a, tight, strict=True)), Fraction(0))
    return None


def _is_proved(problem: Problem, norm: svm.Norm, a: list[Fraction], dual: float) -> bool:
    """Whether multipliers prove that the optimal value is at least `dual`."""
    if dual == 0:
        return True
    allowed = all(
        (x >= 0 or equal) and (C is None or x <= C) for x, equal, C in zip(a, problem.equal, problem.price, strict=True)
    )
    M = [
        [sum((x * A[i][j] for x, A in zip(a, problem.A, strict=True)), Fraction(0)) for j in range(len(row))]
        for i, row in enumerate(problem.zero)
    ]
    worth = sum((x * b for x, b in zip(a, problem.b, strict=True)), Fraction(0))
    if not allowed or worth <= 0:
        return False
    zero = all(x == 0 for row in M for x in row)
    # Multipliers of hard rows alone may have any length.
    ray = all(x == 0 or C is None for x, C in zip(a, problem.price, strict=True))
    if np.isinf(dual):
        return ray and zero
    bound = Fraction(dual)
    if norm.power == 2:
        # `||M||^2 <= 2 (worth - bound)`, or `(worth / ||M||)^2 >= 2 bound`.
        return _is_dual_within(norm, 2 * (worth - bound), M) or (
            ray and _is_dual_within(norm, worth**2 / (2 * bound), M)
        )
    return (ray or worth >= bound) and _is_dual_within(norm, (worth / bound) ** 2, M)


def _is_at_least(norm: svm.Norm, value: Fraction, W: Exact) -> bool:
    """Whether `value` is at least `||W||`, or `||W||^2 / 2`."""
    if value < 0:
        return False
    square = 2 * value if norm.power == 2 else value**2
    name = norm.plain.name
    if name == "nuclear":
        return _nuclear_within(square, W)
    if name == "spectral":
        return _spectral_within(square, W)
    return square >= _inner(W, W)


def _is_dual_within(norm: svm.Norm, square: Fraction, M: Exact) -> bool:
    """Whether the square of the dual norm of M is at most `square`."""
    if square < 0:
        return False
    name = norm.plain.name
    if name == "nuclear":
        return _spectral_within(square, M)
    if name == "spectral":
        return _nuclear_within(square, M)
    return _inner(M, M) <= square


def _spectral_within(square: Fraction, M: Exact) -> bool:
    """Whether `square - M^T M` is positive semidefinite, M (2, 2)."""
    (p, q), (r, s) = M
    a, b, c = square - p * p - r * r, -p * q - r * s, square - q * q - s * s
    return a >= 0 and c >= 0 and a * c >= b * b


def _nuclear_within(square: Fraction, M: Exact) -> bool:
    """Whether the square of the sum of the singular values, `||M||_F^2 + 2 |det M|`, is at most `square`, M (2, 2)."""
    (p, q), (r, s) = M
    return _inner(M, M) + 2 * abs(p * s - q * r) <= square


def _solved(G: Exact, b: list[Fraction]) -> list[Fraction] | None:
    """Solve a square system; None if it is singular."""
    rows = [[*row, x] for row, x in zip(G, b, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k] != 0:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def _exact(W: np.ndarray) -> Exact:
    return [[Fraction(float(x)) for x in row] for row in W]


def _outer(left: np.ndarray, right: np.ndarray) -> Exact:
    return [[Fraction(float(x)) * Fraction(float(y)) for y in right] for x in left]


def _inner(A: Exact, B: Exact) -> Fraction:
    return sum((x * y for row, other in zip(A, B, strict=True) for x, y in zip(row, other, strict=True)), Fraction(0))
