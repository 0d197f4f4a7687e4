"""Where a quantity ends that is read along a run: its limit, extrapolated in the norm of the weights, with a range.

The direction of weights W that grow beside a bounded remainder misses its limit by a multiple of 1 / ||W||, whatever
the optimizer and its steps; that of a product K Q^T, whose factors grow like the root of its norm, by one of
1 / ||W||^(1/2). So the norm is the clock, not the step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn.statistics import Estimate, median

__all__ = ["Limits", "extrapolated"]

# The powers of 1 / ||W|| in which a quantity may approach its limit.
POWERS = (0.25, 0.5, 1.0, 2.0)
# A power counts if its error on later snapshots is at most EXCUSED times that of the best one. A range extends beyond
# the limits of these powers by GUARD times that error. 114 runs cut at a tenth of their steps then gave ranges of
# medians that contain the limit read off the whole run, up to .002, in 93 % of cases, and .5 % of their seeds were put
# on the wrong side of `bias.CLOSE`.
EXCUSED, GUARD = 4.0, 2.0
# Limits are read off the last half decade of steps, or four snapshots of the last decade, and three at least.
_SPAN, _USUAL, LEAST = 10**0.5, 4, 3
# Weights whose norm grows by less than this share over these snapshots have no direction of growth.
GROWTH = 0.02


class Limits(NamedTuple):
    """The limit of each quantity in each seed.

    Attributes:
        value: the limit by the power that predicts later snapshots best, (seeds, quantities).
        low: the lower end of its range.
        high: the upper end.
        grows: whether the norm of the weights grows, (seeds,). Where it does not, the range is unbounded.
        rate: the power of the steps with which the quantity approaches its limit, (seeds, quantities); 0 or less if it
            does not.
    """

    value: Float[np.ndarray, "seeds quantities"]
    low: Float[np.ndarray, "seeds quantities"]
    high: Float[np.ndarray, "seeds quantities"]
    grows: Bool[np.ndarray, " seeds"]
    rate: Float[np.ndarray, "seeds quantities"]

    def clipped(self, low: float, high: float) -> Limits:
        """Return the limits of quantities that cannot lie outside an interval."""
        return self._replace(**{name: np.clip(getattr(self, name), low, high) for name in ("value", "low", "high")})

    def longer(self, quantity: int, threshold: float, share: float) -> float:
        """Return how many times as many steps would tell for this share of seeds on which side of a threshold they end.

        A range shrinks as fast as the quantity approaches its limit. It tells once half its width is less than half the
        way from the threshold to its farther end. A lower bound in practice; infinite if no number of steps would tell.
        """
        low, high, rate = (part[:, quantity] for part in (self.low, self.high, self.rate))
        told = (low > threshold) | (high < threshold)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            shrunk = (high - low) / np.maximum(threshold - low, high - threshold)
            needed = np.where(rate > 0, np.maximum(shrunk, 1.0) ** (1 / rate), np.inf)
        return float(np.quantile(np.where(told, 1.0, needed), share, method="higher"))

    def side(self, threshold: float) -> Float[np.ndarray, "seeds quantities"]:
        """Return 1 where the range lies above a threshold, 0 where it lies below, and NaN where it contains it."""
        return np.where(self.low > threshold, 1.0, np.where(self.high < threshold, 0.0, np.nan))

    def median(self, key: PRNGKeyArray) -> Estimate:
        """Return the median over seeds; its interval reaches from that of the lower ends to that of the upper ends."""
        return median(self.value, self.low, self.high, key)


def extrapolated(
    values: Float[np.ndarray, "seeds quantities snapshots"],
    sizes: Float[np.ndarray, "seeds snapshots"],
    steps: Int[np.ndarray, " snapshots"],
) -> Limits | None:
    """Extrapolate quantities to infinite norm of the weights, seed by seed.

    A limit and one power of the inverse norm are fitted to the earlier of the last snapshots, and tried on the later
    ones; all powers that predict these about as well are fitted again to both, and span the range. A quantity that
    rises throughout is taken not to end below its last value, and one that falls not above it. Returns None if the last
    decade of steps has fewer than three snapshots. The sizes are Frobenius norms of the weights.

    Example:
        >>> from jaxattn.bias.limits import extrapolated
        >>> sizes = np.array([[10.0, 20.0, 40.0, 80.0]])
        >>> extrapolated(1 - 3 / sizes[:, None], sizes, np.array([100, 200, 400, 800])).value.round(9)
        array([[1.]])
    """
    recent = window(steps)
    if len(recent) < LEAST:
        return None
    grows = growing(sizes, steps)
    values, sizes = values[:, :, recent], sizes[:, recent]
    late = np.arange(len(recent)) >= len(recent) - len(recent) // 2
    sizes = np.where(grows[:, None], sizes, sizes[:, -1:] * np.linspace(0.5, 1, len(recent)))  # Their fit is not used.
    limits, errors = [], []
    for power in POWERS:
        clock = (sizes[:, -1:] / sizes) ** power
        limit, slope = _line(clock[:, ~late], values[:, :, ~late])
        predicted = limit[:, :, None] + slope[:, :, None] * clock[:, None, late]
        errors.append(abs(predicted - values[:, :, late]).max(axis=-1))
        limits.append(_line(clock, values)[0])
    limit, error = np.stack(limits), np.stack(errors)
    typical = np.median(error, axis=1)
    counts, best = (typical <= EXCUSED * typical.min(axis=0))[:, None], typical.argmin(axis=0)[None, None]
    value, guard = (np.take_along_axis(each, best, axis=0)[0] for each in (limit, GUARD * error))
    low = np.where(counts, limit, np.inf).min(axis=0) - guard
    high = np.where(counts, limit, -np.inf).max(axis=0) + guard
    # What rises throughout does not end below its last value, nor what falls above it.
    change, last = np.diff(values, axis=-1), values[:, :, -1]
    low = np.where((change > 0).all(axis=-1), np.maximum(low, last), low)
    high = np.where((change < 0).all(axis=-1), np.minimum(high, last), high)
    left = abs(values[:, :, [0, -1]] - value[:, :, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.log(left[:, :, 0] / left[:, :, 1]) / np.log(steps[recent[-1]] / steps[recent[0]])
    value, low, high = (np.where(grows[:, None], a, b) for a, b in ((value, last), (low, -np.inf), (high, np.inf)))
    return Limits(value, low, high, grows, rate)


def growing(
    sizes: Float[np.ndarray, "seeds snapshots"], steps: Int[np.ndarray, " snapshots"]
) -> Bool[np.ndarray, " seeds"]:
    """Return whether weights of these norms still grow over the snapshots that limits are read off."""
    recent = window(steps)
    return sizes[:, recent[-1]] > (1 + GROWTH) * sizes[:, recent[0]]


def window(steps: Int[np.ndarray, " snapshots"]) -> Int[np.ndarray, " recent"]:
    """Return the snapshots that limits are read off."""
    half = np.flatnonzero(steps * _SPAN >= steps[-1])
    return np.flatnonzero(last_decade(steps))[-max(_USUAL, len(half)) :]


def last_decade(steps: Int[np.ndarray, " snapshots"]) -> Bool[np.ndarray, " snapshots"]:
    """Return which snapshots lie in the last decade of steps."""
    return (steps > 0) & (steps * 10 >= steps[-1])


def _line(
    x: Float[np.ndarray, "seeds k"], y: Float[np.ndarray, "seeds quantities k"]
) -> tuple[Float[np.ndarray, "seeds quantities"], Float[np.ndarray, "seeds quantities"]]:
    """Return the least-squares lines' values at 0, and their slopes; a level one through points of one x."""
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = (centred**2).sum(axis=-1)[:, None]
    slope = np.einsum("sk,sqk->sq", centred, y) / np.where(spread > 0, spread, 1.0)
    return y.mean(axis=-1) - slope * x.mean(axis=-1)[:, None], slope
