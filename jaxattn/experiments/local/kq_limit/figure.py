"""The figure of the limit of (K, Q): distance and margin along the steps by the rule of the step, and the rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.kq_limit.claims import NORMS, STEPS, chosen
from jaxattn.study.style import page, palette

_COLOURS = {"constant": palette.TEAL, "falling": palette.WINE, "relative": palette.AMBER}
_DASHES = dict(zip(NORMS, ("-", "--"), strict=True))


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw three panels: distance and margin of each rule along the steps, and the exponents of the seeds.

    Args:
        summaries: of `summarize` in this folder.
    """
    with page.style():
        figure = page.full(3.6)
        distance, margin, exponent = figure.subplots(1, 3)
        for step, colour in _COLOURS.items():
            for norm, dashes in _DASHES.items():
                runs = chosen(summaries, optimizer=norm, step=step)
                if runs:
                    one = next((each for each in runs if each.attrs["step_size"] == 1.0), runs[0])
                    label = _label(step, norm)
                    _band(distance, one, lambda value: value, "off", color=colour, linestyle=dashes, label=label)
                    _band(margin, one, lambda value: 1 - value, "margin_ratio", color=colour, linestyle=dashes)
        for one in chosen(summaries, step="constant", step_size=0.1, optimizer=next(iter(NORMS))):
            look = {"color": palette.GUIDE, "linestyle": ":"}
            _band(distance, one, lambda value: value, "off", label="as published: constant 0.1", **look)
            _band(margin, one, lambda value: 1 - value, "margin_ratio", **look)
        distance.set(title="(a) distance, nuclear", xlabel="step", ylabel="1 - cos", xscale="log", yscale="log")
        distance.legend(loc="lower left")
        margin.set(title="(b) margin, nuclear", xlabel="step", ylabel="1 - margin ratio", xscale="log", yscale="log")
        _exponents(exponent, summaries)
        remark = (
            "(a), (b): c = 1 where not said; (a) geometric, (b) arithmetic means over kept seeds; bands: 95 % "
            "bootstrap intervals of the mean."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _band(axes: Axes, one: xarray.Dataset, of: Callable[[np.ndarray], np.ndarray], name: str, **look: str) -> None:
    curve = (of(one[f"{name}{part}"].values) for part in ("", "_low", "_high"))
    page.band(axes, one["snapshot"].values, *curve, **look)


def _label(step: str, norm: str) -> str:
    return f"{STEPS[step]}, {NORMS[norm]}".replace("k^-1/2", "$k^{-1/2}$")


def _exponents(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    for step in ("constant", "falling"):
        for norm, marker in zip(NORMS, "os", strict=True):
            runs = [one for one in chosen(summaries, optimizer=norm, step=step) if one.attrs["step_size"] == 1.0]
            for one in runs:
                look = {"color": _COLOURS[step], "marker": marker, "s": 9, "linewidths": 0.6}
                face = _COLOURS[step] if marker == "o" else "none"
                axes.scatter(one["room"], one["exponent"], facecolors=face, label=_label(step, norm), **look)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set(title="(c) exponent of each seed", xlabel="1 - largest unused singular value", ylabel="exponent of $k$")
    axes.set_xlim(0, max(0.01, *(float(np.max(one["room"])) for one in summaries.values())) * 1.05)
    # Room for the legend below the points.
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.4 * (high - low), high)
    axes.legend(loc="lower left")
