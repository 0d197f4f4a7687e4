"""The three panels of compared runs: saturation (a), and direction errors of training W (b) and (K, Q) (c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes

from jaxattn.study.style import page, palette

# Rounding leaves no smaller distances: smaller ones are drawn here.
_LEAST = 1e-16
_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}


def draw_panels(panels: Sequence[Axes], summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw saturation and direction errors of the runs "W" and "KQ", with curves and growth, into three panels."""
    left, middle, right = panels
    reached = []
    for axes, run, letter in ((middle, "W", "b"), (right, "KQ", "c")):
        one = summaries[run]
        curve = (one[part].values for part in ("snapshot", "probability", "probability_low", "probability_high"))
        look = {"color": palette.COLOURS[run], "linestyle": palette.DASHES[run], "label": page.RUNS[run]}
        page.band(left, *curve, **look)
        reached.append(float(one["probability"].values[-1]))
        for norm in map(str, one["norm"].values):
            direction_error(axes, one, norm)
        grows = f"norm like $k^{{{float(one['growth']):z.2f}}}$"
        axes.set_title(f"({letter}) training {_TRAINED[run]}, {grows}:\n{page.NORMS[_nearest(one)]} is nearest")
        axes.set_ylabel("direction error, 1 - cos")
    left.set_title(f"(a) attention on one token:\n{min(reached):.4f} at the end")
    left.set(ylabel="mean largest probability", ylim=(0, 1.03))
    left.legend(loc="lower right")
    for axes in (left, middle, right):
        axes.set(xlabel="step", xlim=(0, None))
    for axes in (middle, right):
        axes.set_yscale("log")
    right.legend(loc="best")
    # The same limits for the panels that are compared.
    low, high = (pick(middle.get_ylim()[k], right.get_ylim()[k]) for k, pick in enumerate((min, max)))
    for axes in (middle, right):
        axes.set_ylim(low, high)


def _nearest(summary: xarray.Dataset) -> str:
    return str(summary["norm"].values[int(summary["correlation"].isel(snapshot=-1).values.argmax())])


def direction_error(axes: Axes, summary: xarray.Dataset, norm: str, **look: Any) -> None:
    """Draw one minus the mean cosine (norm, snapshot) with the solution in a norm, and its interval."""
    parts = ("correlation", "correlation_high", "correlation_low")
    curve = (np.maximum(1 - summary[part].sel(norm=norm).values, _LEAST) for part in parts)
    own = {"color": palette.COLOURS[norm], "linestyle": palette.DASHES[norm], "label": page.NORMS[norm]}
    page.band(axes, summary["snapshot"].values, *curve, **(own | look))
