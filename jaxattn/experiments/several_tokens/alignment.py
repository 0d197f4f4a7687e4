"""How near W is to each of its descriptions: what the claims and figures on several selected tokens share."""

from __future__ import annotations

import math

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims import EXCLUDED
from jaxattn.study.claims.criteria import Number
from jaxattn.study.estimates import number
from jaxattn.study.style import palette

# The runs that the published selection keeps, and all of the first 500, with the suffix of their summaries.
PARTS = {"published": "", "every": ", no selection"}
# Distances of a matrix from itself can differ by this much through rounding.
ROUNDING = 1e-9
# W is compared with these, from the nearest to the farthest according to the paper.
RANKED = ("W_SVMeq", "W_mm", "W_1token")
# Why the fitted W_SVMeq is not compared with W_mm, for the remarks.
IDENTITY = (
    "If W_fin is taken from the run itself, W_SVMeq is the projection of W on the span of W_fin and W_mm, which are "
    "orthogonal, so it is at least as near to any W as W_mm: an identity, which is not judged."
)
# For each of `descriptions.SOLUTIONS`: its label, colour, dashes and marker.
LOOKS = {
    "W_SVMeq": (r"$W_{\mathrm{fin}} + C\,W_{\mathrm{mm}}$", palette.TEAL, "-", "o"),
    "W_mm": (r"$W_{\mathrm{mm}}$", palette.WINE, "--", "s"),
    "W_1token": ("single token", palette.AMBER, "-.", "^"),
    "W_fin": (r"$W_{\mathrm{fin}}$, fitted to $W$", palette.EXCLUDED, ":", ""),
}
# For below the figures that draw these.
FITTED = (
    r"$W_{\mathrm{fin}}$ is fitted to $W$: its sum with $C\,W_{\mathrm{mm}}$ is by construction no farther than "
    r"$W_{\mathrm{mm}}$."
)


def ahead(run: xarray.Dataset) -> Float[np.ndarray, "whole 2"]:
    """Return the final distances of W_mm and W_1token from W, minus that of W_SVMeq with the predicted finite part."""
    others = run["off"].sel(solution=list(RANKED[1:]), seed=run["whole_seed"].values).isel(snapshot=-1).values
    return others - run["foretold"].values[:, None]


def counts_of_part(run: xarray.Dataset, part: str) -> dict[str, int]:
    """Return attempted, kept and excluded seeds of one of PARTS; those of the second have the prefix `every_`."""
    prefix = "every_" if part == "every" else ""
    names = (name for name in ("attempted", "kept", *EXCLUDED) if prefix + name in run.attrs)
    return {name: int(run.attrs[prefix + name]) for name in names}


def number_or_nan(summary: xarray.Dataset, name: str, **index: int) -> Number:
    """Return an estimate, at an index along its axes; NaN if too few seeds were kept for it."""
    return number(summary.isel(index), name) if name in summary else Number.exact(math.nan)
