"""The probabilities of an independent run of the protocol, and the differences of the measured ones from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray

# The independent run: this number of seeds, 1500 steps, by (n, T), weights and d.
SEEDS = 100
_DIMENSIONS: tuple[int, ...] = (4, 10, 20, 40, 80)
_SHARES = {
    (5, 5): {"W": (0.58, 0.90, 0.97, 0.99, 1.0), "KQ": (0.57, 0.88, 0.97, 0.98, 1.0)},
    (10, 5): {"W": (0.10, 0.62, 0.87, 0.99, 1.0), "KQ": (0.15, 0.69, 0.86, 0.94, 1.0)},
    (5, 10): {"W": (0.39, 0.70, 0.82, 0.87, 0.93), "KQ": (0.62, 0.77, 0.82, 0.89, 0.97)},
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
    found = {}
    for weights, summary in summaries.items():
        for run in summary["run"].values:
            one = summary.sel(run=run)
            shares = _SHARES.get((int(one["n"]), int(one["T"])), {}).get(weights, ())
            share = dict(zip(_DIMENSIONS, shares, strict=False)).get(int(one["d"]))
            if share is not None:
                ours, seeds = float(one["global"]), int(one["seeds"])
                adjusted, error = difference(ours, seeds, share, SEEDS)
                found[str(run)] = Compared(weights, share, ours - share, error, adjusted / error)
    return found


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
