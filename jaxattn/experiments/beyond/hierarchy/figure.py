"""The figure of the ladder: margin ratios by the norm of W, rung, task and condition, and the cost of hardness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.hierarchy import claims
from jaxattn.study.claims import Datasets, Judgements, total
from jaxattn.study.style import page, palette

# The runs that are drawn along their course, and the estimates at the end, all in the nuclear norm.
_COURSES = {
    claims.ALONE: (palette.NUCLEAR, "-", claims.ALONE),
    claims.READOUT: (palette.INK, "--", claims.READOUT),
    "inputs": (palette.WINE, "-.", "inputs"),
    claims.SLOW[-1]: (palette.TEAL, ":", "inputs, 1000 times slower"),
    claims.NORMED: (palette.SKY, (0, (5, 1, 1, 1)), "inputs, a norm for K, Q"),
}
# Short names of the conditions.
_WRITTEN = {
    claims.DECAY: "readout, decay",
    claims.OWN: "readout, decay,\nown steps",
    claims.OWN_INPUTS: "inputs, readout,\ndecay, own steps",
    **{name: f"inputs {times}\ntimes slower" for name, times in zip(claims.SLOW, (10, 100, 1000), strict=True)},
    claims.NORMED: "inputs, a norm\nfor K, Q",
    claims.STOPPED: "stopped after\n500 steps",
    claims.LAYERS: "two layers of\nattention alone",
}
_ENDS = (("last", "nuclear", palette.NUCLEAR, "o", "trained"), ("nulls", "nuclear", palette.GUIDE, "_", "largest null"))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw margin ratios by norm (a), rung (b), task (c) and condition (e), and the cost of hardness (d)."""
    hope, frozen = (judgements[f"hierarchy:{name}"].verdict for name in ("hope", "frozen"))
    with page.style():
        figure = page.full(8.6)
        courses, ladder, tasks, hardness, conditions = figure.subplot_mosaic("ab;cd;ee").values()
        _courses(courses, summaries)
        rungs = (claims.ALONE, *claims.TRAINED_INPUTS)
        for axes, names in (
            (ladder, rungs),
            (tasks, claims.TASKS[1:]),
            (conditions, (claims.ALONE, *claims.CONDITIONS)),
        ):
            ends(axes, summaries, names, _ENDS, _WRITTEN)
            axes.axhline(CLOSE, color=palette.GUIDE, linewidth=0.7)
            axes.set(ylabel="nuclear margin ratio", ylim=(-0.1, 1.02))
            axes.legend(loc="upper right")
        ladder.set_title("(b) the ladder, one change a rung")
        tasks.set_title("(c) other tasks, everything trained by Adam")
        conditions.set_title("(e) conditions under which heads may obey")
        costs(hardness, summaries, rungs, {})
        figure.suptitle(f"A trained decoder as a hierarchy of SVMs: {hope}. With fixed inputs heads obey: {frozen}")
        page.add_counts(
            figure,
            {"all runs": xarray.Dataset(attrs=total(summaries))},
            "(b), (c), (e): means with 95 % intervals, layer.head; nulls: directions, rows' mean, first selection.",
        )
    return figure


def _courses(axes: Axes, summaries: Datasets) -> None:
    for name, (colour, dashes, label) in _COURSES.items():
        if name in summaries:
            run = summaries[name].isel(head=0).sel(norm="nuclear")
            curves = (run[f"ratio_{q}"].values for q in (50, 10, 90))
            page.band(axes, run["size_50"].values, *curves, color=colour, linestyle=dashes, marker=".", label=label)
    axes.axhline(CLOSE, color=palette.GUIDE, linewidth=0.7)
    axes.set(xscale="log", xlabel=r"$\|W\|_F$", ylabel="nuclear margin ratio", xlim=(0.3, None), ylim=(-0.1, 1.7))
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_title("(a) along the training, against the clock $\\|W\\|_F$")
    axes.legend(loc="upper left", title="medians, 10th to 90th percentile", fontsize=page.SMALLEST, ncols=2)


def ends(
    axes: Axes,
    summaries: Datasets,
    names: Sequence[str],
    estimates: Sequence[tuple[str, str, str, str, str]],
    written: Mapping[str, str],
) -> None:
    """Draw estimates of each head of the runs that were made side by side; `written` has short names of runs.

    Of each estimate are given its name, the norm, the colour, the marker and the label.
    """
    heads = [(name, head) for name in names if name in summaries for head in summaries[name]["head"].values]
    for estimate, norm, colour, mark, label in estimates:
        found = [summaries[name].sel(head=head, norm=norm) for name, head in heads]
        parts = [[float(end[f"{estimate}{part}"]) for end in found] for part in ("", "_low", "_high")]
        page.bars(axes, range(len(heads)), *parts, color=colour, marker=mark, linestyle="none", label=label)
    labels = [written.get(name, name) + _numbered(summaries[name], head) for name, head in heads]
    axes.set_xticks(range(len(heads)), labels, rotation=40, ha="right", fontsize=page.SMALLEST)


def _numbered(run: xarray.Dataset, head: str) -> str:
    return "" if run.sizes["head"] == 1 else head.replace("layer ", ", ").replace(", head ", ".")


def levels(axes: Axes, x: float, **place: Any) -> None:
    """Draw the ratios above which a head obeys and below which it is far, with their names at x."""
    for level, label in ((CLOSE, f"obeys: above {CLOSE}"), (claims.FAR, f"far: below {claims.FAR}")):
        axes.axhline(level, color=palette.GUIDE, linewidth=0.7)
        axes.text(x, level, label, fontsize=page.SMALLEST, color=palette.GUIDE, va="bottom", **place)


def costs(axes: Axes, summaries: Datasets, names: Sequence[str], written: Mapping[str, str]) -> None:
    """Draw by how much hard attention would change the logarithm of the loss, run by run; `written` has short names."""
    runs = {written.get(name, name): summaries[name] for name in names if name in summaries}
    parts = [[float(run[f"costs_{q}"]) for run in runs.values()] for q in (50, 10, 90)]
    look = {"color": palette.AMBER, "marker": "o", "linestyle": "none", "label": "median, 10th to 90th percentile"}
    page.bars(axes, range(len(runs)), *parts, **look)
    axes.legend(loc="upper left")
    axes.axhline(0.0, color=palette.GUIDE, linewidth=0.7)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_xticks(range(len(runs)), [*runs], rotation=40, ha="right", fontsize=page.SMALLEST)
    axes.set(ylabel="change of log loss", ylim=(-10, 1e4))
    axes.set_title("(d) what hard attention would change")
