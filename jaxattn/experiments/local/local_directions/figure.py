"""The figure of local directions: where descent stays, and how far along a solution it must start for that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.statistics import proportion
from jaxattn.study.style import page, palette

# Shares are those of about this many groups of equally many starts; a group has at least so many.
_GROUPS, _LEAST = 16, 8


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw three panels: the share of starts that stay over the score lead, over R, and over the slack.

    Args:
        summaries: "all starts", as `claims.summarize` returns it.
    """
    summary = summaries["all starts"]
    with page.style():
        figure = page.full(3.0)
        over_lead, over_radius, over_slack = figure.subplots(1, 3, sharey=True)
        _over_lead(over_lead, summary)
        _over_radius(over_radius, summary)
        _over_slack(over_slack, summary)
        over_lead.set(ylabel="share of starts that stay", ylim=(-0.03, 1.03))
        remark = (
            r"A start is $R\, W_\alpha / \|W_\alpha\|_F$ for one of the $T^n$ choices $\alpha$ of tokens; it stays if "
            r"descent selects $\alpha$ at the end, with a correlation above 0.99. (a), (c): groups of equally many "
            "starts, Wilson intervals; (b): problems resampled. All intervals are of 95 %."
        )
        page.add_counts(figure, summaries, remark, counted="choices")
    return figure


def _over_lead(axes: Axes, summary: xarray.Dataset) -> None:
    last = summary.isel(radius=-1)
    # Choices that are locally optimal are those with a positive lead: no group has both.
    for locally, colour in ((False, palette.WINE), (True, palette.TEAL)):
        one = last.isel(start=last["locally"].values == locally)
        _shares(axes, one["gap"].values, one["stayed"].values, colour)
    axes.axvline(0, color=palette.NOTE, linewidth=0.8)
    wrong = int((last["stayed"].values & ~last["locally"].values).sum())
    axes.set_title(f"(a) {wrong} stay with a negative lead\n($R = {float(last['radius']):g}$)")
    axes.set_xlabel("score lead over the best\nsupport neighbour")


def _over_radius(axes: Axes, summary: xarray.Dataset) -> None:
    for of, colour, marker in (("local", palette.TEAL, "o"), ("not local", palette.WINE, "s")):
        one = summary.sel(of=of)
        mean = 1 - one["left"].values
        errors = np.clip([mean - 1 + one["left_high"].values, 1 - one["left_low"].values - mean], 0, None)
        label = f"{'yes' if of == 'local' else 'no'} ({int(one['starts']):,})"
        axes.errorbar(
            summary["radius"], mean, errors, color=colour, marker=marker, markersize=4, elinewidth=0.8, label=label
        )
    stay = 1 - float(summary["left"].sel(of="local")[-1])
    axes.set_title(f"(b) far enough along $W_\\alpha$,\n{stay:.1%} of locally optimal $\\alpha$ stay")
    axes.set(xlabel="$R$", xscale="log")
    axes.legend(title=r"$\alpha$ locally optimal?", loc="center right")


def _over_slack(axes: Axes, summary: xarray.Dataset) -> None:
    local = summary.isel(start=summary["locally"].values)
    scaled = (local["slack"] * local["radius"] / local["length"]).values
    shown = np.isfinite(scaled)
    _shares(axes, scaled[shown], local["stayed"].values[shown], palette.TEAL)
    axes.set_title("(c) locally optimal $\\alpha$,\nall $R$, by their slack")
    axes.set(xlabel="slack of better tokens\n" r"$\times\, R\, /\, \|W_\alpha\|_F$", xscale="log")


def _shares(axes: Axes, x: Float[np.ndarray, " starts"], stayed: Bool[np.ndarray, " starts"], colour: str) -> None:
    """Draw the share that stayed in groups of neighbouring x, each at its median."""
    order = np.argsort(x)
    groups = [one for one in np.array_split(order, max(1, min(_GROUPS, len(x) // _LEAST))) if len(one)]
    if not groups:
        return
    estimates = [proportion(stayed[one]) for one in groups]
    mean, low, high = (np.array([float(getattr(one, part)) for one in estimates]) for part in ("mean", "low", "high"))
    middle = [np.median(x[one]) for one in groups]
    errors = np.clip([mean - low, high - mean], 0, None)
    axes.errorbar(middle, mean, errors, color=colour, marker="o", markersize=3, elinewidth=0.8)
