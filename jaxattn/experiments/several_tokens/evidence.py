"""Shared by the claims on several selected tokens: the two parts of the runs, and when they are too few to decide."""

from __future__ import annotations

import math

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims import EXCLUDED, Datasets, Number, too_little

# The runs that the published selection keeps, and all of the first 500; summaries of the latter have this suffix.
PARTS = ("published", "every")
WITHOUT = ", no selection"
# Runs along the exact gradient direction, which do not stall, have this suffix instead.
EXACT = ", exact"
# Distances of a matrix from itself can differ by this much through rounding.
ROUNDING = 1e-9


# W is compared with these, from the nearest to the farthest according to the paper.
RANKED = ("W_SVMeq", "W_mm", "W_1token")
# Why the fitted W_SVMeq is not compared with W_mm, for the remarks.
IDENTITY = (
    "If W_fin is taken from the run itself, W_SVMeq is the projection of W on the span of W_fin and W_mm, which are "
    "orthogonal, so it is at least as near to any W as W_mm: an identity, which is not judged. What is judged is "
    "W_SVMeq with the predicted W_fin, that of the best distributions on the selected sets, in the {} of {} runs that "
    "select several tokens and whose problem determines this W_fin."
)


def ahead(one: xarray.Dataset) -> Float[np.ndarray, "whole 2"]:
    """Return the final distances of W_mm and W_1token from W, minus that of W_SVMeq with the predicted finite part.

    Args:
        one: runs with `off` and what `prediction.held_against` returns.
    """
    others = one["off"].sel(solution=list(RANKED[1:]), seed=one["whole_seed"].values).isel(snapshot=-1).values
    return others - one["foretold"].values[:, None]


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
    """Return an estimated number with its interval; NaN if there is none, for example if no seed is kept.

    Args:
        summary: with the variables `name`, `name_low` and `name_high`.
        name: of the estimate.
        place: index along its axes, if it has any.
    """
    if name not in summary:
        return Number.exact(math.nan)
    return Number(*(float(summary[name + end].isel(place)) for end in ("", "_low", "_high")))
