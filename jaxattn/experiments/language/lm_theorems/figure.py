"""The figure of plain descent on texts: direction and norm of W along the time, by kind of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_theorems import paths
from jaxattn.study.style import page, palette

# By increasing step.
_DASHES = (":", "-", "--", "-.")
# Starts that arrive, that end elsewhere, and that are on the way.
_ARRIVED, _LOST, _MOVING = palette.FROBENIUS, palette.WINE, palette.EXCLUDED


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw direction and norm of feasible texts and direction of the others, and below where drawn starts end.

    Args:
        summaries: of `claims.summarize`.
    """
    runs = list(paths.plain(summaries).values())
    feasible, infeasible = (sorted({int(one[f"{kind}_texts"]) for one in runs}) for kind in ("feasible", "infeasible"))
    panels = (
        ("feasible_off", "(a) feasible texts:\nhard margin", r"1 - correlation with the solution"),
        ("infeasible_off_soft", "(b) infeasible texts:\nsoft margin, $C = 10$", ""),
        ("infeasible_off", "(c) infeasible texts:\ntied hard margin", ""),
        ("feasible_growth", "(d) feasible texts: norm", r"$\|W(k)\|_F\,/\,\|W_{mm}\|_F$"),
    )
    with page.style():
        figure = page.full(7.2)
        above, below = (figure.add_subfigure(half) for half in figure.add_gridspec(2, 1))
        row = above.subplots(1, 4)
        for axes, (name, title, label) in zip(row, panels, strict=True):
            _curves(axes, runs, name)
            axes.set(title=title, ylabel=label, xlabel=r"time $\eta k$", xscale="log")
            if name.endswith("growth"):
                _logarithm(axes, runs)
                axes.set_ylim(0, 1.4 * axes.get_ylim()[1])
            else:
                axes.set_yscale("log")
        shown = [axes for axes in row[:3] if axes.lines]
        limits = np.array([axes.get_ylim() for axes in shown])
        for axes in shown:
            axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())
        _apart(row[1], runs)
        for axes, place in ((row[1], "lower left"), (row[3], "upper left")):
            if axes.get_legend_handles_labels()[1]:
                axes.legend(loc=place)
        ends = list(paths.started(summaries).values())
        two, outcomes = below.subplots(1, 2, width_ratios=(1, 1.3))
        _two_inputs(two, ends)
        _outcomes(outcomes, ends)
        page.add_counts(
            figure,
            summaries,
            f"{_span(feasible)} texts a run are feasible: some W separates all next words. {_span(infeasible)} are not:"
            " one word asks for different ones. Tied hard margin: of the words that a run keeps attending to; "
            f"in {_least(runs)} of the infeasible texts those of least risk. Means with 95 % bootstrap intervals. "
            "(f): left behind: the next word is more than the margin behind along the solution of the prefixes that "
            "are served, to which W has come.",
        )
    return figure


def _curves(axes: Axes, runs: Sequence[xarray.Dataset], name: str) -> None:
    deltas = sorted({one.attrs["delta"] for one in runs})
    steps = sorted({one.attrs["step_size"] for one in runs})
    for one in runs:
        if name not in one:
            continue
        delta, step = one.attrs["delta"], one.attrs["step_size"]
        label = f"$\\delta = {delta:g}$, $\\eta = {step:g}$ = {float(one['within']):.2g} / $L$"
        page.band(
            axes,
            *(one[part].values for part in ("time", name, f"{name}_low", f"{name}_high")),
            color=palette.ramp(len(deltas))[deltas.index(delta)],
            linestyle=_DASHES[steps.index(step) % len(_DASHES)],
            label=label if name.endswith("growth") else None,
        )


def _two_inputs(axes: Axes, ends: Sequence[xarray.Dataset]) -> None:
    """Draw the direction of the text of two inputs from the known start, by loss."""
    for one in ends:
        if one.attrs["text"] != "two inputs" or "along" not in one.attrs["run"]:
            continue
        loss = one.attrs["loss"].replace("_", " ")
        colour = _LOST if loss == "logistic" else _ARRIVED
        axes.plot(one["snapshot"].values, one["off"].values, color=colour, label=f"{loss} loss")
        if loss == "logistic":
            axes.axhline(1 - 10**-0.5, color="black", linewidth=0.7, linestyle="--", label="the served input alone")
    axes.set(
        title="(e) two inputs, from $Wz = (3, 0)$: with the\nlogistic loss one of them is never served",
        xlabel="steps",
        ylabel="1 - correlation with the solution",
        xscale="log",
        yscale="log",
    )
    if axes.lines:
        axes.legend(loc="lower left")


def _outcomes(axes: Axes, ends: Sequence[xarray.Dataset]) -> None:
    """Draw what became of the starts of every run, in shares of its texts."""
    rows = np.arange(len(ends))[::-1]
    start = np.zeros(len(ends))
    for name, colour, label in (
        ("arrived", _ARRIVED, "at the hard margin of all"),
        ("left", _LOST, "prefixes left behind"),
        ("moving", _MOVING, "neither"),
    ):
        share = np.array([int(one[name]) / int(one["texts"]) for one in ends])
        axes.barh(rows, share, left=start, color=colour, label=label, height=0.7)
        start = start + share
    for row, one in zip(rows, ends, strict=True):
        axes.text(1.02, row, f"{int(one['left'])} of {int(one['texts'])}", va="center", fontsize=7)
    axes.set_yticks(rows, [_named(one) for one in ends], fontsize=7)
    axes.set(title="(f) where descent ends, by text, loss and start", xlabel="share of texts", xlim=(0, 1.15))
    axes.set_ylim(-0.7, len(ends) + 1.8)
    if ends:
        axes.legend(loc="upper left", ncols=2, columnspacing=0.8, handlelength=1.2)


def _named(one: xarray.Dataset) -> str:
    """Return a short name of a run of (f)."""
    told = one.attrs
    start = rf"$\|W(0)\| = {told['radius']:g}$" if told["radius"] else "$W(0) = 0$"
    known = " (known)" if "along" in told["run"] else ""
    plain = ", plain steps" if told["rule"] != "exact direction" else ""
    loss, text = told["loss"].replace("_", " "), told["text"].removeprefix("texts, ")
    return rf"{text}, {loss}, $\delta = {told['delta']:g}$, {start}{known}{plain}"


def _apart(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw a line at 1 - correlation of the soft margin with the tied one."""
    apart = [float(one["infeasible_apart"]) for one in runs if "infeasible_apart" in one]
    if apart:
        level = float(np.mean(apart))
        axes.axhline(level, color="black", linewidth=0.7, linestyle="--", label="tied hard margin itself")


def _logarithm(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw a line that grows like the logarithm, below the end of the highest curve."""
    drawn = [one for one in runs if "feasible_growth" in one]
    if drawn:
        one = max(drawn, key=lambda each: float(each["feasible_growth"][-1]))
        time, end = one["time"].values, float(one["feasible_growth"][-1])
        near = np.array([time[-1] / 1000, time[-1]])
        line = end - 3 + np.log(near / near[-1])
        axes.plot(near, line, color="black", linewidth=0.7, label=r"$\log(\eta k)$ + constant")


def _least(runs: Sequence[xarray.Dataset]) -> str:
    shares = sorted({round(100 * float(one["infeasible_least"])) for one in runs if "infeasible_least" in one})
    return f"{_span(shares)} %" if shares else "none"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
