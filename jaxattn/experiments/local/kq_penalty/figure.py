"""The penalty figure: which max-margin solution descent on (K, Q) reaches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.kq_penalty.claims import chosen, usual
from jaxattn.study.style import page, palette

_RULES = {
    "exact_normalized_gd": ("a norm of each", palette.TEAL, "o"),
    "jointly_normalized_gd": ("one norm", palette.WINE, "s"),
}
_NORMS = {"nuclear": "-", "frobenius": ":"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw two panels: over the penalty, and along the steps without one.

    Args:
        summaries: of `summarize` in this folder.
    """
    with page.style():
        figure = page.full(3.4)
        over_penalty, along_steps = figure.subplots(1, 2)
        _over_penalty(over_penalty, usual(summaries))
        _along_steps(along_steps, summaries)
        over_penalty.set_ylabel("1 - correlation with SVM solution")
        remark = "Geometric means over kept seeds; bars and bands: 95 % bootstrap intervals of the mean."
        page.add_counts(figure, summaries, remark)
    return figure


def _over_penalty(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    for rule, (label, colour, marker) in _RULES.items():
        runs = chosen(summaries, optimizer=rule)
        ends = [one.isel(snapshot=-1) for one in runs if one.attrs["penalty"] > 0]
        x = [-np.log10(one.attrs["penalty"]) for one in ends]
        for norm, dashes in _NORMS.items():
            known = norm == "nuclear"
            _points(axes, x, [one.sel(norm=norm) for one in ends], colour, dashes, marker, label if known else None)
        for one in runs:
            if one.attrs["penalty"] == 0:
                last = float(one["off"].sel(norm="nuclear")[-1])
                axes.axhline(last, color=colour, linestyle="--", linewidth=0.8, label=f"{label}, no penalty")
    axes.set(title="(a) at the last step", xlabel=r"$\log_{10}$ (1 / penalty)", xscale="log", yscale="log")
    box = {"loc": "upper right", "bbox_to_anchor": (1.0, 0.87)}
    axes.legend(title="nuclear (dotted: Frobenius)", **box)


def _along_steps(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    for rule, (label, colour, _) in _RULES.items():
        runs = chosen(summaries, optimizer=rule, penalty=0.0, scale=1.0)
        for one in runs:
            first = one is runs[0]
            _band(axes, one, colour, "-", f"{label}, no penalty" if first else None)
    for one in chosen(summaries, optimizer="normalized_gd"):
        published = one.attrs["penalty"] > 0
        _band(
            axes, one, palette.GUIDE, "-" if published else ":", "as published" if published else "... without penalty"
        )
    for one in chosen(summaries, optimizer="gd"):
        _band(axes, one, palette.AMBER, "-.", "plain descent")
    for one in chosen(summaries, optimizer="exact_normalized_gd", penalty=0.0):
        if one.attrs["scale"] != 1.0:
            _band(axes, one, palette.SKY, "--", f"a norm of each, start x {one.attrs['scale']:g}")
    for one in chosen(summaries, optimizer="exact_normalized_gd", step="falling"):
        _band(axes, one, palette.ROSE, "-", "published penalty, step that falls")
    axes.set(title="(b) nuclear, along the steps", xlabel="step", xscale="log", yscale="log")
    axes.legend(loc="lower left")


def _points(
    axes: Axes,
    x: list[float],
    ends: list[xarray.Dataset],
    colour: str,
    dashes: str,
    marker: str,
    label: str | None,
) -> None:
    off, low, high = (np.array([float(one[name]) for one in ends]) for name in ("off", "off_low", "off_high"))
    look = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3, "label": label}
    axes.errorbar(x, off, yerr=[off - low, high - off], **look)


def _band(axes: Axes, one: xarray.Dataset, colour: str, dashes: str, label: str | None) -> None:
    own = one.sel(norm="nuclear")
    curve = (own[name].values for name in ("snapshot", "off", "off_low", "off_high"))
    page.band(axes, *curve, color=colour, linestyle=dashes, label=label)
