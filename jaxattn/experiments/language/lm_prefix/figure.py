"""The figure of starts on prefixes: how direction errors fall along the steps, and where every start ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from jaxattn.experiments.language import outcomes
from jaxattn.experiments.language.lm_prefix.claims import CLAIMS, SELECTS
from jaxattn.study.claims import refuted
from jaxattn.study.style import page, palette
from jaxattn.study.style.rows import Column, draw_rows, grouped

_RUN = xarray.Dataset
_DASHES = {"exact direction": "-", "plain": "--"}
_STEPS = {"exact direction": "normalized", "plain": "plain"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel of direction errors for each dimension, and below what became of the starts of each run.

    Args:
        summaries: of `claims.summarize`.
    """
    runs = list(summaries.values())
    dimensions = sorted({one.attrs["d"] for one in runs}, reverse=True)
    with page.style():
        figure = page.full(5.6)
        # In inches, nearly: the key, the curves, and the rows.
        heights = (0.2, 2.0, 1.2 + 0.14 * max(len(runs), 4))
        top, above, below = (figure.add_subfigure(row) for row in figure.add_gridspec(3, 1, height_ratios=heights))
        panels = np.atleast_1d(above.subplots(1, len(dimensions), sharex=True, sharey=True))
        for letter, axes, d in zip("abcdef", panels, dimensions, strict=False):
            own = [one for one in runs if one.attrs["d"] == d and one.attrs["delta"] == 0]
            for one in own:
                curve = (one[part].values for part in ("snapshot", "reached", "reached_low", "reached_high"))
                page.band(axes, *curve, **_look(one, runs))
            axes.set(title=f"({letter}) $d = {d}$: {_furthest(own)}", xlabel="step", xscale="log", yscale="log")
        panels[0].set_ylabel("direction error, 1 - cos")
        _key(top, runs)
        _outcomes(below.subplots(), runs, "abcdefg"[len(dimensions)], _refuted(summaries))
        page.add_counts(
            figure,
            {_written(one): one for one in runs},
            "Curves: equal scores, starts that serve all prefixes, means over texts with 95 % intervals. Unserved: "
            f"behind by more than the margin along the limit of $W$. All selected: attention of at least {SELECTS:g} "
            "to every optimal token, with the 95 % interval over texts.",
            counted="starts",
        )
    return figure


def _refuted(summaries: Mapping[str, xarray.Dataset]) -> bool:
    """Return whether convergence from any start does not hold as stated, with equal or with close scores."""
    return any(not name.endswith("selection") for name in refuted(CLAIMS, summaries))


def _look(one: _RUN, runs: Sequence[_RUN]) -> dict[str, str]:
    scales = sorted({each.attrs["scale"] for each in runs})
    colour = palette.ramp(len(scales))[scales.index(one.attrs["scale"])]
    return {"color": colour, "linestyle": _DASHES[one.attrs["rule"]]}


def _key(part: SubFigure, runs: Sequence[_RUN]) -> None:
    """Explain the curves above them."""
    looks = {one.attrs["scale"]: _look(one, runs)["color"] for one in runs}
    colours = {
        f"start: normal, scale {scale:g}" if scale else "start: $W = 0$": looks[scale] for scale in sorted(looks)
    }
    rules = {one.attrs["rule"] for one in runs}
    dashes = {f"{_STEPS[rule]} steps": dash for rule, dash in _DASHES.items() if rule in rules}
    page.key(part, colours, dashes, loc="center", ncols=5, columnspacing=1.2)


def _furthest(runs: Sequence[_RUN]) -> str:
    """Say how near the starts that serve all prefixes come along the exact direction."""
    exact = [float(one["reached"][-1]) for one in runs if one.attrs["rule"] == "exact direction"]
    if not exact:
        return "plain steps only"
    return f"normalized steps that serve all\nprefixes come within {page.at_most(max(exact))} of the hard margin"


def _outcomes(axes: Axes, runs: Sequence[_RUN], letter: str, is_refuted: bool) -> None:
    """Draw what became of the starts of every run, and write how many select their tokens."""
    runs = sorted(runs, key=lambda one: tuple(one.attrs[name] for name in ("rule", "delta", "d", "scale")))
    steps = [_STEPS[one.attrs["rule"]] for one in runs]
    columns = (
        Column("steps", grouped(steps), -182),
        Column(r"$\delta$", [f"{one.attrs['delta']:g}" for one in runs], -132),
        Column("$d$", [f"{one.attrs['d']}" for one in runs], -102),
        Column("start", [_start(one) for one in runs], -78),
        Column("unserved in", [f"{int(one['left'])} of {int(one['starts'])}" for one in runs], 6),
        Column("all selected", [_selected(one) for one in runs], 56),
    )
    parts = outcomes.parts(runs, "starts", "on the way")
    left, starts = (sum(int(one[name]) for one in runs) for name in ("left", "starts"))
    says = "convergence from any start is refuted:" if is_refuted else "all runs:"
    title = f"({letter}) {says}\n{left} of {starts} starts leave prefixes unserved"
    draw_rows(axes, columns, parts, title=title, xlabel="share of starts")


def _selected(one: _RUN) -> str:
    shares = (f"{100 * float(one[f'share_selected{part}']):.0f}" for part in ("", "_low", "_high"))
    return "{} % [{}, {}]".format(*shares)


def _start(one: _RUN) -> str:
    return f"normal, scale {one.attrs['scale']:g}" if one.attrs["scale"] else "$W = 0$"


def _written(one: _RUN) -> str:
    """Return a readable name of a run."""
    told = one.attrs
    return rf"$d = {told['d']}$, $\delta = {told['delta']:g}$, {_start(one)}, {_STEPS[told['rule']]} steps"
