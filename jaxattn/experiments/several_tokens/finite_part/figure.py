"""The figure of the finite part: descended against predicted ratios under both heads, and how many are predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.several_tokens.evidence import WITHOUT
from jaxattn.experiments.several_tokens.finite_part.claims import HEADS
from jaxattn.experiments.several_tokens.prediction import KINDS
from jaxattn.study.style import page, palette

_TITLES = {"quadratic": r"$v \cdot x - \lambda \|x\|^2$", "ReLU": "a head of ReLUs"}
_LOOKS = {"": (palette.TEAL, "published selection", 3), WITHOUT: (palette.EXCLUDED, "no selection", 2)}
_SHADES = (palette.TEAL, palette.SKY, palette.WINE)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the scatter of each head, with and without a selection, and of what kind the inputs are.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.8)
        *panels, kinds = figure.subplots(1, 3)
        for axes, head, letter in zip(panels, HEADS, "ab", strict=True):
            _scatter(axes, {suffix: summaries[head + suffix] for suffix in _LOOKS})
            axes.set(title=f"({letter}) {_TITLES[head]}", xlabel="predicted logarithm of the ratio")
        panels[0].set_ylabel("descended logarithm of the ratio")
        _bars(kinds, summaries)
        page.add_counts(
            figure,
            summaries,
            "Ratios of two tokens of a set whose best distribution is one alone and mixes the set; dotted: equality.",
            counted="runs",
        )
    return figure


def _scatter(axes: Axes, parts: Mapping[str, xarray.Dataset]) -> None:
    largest = max(
        [
            2.0,
            *(
                float(np.abs(one[name]).max())
                for one in parts.values()
                for name in ("predicted", "descended")
                if one.sizes["pair"]
            ),
        ]
    )
    axes.plot([-largest, largest], [-largest, largest], color="black", linewidth=0.7, linestyle=":")
    for suffix in reversed(_LOOKS):
        colour, label, size = _LOOKS[suffix]
        one = parts[suffix]
        if "slope" in one:
            label += f":\nslope {float(one['slope']):.3f}, rms {float(one['rms']):.2f}"
        axes.plot(
            one["predicted"],
            one["descended"],
            ".",
            color=colour,
            markersize=size,
            linewidth=0,
            label=label,
            rasterized=True,
        )
    axes.legend(loc="lower right", markerscale=3, reverse=True)


def _bars(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw the shares of the kinds as one bar a head and part."""
    for place, summary in enumerate(summaries.values()):
        number, left = summary.sizes["mixed"], 0.0
        for kind, (label, shade) in enumerate(zip(KINDS, _SHADES, strict=True)):
            share = float((summary["kind"] == kind).sum()) / max(number, 1)
            axes.barh(place, share, left=left, color=shade, label=label if place == 0 else None)
            left += share
        axes.text(1.02, place, f"{number}", va="center")
    axes.set_yticks(range(len(summaries)), [name.replace(", ", ",\n") for name in summaries])
    axes.set(title="(c) inputs that select several tokens", xlabel="share; at the right: inputs", xlim=(0, 1))
    axes.invert_yaxis()
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, title="best distribution")
