"""The penalty figure: which max-margin solution descent on (K, Q) reaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.kq_penalty.claims import PUBLISHED_EPSILON, chosen, usual
from jaxattn.study.style import page, palette

# One under the other where both are equal: the first broad and hollow, the second narrow and full.
_RULES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "exact_normalized_gd": (
        "separate norms",
        palette.TEAL,
        {"marker": "o", "markersize": 7, "markerfacecolor": "none", "linewidth": 3.0, "alpha": 0.7},
    ),
    "jointly_normalized_gd": ("joint norm", palette.WINE, {"marker": "s", "markersize": 2.5, "linewidth": 1.0}),
}
_AS_PUBLISHED = {"optimizer": "normalized_gd", "penalty": PUBLISHED_EPSILON}
_NORMS = {"nuclear": "-", "frobenius": ":"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw two panels: over the penalty, and along the steps without one.

    Args:
        summaries: of `summarize` in this folder.
    """
    with page.style():
        figure = page.full(3.7)
        over_penalty, along_steps = figure.subplots(1, 2)
        _over_penalty(over_penalty, usual(summaries))
        _along_steps(along_steps, summaries)
        over_penalty.set_ylabel("direction error, 1 - cos")
        remark = "Geometric means over kept seeds; bars and bands: 95 % bootstrap intervals of the mean."
        page.add_counts(figure, summaries, remark)
    return figure


def _over_penalty(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    steps, highest = max(int(one.attrs["steps"]) for one in summaries.values()), 0.0
    for rule, (label, colour, look) in _RULES.items():
        runs = chosen(summaries, optimizer=rule)
        ends = [one.isel(snapshot=-1) for one in runs if one.attrs["penalty"] > 0]
        x = [-np.log10(one.attrs["penalty"]) for one in ends]
        for norm, dashes in _NORMS.items():
            own = {"color": colour, "linestyle": dashes, "label": label if norm == "nuclear" else None} | look
            _points(axes, x, [one.sel(norm=norm) for one in ends], **own)
            if ends and rule == next(iter(_RULES)):
                at = (x[0], float(ends[0]["off"].sel(norm=norm)))
                axes.annotate(page.NORMS[norm], at, (6, 5), textcoords="offset points")
        free = [float(one["off"].sel(norm="nuclear")[-1]) for one in chosen(summaries, optimizer=rule, penalty=0.0)]
        for last in free:
            axes.axhline(last, color=colour, linestyle="--", linewidth=0.8)
        highest = max([highest, *free])
    place = -np.log10(PUBLISHED_EPSILON)
    axes.axvline(place, color=palette.GUIDE, linewidth=0.8, linestyle="-.")
    for one in chosen(summaries, **_AS_PUBLISHED):
        off = float(one["off"].sel(norm="nuclear")[-1])
        axes.plot(place, off, "X", color=palette.INK, markersize=5, zorder=5, linestyle="", label="run as published")
    near = {"textcoords": "offset points", "xytext": (3, 2)}
    of_axes = axes.get_xaxis_transform()
    axes.annotate(f"published penalty, {PUBLISHED_EPSILON:.1e}", (place, 0.75), xycoords=of_axes, **near)
    if highest:
        end = near | {"xytext": (-3, 2), "ha": "right"}
        axes.annotate("no penalty (dashed)", (1, highest), xycoords=axes.get_yaxis_transform(), **end)
    axes.set_title(f"(a) after {steps:,} steps: {_trend(summaries)}")
    axes.set(xlabel=r"$\log_{10}$ (1 / penalty)", xscale="log", yscale="log")
    axes.legend(loc="lower left", frameon=True, facecolor="white", edgecolor="none", framealpha=1.0)


def _trend(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say whether the distance from the nuclear solution falls with every smaller penalty."""
    runs = [[one for one in chosen(summaries, optimizer=rule) if one.attrs["penalty"] > 0] for rule in _RULES]
    ends = [[float(one["off"].sel(norm="nuclear")[-1]) for one in own] for own in runs]
    falls = all(np.all(np.diff(own) < 0) for own in ends)
    return f"the nuclear error {'falls' if falls else 'does not always fall'} with the penalty"


def _along_steps(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    for rule, (label, colour, _) in _RULES.items():
        for one in chosen(summaries, optimizer=rule, penalty=0.0, scale=1.0):
            _band(axes, one, colour, "-" if rule == "exact_normalized_gd" else "--", f"{label}, no penalty")
    for one in chosen(summaries, optimizer="normalized_gd"):
        published = one.attrs["penalty"] > 0
        label = "run as published" if published else "published rule, no penalty"
        _band(axes, one, palette.INK if published else palette.GUIDE, "-" if published else ":", label)
    for one in chosen(summaries, optimizer="gd"):
        _band(axes, one, palette.AMBER, "-.", "plain descent")
    for one in chosen(summaries, optimizer="exact_normalized_gd", penalty=0.0):
        if one.attrs["scale"] != 1.0:
            _band(axes, one, palette.SKY, "--", f"separate norms, no penalty, start x {one.attrs['scale']:g}")
    for one in chosen(summaries, optimizer="exact_normalized_gd", step="falling"):
        _band(axes, one, palette.ROSE, "-", "published penalty, decreasing steps")
    lengths = sorted({int(one.attrs["steps"]) for one in summaries.values()})
    said = " or ".join(f"{steps:,}" for steps in lengths)
    ends = [float(one["off"].sel(norm="nuclear")[-1]) for one in chosen(summaries, **_AS_PUBLISHED)]
    found = f": as published it ends at {ends[0]:.2g}" if ends else ""
    axes.set(title=f"(b) nuclear SVM, along {said} steps{found}", xlabel="step", xscale="log", yscale="log")
    # Room for the key below all curves.
    low, high = axes.get_ylim()
    axes.set_ylim(low * (low / high) ** 0.6, high)
    axes.legend(loc="lower left")


def _points(axes: Axes, x: list[float], ends: list[xarray.Dataset], **look: Any) -> None:
    off, low, high = (np.array([float(one[name]) for one in ends]) for name in ("off", "off_low", "off_high"))
    axes.errorbar(x, off, yerr=[off - low, high - off], elinewidth=0.8, **look)


def _band(axes: Axes, one: xarray.Dataset, colour: str, dashes: str, label: str | None) -> None:
    own = one.sel(norm="nuclear")
    curve = (own[name].values for name in ("snapshot", "off", "off_low", "off_high"))
    page.band(axes, *curve, color=colour, linestyle=dashes, label=label)
