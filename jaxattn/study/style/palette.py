"""Colours and dashes by what they mean, in every figure alike, and the mark of published numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

# Of solutions in a norm, and of what converges to them; colour-blind readers tell them apart (Okabe and Ito).
FROBENIUS, NUCLEAR, SPECTRAL, MAX, L1 = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C510A"
# Of what has no norm: rules, losses, starts. None is one of the above.
TEAL, WINE, AMBER, SKY, ROSE = "#44AA99", "#882255", "#E69F00", "#56B4E9", "#CC6677"
# Of axes and guides, of what is written under a figure, and of what is excluded or neither.
INK, GUIDE, NOTE, EXCLUDED = "#000000", "#777777", "#444444", "#B0B0B0"
# By norm, and by the weights that are trained: W converges to a Frobenius solution, (K, Q) to a nuclear one.
COLOURS = {"frobenius": FROBENIUS, "nuclear": NUCLEAR, "spectral": SPECTRAL, "max": MAX, "l1": L1}
COLOURS |= {"W": FROBENIUS, "KQ": NUCLEAR}
DASHES = {"frobenius": "-", "nuclear": "--", "W": "-", "KQ": "--"}
# In turn, where there are several.
OTHERS = (TEAL, WINE, AMBER, SKY, ROSE, INK)
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def ramp(count: int) -> list[str]:
    """Return a colour for each of `count` ordered sizes, from light to dark, whose lightness falls evenly."""
    places = 0.9 * (1 - (np.arange(count) + 0.5) / max(count, 1))
    return [to_hex(colour) for colour in colormaps["viridis"](places)]


def published(axes: Axes, x: Any, y: Any, source: str, prefix: str = "published: ") -> None:
    """Mark numbers that a paper publishes by open black diamonds, with their source in the key once."""
    label = f"{prefix}{source}"
    if label in axes.get_legend_handles_labels()[1]:
        label = "_nolegend_"
    # What is not clipped would make room for itself beyond the panel.
    look: dict[str, Any] = {"clip_on": False, "in_layout": False, "zorder": 6, "label": label}
    axes.plot(x, y, "D", color=INK, markerfacecolor="none", markersize=4.5, markeredgewidth=1.0, **look)
