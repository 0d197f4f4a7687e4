"""The rule by which a ranking names norms, says that none fits, or leaves it open; fixed before any run was ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxattn.study.statistics import Estimate
from jaxattn.tokens import SATURATED

__all__ = ["CLOSE", "FLAT", "LEAST_SEEDS", "Verdict"]

# The mean margin ratio that a norm's whole interval has to exceed for W to be said to obey it.
CLOSE = 0.97
# The change of that mean in a decade of steps below which it stands still.
FLAT = 0.01
LEAST_SEEDS = 8
# What certified gaps leave of a ratio: intervals that are no farther apart overlap.
ROUNDING = 1e-6
# Snapshots have to reach back over half a decade of steps (a factor of 3.16) to tell what stands still.
LEAST_DECADES = 0.5


class Verdict(NamedTuple):
    """Which norms a run obeys.

    Attributes:
        norms: their names, the closest first; empty if it obeys none, or is not decided.
        decided: whether the run decides.
        reason: why not; empty if it does.
    """

    norms: tuple[str, ...]
    decided: bool
    reason: str = ""

    def __str__(self) -> str:
        """The verdict in one line."""
        if not self.decided:
            return f"not decided: {self.reason}"
        return " and ".join(self.norms) if self.norms else "none of these"


def of(
    names: Sequence[str],
    ratio: Estimate,
    trend: Estimate | None,
    probability: float,
    seeds: int,
    decades: float,
    stalled: int = 0,
) -> Verdict:
    """Return the verdict on a run.

    A norm is named if its interval lies above `CLOSE` and above every other norm's, and does not fall; norms whose
    intervals overlap there are named together. None is, if every interval lies below `CLOSE` and no mean moves by
    `FLAT` in a decade of steps. Everything else is not decided.

    Args:
        names: of the norms.
        ratio: of the mean margin ratios at the last snapshot, (norms,).
        trend: of their change in a decade of steps, over the last decade, (norms,); None where that is not known.
        probability: the mean over inputs and seeds of the largest attention probability at the last snapshot.
        seeds: how many there are.
        decades: of steps that the trend is taken over.
        stalled: how many of the seeds stalled before that snapshot: what follows says nothing about limits.
    """
    if seeds < LEAST_SEEDS:
        return _open(f"expected at least {LEAST_SEEDS} seeds, found {seeds}")
    if probability < SATURATED:
        return _open(f"not saturated: the mean largest probability is {probability:.3g}, below {SATURATED:g}")
    if stalled:
        return _open(f"{stalled} of {seeds} seeds stalled, where rounding, floor or penalty outweigh the gradient")
    if trend is None or decades < LEAST_DECADES:
        return _open(f"the snapshots reach back over {decades:.2g} decades of steps, less than {LEAST_DECADES:g}")
    best = int(np.argmax(ratio.mean))
    if ratio.low[best] > CLOSE:
        level = [k for k in range(len(names)) if ratio.high[k] >= ratio.low[best] - ROUNDING]
        unsure = [names[k] for k in level if ratio.low[k] <= CLOSE]
        if unsure:
            return _open(f"{', '.join(unsure)} cannot be told from {names[best]}, and may lie below {CLOSE:g}")
        falling = [names[k] for k in level if trend.low[k] <= -FLAT]
        if falling:
            return _open(f"still moving: {', '.join(falling)} may fall by {FLAT:g} or more a decade of steps")
        return Verdict(tuple(names[k] for k in sorted(level, key=lambda k: -ratio.mean[k])), decided=True)
    unsure = [names[k] for k in range(len(names)) if ratio.high[k] >= CLOSE]
    if unsure:
        return _open(f"the interval of {', '.join(unsure)} contains {CLOSE:g}")
    moving = [names[k] for k in range(len(names)) if trend.high[k] >= FLAT or trend.low[k] <= -FLAT]
    if moving:
        return _open(f"still moving: {', '.join(moving)} may change by {FLAT:g} or more a decade of steps")
    return Verdict((), decided=True)


def _open(reason: str) -> Verdict:
    return Verdict((), decided=False, reason=reason)
