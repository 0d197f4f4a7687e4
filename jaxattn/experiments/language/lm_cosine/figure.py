"""The cosine figure of the second paper: descent on texts against max-margin solutions, over m, n and d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.language.lm_cosine.claims import THERE, WELL
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
    """Draw the cosine of all texts along the steps (a), and where both kinds of texts end over each size (b to d)."""
    runs = list(summaries.values())
    last = int(runs[0]["snapshot"][-1])
    verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
    with page.style():
        figure = page.full(5.4)
        # In inches, nearly: the key and two rows of panels.
        key, rows = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.4, 4.4)))
        panels = rows.subplots(2, 2).ravel()
        _together(panels[0], _swept(runs, "m"))
        panels[0].set_title(f"(a) cosine with the soft-margin solution\nover all texts is large: {verdicts['works']}")
        for axes, letter, size in zip(panels[1:], "bcd", _SIZES, strict=True):
            _apart(axes, _swept(runs, size), size)
            others = ", ".join(f"${name} = {value}$" for name, value in _DEFAULTS.items() if name != size)
            axes.set_title(f"({letter}) {others}")
            axes.sharey(panels[1])
        key.legend(handles=_key(), loc="center", ncols=3)
        figure.suptitle(
            f"$W$ converges to the soft-margin solution if there is a hard one: {verdicts['feasible']}; "
            f"else: {verdicts['conflict']}"
        )
        page.add_counts(
            figure,
            summaries,
            "Bands and bars: 95 % bootstrap intervals of the mean. (b) to (d): geometric means of both kinds of texts "
            f"at step {last:,}; percentages: texts without a hard solution.",
            counted="texts",
        )
    return figure


def _swept(runs: Sequence[xarray.Dataset], size: str) -> list[xarray.Dataset]:
    """Return the runs in which all other sizes have their default, by increasing size."""
    others = {f"data.{name}": value for name, value in _DEFAULTS.items() if name != size}
    return sorted(
        [run for run in runs if others.items() <= run.attrs.items()], key=lambda run: run.attrs[f"data.{size}"]
    )


def _together(axes: Axes, swept: Sequence[xarray.Dataset]) -> None:
    """Draw the cosine of all texts along the steps, and at its end that of the first five."""
    for run, colour in zip(swept, palette.ramp(len(swept)), strict=True):
        curve = (run[part].values for part in ("snapshot", "soft", "soft_low", "soft_high"))
        page.band(axes, *curve, color=colour, label=f"$m = {run.attrs['data.m']}$")
        look = {"fmt": "x", "color": colour, "markersize": 3.5, "elinewidth": 0.7, "clip_on": False}
        axes.errorbar(run["snapshot"][-1:], run["five"][-1:], run["five_error"][-1:], **look)
    axes.set(xscale="log", xlabel="step", ylabel="cosine with soft-margin solution")
    axes.axhline(WELL, color=palette.INK, linewidth=0.7, linestyle="--")
    beside(axes, f"large: {WELL:g}", (1, WELL), (0, 2), va="bottom")
    axes.legend(loc="lower right", title="mean, all texts")


def _apart(axes: Axes, swept: Sequence[xarray.Dataset], size: str) -> None:
    """Draw the final means of each kind of texts, hollow if the texts are few."""
    for name, (count, _, colour, marker, aside) in _KINDS.items():
        for run in [run for run in swept if name in run]:
            mean, low, high = (float(run[f"{name}{part}"][-1]) for part in ("", "_low", "_high"))
            face = colour if run.attrs[count] >= LEAST_SEEDS else "none"
            x = [run.attrs[f"data.{size}"] * aside]
            page.bars(axes, x, [mean], [low], [high], fmt=marker, color=colour, markerfacecolor=face)
    values = [run.attrs[f"data.{size}"] for run in swept]
    axes.axhline(THERE, color=palette.INK, linewidth=0.7, linestyle="--")
    beside(axes, f"converged: {THERE:g}", (values[0], THERE), (0, 2), va="bottom")
    unsolvable = [f"{100 * float(run['feasible_1']):.0f} %" for run in swept]
    axes.set(xscale="log", yscale="log", xlabel=_SIZES[size], ylabel="direction error, 1 - cos")
    axes.set_xticks(values, [f"{value}\n{share}" for value, share in zip(values, unsolvable, strict=True)])
    axes.minorticks_off()
    axes.margins(x=0.12, y=0.1)


def _key() -> list[Line2D]:
    looks: list[dict[str, Any]] = [
        {"color": colour, "marker": marker, "label": label} for _, label, colour, marker, _ in _KINDS.values()
    ]
    looks += [
        {"marker": "o", "label": f"fewer than {LEAST_SEEDS} texts", "markerfacecolor": "none"},
        {"marker": "x", "label": "first five texts, standard error"},
    ]
    grey: dict[str, Any] = {"color": palette.GUIDE, "linestyle": "none", "markersize": 4}
    return [Line2D([], [], **{**grey, **look}) for look in looks]
