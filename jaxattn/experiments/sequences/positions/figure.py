"""The sequence figure: direction errors of training and of regularization paths, without and with a causal mask."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from jaxattn.experiments.sequences.positions.claims import FALLING, LONG, PATH, PREFIXES
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import direction_error, nearest

# The dash of the longer runs.
_LONGER = ":"


class _Column(NamedTuple):
    """A run compared with both solutions; and, if there is one, a longer run by a variant, compared with one."""

    name: str
    run: str
    along: str = "snapshot"
    longer: str = ""
    norm: str = ""
    variant: str = ""


_COLUMNS = (
    _Column("$W$", "W", longer=LONG, norm="frobenius", variant="exact direction"),
    _Column("$(K, Q)$", "KQ", longer=FALLING, norm="nuclear", variant="falling steps"),
    _Column("path of $W$", PATH, along="radius"),
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row of panels for each attention: training W, training (K, Q), and the regularization path of W."""
    with page.style():
        figure = page.full(4.8)
        rows = figure.subplots(len(PREFIXES), len(_COLUMNS), sharex="col", sharey="col")
        letters, separable = iter("abcdef"), []
        for row, (attention, prefix) in zip(rows, PREFIXES.items(), strict=True):
            row[0].set_ylabel("direction error, 1 - cos")
            for axes, column in zip(row, _COLUMNS, strict=True):
                finding = _panel(axes, summaries, prefix, column)
                axes.set_title(f"({next(letters)}) {attention}, {column.name}:\n{finding}")
            if f"{prefix}W" in summaries:
                counts = summaries[f"{prefix}W"].attrs
                separable.append(f"{counts['optimal_kept']} of {counts['attempted']} problems ({attention})")
        for axes, column in zip(rows[-1], _COLUMNS, strict=True):
            axes.set_xlabel("step" if column.along == "snapshot" else "radius $R$")
        figure.legend(handles=_key(), loc="outside upper center", ncols=4, columnspacing=1.2)
        page.add_counts(
            figure,
            summaries,
            "Means over kept seeds with 95 % bootstrap intervals. Training is compared with the SVMs of the selected "
            f"tokens, the path with those of the optimal tokens, which one SVM separates in "
            f"{' and '.join(separable)}.",
        )
    return figure


def _panel(axes: Axes, summaries: Datasets, prefix: str, column: _Column) -> str:
    """Draw a column's runs, of which there are only some at size=small, and return the finding."""
    axes.set(xscale="log", yscale="log")
    # Between the powers of ten, labels of a short axis would overlap.
    axes.xaxis.set_minor_formatter(NullFormatter())
    if column.longer and prefix + column.longer in summaries:
        direction_error(axes, summaries[prefix + column.longer], column.norm, linestyle=_LONGER)
    if prefix + column.run not in summaries:
        return "not run"
    run = summaries[prefix + column.run]
    for norm in page.NORMS:
        direction_error(axes, run, norm, column.along)
    grows = f", norm like $k^{{{float(run['growth']):z.2f}}}$" if "growth" in run else ""
    return f"{page.NORMS[nearest(run, column.along)]} is nearest{grows}"


def _key() -> list[Line2D]:
    """Return the entries of the key: the norms, and the longer runs."""
    looks: list[tuple[str, str, Any]] = [(label, norm, palette.DASHES[norm]) for norm, label in page.NORMS.items()]
    for column in _COLUMNS[:2]:
        label = f"{page.NORMS[column.norm].removesuffix(' SVM')}, {column.variant}"
        looks.append((label, column.norm, _LONGER))
    return [Line2D([], [], label=label, color=palette.COLOURS[norm], linestyle=dash) for label, norm, dash in looks]
