"""The counts under a figure in words: what was excluded, and no more than a reader takes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import xarray

from jaxattn.study.claims import EXCLUDED, counts_of, doubts

# More different counts than these are added up, more runs with equal ones are counted instead of named.
_GROUPS, _NAMES = 4, 3


def told(summaries: Mapping[str, xarray.Dataset], counted: str) -> str:
    """Return in sentences how many of what is counted (a plural) the runs kept, and excluded for which reason.

    Example:
        >>> kept, lost = ({"attempted": 9, "kept": 9 - k, "diverged": k} for k in (0, 2))
        >>> told({"W": xarray.Dataset(attrs=kept), "KQ": xarray.Dataset(attrs=lost)}, "seeds")
        'W: 9 seeds, all kept. KQ: 7 of 9 seeds kept (excluded: 2 diverged).'
    """
    every = counts_of(summaries)
    groups: dict[str, list[str]] = {}
    for run, counts in every.items():
        groups.setdefault(_kept(counts, counted), []).append(run)
    if len(groups) > _GROUPS:
        sums = sum(map(Counter, every.values()), Counter[str]())
        return f"{len(every)} runs together: {_kept(sums, counted)}."
    if len(groups) == 1:
        ((kept, runs),) = groups.items()
        number = f"{len(runs)} runs{' x' if 'all kept' in kept else ', each'} "
        return f"{number if len(runs) > 1 else ''}{kept}."
    return " ".join(f"{_named(runs)}: {'each ' * (len(runs) > 1)}{kept}." for kept, runs in groups.items())


def _kept(counts: Mapping[str, int], counted: str) -> str:
    excluded = ", ".join(f"{counts[reason]:,} {reason}" for reason in EXCLUDED if counts.get(reason))
    if not excluded:
        return f"{counts['attempted']:,} {counted}, all kept{doubts(counts)}"
    return f"{counts['kept']:,} of {counts['attempted']:,} {counted} kept{doubts(counts)} (excluded: {excluded})"


def _named(runs: Sequence[str]) -> str:
    return f"{len(runs)} runs" if len(runs) > _NAMES else " and ".join(runs)
