"""The figure of plain descent on texts: directions and norm along the time from W = 0, and where other starts end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from jaxattn.experiments.language import outcomes
from jaxattn.experiments.language.lm_theorems.claims import delta, furthest, paths, starts
from jaxattn.study.claims import Datasets, Judgements, Verdict
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import End, beside_ends
from jaxattn.study.style.rows import Column, draw_rows, grouped

# By increasing step.
_DASHES = (":", "-", "--", "-.")
_LOSSES = {
    "logistic": "logistic",
    "cross_entropy": "cross entropy",
    "printed": "as printed",
    "turned": "sign reversed",
}
_ERROR = "direction error,\n1 - cos"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw errors (a to c) and norm (d) along the time, a text of two inputs (e), and where starts end (f)."""
    runs, ends = list(paths(summaries).values()), list(starts(summaries).values())
    wrong = {
        name.removeprefix("lm-theorems:")
        for name, judgement in judgements.items()
        if judgement.verdict in (Verdict.FAILS, Verdict.CORRECTED)
    }
    with page.style():
        figure = page.full(7.2)
        # In inches, nearly: the key, two rows of panels, and the rows of (f).
        heights = (0.2, 1.75, 1.75, 1.35 + 0.14 * max(len(ends), 4))
        parts = [figure.add_subfigure(row) for row in figure.add_gridspec(4, 1, height_ratios=heights)]
        _errors(parts[1].subplots(1, 3, sharey=True), runs, wrong)
        growth, two = parts[2].subplots(1, 2)
        _growth(growth, runs)
        _two_inputs(two, ends)
        _outcomes(parts[3].subplots(), ends, wrong)
        _key(parts[0], runs)
        page.add_counts(
            figure,
            {_written(run): run for run in (*runs, *ends) if run.attrs["attempted"] > 1},
            "(a-d) From $W = 0$, with 95 % intervals of the mean; $L$ bounds the curvature. (c) Words that keep "
            f"attention, tied: in {_least(runs)} of the texts those of least risk. (f) Unserved: behind by more than "
            "the margin along the limit of $W$.",
            counted="texts",
        )
    return figure


def _look(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> dict[str, object]:
    deltas = sorted({delta(other) for other in runs})
    steps = sorted({other.attrs["optimizer.step_size"] for other in runs})
    colour = palette.ramp(len(deltas))[deltas.index(delta(run))]
    return {"color": colour, "linestyle": _DASHES[steps.index(run.attrs["optimizer.step_size"]) % len(_DASHES)]}


def _key(part: SubFigure, runs: Sequence[xarray.Dataset]) -> None:
    """Explain the curves of (a) to (d) above them."""
    colours, dashes = {}, {}
    for run in runs:
        step = run.attrs["optimizer.step_size"]
        within = max(float(other["within"]) for other in runs if other.attrs["optimizer.step_size"] == step)
        look = _look(run, runs)
        told = (
            rf"scores of other words within $\delta = {delta(run):g}$" if delta(run) else r"equal scores, $\delta = 0$"
        )
        colours[told] = str(look["color"])
        dashes[rf"step $\eta = {step:g} \leq {within:.2g}/L$"] = look["linestyle"]
    page.key(part, colours, dashes, loc="center", ncols=4, columnspacing=1.2)


def _curves(axes: Axes, runs: Sequence[xarray.Dataset], name: str) -> list[xarray.Dataset]:
    """Draw a band for every run that has this variable, and return these runs."""
    drawn = [run for run in runs if name in run]
    for run in drawn:
        curve = (run[part].values for part in ("time", name, f"{name}_low", f"{name}_high"))
        page.band(axes, *curve, **_look(run, runs))
    axes.set(xlabel=r"time $\eta k$", xscale="log")
    return drawn


def _errors(panels: Sequence[Axes], runs: Sequence[xarray.Dataset], wrong: set[str]) -> None:
    """Draw the direction errors of both kinds of texts."""
    for axes, letter, name, solution in (
        (panels[0], "a", "feasible_off", "from the hard margin"),
        (panels[1], "b", "infeasible_off_soft", "from the soft margin"),
        (panels[2], "c", "infeasible_off", "from the tied margin"),
    ):
        drawn, kind = _curves(axes, runs, name), name.partition("_")[0]
        if drawn:
            axes.set_yscale("log")
        says = " refuted," if letter == "b" and "soft" in wrong else ""
        axes.set_title(f"({letter}) {_texts(runs, kind)}:{says}\n{_last(drawn, name)} {solution}")
        if letter == "b" and drawn:
            level = float(np.mean([float(run["infeasible_apart"]) for run in drawn]))
            axes.axhline(level, color=palette.INK, linewidth=0.7, linestyle="--")
            _beside(axes, 0.04, level, "the tied margin of (c)", "top", -2)
    panels[0].set_ylabel(_ERROR)


def _growth(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the norm on feasible texts, and a line that grows like the logarithm below the end of the highest curve."""
    drawn = _curves(axes, runs, "feasible_growth")
    says = "none"
    if drawn:
        slopes = sorted({f"{float(run['feasible_slope']):.2f}" for run in drawn})
        says = rf"the norm grows like {' to '.join({slopes[0]: 0, slopes[-1]: 0})} $\log(\eta k)$"
        run = max(drawn, key=lambda run: float(run["feasible_growth"][-1]))
        time, end = run["time"].values, float(run["feasible_growth"][-1])
        near = np.array([max(time[0], time[-1] / 1000), time[-1]])
        axes.plot(near, end - 3 + np.log(near / near[-1]), color=palette.INK, linewidth=0.7, linestyle="--")
        axes.annotate(
            r"$\log(\eta k)$ + constant",
            (float(np.sqrt(near[0] * near[-1])), end - 3 - 0.5 * float(np.log(near[-1] / near[0]))),
            xytext=(4, -3),
            textcoords="offset points",
            va="top",
            fontsize=page.SMALLEST,
        )
    axes.set(title=f"(d) feasible texts: {says}", ylabel=r"$\|W(k)\|_F\,/\,\|W_{mm}\|_F$", ylim=(0, None))


def _two_inputs(axes: Axes, ends: Sequence[xarray.Dataset]) -> None:
    """Draw the direction errors of the text of two inputs from the known start, by loss."""
    known = [run for run in ends if _is_known(run)]
    found, labels = "not run", []
    for run in known:
        is_left, loss = int(run["left"]) > 0, run.attrs["loss"]
        axes.plot(run["snapshot"].values, run["off"].values, color=outcomes.LOST if is_left else outcomes.ARRIVED)
        told = f"{_LOSSES[loss]} loss" if loss == "logistic" else _LOSSES[loss]
        labels.append(End(told, float(run["snapshot"][-1]), float(run["off"][-1]), palette.INK))
        if loss == "logistic":
            served = "serves only one" if is_left else "serves both"
            found = f"from $Wz = ({run.attrs['weights.radius']:g}, 0)$:\nthe logistic loss {served}"
    axes.set(title=f"(e) two inputs, {found}", xlabel="step $k$", ylabel=_ERROR)
    if known:
        axes.set(xscale="log", yscale="log")
        beside_ends(axes, labels)
    else:
        axes.axis("off")


def _outcomes(axes: Axes, ends: Sequence[xarray.Dataset], wrong: set[str]) -> None:
    """Draw what became of the starts of every run, in shares of its texts."""
    order = list(_LOSSES)
    ends = sorted(ends, key=lambda run: order.index(run.attrs["loss"]))
    losses = [_LOSSES[run.attrs["loss"]] for run in ends]
    left = [f"{int(run['left'])} of {int(run['texts'])}" for run in ends]
    columns = (
        Column("loss", grouped(losses), -214),
        Column("text", [_text(run) for run in ends], -158),
        Column(r"$\delta$", [f"{delta(run):g}" for run in ends], -114),
        Column(r"$\|W(0)\|_F$", [_start(run) for run in ends], -94),
        Column("steps", [_steps(run) for run in ends], -46),
        Column("unserved in", left, 6),
    )
    parts = outcomes.parts(ends, "texts", "neither")
    draw_rows(axes, columns, parts, title=_found(ends, wrong), xlabel="share of texts")


def _found(ends: Sequence[xarray.Dataset], wrong: set[str]) -> str:
    """Say how many starts leave prefixes unserved, by loss."""
    by_loss = []
    for loss in ("logistic", "cross_entropy"):
        own = [run for run in ends if run.attrs["loss"] == loss]
        by_loss.append("{} of {}".format(*(sum(int(run[name]) for run in own) for name in ("left", "texts"))))
    claim = "refuted for" if "equal" in wrong else "with"
    return (
        f"(f) any start: {claim} the logistic loss, {by_loss[0]}\nleave prefixes unserved (cross entropy: {by_loss[1]})"
    )


def _is_known(run: xarray.Dataset) -> bool:
    return run.attrs["weights"] == "toward"


def _start(run: xarray.Dataset) -> str:
    return f"{run.attrs['weights.radius']:g}" + ", as in (e)" * _is_known(run)


def _steps(run: xarray.Dataset) -> str:
    return "normalized" if run.attrs["optimizer"] == "scale_free_gd" else "plain"


def _text(run: xarray.Dataset) -> str:
    return "two inputs" if run.attrs["data"] == "crossed" else f"d = {run.attrs['data.d']}"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    if "weights.radius" not in run.attrs:
        return rf"$\delta = {delta(run):g}$, $\eta = {run.attrs['optimizer.step_size']:g}$"
    loss = _LOSSES[run.attrs["loss"]]
    return rf"{_text(run)}, {loss}, $\delta = {delta(run):g}$, start {_start(run)}, {_steps(run)}"


def _beside(axes: Axes, x: float, y: float, text: str, va: str, above: float) -> None:
    """Write beside a level, x as a share of the panel's width."""
    axes.annotate(
        text,
        (x, y),
        xycoords=axes.get_yaxis_transform(),
        xytext=(0, above),
        textcoords="offset points",
        va=va,
        fontsize=page.SMALLEST,
    )


def _last(runs: Sequence[xarray.Dataset], name: str) -> str:
    """Return the largest error at the end of the runs with the largest step."""
    if not runs:
        return "-"
    last = furthest({str(k): run for k, run in enumerate(runs)}).values()
    most = max(float(run[name][-1]) for run in last)
    return f"{most:.2g}" if most >= 1e-3 else page.power(most)


def _least(runs: Sequence[xarray.Dataset]) -> str:
    shares = sorted({round(100 * float(run["infeasible_least"])) for run in runs if "infeasible_least" in run})
    return f"{_span(shares)} %" if shares else "none"


def _texts(runs: Sequence[xarray.Dataset], kind: str) -> str:
    number = _span(sorted({int(run[f"{kind}_texts"]) for run in runs})) if runs else "0"
    return f"{number} {kind} text{'s' * (number != '1')}"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
