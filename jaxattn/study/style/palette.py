"""Colours and dashes by what they mean, in every figure alike, and the mark of published numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

__all__ = [
    "BAND",
    "COLOURS",
    "CYCLE",
    "DASHES",
    "EXCLUDED",
    "FROBENIUS",
    "GUIDE",
    "INK",
    "L1",
    "MAX",
    "NOTE",
    "NUCLEAR",
    "OTHERS",
    "SPECTRAL",
    "STYLES",
    "dashes",
    "published",
    "ramp",
]

# Solutions in a norm, and what converges to them. Told apart also by colour-blind readers (Okabe and Ito).
FROBENIUS, NUCLEAR, SPECTRAL, MAX, L1 = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C510A"
INK, NOTE, GUIDE, EXCLUDED, BAND = "#000000", "#444444", "#777777", "#999999", "#EEEEEE"
# Training W converges to the Frobenius solution, training (K, Q) to the nuclear one.
COLOURS = {
    "frobenius": FROBENIUS,
    "nuclear": NUCLEAR,
    "spectral": SPECTRAL,
    "max": MAX,
    "l1": L1,
    "W": FROBENIUS,
    "KQ": NUCLEAR,
}
DASHES = {"frobenius": "-", "nuclear": "--", "spectral": "-.", "max": ":", "l1": (0, (5, 1, 1, 1, 1, 1))}
DASHES |= {"W": DASHES["frobenius"], "KQ": DASHES["nuclear"]}
# Of curves that have no meaning above: first those in the order of the norms, then colours that no norm has.
CYCLE = (FROBENIUS, NUCLEAR, SPECTRAL, MAX, INK)
OTHERS = (INK, "#56B4E9", "#E69F00", "#882255", "#44AA99", "#CC6677")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def ramp(count: int) -> list[str]:
    """Return a colour for each of `count` ordered sizes, from light, the smallest, to dark.

    Their lightness falls evenly, so that the order also shows in grey.

    Example:
        >>> ramp(2)
        ['#27ad81', '#3f4788']
    """
    places = 0.9 * (1 - (np.arange(count) + 0.5) / max(count, 1))
    return [to_hex(colour) for colour in colormaps["viridis"](places)]


def dashes(count: int) -> list[Any]:
    """Return a line style for each of `count` kinds; after five they begin anew."""
    return [STYLES[k % len(STYLES)] for k in range(count)]


def published(axes: Axes, x: Any, y: Any, source: str) -> None:
    """Mark numbers that a paper publishes by open black diamonds, with their source in the key.

    Args:
        axes: where to draw.
        x: of each number.
        y: the numbers.
        source: where they stand, such as "2308.16898, figure 5"; it is in the key once, however many marks it has.
    """
    label = f"published: {source}"
    if label in axes.get_legend_handles_labels()[1]:
        label = "_nolegend_"
    axes.plot(
        x,
        y,
        "D",
        color=INK,
        markerfacecolor="none",
        markersize=4.5,
        markeredgewidth=1.0,
        clip_on=False,
        zorder=6,
        label=label,
    )
