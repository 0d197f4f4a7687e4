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
from jaxattn.study.style.labels import beside

_SIZES = {"m": "sequences, $m$", "n": "words of a sequence, $n$", "d": "dimension, $d$"}
# The size where another one is swept.
_DEFAULTS = {"m": 10, "n": 5, "d": 100}
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
    last = int(next(iter(summaries.values()))["snapshot"][-1])
    with page.style():
        figure = page.full(5.6)
        panels = figure.subplots(2, 3, sharey="row")
        for (above, below), size, letters in zip(panels.T, _SIZES, ("ad", "be", "cf"), strict=True):
            others = {name: value for name, value in _DEFAULTS.items() if name != size}
            swept = [
                run
                for run in summaries.values()
                if all(run.attrs[f"data.{name}"] == value for name, value in others.items())
            ]
            swept.sort(key=lambda run: run.attrs[f"data.{size}"])
            fixed = ", ".join(f"${name} = {value}$" for name, value in others.items())
            _together(above, swept, size)
            ends = page.span((float(run["soft"][-1]) for run in swept), ".3f")
            above.set_title(f"({letters[0]}) ${size}$ varies, {fixed}:\nends at {ends}")
            _apart(below, swept, size)
            below.set_title(f"({letters[1]}) {_finding(swept)}")
        panels[0, 0].set(ylabel="cosine with soft-margin solution, all texts", ylim=(0.1, 1.02))
        panels[1, 0].set_ylabel("direction error, 1 - cos")
        figure.legend(handles=_key(), loc="outside upper center", ncols=3)
        page.add_counts(
            figure,
            summaries,
            "A text has a hard solution if its training tokens can be separated. Bands and bars: 95 % bootstrap "
            f"intervals of the mean; (d) to (f): geometric means at step {last}.",
            counted="texts",
        )
    return figure


def _finding(swept: Sequence[xarray.Dataset]) -> str:
    """Say where each kind of texts ends, over all sizes that have such texts."""
    parts = []
    for kind, name, pick in ((r"hard solution: $\leq$", "soft_0", max), (r"no hard solution: $\geq$", "soft_1", min)):
        ends = [float(run[name][-1]) for run in swept if name in run]
        parts.append(f"{kind} {page.power(pick(ends)) if ends else '-'}")
    return ",\n".join(parts)


def _together(axes: Axes, swept: Sequence[xarray.Dataset], size: str) -> None:
    """Draw the cosine of all texts along the steps, and of the first five at some of them."""
    for run, colour in zip(swept, palette.ramp(len(swept)), strict=True):
        curve = (run[part].values for part in ("snapshot", "soft", "soft_low", "soft_high"))
        label = f"${size} = {run.attrs[f'data.{size}']}$: {float(run['feasible_0']):.0%}"
        page.band(axes, *curve, color=colour, label=label)
        few = run.isel(snapshot=np.unique(np.linspace(0, run.sizes["snapshot"] - 1, 4).astype(int)))
        look = {"fmt": "x", "color": colour, "markersize": 3.5, "elinewidth": 0.7}
        axes.errorbar(few["snapshot"], few["five"], few["five_error"], **look)
    axes.set(xscale="log", xlabel="step")
    axes.legend(loc="lower right", title="texts with a hard solution", ncols=2, columnspacing=0.8, handlelength=1.2)


def _apart(axes: Axes, swept: Sequence[xarray.Dataset], size: str) -> None:
    """Draw the final means of each kind of texts, with a tail from a tenth of the steps; hollow if texts are few."""
    for name, (count, _, colour, marker, aside) in _KINDS.items():
        for run in [run for run in swept if name in run]:
            steps, texts = run["snapshot"].values, run.attrs[count]
            x, tenth = run.attrs[f"data.{size}"] * aside, int(np.argmin(np.abs(np.log(steps * 10 / steps[-1]))))
            earlier, end = float(run[name][tenth]), float(run[name][-1])
            axes.plot([x, x], [earlier, end], color=colour, linewidth=0.8, alpha=0.5)
            axes.plot(x, earlier, "_", color=colour, markersize=6)
            look = {"fmt": marker, "color": colour, "markersize": 4}
            if texts >= LEAST_SEEDS:
                low, high = (float(run[f"{name}_{bound}"][-1]) for bound in ("low", "high"))
                axes.errorbar([x], [end], [[end - low], [high - end]], **look)
            else:
                axes.errorbar([x], [end], markerfacecolor="none", **look)
                beside(axes, f"{texts} text{'s' * (texts > 1)}", (x, end), (-6, 0), ha="right", va="center")
    values = [run.attrs[f"data.{size}"] for run in swept]
    axes.set(xscale="log", yscale="log", xlabel=_SIZES[size])
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.margins(x=0.12)


def _key() -> list[Line2D]:
    looks: list[dict[str, Any]] = [
        {"color": colour, "marker": marker, "markersize": 4, "label": label}
        for _, label, colour, marker, _ in _KINDS.values()
    ]
    looks += [
        {"marker": "_", "markersize": 6, "label": "the same at a tenth of the steps"},
        {"marker": "o", "markersize": 4, "label": f"fewer than {LEAST_SEEDS} texts", "markerfacecolor": "none"},
        {"marker": "x", "markersize": 3.5, "label": "first five texts, standard error"},
    ]
    grey: dict[str, Any] = {"color": palette.GUIDE, "linestyle": "none"}
    return [Line2D([], [], **{**grey, **look}) for look in looks]
