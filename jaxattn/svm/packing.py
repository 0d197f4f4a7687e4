"""Internal: pack a batch's rows into standard shapes and coordinates that many problems can share.

A step of most solvers costs the cube of the number of rows, so the present rows of each lane are moved to the front.
The width follows from the lane's own rows and the number of lanes to solve. Lanes of different widths are solved
separately, and no lane's answer depends on another's rows. Padding with absent zero rows or zero coordinates changes
neither a problem nor its solution, so the more a compilation costs relative to the work, the fewer widths and
dimensions are used. Solvers for norms of singular values work in the coordinates of the spans of differences and
queries: padding is then exactly 0, as path following requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate

# Sets of widths, from few to many. Those of the last set are so close to each other that padding costs little.
_WIDTHS = (
    64 * 4 ** np.arange(9),
    32 * 2 ** np.arange(18),
    np.asarray(sorted({factor * 2**power for factor in (2, 3) for power in range(2, 20)})),
)
# The smallest standard dimension; each of the others is twice the one before.
_LEAST = 16
# A solver of its own shapes works in the spans of rows that are at most this fraction of the dimension.
_FEW = 4
# All steps of one problem cost about `(rows + 3 coordinates)^3` times 3 ns in a compiled interior-point method, less in
# the active set. Compiling takes two to three seconds, of which a third is counted: whoever solves some hundreds of
# problems often solves more of the same shape.
_OF_COORDINATE, _COMPILING = 3, 2.5e8


class Packed(NamedTuple):
    """Lanes of one shape.

    Attributes:
        rows: groups of one row, padded to the width with absent zero rows; the original groups if the width is that of
            all rows.
        lanes: the indices of these lanes in the batch, (k).
        places: the original index of each of `rows`, (k, width); None for the original groups.
        given: n, m, d and e of the original constraints.
        left: the basis of the coordinates of `rows` as orthonormal columns, (k, d, p); None for the original
            coordinates.
        right: the same for the queries, (k, e, q).
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

    def laid_out(self, found: Candidate) -> Candidate:
        """Return results for the whole batch, in its places and dimensions, in the layout of these lanes."""
        W, duals, iterations = (np.asarray(leaf)[self.lanes] for leaf in found)
        W = W if self.left is None else self.left.mT @ W
        W = W if self.right is None else W @ self.right
        *rows, p = self.rows.differences.shape
        if self.places is not None:
            duals = np.take_along_axis(duals.reshape(len(duals), -1), self.places, axis=1)[:, :, None]
            duals = np.where(np.asarray(self.rows.present), duals, 0.0)
        W = _wider(W, p, self.rows.queries.shape[-1])
        return found._replace(W=W, duals=duals.reshape(rows), iterations=iterations)

    def spread(self, found: Candidate) -> Candidate:
        """Return results with multipliers and W in the original places and dimensions."""
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


def picked(leaves: Any, lanes: Any) -> Any:
    """Return some lanes, or one, of a pytree of arrays with a leading axis of lanes, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[lanes], leaves)


def with_kinds(constraints: Constraints) -> Constraints:
    """Return packed rows with `equal` as an array, all False if it was None; other rows unchanged."""
    if constraints.equal is not None or constraints.present is None:
        return constraints
    return constraints._replace(equal=np.zeros(constraints.differences.shape[:-1], bool))


def packed(constraints: Constraints, of: int | None, *, shared: bool, in_spans: bool = False) -> Iterator[Packed]:
    """Yield some lanes, as NumPy arrays, of a batch of `of` lanes, grouped by shape; None if nothing is compiled.

    `shared`: rows and coordinates of zero, and coordinates of the spans, leave the solver's answer unchanged, so that
    problems may share its program. Otherwise rows and coordinates stay as they are where all rows count. `in_spans`: of
    these, only the coordinates of the spans do, which are taken if there are few rows.
    """
    lanes, n, m, d = constraints.differences.shape
    e = constraints.queries.shape[-1]
    in_spans = shared or (in_spans and _FEW * n * m <= d)
    if not in_spans and constraints.present is None:
        yield Packed(constraints, np.arange(lanes), None, (n, m, d, e))
        return
    present = np.ones((lanes, n * m), bool)
    if constraints.present is not None:
        present = np.asarray(constraints.present).reshape(lanes, n * m)
    spans = (min(d, n * m), min(e, n)) if in_spans else (d, e)
    for shape, chosen in _shapes(present.sum(axis=1), (n * m, *spans), of, shared=shared):
        part = _in_spans(Packed(picked(constraints, chosen), chosen, None, (n, m, d, e)), present[chosen], spans)
        yield part if shape == (n * m, *spans) else _of_shape(part, present[chosen], shape)


def _shapes(
    counts: Int[np.ndarray, " k"], given: tuple[int, int, int], of: int | None, *, shared: bool
) -> Iterator[tuple[tuple[int, int, int], Int[np.ndarray, " k"]]]:
    """Yield the shapes of programs, rows and two dimensions, each with its lanes.

    Lanes have `counts` present rows of the `given` number, d and e; `of` is the number of lanes of the whole batch.
    """
    most, d, e = given
    own = np.minimum(most, _nearest(_WIDTHS[-1], counts))
    rows, is_standard = own, np.zeros(len(counts), bool)
    standard = _dimension(d), _dimension(e)
    for widths in _WIDTHS[-2::-1] if shared and of is not None else ():
        tried = _nearest(widths, counts)
        more = _work(tried, *standard) - _work(own, d, e)
        fits = of * more <= _COMPILING
        rows, is_standard = np.where(fits, tried, rows), is_standard | fits
    for width, of_standard in sorted(set(zip(rows.tolist(), is_standard.tolist(), strict=True))):
        sizes = standard if of_standard else (d, e)
        yield (width, *sizes), np.flatnonzero((rows == width) & (is_standard == of_standard))


def _nearest(widths: Int[np.ndarray, " w"], counts: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """Return the smallest width that holds each count."""
    return widths[np.searchsorted(widths, counts)]


def _work(rows: Int[np.ndarray, " k"], d: int, e: int) -> np.ndarray:
    return (rows + _OF_COORDINATE * float(max(d, e))) ** 3


def _dimension(d: int) -> int:
    """Return the smallest standard dimension that holds d coordinates."""
    return max(_LEAST, 1 << (d - 1).bit_length())


def _in_spans(part: Packed, present: Bool[np.ndarray, "k rows"], spans: tuple[int, int]) -> Packed:
    """Return lanes in coordinates of their spans, if these have fewer dimensions."""
    rows, (k, n, m, d) = part.rows, part.rows.differences.shape
    given = d, rows.queries.shape[-1]
    if spans == given:
        return part
    counts = present.reshape(k, n, m)
    differences = np.where(counts[..., None], rows.differences, 0)
    queries = np.where(np.any(counts, axis=2, keepdims=True), rows.queries, 0)
    left, right = None, None
    # Not with `@`: exact multiples of a row must stay exact multiples, which proofs of infeasibility need.
    if spans[0] < given[0]:
        left = np.linalg.qr(differences.reshape(k, n * m, d).mT)[0]
        differences = np.einsum("knmd,kdp->knmp", differences, left)
    if spans[1] < given[1]:
        right = np.linalg.qr(queries.mT)[0]
        queries = np.einsum("kne,keq->knq", queries, right)
    changed: dict[str, Any] = {"differences": differences, "queries": queries}
    return part._replace(rows=rows._replace(**changed), left=left, right=right)


def _of_shape(part: Packed, present: Bool[np.ndarray, "k rows"], shape: tuple[int, int, int]) -> Packed:
    """Pack lanes into a shape, with the present rows first."""
    constraints, (width, *sizes) = part.rows, shape
    k, n, m, _ = constraints.differences.shape
    # Present rows first, in their order. Places beyond the last row repeat a row, marked as absent.
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
    """Return an array padded with trailing zeros along its last axes to these lengths."""
    missing = [(0, length - own) for length, own in zip(lengths, array.shape[-len(lengths) :], strict=True)]
    return np.pad(array, [(0, 0)] * (array.ndim - len(lengths)) + missing)
