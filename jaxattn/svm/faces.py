"""Internal: where the optimal matrices of a norm lie, given the multipliers that certify one of them.

Let `M = sum_k a_k A_k` have dual norm at most 1, and let `||W|| - <M, W> <= delta` (see `uniqueness`). For each norm
this module gives a linear space, the *face*, near which such W lie, with an orthonormal basis. `off` bounds the
Frobenius norm of the part of W outside the space, and `size` bounds ||W||. `u_i, v_i, s_i` are the singular vectors and
values of M.

- Nuclear, `s_i <= 1`: the space of `U S V^T`, S symmetric, U and V the first r singular vectors (by the subdifferential
  of the nuclear norm, Watson 1992). In the basis of all singular vectors let W have the blocks B, X, Y, Z.
  Pinching gives `||W||_* >= ||B||_* + ||Z||_*`, hence `||Z||_* <= delta / (1 - s_{r+1})`. The contractions
  `[sqrt(1 - t^2 C C^T), t C; 0, 0]`, C the polar factor of X, and `exp(t C)`, C that of the skew part of B, bound the
  norm from below, to first order in X and to second in t. So X, Y and the skew part have nuclear norm at most
  `1.43 sqrt(size delta (1 / (1 - s_{r+1}) + 1 - s_r))` each. On the face `||W||_* = <M, W>` if S is positive
  semidefinite.
- Spectral, `sum s_i <= 1`: the span of `sum_{i<=m} u_i v_i^T` and of all `u_i v_j^T`, i, j > m. With `c = ||W||`,
  `sum s_i (c - u_i^T W v_i) <= delta`, and `||W v_i - c u_i||^2 <= 2 c (c - u_i^T W v_i)`: the first m rows and columns
  are those of `c I`, to `sqrt(2 c delta / s_m)` each.
- l_1 of all entries, `|M_ij| <= 1`: the r entries of largest |M_ij|; the others sum to at most `delta / (1 - |M_ij|)`.
- l_inf of all entries, `sum |M_ij| <= 1`: the signs of the m largest |M_ij|, and all other entries; the m differ from
  `c = ||W||` by at most `delta / |M_ij|` in sum.
- l_p, 1 < p < inf: the ray of W, since the balls are strictly convex. For two matrices x, y of norm 1 with
  `||(x + y) / 2|| >= 1 - t`, `||x - y|| <= 2 sqrt(2 t / (p - 1))` for p <= 2 (Ball, Carlen and Lieb 1994) and
  `2 (p t)^(1/p)` for p >= 2 (Clarkson 1936).

Arrays have a leading axis of lanes. Faces of different dimensions have the same number of coordinates, padded with 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxattn.norms import Entrywise, Norm, OfRank, frobenius, nuclear, spectral


class Near(NamedTuple):
    """What is known about all near optima.

    Attributes:
        M: a matrix of dual norm at most 1.
        W: one of the near optima.
        left: the differences of the rows; a row is `left right^T`.
        right: the queries of the rows.
        delta: an upper bound of `||W|| - <M, W>`.
        size: an upper bound of `||W||`.
    """

    M: Float[np.ndarray, "lanes d e"]
    W: Float[np.ndarray, "lanes d e"]
    left: Float[np.ndarray, "lanes k d"]
    right: Float[np.ndarray, "lanes k e"]
    delta: Float[np.ndarray, " lanes"]
    size: Float[np.ndarray, " lanes"]


class Face(NamedTuple):
    """The space near which all near optima lie, with coordinates in a basis of p matrices.

    Attributes:
        rows: the rows in these coordinates.
        dimension: how many of the coordinates exist, at most p.
        off: an upper bound, for the difference of W and another near optimum, of the Frobenius norm of its part outside
            the space.
        lift: maps coordinate vectors, (lanes, g, p), to matrices, (lanes, g, d, e).
        room: maps coordinate vectors to how far W may move along them within the face of the unit ball, forwards and
            backwards, (lanes, g).
    """

    rows: Float[np.ndarray, "lanes k p"]
    dimension: Int[np.ndarray, " lanes"]
    off: Float[np.ndarray, " lanes"]
    lift: Callable[[np.ndarray], np.ndarray]
    room: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Faces(NamedTuple):
    """The faces of a norm's ball.

    Attributes:
        value: the norm of each matrix, (lanes).
        dual: the dual norm of each matrix, (lanes).
        number: the number r or m of each lane, (lanes).
        width: that number, rounded so that it takes few values. Lanes of one width are treated together, which makes
            the result of a lane independent of the others.
        face: the faces of lanes of one width, from these numbers.
    """

    value: Callable[[np.ndarray], np.ndarray]
    dual: Callable[[np.ndarray], np.ndarray]
    number: Callable[[Near], np.ndarray]
    width: Callable[[np.ndarray], np.ndarray]
    face: Callable[[Near, np.ndarray, int], Face]


def faces(norm: Norm) -> Faces | None:
    """Return the faces of a norm's ball, or None if they are not known."""
    plain = norm.plain
    if plain == nuclear or isinstance(norm, OfRank):
        return Faces(_sum, _first, lambda near: _at_one(_singular(near.M), near), lambda r: r, _nuclear)
    if plain == spectral:
        return Faces(_first, _sum, lambda near: _not_zero(_singular(near.M), near), lambda m: m, _spectral)
    p = 2.0 if plain == frobenius else norm.p if isinstance(norm, Entrywise) else None
    if p is None:
        return None
    value, dual = _of_entries(p), _of_entries(_conjugate(p))
    if p == 1:
        return Faces(value, dual, lambda near: _at_one(_sorted(near.M), near), lambda r: _down(r + 7), _entries_at_one)
    if p == np.inf:
        return Faces(value, dual, lambda near: _not_zero(_sorted(near.M), near), _down, _largest_entries)
    return Faces(value, dual, lambda near: np.ones(len(near.W), int), _down, lambda near, r, _: _ray(near, r, p))


def _nuclear(near: Near, r: np.ndarray, most: int) -> Face:
    most = max(1, min(most, *near.W.shape[1:]))
    U, s, Vt = np.linalg.svd(near.M)
    short = np.maximum(1.0 - s, 0.0)
    beyond, last = _beyond(short, r), _last(short, r)
    U, V, inside = U[:, :, :most], np.swapaxes(Vt, 1, 2)[:, :, :most], np.arange(most) < r[:, None]
    i, j = np.triu_indices(most)
    scale = np.where(i == j, 0.5, np.sqrt(0.5)) * (inside[:, i] & inside[:, j])

    def coordinates(G: np.ndarray) -> np.ndarray:
        return (G[..., i, j] + G[..., j, i]) * scale[:, None, :]

    def symmetric(y: np.ndarray) -> np.ndarray:
        S = np.zeros((*y.shape[:2], most, most))
        S[..., i, j] = y * scale[:, None, :]
        return S + np.swapaxes(S, 2, 3)

    def lift(y: np.ndarray) -> np.ndarray:
        return U[:, None] @ symmetric(y) @ np.swapaxes(V, 1, 2)[:, None]

    own = coordinates((np.swapaxes(U, 1, 2) @ near.W @ V)[:, None])
    S = symmetric(own)[:, 0] + np.where(inside, 0.0, 1.0)[:, :, None] * np.eye(most)
    first = near.delta * (1 / np.maximum(beyond, _LEAST) + last)
    bend = np.where(first <= 0.02 * near.size, 1.43 * np.sqrt(near.size * first), np.inf)
    outside = np.linalg.norm(near.W - lift(own)[:, 0], axis=(1, 2))
    left, right = near.left @ U, near.right @ V
    return Face(
        rows=coordinates(left[..., :, None] * right[..., None, :]),
        dimension=r * (r + 1) // 2,
        off=outside + np.sqrt(3) * bend + near.delta / np.maximum(beyond, _LEAST),
        lift=lift,
        room=lambda y: _definite(S, symmetric(y)),
    )


def _spectral(near: Near, m: np.ndarray, k: int) -> Face:
    d, e = near.W.shape[1:]
    U, s, Vt = np.linalg.svd(near.M)
    V, least = np.swapaxes(Vt, 1, 2), _last(s, m)
    # The block of the last singular vectors begins at k <= m.
    top = (np.arange(min(d, e)) < m[:, None]) / np.sqrt(np.maximum(m, 1))[:, None]
    free = (np.arange(k, d) >= m[:, None])[:, :, None] & (np.arange(k, e) >= m[:, None])[:, None, :]
    shape = free.shape[1:]

    def coordinates(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        first = np.sum(left[..., : min(d, e)] * right[..., : min(d, e)] * top[:, None, :], axis=2)
        block = left[..., k:, None] * right[..., None, k:] * free[:, None]
        return np.concatenate([first[..., None], block.reshape(*first.shape, -1)], axis=2)

    def block(y: np.ndarray) -> np.ndarray:
        return y[..., 1:].reshape(*y.shape[:2], *shape) * free[:, None]

    def lift(y: np.ndarray) -> np.ndarray:
        first = (U[:, :, : min(d, e)] * top[:, None, :]) @ Vt[:, : min(d, e)]
        return y[..., 0, None, None] * first[:, None] + U[:, None, :, k:] @ block(y) @ Vt[:, None, k:]

    H = np.swapaxes(U, 1, 2) @ near.W @ V
    first = np.sum(np.diagonal(H, axis1=1, axis2=2) * top, axis=1)
    own = np.concatenate([first[:, None], (H[:, k:, k:] * free).reshape(len(H), -1)], axis=1)[:, None]
    share = 1 / np.sqrt(np.maximum(m, 1))

    def arrow(y: np.ndarray) -> np.ndarray:
        a, b = shape
        # One extra row and column, for lanes without a block.
        X = np.zeros((*y.shape[:2], a + b + 1, a + b + 1))
        X[..., :a, a : a + b] = block(y)
        return X + np.swapaxes(X, 2, 3) + (y[..., 0] * share[:, None])[..., None, None] * np.eye(a + b + 1)

    edge = 2 * np.sqrt(near.size * near.delta / np.maximum(least, _LEAST))
    return Face(
        rows=coordinates(near.left @ U, near.right @ V),
        dimension=1 + (d - m) * (e - m),
        off=np.linalg.norm(near.W - lift(own)[:, 0], axis=(1, 2)) + edge,
        lift=lift,
        room=lambda y: _definite(arrow(own)[:, 0], arrow(y)),
    )


def _entries_at_one(near: Near, r: np.ndarray, most: int) -> Face:
    w, sign = _flat(near.W), np.sign(_flat(near.M))
    short = np.maximum(1.0 - np.abs(_flat(near.M)), 0.0)
    order = np.argsort(short, axis=1)
    beyond = _beyond(np.take_along_axis(short, order, 1), r)
    places = order[:, : max(1, most)]
    inside = np.arange(places.shape[1]) < r[:, None]
    own, upwards = (np.take_along_axis(one, places, 1) * inside for one in (w, sign))
    return Face(
        rows=_entries(near, places) * inside[:, None],
        dimension=r,
        off=np.linalg.norm(w - _placed(own[:, None], places, w)[:, 0], axis=1)
        + near.delta / np.maximum(beyond, _LEAST),
        lift=lambda y: _placed(y * inside[:, None], places, w).reshape(*y.shape[:2], *near.W.shape[1:]),
        room=lambda y: until_zero((own * upwards)[:, None], y * upwards[:, None]),
    )


def _largest_entries(near: Near, m: np.ndarray, k: int) -> Face:
    w, sign = _flat(near.W), np.sign(_flat(near.M))
    order = np.argsort(-np.abs(_flat(near.M)), axis=1)
    least = _last(_sorted(near.M), m)
    top = np.zeros_like(w)
    np.put_along_axis(top, order, (np.arange(w.shape[1]) < m[:, None]) / np.sqrt(np.maximum(m, 1))[:, None], 1)
    top *= sign
    places, free = order[:, k:], np.arange(k, w.shape[1]) >= m[:, None]
    share = 1 / np.sqrt(np.maximum(m, 1))[:, None, None]

    def lift(y: np.ndarray) -> np.ndarray:
        moved = y[..., :1] * top[:, None] + _placed(y[..., 1:] * free[:, None], places, w)
        return moved.reshape(*y.shape[:2], *near.W.shape[1:])

    own = np.concatenate([np.sum(w * top, axis=1)[:, None], np.take_along_axis(w, places, 1) * free], axis=1)[:, None]
    first = np.einsum("lkd,lde,lke->lk", near.left, top.reshape(near.W.shape), near.right, optimize=True)

    def room(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level, change = own[..., :1] * share, y[..., :1] * share
        below = until_zero(level - own[..., 1:], np.where(free[:, None], change - y[..., 1:], 0.0))
        above = until_zero(level + own[..., 1:], np.where(free[:, None], change + y[..., 1:], 0.0))
        return np.minimum(below[0], above[0]), np.minimum(below[1], above[1])

    return Face(
        rows=np.concatenate([first[..., None], _entries(near, places) * free[:, None]], axis=2),
        dimension=1 + w.shape[1] - m,
        off=np.linalg.norm(near.W - lift(own)[:, 0], axis=(1, 2)) + near.delta / np.maximum(least, _LEAST),
        lift=lift,
        room=room,
    )


def _ray(near: Near, r: np.ndarray, p: float) -> Face:
    """Return the ray of W, in an l_p norm with 1 < p < inf."""
    length = np.linalg.norm(near.W, axis=(1, 2))
    along = near.W / np.where(length > 0, length, 1.0)[:, None, None]
    norm = np.sum(np.abs(near.W) ** p, axis=(1, 2)) ** (1 / p)
    # For W and any other W', times the norm of W': the mean of delta / ||W|| and delta / ||W'||.
    t = near.delta * near.size / np.maximum(norm, _LEAST)
    apart = 2 * np.sqrt(2 * near.size * t / (p - 1)) if p <= 2 else 2 * near.size * (p * t / near.size) ** (1 / p)
    rows = np.einsum("lkd,lde,lke->lk", near.left, along, near.right, optimize=True)[..., None]
    return Face(
        rows=rows,
        dimension=r,
        # The l_p norm is at least a fixed fraction of the Frobenius norm.
        off=apart * max(1.0, near.W[0].size ** (0.5 - 1 / p)),
        lift=lambda y: y[..., None] * along[:, None],
        room=lambda y: until_zero(length[:, None, None], y),
    )


# A divisor of 0 would give a bound that proves nothing.
_LEAST = 1e-300


def _down(number: np.ndarray) -> np.ndarray:
    """Return numbers rounded down to multiples of 8."""
    return number // 8 * 8


def _singular(M: np.ndarray) -> np.ndarray:
    return np.linalg.svd(M, compute_uv=False)


def _sum(M: np.ndarray) -> np.ndarray:
    return _singular(M).sum(axis=1)


def _first(M: np.ndarray) -> np.ndarray:
    return _singular(M)[:, 0]


def _conjugate(p: float) -> float:
    return np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)


def _of_entries(p: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda W: np.linalg.norm(_flat(W), p, axis=1)


def _sorted(M: np.ndarray) -> np.ndarray:
    return -np.sort(-np.abs(_flat(M)), axis=1)


def _at_one(falling: np.ndarray, near: Near) -> np.ndarray:
    """Return how many values are 1, to the accuracy of the gap."""
    return _split(np.maximum(1.0 - falling, 0.0), near.delta / near.size)


def _not_zero(falling: np.ndarray, near: Near) -> np.ndarray:
    """Return how many values are not 0, to the accuracy of the gap."""
    return falling.shape[1] - _split(falling[:, ::-1], near.delta / near.size)


def _last(values: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the `number`-th value of each lane."""
    return np.take_along_axis(values, np.maximum(number - 1, 0)[:, None], 1)[:, 0]


def _beyond(rising: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the value after the `number`-th; 1, the largest possible, if there is none."""
    padded = np.pad(rising, ((0, 0), (0, 1)), constant_values=1.0)
    return np.take_along_axis(padded, number[:, None], 1)[:, 0]


def _split(rising: Float[np.ndarray, "lanes k"], floor: Float[np.ndarray, " lanes"]) -> Int[np.ndarray, " lanes"]:
    """Return how many of some increasing numbers from 0 to 1 count as 0: those before the largest jump."""
    ends = np.zeros((len(rising), 1)), np.ones((len(rising), 1))
    levels = np.concatenate([ends[0], rising, ends[1]], axis=1) + np.maximum(floor, 1e-16)[:, None]
    return np.argmax(levels[:, 1:] / levels[:, :-1], axis=1)


def _flat(matrices: Float[np.ndarray, "lanes d e"]) -> Float[np.ndarray, "lanes c"]:
    return matrices.reshape(len(matrices), -1)


def _entries(near: Near, places: Int[np.ndarray, "lanes p"]) -> Float[np.ndarray, "lanes k p"]:
    """Return some entries of each row's matrix."""
    row, column = np.divmod(places, near.W.shape[2])
    return np.take_along_axis(near.left, row[:, None], 2) * np.take_along_axis(near.right, column[:, None], 2)


def _placed(
    y: Float[np.ndarray, "lanes g p"], places: Int[np.ndarray, "lanes p"], like: Float[np.ndarray, "lanes c"]
) -> Float[np.ndarray, "lanes g c"]:
    placed = np.zeros((*y.shape[:2], like.shape[1]))
    np.put_along_axis(placed, np.broadcast_to(places[:, None], y.shape), y, 2)
    return placed


def until_zero(slack: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far `slack + t move` stays at least 0 on the last axis, for t > 0 and for t < 0."""
    slack = np.broadcast_to(np.maximum(slack, 0.0), move.shape)
    ends = [np.where(way < 0, slack / np.where(way < 0, -way, 1.0), np.inf) for way in (move, -move)]
    return ends[0].min(axis=-1, initial=np.inf), ends[1].min(axis=-1, initial=np.inf)


def _definite(
    S: Float[np.ndarray, "lanes s s"], moves: Float[np.ndarray, "lanes g s s"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far `S + t move` stays positive semidefinite, for t > 0 and for t < 0."""
    values, vectors = np.linalg.eigh(S)
    inside: Bool[np.ndarray, " lanes"] = values[:, 0] > 0
    root = vectors / np.sqrt(np.where(inside[:, None], values, 1.0))[:, None, :]
    change = np.linalg.eigvalsh(np.swapaxes(root, 1, 2)[:, None] @ moves @ root[:, None])
    ends = [np.where(way > 0, 1 / np.where(way > 0, way, 1.0), np.inf) for way in (-change[..., 0], change[..., -1])]
    return np.where(inside[:, None], ends[0], 0.0), np.where(inside[:, None], ends[1], 0.0)
