"""The probabilities of an independent run of the protocol, and the differences of the measured ones from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray

# The independent run: this number of seeds, 1500 steps; its shares by weights, n and T, each over these d.
SEEDS = 100
_DIMENSIONS = (4, 10, 20, 40, 80)
_SHARES = {
    ("W", 5, 5): (0.58, 0.90, 0.97, 0.99, 1.0),
    ("W", 10, 5): (0.10, 0.62, 0.87, 0.99, 1.0),
    ("W", 5, 10): (0.39, 0.70, 0.82, 0.87, 0.93),
    ("KQ", 5, 5): (0.57, 0.88, 0.97, 0.98, 1.0),
    ("KQ", 10, 5): (0.15, 0.69, 0.86, 0.94, 1.0),
    ("KQ", 5, 10): (0.62, 0.77, 0.82, 0.89, 0.97),
}


class Compared(NamedTuple):
    """A run with the same sizes as one of the independent run.

    Attributes:
        weights: "W" or "KQ".
        share: of the independent run.
        difference: of the measured share from it.
        error: standard error of the difference, with a hit and a miss added to each of the two.
        errors: the difference in standard errors, both with a hit and a miss added.
    """

    weights: str
    share: float
    difference: float
    error: float
    errors: float


def compared(summaries: Mapping[str, xarray.Dataset]) -> dict[str, Compared]:
    """Return the differences from the independent run, for runs of sizes that it has too."""
    off = {}
    for weights, summary in summaries.items():
        for run in summary["run"].values:
            at = summary.sel(run=run)
            n, T, d = (int(at[size]) for size in "nTd")
            if (weights, n, T) in _SHARES and d in _DIMENSIONS:
                share = _SHARES[weights, n, T][_DIMENSIONS.index(d)]
                ours = float(at["global"])
                adjusted, error = difference(ours, int(at["seeds"]), share, SEEDS)
                off[str(run)] = Compared(weights, share, ours - share, error, adjusted / error)
    return off


def difference(share: float, seeds: int, other: float, others: int) -> tuple[float, float]:
    """Return the difference of two shares and its standard error, with a hit and a miss added to each (Agresti, Caffo).

    Without these a share of 0 or 1 would have zero error.
    """
    sizes = np.array([seeds, others])
    shares = (np.array([share, other]) * sizes + 1) / (sizes + 2)
    return float(shares[0] - shares[1]), float(np.sqrt(np.sum(shares * (1 - shares) / (sizes + 2))))


def by_chance(comparisons: int, beyond: float = 0.0455, level: float = 0.95) -> int:
    """Return the largest number of normal errors beyond two standard errors, in a share `level` of cases."""
    shares = [math.comb(comparisons, k) * beyond**k * (1 - beyond) ** (comparisons - k) for k in range(comparisons + 1)]
    return int(np.searchsorted(np.cumsum(shares), level))
