"""The figure of starts on prefixes: how direction errors fall along the steps, and where every start ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_prefix.claims import SELECTS
from jaxattn.study.style import page, palette

# Starts that arrive, that end elsewhere, and that are on the way.
_ARRIVED, _LOST, _MOVING = palette.FROBENIUS, palette.WINE, palette.EXCLUDED
_DASHES = {"exact direction": "-", "plain": "--"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel of direction errors for each dimension, and one of what became of the starts of each run.

    Args:
        summaries: of `claims.summarize`.
    """
    runs = list(summaries.values())
    dimensions = sorted({one.attrs["d"] for one in runs}, reverse=True)
    scales = sorted({one.attrs["scale"] for one in runs})
    with page.style():
        figure = page.full(4.6)
        *curves, ends = figure.subplots(1, len(dimensions) + 1, width_ratios=[1.0] * len(dimensions) + [1.15])
        for letter, axes, d in zip("abc", curves, dimensions, strict=False):
            own = [one for one in runs if one.attrs["d"] == d]
            _curves(axes, own, scales)
            left, starts = (sum(int(one[name]) for one in own) for name in ("left", "starts"))
            found = f"{left} of {starts} starts\nleave prefixes behind"
            axes.set(title=f"({letter}) $d = {d}$: {found}", xlabel="step", xscale="log", yscale="log")
        limits = np.array([axes.get_ylim() for axes in curves])
        for axes in curves:
            axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())
        curves[0].set_ylabel("1 - correlation with the hard margin")
        for axes in curves:
            axes.legend(loc="lower left")
        _ends(ends, runs, "abc"[len(dimensions)])
        texts = sorted({int(one["texts"]) for one in runs})
        page.add_counts(
            figure,
            summaries,
            f"{' or '.join(map(str, texts))} feasible texts a run. Curves: starts that leave nothing behind, equal "
            "scores; means over texts with 95 % bootstrap intervals. Solid: normalized steps on the exact direction; "
            "dashed: plain steps. "
            "Left behind: the next word is more than the margin behind along the solution of the prefixes that are "
            f"served, to which W has come. Percentages: starts with an attention of at least {SELECTS:g} to every "
            "optimal token, and their 95 % interval by texts.",
            counted="starts",
        )
    return figure


def _curves(axes: Axes, runs: Sequence[xarray.Dataset], scales: Sequence[float]) -> None:
    for one in runs:
        told = one.attrs
        # Close scores are in the last panel.
        if told["delta"] > 0:
            continue
        label = f"normal, scale {told['scale']:g}" if told["scale"] else "$W(0) = 0$"
        page.band(
            axes,
            *(one[part].values for part in ("snapshot", "reached", "reached_low", "reached_high")),
            color=palette.ramp(len(scales))[scales.index(told["scale"])],
            linestyle=_DASHES[told["rule"]],
            label=label + (", plain" if told["rule"] == "plain" else ""),
        )


def _ends(axes: Axes, runs: Sequence[xarray.Dataset], letter: str) -> None:
    """Draw what became of the starts of every run, and write how many select their tokens."""
    runs = sorted(runs, key=lambda one: (one.attrs["rule"] == "plain", one.attrs["delta"], one.attrs["d"]))
    rows = np.arange(len(runs))[::-1]
    start = np.zeros(len(runs))
    for name, colour, label in (
        ("arrived", _ARRIVED, "at the hard margin"),
        ("left", _LOST, "prefixes left behind"),
        ("moving", _MOVING, "on the way"),
    ):
        share = np.array([int(one[name]) / int(one["starts"]) for one in runs])
        axes.barh(rows, share, left=start, color=colour, label=label, height=0.7)
        start = start + share
    for row, one in zip(rows, runs, strict=True):
        shares = (f"{100 * float(one[f'share_selected{part}']):.0f}" for part in ("", "_low", "_high"))
        axes.text(1.02, row, "{} % [{}, {}]".format(*shares), va="center", fontsize=7)
    axes.set_yticks(rows, [_named(one) for one in runs], fontsize=7)
    axes.set(title=f"({letter}) where starts end", xlabel="share of starts", xlim=(0, 1.5))
    axes.set_xticks([0, 0.5, 1])
    axes.set_ylim(-0.7, len(runs) + 1.6)
    axes.legend(loc="upper left", ncols=2, columnspacing=0.7, handlelength=1.0)


def _named(one: xarray.Dataset) -> str:
    told = one.attrs
    start = f"scale {told['scale']:g}" if told["scale"] else "$W(0) = 0$"
    plain = ", plain" if told["rule"] == "plain" else ""
    return rf"$d = {told['d']}$, $\delta = {told['delta']:g}$, {start}{plain}"
