"""Internal: a batch's rows without those that are not present, so that no lane's answer depends on another's rows.

A step of most solvers costs the cube of the number of rows, so the rows of a lane that count are moved to its front.
How many places there are follows from the lane's own rows: lanes of different widths are solved apart. The widths are
standard ones, so that problems of different shapes share programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate

# Few, for each of them is compiled; near enough to each other that the places filled up cost little.
_WIDTHS = np.asarray(sorted({factor * 2**power for factor in (2, 3) for power in range(2, 20)}))


class Packed(NamedTuple):
    """Lanes of one width.

    Attributes:
        rows: one to a group, the rest of the width filled up with rows of zeros that do not count; as they were given
            where the width is that of all rows.
        lanes: which lanes of the batch these are, (k).
        places: the row that each of `rows` was, (k, width); None where they are as given.
        shape: of the rows as given, (n, m).
    """

    rows: Constraints
    lanes: Int[np.ndarray, " k"]
    places: Int[np.ndarray, "k width"] | None
    shape: tuple[int, int]

    def spread(self, found: Candidate) -> Candidate:
        """Return the candidates with their multipliers in the places of the rows as given."""
        if self.places is None:
            return found
        duals = np.zeros((len(self.lanes), self.shape[0] * self.shape[1]), np.asarray(found.duals).dtype)
        counts = np.asarray(self.rows.present)[:, :, 0]
        of_lane = np.broadcast_to(np.arange(len(self.lanes))[:, None], counts.shape)
        duals[of_lane[counts], self.places[counts]] = np.asarray(found.duals)[:, :, 0][counts]
        return found._replace(duals=duals.reshape(-1, *self.shape))


def picked(leaves: Any, lanes: Any) -> Any:
    """Return some lanes, or one, of a pytree of arrays with a leading axis of lanes, in NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[lanes], leaves)


def packed(constraints: Constraints) -> Iterator[Packed]:
    """Yield the lanes of a batch of NumPy arrays by width."""
    lanes, n, m, _ = constraints.differences.shape
    if constraints.present is None:
        yield Packed(constraints, np.arange(lanes), None, (n, m))
        return
    present = np.asarray(constraints.present).reshape(lanes, n * m)
    of_lane = np.minimum(n * m, _WIDTHS[np.searchsorted(_WIDTHS, present.sum(axis=1))])
    for width in np.unique(of_lane):
        chosen = np.flatnonzero(of_lane == width)
        yield _of_width(constraints, present[chosen], chosen, int(width))


def _of_width(
    constraints: Constraints, present: Bool[np.ndarray, "k rows"], chosen: Int[np.ndarray, " k"], width: int
) -> Packed:
    _, n, m, _ = constraints.differences.shape
    fields = {name: np.asarray(leaf)[chosen] for name, leaf in constraints._asdict().items() if leaf is not None}
    if width == n * m:
        return Packed(constraints._replace(**fields), chosen, None, (n, m))
    # Those that count first, in their order.
    places = np.argsort(~present, axis=1, kind="stable")[:, :width]

    def taken(leaf: np.ndarray) -> np.ndarray:
        flat = leaf.reshape(len(chosen), n * m, *leaf.shape[3:])
        return np.take_along_axis(flat, places.reshape(*places.shape, *[1] * (flat.ndim - 2)), axis=1)[:, :, None]

    counts = np.take_along_axis(present, places, axis=1)
    rows = {name: taken(leaf) for name, leaf in fields.items() if name != "queries"}
    rows["differences"] = np.where(counts[:, :, None, None], rows["differences"], 0)
    queries = np.take_along_axis(fields["queries"], (places // m)[:, :, None], axis=1)
    queries = np.where(counts[:, :, None], queries, 0)
    return Packed(constraints._replace(queries=queries, **rows), chosen, places, (n, m))
