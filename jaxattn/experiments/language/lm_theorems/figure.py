"""The figure of plain descent on texts: directions along the time from W = 0, and where other starts end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from jaxattn.experiments.language import arrival
from jaxattn.experiments.language.lm_theorems.claims import delta, furthest, paths
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside
from jaxattn.study.style.rows import Column, draw_rows, grouped

# By increasing step.
_DASHES = (":", "-")
_LOSSES = {"logistic": "logistic", "cross_entropy": "cross entropy", "printed": "as printed", "turned": "sign reversed"}
_STEPS = {"scale_free_gd": "normalized", "gd": "plain"}
_ERROR = "direction error,\n1 - cos"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw direction errors along the time (a to c), and where starts end (d)."""
    runs = list(paths(summaries).values())
    ends = [run for loss in _LOSSES for run in summaries.values() if run.attrs.get("loss") == loss]
    with page.style():
        figure = page.full(5.9)
        # In inches, nearly: the key, the panels, and the rows of (d).
        heights = (0.2, 1.75, 1.35 + 0.14 * max(len(ends), 4))
        key, above, below = (figure.add_subfigure(row) for row in figure.add_gridspec(3, height_ratios=heights))
        _errors(above.subplots(1, 3, sharey=True), runs)
        _outcomes(below.subplots(), ends)
        _key(key, runs)
        verdicts = [judgements[f"lm-theorems:{name}"].verdict for name in ("equal", "cross-entropy", "printed")]
        figure.suptitle(
            "$W$ converges to the hard margin from any start, logistic loss: {};\n"
            "cross entropy: {}; the loss as printed: {}".format(*verdicts)
        )
        least = (100 * float(run["infeasible_least"]) for run in runs if "infeasible_least" in run)
        page.add_counts(
            figure,
            {_written(run): run for run in (*runs, *ends) if run.attrs["attempted"] > 1},
            "(a) to (c): from $W = 0$, means with 95 % intervals; $L$ bounds the curvature. (c): words that keep "
            f"attention, tied; in {page.span(least, '.0f', ' %')} of the texts those of least risk. (d): direction "
            "errors from the hard margin at the last step; turned away: above 1; unserved: behind by more than the "
            "margin along the limit of $W$.",
            counted="texts",
        )
    return figure


def _look(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> dict[str, str]:
    deltas = sorted({delta(other) for other in runs})
    steps = sorted({other.attrs["optimizer.step_size"] for other in runs})
    colour = palette.ramp(len(deltas))[deltas.index(delta(run))]
    return {"color": colour, "linestyle": _DASHES[steps.index(run.attrs["optimizer.step_size"])]}


def _key(part: SubFigure, runs: Sequence[xarray.Dataset]) -> None:
    """Explain the curves of (a) to (c) above them."""
    colours, dashes = {}, {}
    for run in runs:
        step, look = run.attrs["optimizer.step_size"], _look(run, runs)
        within = max(float(other["within"]) for other in runs if other.attrs["optimizer.step_size"] == step)
        scores = "scores of other words within" if delta(run) else "equal scores,"
        colours[rf"{scores} $\delta = {delta(run):g}$"] = look["color"]
        dashes[rf"step $\eta = {step:g} \leq {within:.2g}/L$"] = look["linestyle"]
    page.key(part, colours, dashes, loc="center", ncols=4, columnspacing=1.2)


def _curves(axes: Axes, runs: Sequence[xarray.Dataset], name: str) -> list[xarray.Dataset]:
    """Draw a band for every run with texts of this kind, and return these runs."""
    drawn = [run for run in runs if name in run]
    for run in drawn:
        page.course(axes, run, name, "time", **_look(run, runs))
    axes.set(xlabel=r"time $\eta k$", xscale="log")
    return drawn


def _errors(panels: Sequence[Axes], runs: Sequence[xarray.Dataset]) -> None:
    """Draw the direction errors of both kinds of texts."""
    last = furthest({str(k): run for k, run in enumerate(runs)}).values()
    errors = (("feasible_off", "hard"), ("infeasible_off_soft", "soft"), ("infeasible_off", "tied"))
    for axes, letter, (name, solution) in zip(panels, "abc", errors, strict=True):
        drawn, kind = _curves(axes, runs, name), name.partition("_")[0]
        texts = page.span(int(run[f"{kind}_texts"]) for run in runs)
        largest = max((float(run[name][-1]) for run in last if name in run), default=np.nan)
        axes.set(title=f"({letter}) {texts} {kind} texts:\n{largest:.2g} from the {solution} margin", yscale="log")
        if solution == "soft" and drawn:
            level = float(np.mean([run["infeasible_apart"] for run in drawn]))
            axes.axhline(level, color=palette.INK, linewidth=0.7, linestyle="--")
            at = {"xycoords": axes.get_yaxis_transform(), "va": "top"}
            beside(axes, "the tied margin of (c)", (0.04, level), (0, -2), **at)
    panels[0].set_ylabel(_ERROR)


def _outcomes(axes: Axes, ends: Sequence[xarray.Dataset]) -> None:
    """Draw what became of the starts of every run, in shares of its texts."""
    columns = (
        Column("loss", grouped([_LOSSES[run.attrs["loss"]] for run in ends]), -214),
        Column("text", [_text(run) for run in ends], -158),
        Column(r"$\delta$", [f"{delta(run):g}" for run in ends], -114),
        Column(r"$\|W(0)\|_F$", [_start(run) for run in ends], -94),
        Column("steps", [_STEPS[run.attrs["optimizer"]] for run in ends], -46),
        Column("unserved in", [_left([run]) for run in ends], 6),
    )
    logistic, entropy = (
        _left([run for run in ends if run.attrs["loss"] == loss]) for loss in ("logistic", "cross_entropy")
    )
    title = f"(d) any start: with the logistic loss, {logistic}\nleave prefixes unserved (cross entropy: {entropy})"
    draw_rows(axes, columns, arrival.parts(ends, "texts"), title=title, xlabel="share of texts")


def _left(ends: Sequence[xarray.Dataset]) -> str:
    left, texts = (sum(int(run[name]) for run in ends) for name in ("left", "texts"))
    return f"{left} of {texts}"


def _start(run: xarray.Dataset) -> str:
    along = r", $Wz \parallel e_b$" if run.attrs["weights"] == "toward" else ""
    return f"{run.attrs['weights.radius']:g}{along}"


def _text(run: xarray.Dataset) -> str:
    return "two inputs" if run.attrs["data"] == "crossed" else f"d = {run.attrs['data.d']}"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    if "loss" not in run.attrs:
        return rf"$\delta = {delta(run):g}$, $\eta = {run.attrs['optimizer.step_size']:g}$"
    loss, steps = _LOSSES[run.attrs["loss"]], _STEPS[run.attrs["optimizer"]]
    return rf"{_text(run)}, {loss}, $\delta = {delta(run):g}$, start {_start(run)}, {steps}"
