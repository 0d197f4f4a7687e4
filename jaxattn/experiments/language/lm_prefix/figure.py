"""The figure of starts on prefixes: how direction errors fall along the steps, and where every start ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from jaxattn.experiments.language import outcomes
from jaxattn.experiments.language.lm_prefix.claims import EXACT, PLAIN, SELECTS
from jaxattn.study.claims import Datasets, Judgements, Verdict
from jaxattn.study.style import page, palette
from jaxattn.study.style.rows import Column, draw_rows, grouped

_DASHES = {EXACT: "-", PLAIN: "--"}
_STEPS = {EXACT: "normalized", PLAIN: "plain"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel of direction errors for each dimension, and below what became of the starts of each run."""
    runs = list(summaries.values())
    theorems = (judgements[f"lm-prefix:{name}"].verdict for name in ("equal", "close"))
    is_refuted = any(verdict in (Verdict.FAILS, Verdict.CORRECTED) for verdict in theorems)
    dimensions = sorted({run.attrs["data.d"] for run in runs}, reverse=True)
    with page.style():
        figure = page.full(5.6)
        # In inches, nearly: the key, the curves, and the rows.
        heights = (0.2, 2.0, 1.2 + 0.14 * max(len(runs), 4))
        top, above, below = (figure.add_subfigure(row) for row in figure.add_gridspec(3, 1, height_ratios=heights))
        panels = np.atleast_1d(above.subplots(1, len(dimensions), sharex=True, sharey=True))
        for letter, axes, d in zip("abcdef", panels, dimensions, strict=False):
            own = [run for run in runs if run.attrs["data.d"] == d and run.attrs["data.head.delta"] == 0]
            for run in own:
                curve = (run[part].values for part in ("snapshot", "reached", "reached_low", "reached_high"))
                page.band(axes, *curve, **_look(run, runs))
            axes.set(title=f"({letter}) $d = {d}$: {_furthest(own)}", xlabel="step", xscale="log", yscale="log")
        panels[0].set_ylabel("direction error, 1 - cos")
        _key(top, runs)
        _outcomes(below.subplots(), runs, "abcdefg"[len(dimensions)], is_refuted)
        page.add_counts(
            figure,
            {_written(run): run for run in runs},
            "Curves: equal scores, starts that serve all prefixes, means over texts with 95 % intervals. Unserved: "
            f"behind by more than the margin along the limit of $W$. All selected: attention of at least {SELECTS:g} "
            "to every optimal token, with the 95 % interval over texts.",
            counted="starts",
        )
    return figure


def _look(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> dict[str, str]:
    scales = sorted({other.attrs["weights.scale"] for other in runs})
    colour = palette.ramp(len(scales))[scales.index(run.attrs["weights.scale"])]
    return {"color": colour, "linestyle": _DASHES[run.attrs["optimizer"]]}


def _key(part: SubFigure, runs: Sequence[xarray.Dataset]) -> None:
    """Explain the curves above them."""
    looks = {run.attrs["weights.scale"]: _look(run, runs)["color"] for run in runs}
    colours = {
        f"start: normal, scale {scale:g}" if scale else "start: $W = 0$": looks[scale] for scale in sorted(looks)
    }
    rules = {run.attrs["optimizer"] for run in runs}
    dashes = {f"{_STEPS[rule]} steps": dash for rule, dash in _DASHES.items() if rule in rules}
    page.key(part, colours, dashes, loc="center", ncols=5, columnspacing=1.2)


def _furthest(runs: Sequence[xarray.Dataset]) -> str:
    """Say how near the starts that serve all prefixes come along the exact direction."""
    exact = [float(run["reached"][-1]) for run in runs if run.attrs["optimizer"] == EXACT]
    if not exact:
        return "plain steps only"
    return f"normalized steps that serve all\nprefixes come within {page.at_most(max(exact))} of the hard margin"


def _outcomes(axes: Axes, runs: Sequence[xarray.Dataset], letter: str, is_refuted: bool) -> None:
    """Draw what became of the starts of every run, and write how many select their tokens."""
    order = ("data.head.delta", "data.d", "weights.scale")
    runs = sorted(runs, key=lambda run: (run.attrs["optimizer"] == PLAIN, *(run.attrs[name] for name in order)))
    steps = [_STEPS[run.attrs["optimizer"]] for run in runs]
    columns = (
        Column("steps", grouped(steps), -182),
        Column(r"$\delta$", [f"{run.attrs['data.head.delta']:g}" for run in runs], -132),
        Column("$d$", [f"{run.attrs['data.d']}" for run in runs], -102),
        Column("start", [_start(run) for run in runs], -78),
        Column("unserved in", [f"{int(run['left'])} of {int(run['starts'])}" for run in runs], 6),
        Column("all selected", [_selected(run) for run in runs], 56),
    )
    parts = outcomes.parts(runs, "starts", "on the way")
    left, starts = (sum(int(run[name]) for run in runs) for name in ("left", "starts"))
    says = "convergence from any start is refuted:" if is_refuted else "all runs:"
    title = f"({letter}) {says}\n{left} of {starts} starts leave prefixes unserved"
    draw_rows(axes, columns, parts, title=title, xlabel="share of starts")


def _selected(run: xarray.Dataset) -> str:
    shares = (f"{100 * float(run[f'share_selected{part}']):.0f}" for part in ("", "_low", "_high"))
    return "{} % [{}, {}]".format(*shares)


def _start(run: xarray.Dataset) -> str:
    return f"normal, scale {run.attrs['weights.scale']:g}" if run.attrs["weights.scale"] else "$W = 0$"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    d, delta, optimizer = (run.attrs[name] for name in ("data.d", "data.head.delta", "optimizer"))
    return rf"$d = {d}$, $\delta = {delta:g}$, {_start(run)}, {_STEPS[optimizer]} steps"
