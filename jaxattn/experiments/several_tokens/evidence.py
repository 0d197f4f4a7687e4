"""What the claims on several selected tokens share: the two parts of the runs, and when they are too few to decide."""

from __future__ import annotations

import math

import xarray

from jaxattn.study.claims import EXCLUDED, Datasets, Number, too_little

# The runs that the published selection keeps, and all of the first ones; the summaries of the latter have this suffix.
PARTS = ("published", "every")
WITHOUT = ", no selection"
# Distances of one matrix from itself differ by less than this: a difference below it is none.
ROUNDING = 1e-9


def counts_of_part(measured: xarray.Dataset, part: str) -> dict[str, int]:
    """Return attempted, kept and excluded runs of one of PARTS; those of the second have the prefix `every_`."""
    prefix = "every_" if part == "every" else ""
    names = (name for name in ("attempted", "kept", *EXCLUDED) if prefix + name in measured.attrs)
    return {name: int(measured.attrs[prefix + name]) for name in names}


def undecided(summaries: Datasets) -> str:
    """Return why one of these runs cannot decide a claim, or nothing if all can."""
    reasons = ((run, too_little(summary)) for run, summary in summaries.items())
    return next((f"{run}: {reason}" for run, reason in reasons if reason), "")


def estimate(summary: xarray.Dataset, name: str, **place: int) -> Number:
    """Return an estimated number with its interval; one that is NaN where there is none, as where no seed is kept.

    Args:
        summary: with the variables `name`, `name_low` and `name_high`.
        name: of the estimate.
        place: along its axes, if it has any.
    """
    if name not in summary:
        return Number.exact(math.nan)
    return Number(*(float(summary[name + end].isel(place)) for end in ("", "_low", "_high")))
