"""The figure of plain descent on texts: directions and norm along the time from W = 0, and where other starts end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from jaxattn.experiments.language import outcomes
from jaxattn.experiments.language.lm_theorems.claims import delta, furthest, paths
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import End, beside, beside_ends
from jaxattn.study.style.rows import Column, draw_rows, grouped

# By increasing step.
_DASHES = (":", "-")
_LOSSES = {
    "logistic": "logistic",
    "cross_entropy": "cross entropy",
    "printed": "as printed",
    "turned": "sign reversed",
}
_STEPS = {"scale_free_gd": "normalized", "gd": "plain"}
_ERROR = "direction error,\n1 - cos"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw errors (a to c) and norm (d) along the time, a text of two inputs (e), and where starts end (f)."""
    runs = list(paths(summaries).values())
    ends = [run for loss in _LOSSES for run in summaries.values() if run.attrs.get("loss") == loss]
    with page.style():
        figure = page.full(7.2)
        # In inches, nearly: the key, two rows of panels, and the rows of (f).
        heights = (0.2, 1.75, 1.75, 1.35 + 0.14 * max(len(ends), 4))
        key, above, middle, below = (figure.add_subfigure(row) for row in figure.add_gridspec(4, height_ratios=heights))
        _errors(above.subplots(1, 3, sharey=True), runs)
        growth, two = middle.subplots(1, 2)
        _growth(growth, runs)
        _two_inputs(two, [run for run in ends if _is_known(run)])
        _outcomes(below.subplots(), ends)
        _key(key, runs)
        least = (100 * float(run["infeasible_least"]) for run in runs if "infeasible_least" in run)
        page.add_counts(
            figure,
            {_written(run): run for run in (*runs, *ends) if run.attrs["attempted"] > 1},
            "(a-d) From $W = 0$, with 95 % intervals of the mean; $L$ bounds the curvature. (c) Words that keep "
            f"attention, tied: in {page.span(least, '.0f', ' %')} of the texts those of least risk. (f) Unserved: "
            "behind by more than the margin along the limit of $W$.",
            counted="texts",
        )
    return figure


def _look(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> dict[str, str]:
    deltas = sorted({delta(other) for other in runs})
    steps = sorted({other.attrs["optimizer.step_size"] for other in runs})
    colour = palette.ramp(len(deltas))[deltas.index(delta(run))]
    return {"color": colour, "linestyle": _DASHES[steps.index(run.attrs["optimizer.step_size"])]}


def _key(part: SubFigure, runs: Sequence[xarray.Dataset]) -> None:
    """Explain the curves of (a) to (d) above them."""
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
        curve = (run[part].values for part in ("time", name, f"{name}_low", f"{name}_high"))
        page.band(axes, *curve, **_look(run, runs))
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


def _growth(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the norm on feasible texts, and a line that grows like the logarithm below the end of the highest curve."""
    drawn = _curves(axes, runs, "feasible_growth")
    if drawn:
        highest = max(drawn, key=lambda run: float(run["feasible_growth"][-1]))
        first, last = highest["time"].values[[0, -1]]
        times = np.geomspace(max(first, last / 1000), last, 3)
        line = float(highest["feasible_growth"][-1]) - 3 + np.log(times / last)
        axes.plot(times, line, color=palette.INK, linewidth=0.7, linestyle="--")
        beside(axes, r"$\log(\eta k)$ + constant", (times[1], line[1]), (4, -3), va="top")
    slopes = page.span((float(run["feasible_slope"]) for run in drawn), ".2f")
    axes.set_title(rf"(d) feasible texts: the norm grows like {slopes} $\log(\eta k)$")
    axes.set(ylabel=r"$\|W(k)\|_F\,/\,\|W_{mm}\|_F$", ylim=(0, None))


def _two_inputs(axes: Axes, known: Sequence[xarray.Dataset]) -> None:
    """Draw the direction errors of the text of two inputs from the known start, by loss."""
    labels, served = [], []
    axes.set(xlabel="step $k$", ylabel=_ERROR, xscale="log", yscale="log")
    for run in known:
        is_left, loss = int(run["left"]) > 0, _LOSSES[run.attrs["loss"]]
        axes.plot(run["snapshot"].values, run["off"].values, color=outcomes.LOST if is_left else outcomes.ARRIVED)
        labels.append(End(loss, float(run["snapshot"][-1]), float(run["off"][-1]), palette.INK))
        served.append(f"{loss} {'only one' if is_left else 'both'}")
    axes.set_title(f"(e) two inputs, from $Wz = (3, 0)$; served:\n{', '.join(served)}")
    beside_ends(axes, labels)


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
    title = f"(f) any start: with the logistic loss, {logistic}\nleave prefixes unserved (cross entropy: {entropy})"
    draw_rows(axes, columns, outcomes.parts(ends, "texts", "neither"), title=title, xlabel="share of texts")


def _left(ends: Sequence[xarray.Dataset]) -> str:
    left, texts = (sum(int(run[name]) for run in ends) for name in ("left", "texts"))
    return f"{left} of {texts}"


def _is_known(run: xarray.Dataset) -> bool:
    return run.attrs["weights"] == "toward"


def _start(run: xarray.Dataset) -> str:
    return f"{run.attrs['weights.radius']:g}" + ", as in (e)" * _is_known(run)


def _text(run: xarray.Dataset) -> str:
    return "two inputs" if run.attrs["data"] == "crossed" else f"d = {run.attrs['data.d']}"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    if "loss" not in run.attrs:
        return rf"$\delta = {delta(run):g}$, $\eta = {run.attrs['optimizer.step_size']:g}$"
    loss, steps = _LOSSES[run.attrs["loss"]], _STEPS[run.attrs["optimizer"]]
    return rf"{_text(run)}, {loss}, $\delta = {delta(run):g}$, start {_start(run)}, {steps}"
