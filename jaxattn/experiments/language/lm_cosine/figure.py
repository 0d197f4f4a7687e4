"""The cosine figure of the second paper: descent on texts against max-margin solutions, over m, n and d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.study.claims import LEAST_SEEDS, Datasets, Judgements
from jaxattn.study.style import page, palette

_SIZES = {"m": "sequences, $m$", "n": "words of a sequence, $n$", "d": "dimension, $d$"}
# Texts by kind, and the solution they are compared with: the attribute that counts them, label, colour, marker, and the
# factor that moves its points aside.
_KINDS = {
    "soft_0": ("with_hard", "hard solution: from the soft one", palette.TEAL, "o", 0.93),
    "soft_1": ("without_hard", "no hard solution: from the soft one", palette.WINE, "s", 1.0),
    "mixed_1": (
        "with_mixed",
        r"no hard solution: from $W_{\mathrm{fin}} + C\,W_{\mathrm{sets}}$",
        palette.AMBER,
        "^",
        1.07,
    ),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a column a size that is swept: the cosine of all texts above, both kinds of texts apart below."""
    default = {name: _common(summaries, name) for name in _SIZES}
    with page.style():
        figure = page.full(5.6)
        panels = figure.subplots(2, 3, sharey="row")
        for (above, below), size, letters in zip(panels.T, _SIZES, ("ad", "be", "cf"), strict=True):
            others = [name for name in _SIZES if name != size]
            swept = [
                run for run in summaries.values() if all(run.attrs[f"data.{name}"] == default[name] for name in others)
            ]
            swept.sort(key=lambda run: run.attrs[f"data.{size}"])
            for run, colour in zip(swept, palette.ramp(len(swept)), strict=True):
                _together(above, run, colour, size)
            fixed = ", ".join(f"${name} = {default[name]}$" for name in others)
            ends = [float(run["soft"][-1]) for run in swept]
            above.set(
                title=f"({letters[0]}) ${size}$ varies, {fixed}:\nends at {_range(ends)}",
                xscale="log",
                xlabel="step",
            )
            above.legend(
                loc="lower right", title="texts with a hard solution", ncols=2, columnspacing=0.8, handlelength=1.2
            )
            for name in _KINDS:
                _apart(below, swept, size, name)
            below.set(title=f"({letters[1]}) {_finding(swept)}", xscale="log", yscale="log", xlabel=_SIZES[size])
            values = [run.attrs[f"data.{size}"] for run in swept]
            below.set_xticks(values, [str(value) for value in values])
            below.minorticks_off()
            below.margins(x=0.12)
        panels[0, 0].set(ylabel="cosine with soft-margin solution, all texts", ylim=(0.1, 1.02))
        panels[1, 0].set_ylabel("direction error, 1 - cos")
        figure.legend(handles=_key(), loc="outside upper center", ncols=3)
        page.add_counts(figure, summaries, _remark(summaries), counted="texts")
    return figure


def _common(summaries: Datasets, name: str) -> int:
    """Return the value of a size that most runs have: the one it has where another is swept."""
    values, times = np.unique([run.attrs[f"data.{name}"] for run in summaries.values()], return_counts=True)
    return int(values[np.argmax(times)])


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end(values):.3f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _finding(swept: Sequence[xarray.Dataset]) -> str:
    """Say where each kind of texts ends, over the sizes with enough of them."""
    found = []
    for kind, name, side, pick in (
        ("hard solution", "soft_0", r"\leq", max),
        ("no hard solution", "soft_1", r"\geq", min),
    ):
        ends = [float(run[name][-1]) for run in swept if run.attrs[_KINDS[name][0]] >= LEAST_SEEDS]
        found.append(f"{kind}: ${side}$ {page.power(pick(ends))}" if ends else f"{kind}: too few texts")
    return ",\n".join(found)


def _together(axes: Axes, run: xarray.Dataset, colour: str, size: str) -> None:
    curve = (run[part].values for part in ("snapshot", "soft", "soft_low", "soft_high"))
    page.band(axes, *curve, color=colour, label=f"${size} = {run.attrs[f'data.{size}']}$: {float(run['feasible']):.0%}")
    if run.attrs["five"] > 1:
        few = run.isel(snapshot=np.unique(np.linspace(0, run.sizes["snapshot"] - 1, 4).astype(int)))
        axes.errorbar(
            few["snapshot"], few["five"], few["five_error"], fmt="x", color=colour, markersize=3.5, elinewidth=0.7
        )


def _apart(axes: Axes, swept: Sequence[xarray.Dataset], size: str, name: str) -> None:
    """Draw the final means of a kind of texts, each with a tail from a tenth of the steps; hollow if texts are few."""
    of, _, colour, marker, aside = _KINDS[name]
    for run in swept:
        if name not in run:
            continue
        steps, enough = run["snapshot"].values, run.attrs[of] >= LEAST_SEEDS
        earlier = int(np.argmin(np.abs(np.log(steps * 10 / steps[-1]))))
        x, end = run.attrs[f"data.{size}"] * aside, run.isel(snapshot=-1)
        axes.plot([x, x], [run[name][earlier], end[name]], color=colour, linewidth=0.8, alpha=0.5)
        axes.plot(x, run[name][earlier], "_", color=colour, markersize=6)
        error = np.abs(np.array([[end[f"{name}_low"]], [end[f"{name}_high"]]]) - float(end[name])) if enough else None
        face = colour if enough else "none"
        axes.errorbar([x], [end[name]], error, fmt=marker, color=colour, markersize=4, markerfacecolor=face)
        if not enough:
            texts = f"{run.attrs[of]} text{'s' * (run.attrs[of] > 1)}"
            axes.annotate(
                texts, (x, end[name]), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=7
            )


def _key() -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linestyle="none", label=label)
        for _, label, colour, marker, _ in _KINDS.values()
    ]
    grey: dict[str, Any] = {"color": palette.GUIDE, "linestyle": "none"}
    return [
        *handles,
        Line2D([], [], **grey, marker="_", markersize=6, label="the same at a tenth of the steps"),
        Line2D(
            [], [], **grey, marker="o", markerfacecolor="none", markersize=4, label=f"fewer than {LEAST_SEEDS} texts"
        ),
        Line2D([], [], **grey, marker="x", markersize=3.5, label="first five texts, standard error"),
    ]


def _remark(summaries: Datasets) -> str:
    last = int(next(iter(summaries.values()))["snapshot"][-1])
    few = {name: texts for name, run in summaries.items() if 0 < (texts := run.attrs["with_hard"]) < LEAST_SEEDS}
    said = "".join(
        f" At {name} only {texts} {'text has' if texts == 1 else 'texts have'} one." for name, texts in few.items()
    )
    return (
        "A text has a hard solution if its training tokens can be separated. Bands and bars: 95 % bootstrap intervals "
        f"of the mean; (d) to (f): geometric means at step {last}.{said}"
    )
