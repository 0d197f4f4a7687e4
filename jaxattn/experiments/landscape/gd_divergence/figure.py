"""The figure of plain descent: norm and direction of W along the time, step size times steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.gd_divergence.claims import sparse
from jaxattn.study.style import page, palette

# A run's label is at its end over this.
_BEFORE = 8


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the two panels: means over seeds with 95 % intervals.

    Args:
        summaries: of `claims.summarize`.
    """
    # The run of every step is the beginning of another.
    runs = sorted(sparse(summaries).values(), key=lambda one: one.attrs["step_size"])
    # By increasing step; the longer runs lie beneath.
    looks = list(zip(palette.ramp(len(runs)), ["--", *("-" * (len(runs) - 1))], strict=True))
    with page.style():
        figure = page.full(3.4)
        left, right = figure.subplots(1, 2)
        for one, look in reversed(list(zip(runs, looks, strict=True))):
            _curve(left, one, "growth", look, (6, -9))
            _curve(right, one, "off", look, (6, 9))
        furthest = runs[-1]
        _logarithm(left, furthest)
        slope, power, off = (float(furthest[name].values.flat[-1]) for name in ("slope", "exponent", "off"))
        left.set_title(f"(a) the norm grows like {slope:.2f} log $k$ (theorem: log $k$)")
        right.set_title(f"(b) 1 - cos {_trend(power)}, to {off:.2g} at the end")
        left.set(ylabel=r"norm, $\|W(k)\|_F\,/\,\|W_F\|_F$", ylim=(0, None))
        right.set(ylabel="direction error, 1 - cos to $W_F$", yscale="log")
        # Before that nothing moves; both runs are seen from here on.
        first = max(float(one["time"][0]) for one in runs)
        for axes in (left, right):
            axes.set(xlabel=r"time, step size times steps, $\eta k$", xscale="log", xlim=(first, None))
        page.add_counts(figure, {_named(one): one for one in summaries.values()}, _remark(summaries, furthest))
    return figure


def _named(one: xarray.Dataset) -> str:
    every = ", risk at every step" if one.attrs["every"] == 1 else ""
    return rf"$\eta = {one.attrs['step_size']:g}${every}"


def _trend(power: float) -> str:
    """Say how the direction error changes with the norm, fitted over the last decade of steps."""
    return f"{'falls' if power < 0 else 'does not fall: it grows'} like $\\|W\\|^{{{power:.1f}}}$"


def _remark(summaries: Mapping[str, xarray.Dataset], furthest: xarray.Dataset) -> str:
    seeds = int(furthest.attrs["kept"])
    nearer = round(float(furthest["nearer"]) * seeds)
    said = (
        f"Means over kept seeds, in (b) geometric, with 95 % intervals. Titles: {_named(furthest)}, last decade of "
        f"steps, in which {nearer:,} of {seeds:,} seeds come nearer to $W_F$, the Frobenius SVM solution."
    )
    within = [one for one in summaries.values() if one.attrs["every"] == 1 and float(one["within"]) <= 1]
    if not within:
        return said
    rises, taken = (sum(int(one[name]) for one in within) for name in ("rises", "taken"))
    return f"{said} Within $1/L$ the risk rises in {rises:,} of {taken:,} steps."


def _curve(axes: Axes, one: xarray.Dataset, name: str, look: tuple[str, str], beside: tuple[int, int]) -> None:
    """Draw a curve with its end marked, and its step size beside it."""
    curve = (one[part].values for part in ("time", name, f"{name}_low", f"{name}_high"))
    page.band(axes, *curve, color=look[0], linestyle=look[1])
    time, values = one["time"].values, one[name].values
    axes.plot(time[-1:], values[-1:], "o", color=look[0], markersize=3)
    # A little before the end, so that the text is within the panel.
    place = int(np.searchsorted(time, time[-1] / _BEFORE))
    text = f"{_named(one)} (${float(one['within']):.2g} / L$)"
    _written(axes, text, (time[place], values[place]), beside, look[0])


def _written(axes: Axes, text: str, at: tuple[float, float], beside: tuple[int, int], colour: str) -> None:
    """Write a text beside a point, the offset in points; it does not run over the data on that side."""
    sides: dict[str, Any] = {"ha": "left" if beside[0] > 0 else "right", "va": "bottom" if beside[1] > 0 else "top"}
    axes.annotate(text, at, beside, textcoords="offset points", color=colour, fontsize=page.SMALLEST, **sides)


def _logarithm(axes: Axes, one: xarray.Dataset) -> None:
    """Draw a line that grows like the logarithm, beside the end of a curve, and name it."""
    time, end = one["time"].values, float(one["growth"][-1])
    near = np.array([time[-1] / 1000, time[-1]])
    line = end + 1.2 + np.log(near / near[-1])
    axes.plot(near, line, color=palette.INK, linewidth=0.7, linestyle=":")
    middle = float(np.sqrt(near.prod())), float(line.mean())
    _written(axes, r"$\log(\eta k)$ + constant", middle, (-5, 3), palette.INK)
