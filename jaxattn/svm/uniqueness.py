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

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxattn.lengths import euclidean
from jaxattn.norms import Entrywise, Norm, Schatten, frobenius, of_singular_values, spectral
from jaxattn.parallel import blas
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.faces import Face, Faces, Near, faces, until_zero
from jaxattn.svm.packing import picked
from jaxattn.svm.solution import Candidate, Solution, Status, Unique

# W counts as unique if all optima are this close to it, relative to ||W||_F.
_NEAR = 1e-3
# The fraction of a way that is taken; the number of ways tried; which changes count as zero, relative to the largest.
_WAY, _WAYS, _CONSTANT = 0.9, 6, 1e-6
# Rows with multipliers below this fraction of the largest are ignored: they contribute almost nothing.
_IDLE = 1e-9
# The size of the arrays of one part of a batch, in bytes.
_MEMORY = 2**27
# The distance of a second optimum from W: at least this fraction of ||W||_F, and this many square roots of the gap.
_FAR, _ROOTS = 1e-2, 10.0
# Norms of singular values are examined in the rows' spans if these have at most this fraction of the dimensions, and if
# W lies in them to this fraction of its length.
_FEW, _LOST = 4, 1e-9
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
    """Return a Unique for each lane of a batch of solutions; `certified` certifies a batch of candidates."""
    codes, known = np.array(solution.unique), faces(norm)
    if known is None:
        return codes
    unsaid = (np.asarray(solution.status) == Status.OPTIMAL) & (codes == Unique.UNKNOWN)
    open_lanes = np.flatnonzero(unsaid & _is_moderate(constraints, solution))
    if open_lanes.size == 0:
        return codes
    constraints = picked(constraints, open_lanes)
    W, duals = (np.asarray(one)[open_lanes] for one in (solution.W, solution.duals))
    with blas.one_thread():
        found = _in_spans(constraints, norm, known, W, duals)
    codes[open_lanes[found.diameter <= _NEAR]] = Unique.YES
    apart = np.flatnonzero((found.diameter > _NEAR) & (_distance(found.second, W) > 0))
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


class _Optima(NamedTuple):
    """What the multipliers prove about the set of optima, with a leading axis of lanes.

    Attributes:
        diameter: an upper bound of the distance of every optimum from W, relative to ||W||_F; inf if none is known.
        second: another optimum, still to be certified; W if there is none.
    """

    diameter: Float[np.ndarray, " lanes"]
    second: Float[np.ndarray, "lanes d e"]


class _Rows(NamedTuple):
    """The rows of each lane, (lanes, k) each: multipliers, penalties, kinds, and the margins minus the targets."""

    a: np.ndarray
    price: np.ndarray
    equal: np.ndarray
    present: np.ndarray
    excess: np.ndarray


class _Errors(NamedTuple):
    """Error bounds of near optima, (lanes) each.

    Attributes:
        delta: the bound of the sum of all terms.
        level: the bound of `<M, W' - W>`; inf if unknown.
        scale: the divisor that makes `sum_k a_k A_k` the matrix M.
    """

    delta: np.ndarray
    level: np.ndarray
    scale: np.ndarray


def _in_spans(
    constraints: Constraints, norm: Norm, known: Faces, W: Float[np.ndarray, "lanes d e"], duals: np.ndarray
) -> _Optima:
    """Return what `optima` does; of norms of singular values, in the spans of few rows' differences and queries.

    The nuclear norm's face lies in these spans, since M does. The spectral norm and the rows do not change with a
    matrix beside both spans that is no longer than W, so that no solution is the only one.
    """
    _, n, m, d = constraints.differences.shape
    if not of_singular_values(norm) or _FEW * n * m > d or _FEW * n > W.shape[2]:
        return optima(constraints, norm, known, W, duals)
    doubles = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else np.asarray(leaf, float), constraints)
    reduction = cons.reduce(doubles)
    inside = reduction.left.mT @ W @ reduction.right
    beside = W - reduction.lift(inside)
    if (euclidean(beside) > _LOST * euclidean(W)).any():
        return optima(constraints, norm, known, W, duals)
    if norm.plain == spectral:
        ways = _beside(reduction.left)[:, :, None] * _beside(reduction.right)[:, None, :]
        return _Optima(np.full(len(W), np.inf), W + _WAY * known.value(inside)[:, None, None] * ways)
    found = optima(reduction.constraints, norm, known, inside, duals)
    return found._replace(second=beside + reduction.lift(found.second))


def _beside(basis: Float[np.ndarray, "lanes d p"]) -> Float[np.ndarray, "lanes d"]:
    """Return a vector of length 1 orthogonal to the orthonormal columns: the rest of the axis that they share least."""
    axis = np.argmin(np.sum(basis**2, axis=2), axis=1)
    rest = np.eye(basis.shape[1])[axis]
    for _ in range(2):
        rest = rest - np.einsum("ldp,lp->ld", basis, np.einsum("ldp,ld->lp", basis, rest))
    return rest / np.linalg.norm(rest, axis=1, keepdims=True)


def optima(
    constraints: Constraints,
    norm: Norm,
    known: Faces,
    W: Float[np.ndarray, "lanes d e"],
    duals: Float[np.ndarray, "lanes n m"],
) -> _Optima:
    """Return what is known about the optima of each lane, from W and multipliers that certify each other."""
    near, rows, errors = _evidence(constraints, norm, known, W, duals)
    number = known.number(near)
    width = known.width(number)
    found = _Optima(np.full(len(W), np.inf), np.array(W, float))
    for part in _parts(width, near):
        of_part = near._make(leaf[part] for leaf in near)
        face = known.face(of_part, number[part], int(width[part[0]]))
        of_rows = rows._make(leaf[part] for leaf in rows)
        of_errors = errors._make(leaf[part] for leaf in errors)
        result = _of_face(of_part, of_rows, of_errors, face)
        for all_lanes, of_lanes in zip(found, result, strict=True):
            all_lanes[part] = of_lanes
    return found


def _parts(width: np.ndarray, near: Near) -> Iterator[np.ndarray]:
    """Yield groups of lanes of one width, as many as memory allows."""
    k, (d, e) = near.left.shape[1], near.W.shape[1:]
    together = max(1, _MEMORY // (8 * (k + d + e) * (k + d * e)))
    for one in np.unique(width):
        lanes = np.flatnonzero(width == one)
        yield from (lanes[start : start + together] for start in range(0, len(lanes), together))


def _evidence(
    constraints: Constraints, norm: Norm, known: Faces, W: np.ndarray, duals: np.ndarray
) -> tuple[Near, _Rows, _Errors]:
    """Return bounds for all near optima, the rows, and the errors delta."""
    lanes, n, m, d = constraints.differences.shape
    left = np.asarray(constraints.differences, float).reshape(lanes, n * m, d)
    right = np.repeat(np.asarray(constraints.queries, float), m, axis=1)

    def flat(leaf: Any, otherwise: float | bool) -> np.ndarray:
        kind = bool if isinstance(otherwise, bool) else float
        return np.full((lanes, n * m), otherwise) if leaf is None else np.asarray(leaf, kind).reshape(lanes, n * m)

    targets, present = flat(constraints.targets, 1.0), flat(constraints.present, True)
    equal, price = flat(constraints.equal, False) & present, flat(constraints.penalty, np.inf)
    left, W, a = left * present[..., None], np.asarray(W, float), flat(duals, 0.0) * present

    def combined(a: np.ndarray) -> np.ndarray:
        return np.swapaxes(left * a[..., None], 1, 2) @ right

    M = combined(a)
    of_M, of_W = known.dual(M), known.value(W)
    if norm.power == 1:
        a = a / np.maximum(of_M, 1.0)[:, None]
        M, of_M = M / np.maximum(of_M, 1.0)[:, None, None], np.ones(lanes)
    excess = np.where(present, np.sum((left @ W) * right, axis=2) - targets, 0.0)
    short = np.where(equal, np.abs(excess), np.maximum(-excess, 0.0))
    hard = np.isinf(price)
    cost = np.sum(np.where(hard, 0.0, np.where(hard, 0.0, price) * short), axis=1)
    upper = (of_W**2 / 2 if norm.power == 2 else of_W) + cost
    lower = np.sum(a * targets, axis=1) - (of_M**2 / 2 if norm.power == 2 else 0.0)
    rounding = 1e-15 * (upper + np.sum(np.abs(a * targets), axis=1))
    violated = np.sum(np.where(hard, np.abs(a) * short, 0.0), axis=1)
    delta = np.maximum(upper - lower, 0.0) + 2 * violated + rounding
    size = np.sqrt(2 * (upper + delta)) if norm.power == 2 else upper + delta
    scale = np.where(of_M > 0, of_M, 1.0)
    # Append random rows: their coordinates on the face serve as ways along it.
    rng = np.random.default_rng(0)
    left, right = (
        np.concatenate([one, np.broadcast_to(rng.normal(size=(_WAYS, one.shape[2])), (lanes, _WAYS, one.shape[2]))], 1)
        for one in (left, right)
    )
    M = M / scale[:, None, None]
    if norm.power == 2:
        level = np.abs(of_M - np.sum(M * W, axis=(1, 2))) + np.sqrt(2 * delta) + delta / scale
    else:
        level = np.where((hard | ~present).all(axis=1), 2 * delta, np.inf)
    near = Near(M, W, left, right, delta / scale, np.maximum(size, 1e-300))
    return near, _Rows(a, price, equal, present, excess), _Errors(delta, level, scale)


def _of_face(near: Near, rows: _Rows, errors: _Errors, face: Face) -> _Optima:
    """Bound the set of optima, and look for a second one if it may be large."""
    length = np.linalg.norm(near.W, axis=(1, 2))
    # M as one more row, the weighted sum of the others.
    k = rows.a.shape[1]
    of_M = ((rows.a / errors.scale[:, None])[:, None] @ face.rows[:, :k])[:, 0]
    diameter = _diameter(near, rows, errors, face, of_M) / np.where(length > 0, length, 1.0)
    diameter = np.where(length > 0, diameter, np.where(near.size <= 1e-300, 0.0, np.inf))
    second = near.W.copy()
    if (wide := diameter > _NEAR).any():
        second[wide] = _moved(near, rows, face, np.where(np.isfinite(errors.level)[:, None], of_M, 0.0))[wide]
    return _Optima(diameter, second)


def _diameter(near: Near, rows: _Rows, errors: _Errors, face: Face, of_M: np.ndarray) -> np.ndarray:
    """Bound the Frobenius distance of every optimum from W, (lanes)."""
    delta = errors.delta
    # Rows without a multiplier give no bound, nor do fewer rows than the face has dimensions.
    active = rows.present & (rows.equal | (_share(near, rows) > _IDLE))
    count = active.sum(axis=1)
    k = max(1, int(count.max()))
    if (count + 1 < face.dimension).all():
        return np.full(len(count), np.inf)
    places = np.argsort(~active, axis=1, kind="stable")[:, :k]
    active = np.arange(k) < count[:, None]
    a, price, equal, excess = (
        np.take_along_axis(one, places, 1) for one in (rows.a, rows.price, rows.equal, rows.excess)
    )
    L, left, right = (np.take_along_axis(one, places[..., None], 1) for one in (face.rows, near.left, near.right))
    below_price = np.where(np.isinf(price), np.inf, price - a)
    over, short = (np.where(one > 0, delta[:, None] / np.where(one > 0, one, 1.0), np.inf) for one in (a, below_price))
    within = np.where(equal, np.abs(excess), np.maximum(np.abs(over - excess), np.abs(short + excess)))
    gram = (left @ np.swapaxes(left, 1, 2)) * (right @ np.swapaxes(right, 1, 2))
    with_M = np.sum((left @ near.M) * right, axis=2)[:, :, None]
    gram = np.block([[gram, with_M], [np.swapaxes(with_M, 1, 2), np.sum(near.M**2, axis=(1, 2))[:, None, None]]])
    L, within = np.concatenate([L, of_M[:, None]], axis=1), np.concatenate([within, errors.level[:, None]], axis=1)
    active, count, k = np.pad(active, ((0, 0), (0, 1)), constant_values=True), count + 1, k + 1
    # The images under the rows of matrices outside the face with Frobenius norm 1: an ellipsoid.
    outside = gram - L @ np.swapaxes(L, 1, 2)
    # Add a bound of the rounding of this difference, so that its matrix stays positive.
    rounding = 8 * np.finfo(float).eps * k * np.diagonal(gram, axis1=1, axis2=2)
    outside = outside + rounding[:, :, None] * np.eye(k)
    spread = np.sqrt(np.maximum(np.diagonal(outside, axis1=1, axis2=2), 0.0))
    off = np.minimum(face.off, 1e150)[:, None]
    largest = np.where(active & np.isfinite(within), within + off * spread, 0.0)
    weight = np.where(largest > 0, 1 / np.where(largest > 0, largest, 1.0), 0.0)
    # The sum of that ellipsoid and one around the box of `within` lies in the ellipsoid with twice the sum of their
    # matrices.
    box = np.where(weight > 0, count[:, None] * (weight * np.where(weight > 0, within, 0.0)) ** 2, 1.0)
    E = (weight * off)[:, :, None] * outside * (weight * off)[:, None, :]
    E = 2 * (E + (box + 1e-9)[:, :, None] * np.eye(k))
    values = np.linalg.svd(np.linalg.solve(np.linalg.cholesky(E), weight[..., None] * L), compute_uv=False)
    # Count only coordinates that exist; the first value 0 stands for fewer rows than coordinates.
    values = np.pad(values, ((0, 0), (1, 0)))
    least = np.take_along_axis(values, np.where(face.dimension <= k, face.dimension, 0)[:, None], 1)[:, 0]
    least = np.where(face.dimension == 0, np.inf, least)
    return np.where(least > 0, np.hypot(1 / np.where(least > 0, least, 1.0), face.off), np.inf)


def _share(near: Near, rows: _Rows) -> np.ndarray:
    """Return each multiplier times its row's length, relative to the largest."""
    k = rows.a.shape[1]
    weight = np.abs(rows.a) * np.linalg.norm(near.left[:, :k], axis=2) * np.linalg.norm(near.right[:, :k], axis=2)
    return weight / np.maximum(np.max(weight, axis=1, keepdims=True), 1e-300)


def _moved(near: Near, rows: _Rows, face: Face, of_M: np.ndarray) -> np.ndarray:
    """Move W along its face, with `<M, W>` constant, as far as one of several ways allows, (lanes, d, e)."""
    k = rows.a.shape[1]
    L, ways = face.rows[:, :k], face.rows[:, k:]
    # Decide whether a row is tight: compare its multiplier and its slack, each relative to its possible size.
    size = np.linalg.norm(near.left[:, :k], axis=2) * np.linalg.norm(near.right[:, :k], axis=2)
    slack = np.abs(rows.excess) / np.maximum(size * np.linalg.norm(near.W, axis=(1, 2))[:, None], 1e-300)
    hard = np.isinf(rows.price)
    left_of_price = np.where(hard, np.inf, np.where(hard, 1.0, rows.price) - rows.a)
    at_price = (rows.excess < 0) & ~hard & (left_of_price / np.where(hard, 1.0, rows.price) < slack)
    idle = (rows.excess > 0) & (_share(near, rows) < slack)
    tight = rows.present & (rows.equal | ~(at_price | idle))
    scale = np.linalg.norm(ways, axis=2, keepdims=True)
    ways = _constant(
        ways, np.concatenate([L, of_M[:, None]], axis=1), np.pad(tight, ((0, 0), (0, 1)), constant_values=True)
    )
    length = np.linalg.norm(ways, axis=2, keepdims=True)
    ways = np.where(length > 1e-6 * scale, ways / np.where(length > 0, length, 1.0), 0.0)
    change = ways @ np.swapaxes(L, 1, 2)
    loose = rows.present & ~tight
    room = until_zero(
        np.where(loose, np.abs(rows.excess), np.inf)[:, None],
        np.where(loose, np.sign(rows.excess), 0.0)[:, None] * change,
    )
    reach = np.stack([np.minimum(*ends) for ends in zip(room, face.room(ways), strict=True)], axis=2)
    reach = np.where((length > 1e-6 * scale) & np.isfinite(reach), reach, 0.0).reshape(len(L), -1)
    best = np.argmax(reach, axis=1)
    lanes = np.arange(len(L))
    step = _WAY * reach[lanes, best] * np.where(best % 2 == 0, 1.0, -1.0)
    return near.W + face.lift(ways[lanes, best // 2][:, None])[:, 0] * step[:, None, None]


def _constant(ways: np.ndarray, L: np.ndarray, tight: np.ndarray) -> np.ndarray:
    """Return the part of the ways, (lanes, g, p), along which the tight rows, (lanes, k, p), are constant."""
    places = np.argsort(~tight, axis=1, kind="stable")[:, : int(tight.sum(axis=1).max())]
    T = np.take_along_axis(np.where(tight[..., None], L, 0.0), places[..., None], 1)
    T = T / np.maximum(np.linalg.norm(T, axis=2, keepdims=True), 1e-300)
    across = np.swapaxes(T, 1, 2)
    values, vectors = np.linalg.eigh(T @ across)
    counts = values > _CONSTANT**2 * np.max(values, axis=1, keepdims=True, initial=0.0)
    inverse = (vectors * np.where(counts, 1 / np.where(counts, values, 1.0), 0.0)[:, None]) @ np.swapaxes(vectors, 1, 2)
    for _ in range(2):
        ways = ways - ways @ across @ inverse @ T
    return ways
