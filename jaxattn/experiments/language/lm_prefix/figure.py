"""The figure of starts on prefixes: how direction errors fall along the steps, and where every start ends."""

from __future__ import annotations

from collections.abc import Sequence

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language import outcomes
from jaxattn.experiments.language.lm_prefix.claims import EXACT, PLAIN, SELECTS
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.rows import Column, draw_rows, grouped

_DASHES = {EXACT: "-", PLAIN: "--"}
_STEPS = {EXACT: "normalized", PLAIN: "plain"}
_COLOURS = dict(zip((0.0, 1.0, 10.0), palette.ramp(3), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel of direction errors for each dimension, and below what became of the starts of each run."""
    runs = sorted(summaries.values(), key=_order)
    dimensions = sorted({run.attrs["data.d"] for run in runs}, reverse=True)
    with page.style():
        figure = page.full(5.9)
        # In inches, nearly: the key, the curves, and the rows.
        heights = (0.2, 2.0, 1.2 + 0.14 * max(len(runs), 4))
        top, above, below = (figure.add_subfigure(row) for row in figure.add_gridspec(3, 1, height_ratios=heights))
        panels = above.subplots(1, len(dimensions), sharex=True, sharey=True, squeeze=False)[0]
        for letter, axes, d in zip("ab", panels, dimensions, strict=False):
            equal = [run for run in runs if run.attrs["data.d"] == d and run.attrs["data.head.delta"] == 0]
            _curves(axes, equal)
            furthest = max(float(run["reached"][-1]) for run in equal if run.attrs["optimizer"] == EXACT)
            within = (
                f"normalized steps that serve all\nprefixes come within {page.at_most(furthest)} of the hard margin"
            )
            axes.set_title(f"({letter}) $d = {d}$: {within}")
        panels[0].set_ylabel("direction error, 1 - cos")
        colours = {f"start: {_start(scale)}": colour for scale, colour in _COLOURS.items()}
        dashes = {f"{_STEPS[rule]} steps": dash for rule, dash in _DASHES.items()}
        page.key(top, colours, dashes, loc="center", ncols=5, columnspacing=1.2)
        _outcomes(below.subplots(), runs, "abc"[len(dimensions)])
        verdicts = [judgements[f"lm-prefix:{scores}"].verdict for scores in ("equal", "close")]
        figure.suptitle(
            "$W$ converges to the hard margin from any start, equal scores: {}; close scores: {}".format(*verdicts)
        )
        page.add_counts(
            figure,
            {_written(run): run for run in summaries.values()},
            "Curves: equal scores, starts that serve all prefixes, means over texts with 95 % intervals. (c): 1 - cos "
            "with the hard margin at the last step. Unserved: behind by more than the margin along the limit of $W$. "
            f"All selected: attention of at least {SELECTS:g} to every optimal token, 95 % interval over texts.",
            counted="starts",
        )
    return figure


def _order(run: xarray.Dataset) -> tuple[float, ...]:
    rest = (run.attrs[name] for name in ("data.head.delta", "data.d", "weights.scale"))
    return (run.attrs["optimizer"] == PLAIN, *rest)


def _curves(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    for run in runs:
        curve = (run[part].values for part in ("snapshot", "reached", "reached_low", "reached_high"))
        look = {"color": _COLOURS[run.attrs["weights.scale"]], "linestyle": _DASHES[run.attrs["optimizer"]]}
        page.band(axes, *curve, **look)
    axes.set(xlabel="step", xscale="log", yscale="log")


def _outcomes(axes: Axes, runs: Sequence[xarray.Dataset], letter: str) -> None:
    """Draw what became of the starts of every run, and write how many select their tokens."""
    columns = (
        Column("steps", grouped([_STEPS[run.attrs["optimizer"]] for run in runs]), -182),
        Column(r"$\delta$", [f"{run.attrs['data.head.delta']:g}" for run in runs], -132),
        Column("$d$", [f"{run.attrs['data.d']}" for run in runs], -102),
        Column("start", [_start(run.attrs["weights.scale"]) for run in runs], -78),
        Column("unserved in", [f"{int(run['left'])} of {int(run['starts'])}" for run in runs], 6),
        Column("all selected", [_selected(run) for run in runs], 56),
    )
    left, starts = (sum(int(run[name]) for run in runs) for name in ("left", "starts"))
    title = f"({letter}) {left} of {starts} starts leave prefixes unserved"
    draw_rows(axes, columns, outcomes.parts(runs, "starts"), title=title, xlabel="share of starts")


def _selected(run: xarray.Dataset) -> str:
    shares = (f"{100 * float(run[f'share_selected{part}']):.0f}" for part in ("", "_low", "_high"))
    return "{} % [{}, {}]".format(*shares)


def _start(scale: float) -> str:
    return f"normal, scale {scale:g}" if scale else "$W = 0$"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    d, delta, scale, rule = (run.attrs[name] for name in ("data.d", "data.head.delta", "weights.scale", "optimizer"))
    return rf"$d = {d}$, $\delta = {delta:g}$, {_start(scale)}, {_STEPS[rule]} steps"
