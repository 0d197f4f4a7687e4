"""The figure of plain descent: norm and direction of W along the time, step size times steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.gd_divergence.claims import sparse
from jaxattn.study.style import page, palette


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
        figure = page.full(3.5)
        left, right = figure.subplots(1, 2)
        for one, look in reversed(list(zip(runs, looks, strict=True))):
            _curve(left, one, "growth", look)
            _curve(right, one, "off", look)
        _logarithm(left, runs[-1])
        left.set(title="(a) norm", ylabel=r"$\|W(k)\|_F\,/\,\|W_{mm}\|_F$", ylim=(0, None))
        right.set(title="(b) direction", ylabel=r"1 - correlation with $W_{mm}$", yscale="log")
        for axes in (left, right):
            axes.set(xlabel=r"time $\eta k$", xscale="log")
        left.legend(loc="upper left")
        right.legend(loc="lower left")
        page.add_counts(
            figure, summaries, "Means over kept seeds (b: geometric), bands: 95 % bootstrap intervals of the mean."
        )
    return figure


def _curve(axes: Axes, one: xarray.Dataset, name: str, look: tuple[str, str]) -> None:
    label = f"$\\eta = {one.attrs['step_size']:g}$ = {float(one['within']):.2g} / $L$"
    curve = (one[part].values for part in ("time", name, f"{name}_low", f"{name}_high"))
    page.band(axes, *curve, color=look[0], linestyle=look[1], label=label)


def _logarithm(axes: Axes, one: xarray.Dataset) -> None:
    """Draw a line that grows like the logarithm, beside the end of a curve."""
    time, end = one["time"].values, float(one["growth"][-1])
    near = np.array([time[-1] / 1000, time[-1]])
    line = end + 1.2 + np.log(near / near[-1])
    axes.plot(near, line, color="black", linewidth=0.7, linestyle=":", label=r"$\log(\eta k)$ + constant")
