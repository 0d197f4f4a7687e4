"""The figure of mirror descent: whose solution each run is nearest to, and the divergence from its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxattn.experiments.bias.mirror import rates
from jaxattn.experiments.bias.mirror.claims import plain
from jaxattn.experiments.bias.mirror.measure import NORMALIZED, norm_of
from jaxattn.experiments.bias.mirror.predictions import EXPONENTS, PUBLISHED
from jaxattn.study.style import cells, page, palette

# A ramp in the order of p, with a dash of its own for each.
_LOOKS = dict(zip(EXPONENTS, zip(palette.ramp(len(EXPONENTS)), palette.STYLES, strict=True), strict=True))
_FRAME = palette.NUCLEAR


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw correlations after the paper's epochs, margin ratios of the limits, and divergences of both rules.

    Args:
        summaries: of `claims.summarize`.
    """
    normalized = sorted(
        (one for one in summaries.values() if one.attrs["rule"] == NORMALIZED), key=lambda one: float(one.attrs["p"])
    )
    runs = [found for p in PUBLISHED if (found := plain(summaries, p))]
    with page.style():
        figure = page.full(5.6)
        panels = figure.subplots(2, 2)
        _correlations(panels[0, 0], [found[0] for found in runs])
        _ratios(panels[0, 1], normalized)
        _divergences(panels[1, 0], [found[-1] for found in runs])
        _divergences(panels[1, 1], normalized)
        _bounds(panels[1, 0], [found[-1] for found in runs])
        for axes in panels[1]:
            axes.legend(loc="lower left")
        last = int(runs[0][-1].attrs["steps"])
        panels[1, 0].set_title("(c) $l_p$-AttGD: faster than the bound (thin)")
        panels[1, 1].set_title("(d) normalized rule: a power of $k$")
        panels[1, 0].set_ylabel("Bregman divergence from\nown solution")
        page.add_counts(
            figure,
            summaries,
            "Framed: the solution of the run's own $p$. Bold: the largest of a row in (a), what the verdict names in "
            "(b); open: still moving. "
            "Means over seeds (geometric in (c), (d)), bands: 95 % intervals. Exponents: over the last decade. "
            f"Bounds are drawn through the divergence at step {min(rates.SINCE, last):,}.",
        )
    return figure


def _correlations(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the mean correlation of each run with each solution of the paper's experiment."""
    norms = [norm_of(p) for p in PUBLISHED]
    means = np.array([[float(one["cosine"].sel(norm=norm)) for norm in norms] for one in runs])
    axes.imshow(means, cmap="Blues", vmin=0.2, vmax=1.0, aspect="auto")
    for row, column in np.ndindex(means.shape):
        best = column == int(np.argmax(means[row]))
        look: dict[str, Any] = {
            "color": "white" if means[row, column] > 0.6 else "black",
            "fontweight": "bold" if best else "normal",
        }
        axes.text(column, row, f"{means[row, column]:.3f}", ha="center", va="center", fontsize=7, **look)
        if norms[column] == runs[row].attrs["norm"]:
            axes.add_patch(
                Rectangle((column - 0.45, row - 0.43), 0.9, 0.86, fill=False, edgecolor=_FRAME, linewidth=1.4)
            )
    axes.set_xticks(range(len(PUBLISHED)), [f"${p:g}$" for p in PUBLISHED], fontsize=7)
    _rows(axes, runs)
    nearest = sum(norms[int(np.argmax(row))] == one.attrs["norm"] for row, one in zip(means, runs, strict=True))
    steps = int(runs[0].attrs["steps"])
    axes.set_title(
        f"(a) correlation after {steps:,} epochs of $l_p$-AttGD:\nown solution first in {nearest} of {len(runs)}",
    )


def _ratios(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    names = [str(norm) for norm in runs[0]["norm"].values]
    cells.table(axes, [cells.Row(one, one.attrs["norm"]) for one in runs], names)
    axes.set_xticks(range(len(names)), [f"${p:g}$" for p in EXPONENTS], fontsize=7)
    _rows(axes, runs)
    named = sum(bool(one["named"].sel(norm=one.attrs["norm"])) for one in runs)
    axes.set_title(
        f"(b) margin ratio of the normalized rule:\nown norm obeyed in {named} of {len(runs)}",
    )


def _rows(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    axes.set_yticks(range(len(runs)), [f"${float(one.attrs['p']):g}$" for one in runs], fontsize=7)
    axes.set(xlabel="$p$ of the Att-SVM", ylabel="$p$ of the potential")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _divergences(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    for one in runs:
        p = float(one.attrs["p"])
        colour, dashes = _LOOKS[p]
        label = f"$p = {p:g}$"
        if "power" in one:
            label += f": $k^{{{float(one['power']):.2f}}}$"
        seen = one["snapshot"].values > 0
        curve = (one[name].values[seen] for name in ("off", "off_low", "off_high"))
        page.band(axes, one["snapshot"].values[seen], *curve, color=colour, linestyle=dashes, label=label)
    axes.set(xscale="log", yscale="log", xlabel="step $k$")


def _bounds(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the order of the paper's bound for each p, through the run's divergence where rates are fitted from."""
    for one in runs:
        p, steps = float(one.attrs["p"]), one["snapshot"].values
        late = steps >= min(rates.SINCE, steps[-1])
        order = rates.bound(steps[late], p)
        axes.plot(
            steps[late], order * one["off"].values[late][0] / order[0], color=_LOOKS[p][0], linewidth=0.7, linestyle="-"
        )
