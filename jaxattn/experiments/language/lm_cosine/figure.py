"""The cosine figure of the second paper: descent on texts against max-margin solutions, over m, n and d."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_SIZES = {"m": "sequences $m$", "n": "words a sequence $n$", "d": "dimension $d$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a column a size that is swept: above as published, below on logarithmic axes, feasible texts apart.

    Args:
        summaries: of `claims.summarize`.
    """
    default = {name: _common(summaries, name) for name in _SIZES}
    with page.style():
        figure = page.full(6.4)
        panels = figure.subplots(2, 3, sharey="row", sharex=True)
        for (above, below), size, letters in zip(panels.T, _SIZES, ("ad", "be", "cf"), strict=True):
            others = [name for name in _SIZES if name != size]
            swept = [one for one in summaries.values() if all(one.attrs[name] == default[name] for name in others)]
            for one, colour in zip(
                sorted(swept, key=lambda one: one.attrs[size]), palette.ramp(len(swept)), strict=True
            ):
                _published(above, one, colour, size)
                _apart(below, one, colour)
            fixed = ", ".join(f"${name} = {default[name]}$" for name in others)
            above.set(title=f"({letters[0]}) {_SIZES[size]}; {fixed}", xscale="log", ylim=(0.3, 1.02))
            above.legend(loc="lower right")
            below.set(title=f"({letters[1]}) the same, texts apart", xscale="log", yscale="log", xlabel="step")
        panels[0, 0].set_ylabel("correlation with soft-margin solution")
        panels[1, 0].set_ylabel("1 - correlation, geometric mean")
        _explain(panels[1, 0])
        page.add_counts(
            figure,
            summaries,
            "Above: means over all texts, bands 95 % bootstrap intervals; crosses the first five runs with their "
            "standard error. Below: bands as above.",
            counted="texts",
        )
    return figure


def _common(summaries: Mapping[str, xarray.Dataset], name: str) -> int:
    """Return the value of a size that most runs have: the one it has where another is swept."""
    values, times = np.unique([one.attrs[name] for one in summaries.values()], return_counts=True)
    return int(values[np.argmax(times)])


def _published(axes: Axes, one: xarray.Dataset, colour: str, size: str) -> None:
    label = f"${size} = {one.attrs[size]}$ ({float(one['feasible']):.0%} feasible)"
    curve = (one[part].values for part in ("snapshot", "soft", "soft_low", "soft_high"))
    page.band(axes, *curve, color=colour, label=label)
    if one.attrs["five"] > 1:
        places = np.unique(np.linspace(0, one.sizes["snapshot"] - 1, 6).astype(int))
        few = one.isel(snapshot=places)
        axes.errorbar(
            few["snapshot"], few["five"], few["five_error"], fmt="x", color=colour, markersize=4, elinewidth=0.8
        )


def _apart(axes: Axes, one: xarray.Dataset, colour: str) -> None:
    for name, dashes in (("soft_0", "-"), ("soft_1", "--"), ("mixed_1", ":")):
        if name in one:
            curve = (one[part].values for part in ("snapshot", name, f"{name}_low", f"{name}_high"))
            page.band(axes, *curve, color=colour, linestyle=dashes)


def _explain(axes: Axes) -> None:
    for dashes, label in (
        ("-", "feasible: from the soft solution"),
        ("--", "infeasible: from the soft solution"),
        (":", r"infeasible: from $W_{fin} + C\,W_{sets}$"),
    ):
        axes.plot([], [], color="black", linestyle=dashes, label=label)
    axes.legend(loc="lower left")
