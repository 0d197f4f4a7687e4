"""Internal: decide whether an optimal solution is the only one.

W and multipliers a in their box prove that the optimal value lies between `D = <a, b>` and the objective P at W. Let
`delta` be `P - D`, enlarged by the violation of W and by rounding, and `M = sum_k a_k A_k`, of dual norm at most 1.
Every optimal W' then satisfies

    `(||W'|| - <M, W'>) + sum_k a_k over_k + sum_k (C_k - a_k) short_k <= delta`

with `over_k - short_k = <A_k, W'> - b_k`, where no term is negative. So each term is at most delta: W' lies near a
*face* of the norm's ball, a linear space (see `faces`), and every row with a multiplier inside its box holds with
equality to `delta / a_k` and `delta / (C_k - a_k)`. This is complementary slackness with error bounds. For a squared
norm the sum also has the term `(||W'|| - ||M||)^2 / 2`, and M is divided by its norm. In that case, and if all rows are
hard, `<M, W'>` is known and serves as one more row.

YES: restricted to the face, the rows determine W well enough. `W' - W` has coordinates y on the face and at most `off`
outside. Each row bounds `<A_k, W' - W>`, so `L y` lies in an ellipsoid `{x : x^T E^-1 x <= 1}` and `||y|| <= 1 /
sigma_min(E^-1/2 L)`. The solution is called unique if `sqrt(||y||^2 + off^2)`, a bound of the distance of *every*
optimal W' from W, is at most 1e-3 of ||W||_F. Strictly convex objectives need no computation.

NO: a second optimum was found. It is W moved along a direction of the face in which all rows that hold with equality
are constant, until shortly before another row or the boundary of the face is reached. The certificate has found it
optimal with the same multipliers, and its distance from W is at least 1e-2 of ||W||_F and ten times the square root of
the gap.

All other cases are UNKNOWN: solutions that are not optimal, norms whose faces are not known, sets of optima of a size
in between, solutions at the boundary of their face or of zero length, numbers near the limits of their range, and most
solutions in single precision, since the distance that a gap allows is its square root. A rank bound only removes
optima: YES remains valid, and NO requires a second optimum of that rank.

The numbers are read in NumPy and double precision after the solution is certified. This cannot be done under `jit` and
`vmap`, where everything that is not strictly convex is UNKNOWN: see `with_uniqueness`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxattn.norms import Entrywise, Norm, Schatten, frobenius
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.faces import faces
from jaxattn.svm.optimal_set import NEAR, optima
from jaxattn.svm.packing import picked
from jaxattn.svm.solution import Candidate, Solution, Status, Unique

# The distance of a second optimum from W: at least this fraction of ||W||_F, and this many square roots of the gap.
_FAR, _ROOTS = 1e-2, 10.0
# Lanes with numbers below this, or above its inverse, are not examined.
_SMALL = 1e-30


def is_strictly_convex(constraints: Constraints, norm: Norm) -> bool:
    """Return whether the problem has at most one solution, whatever its numbers.

    This holds if the balls of the norm are strictly convex, and the norm is squared or all rows are hard: two optima
    then have the same norm, and the points between them a smaller one. A norm that is not squared grows linearly along
    a ray, at a rate that may equal the decrease of the cost of shortfalls.
    """
    round_ball = norm.plain == frobenius or (isinstance(norm, Entrywise | Schatten) and 1 < norm.p < float("inf"))
    return round_ball and (norm.power == 2 or constraints.penalty is None)


def uniqueness(
    constraints: Constraints,
    norm: Norm,
    solution: Solution,
    certified: Callable[[Constraints, Candidate], Solution],
) -> Int[np.ndarray, " lanes"]:
    """Return a Unique for each lane of a batch of solutions.

    Args:
        constraints: the rows, with a leading axis of lanes.
        norm: the norm of the problems.
        solution: the certified solutions.
        certified: certifies a batch of candidates.
    """
    codes, known = np.array(solution.unique), faces(norm)
    if known is None:
        return codes
    unsaid = (np.asarray(solution.status) == Status.OPTIMAL) & (codes == Unique.UNKNOWN)
    open_lanes = np.flatnonzero(unsaid & _is_moderate(constraints, solution))
    if open_lanes.size == 0:
        return codes
    constraints = picked(constraints, open_lanes)
    W, duals = (np.asarray(one)[open_lanes] for one in (solution.W, solution.duals))
    found = optima(constraints, norm, known, W, duals)
    codes[open_lanes[found.diameter <= NEAR]] = Unique.YES
    apart = np.flatnonzero((found.diameter > NEAR) & (_distance(found.second, W) > 0))
    if apart.size:
        candidates = Candidate(*map(jnp.asarray, (found.second[apart].astype(W.dtype), duals[apart], 0 * apart)))
        second = certified(picked(constraints, apart), candidates)
        distance = _distance(np.asarray(second.W, float), W[apart])
        far = distance >= np.maximum(_FAR, _ROOTS * np.sqrt(np.abs(np.asarray(second.gap, float))))
        codes[open_lanes[apart[far & (np.asarray(second.status) == Status.OPTIMAL)]]] = Unique.NO
    return codes


def _is_moderate(constraints: Constraints, solution: Solution) -> np.ndarray:
    """Return whether products of a few of a lane's numbers neither overflow nor underflow, (lanes)."""
    numbers = (constraints.differences, constraints.queries, constraints.targets, solution.W, solution.duals)
    largest = np.array([np.abs(one).reshape(len(one), -1).max(axis=1) for one in numbers if one is not None], float)
    return ((largest == 0) | ((largest > _SMALL) & (largest < 1 / _SMALL))).all(axis=0)


def _distance(second: np.ndarray, W: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(W, axis=(1, 2))
    return np.linalg.norm(second - W, axis=(1, 2)) / np.where(length > 0, length, np.inf)
