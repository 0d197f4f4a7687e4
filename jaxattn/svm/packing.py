"""Internal: a batch's rows without those that are not present, in coordinates and shapes that many problems share.

A step of most solvers costs the cube of the number of rows, so the rows of a lane that count are moved to its front.
How many places there are follows from the lane's own rows, and from how many lanes are solved: lanes of different
widths are solved apart, and no lane's answer depends on another's rows. Rows of zeros that do not count, and
coordinates of zero, change neither a problem nor its solution, so the more a compilation takes in comparison, the
fewer the widths and dimensions. Solvers for norms of singular values are given the coordinates of the spans of the
differences and of the queries: what is added to a span is then 0 to the last bit, which a path along it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate, Solution

# Widths, from few to many: those of the last row are so near to each other that the places filled up cost little.
_WIDTHS = (
    64 * 4 ** np.arange(9),
    32 * 2 ** np.arange(18),
    np.asarray(sorted({factor * 2**power for factor in (2, 3) for power in range(2, 20)})),
)
# The least standard dimension; the others are its doubles.
_LEAST = 16
# A step of the interior-point method for the nuclear norm takes about `(rows + 3 coordinates)^3`, and all steps of one
# problem 3 ns times that; it compiles in two to three seconds.
_OF_COORDINATE, _COMPILING = 3, 8e8

Found = TypeVar("Found", Candidate, Solution)


class Sharing(Enum):
    """How far a program may be shared with problems of other shapes."""

    NOT = "rows and coordinates stay as they are where all rows count"
    SHAPES = "rows and coordinates of zero are added"
    SPANS = "likewise, in coordinates of the spans"


class Packed(NamedTuple):
    """Lanes of one shape.

    Attributes:
        rows: one to a group, the rest of the width filled up with rows of zeros that do not count; as they were given
            where the width is that of all rows.
        lanes: which lanes of the batch these are, (k).
        places: the row that each of `rows` was, (k, width); None where they stand in the groups as given.
        given: n, m, d and e of the constraints as given.
        left: the coordinates that `rows` are in, as orthonormal columns, (k, d, p); None where they are as given.
        right: likewise those of the queries, (k, e, q).
    """

    rows: Constraints
    lanes: Int[np.ndarray, " k"]
    places: Int[np.ndarray, "k width"] | None
    given: tuple[int, int, int, int]
    left: Float[np.ndarray, "k d p"] | None = None
    right: Float[np.ndarray, "k e q"] | None = None

    @property
    def standard(self) -> bool:
        """Whether other problems may share the shape."""
        return self.places is not None

    def spread(self, found: Found) -> Found:
        """Return what was found with its multipliers in the places of the rows as given, and W in their dimension."""
        n, m, d, e = self.given
        duals, W = np.asarray(found.duals), np.asarray(found.W)
        W = W[:, :d] if self.left is None else self.left @ W[:, : self.left.shape[-1]]
        W = W[:, :, :e].copy() if self.right is None else W[:, :, : self.right.shape[-1]] @ self.right.mT
        if self.places is not None:
            counts = np.asarray(self.rows.present)[:, :, 0]
            of_lane = np.broadcast_to(np.arange(len(self.lanes))[:, None], counts.shape)
            of_rows, duals = duals[:, :, 0], np.zeros((len(self.lanes), n * m), duals.dtype)
            duals[of_lane[counts], self.places[counts]] = of_rows[counts]
        return found._replace(duals=duals.reshape(-1, n, m), W=W)

    def laid_out(self, candidate: Candidate) -> Candidate:
        """Return candidates for the constraints as given in the places of `rows`, whose coordinates are theirs."""
        if self.places is None:
            return candidate
        flat = np.asarray(candidate.duals).reshape(len(self.lanes), -1)
        duals = np.where(np.asarray(self.rows.present), np.take_along_axis(flat, self.places, axis=1)[:, :, None], 0)
        sizes = self.rows.differences.shape[-1], self.rows.queries.shape[-1]
        return candidate._replace(duals=duals.astype(flat.dtype), W=_wider(np.asarray(candidate.W), *sizes))


def picked(leaves: Any, lanes: Any) -> Any:
    """Return some lanes, or one, of a pytree of arrays with a leading axis of lanes, in NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[lanes], leaves)


def with_kinds(constraints: Constraints) -> Constraints:
    """Return rows that were laid out with `equal` written out, all False if not given; others as they are."""
    if constraints.equal is not None or constraints.present is None:
        return constraints
    return constraints._replace(equal=np.zeros(constraints.differences.shape[:-1], bool))


def packed(constraints: Constraints, of: int, sharing: Sharing) -> Iterator[Packed]:
    """Yield some lanes of a batch of NumPy arrays by shape.

    Args:
        constraints: the lanes.
        of: how many the whole batch has.
        sharing: how far programs may be shared.
    """
    lanes, n, m, d = constraints.differences.shape
    e = constraints.queries.shape[-1]
    shared = sharing is not Sharing.NOT
    if not shared and constraints.present is None:
        yield Packed(constraints, np.arange(lanes), None, (n, m, d, e))
        return
    present = np.ones((lanes, n * m), bool)
    if constraints.present is not None:
        present = np.asarray(constraints.present).reshape(lanes, n * m)
    spans = (min(d, n * m), min(e, n)) if sharing is Sharing.SPANS else (d, e)
    for shape, chosen in _shapes(present.sum(axis=1), (n * m, *spans), of, shared=shared):
        part = _in_spans(Packed(picked(constraints, chosen), chosen, None, (n, m, d, e)), present[chosen], spans)
        yield part if shape == (n * m, *spans) else _of_shape(part, present[chosen], shape)


def _shapes(
    counts: Int[np.ndarray, " k"], given: tuple[int, int, int], of: int, *, shared: bool
) -> Iterator[tuple[tuple[int, int, int], Int[np.ndarray, " k"]]]:
    """Yield the rows and the two dimensions that programs have, each with the lanes that it takes.

    Args:
        counts: how many rows of each lane count.
        given: how many rows there are, d and e.
        of: how many lanes the whole batch has.
        shared: as in `packed`.
    """
    most, d, e = given
    own = np.minimum(most, _nearest(_WIDTHS[-1], counts))
    rows, is_standard = own, np.zeros(len(counts), bool)
    standard = _dimension(d), _dimension(e)
    for widths in _WIDTHS[-2::-1] if shared else ():
        tried = _nearest(widths, counts)
        more = _work(tried, *standard) - _work(own, d, e)
        fits = of * more <= _COMPILING
        rows, is_standard = np.where(fits, tried, rows), is_standard | fits
    for width, of_standard in sorted(set(zip(rows.tolist(), is_standard.tolist(), strict=True))):
        sizes = standard if of_standard else (d, e)
        yield (width, *sizes), np.flatnonzero((rows == width) & (is_standard == of_standard))


def _nearest(widths: Int[np.ndarray, " w"], counts: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """Return the least width that has room for each count."""
    return widths[np.searchsorted(widths, counts)]


def _work(rows: Int[np.ndarray, " k"], d: int, e: int) -> np.ndarray:
    return (rows + _OF_COORDINATE * float(max(d, e))) ** 3


def _dimension(d: int) -> int:
    """Return the least standard dimension that has room for d coordinates."""
    return max(_LEAST, 1 << (d - 1).bit_length())


def _in_spans(part: Packed, present: Bool[np.ndarray, "k rows"], spans: tuple[int, int]) -> Packed:
    """Return lanes in coordinates of their spans, where these have fewer."""
    rows, (k, n, m, d) = part.rows, part.rows.differences.shape
    given = d, rows.queries.shape[-1]
    if spans == given:
        return part
    counts = present.reshape(k, n, m)
    differences = np.where(counts[..., None], rows.differences, 0)
    queries = np.where(np.any(counts, axis=2, keepdims=True), rows.queries, 0)
    left, right = None, None
    # Not by `@`: a row and its double stay that to the last bit, which proofs of infeasibility need.
    if spans[0] < given[0]:
        left = np.linalg.qr(differences.reshape(k, n * m, d).mT)[0]
        differences = np.einsum("knmd,kdp->knmp", differences, left)
    if spans[1] < given[1]:
        right = np.linalg.qr(queries.mT)[0]
        queries = np.einsum("kne,keq->knq", queries, right)
    changed: dict[str, Any] = {"differences": differences, "queries": queries}
    return part._replace(rows=rows._replace(**changed), left=left, right=right)


def _of_shape(part: Packed, present: Bool[np.ndarray, "k rows"], shape: tuple[int, int, int]) -> Packed:
    """Lay out lanes in a shape, the rows that count first."""
    constraints, (width, *sizes) = part.rows, shape
    k, n, m, _ = constraints.differences.shape
    # Those that count first, in their order; places beyond the last row are its own once more, and do not count.
    order = np.argsort(~present, axis=1, kind="stable")
    places = order[:, np.minimum(np.arange(width), n * m - 1)]
    counts = np.take_along_axis(present, places, axis=1) & (np.arange(width)[None] < n * m)

    def taken(leaf: np.ndarray) -> np.ndarray:
        flat = leaf.reshape(k, n * m, *leaf.shape[3:])
        return np.take_along_axis(flat, places.reshape(*places.shape, *[1] * (flat.ndim - 2)), axis=1)[:, :, None]

    given = {name: np.asarray(leaf) for name, leaf in constraints._asdict().items() if leaf is not None}
    kinds: dict[str, Any] = {name: taken(given[name]) for name in ("targets", "equal", "penalty") if name in given}
    kinds.setdefault("targets", np.ones((k, width, 1), given["differences"].dtype))
    of_queries = np.take_along_axis(given["queries"], (places // m)[:, :, None], axis=1)
    of_rows = np.where(counts[:, :, None], of_queries, 0)
    of_tokens = np.where(counts[:, :, None, None], taken(given["differences"]), 0)
    wide: dict[str, Any] = {"differences": _wider(of_tokens, sizes[0]), "queries": _wider(of_rows, sizes[1])}
    rows = Constraints(**wide, **kinds, present=cast(Any, counts[:, :, None]))
    return part._replace(rows=rows, places=places)


def _wider(array: np.ndarray, *lengths: int) -> np.ndarray:
    """Return an array with zeros added behind along its last axes, up to these lengths."""
    missing = [(0, length - own) for length, own in zip(lengths, array.shape[-len(lengths) :], strict=True)]
    return np.pad(array, [(0, 0)] * (array.ndim - len(lengths)) + missing)
