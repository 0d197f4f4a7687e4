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
    """What the panels of a column show.

    Attributes:
        name: in their titles.
        run: compared with the solutions in both norms.
        along: its horizontal axis.
        longer: a run that is compared with one solution; empty without one.
        norm: of that solution.
        variant: in what that run differs from the published protocol.
    """

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
    """Draw a row of panels for each attention: training W, training (K, Q), and the regularization path of W.

    Each curve is a mean over seeds with its 95 % interval. The title of a panel names runs that are missing.
    """
    with page.style():
        figure = page.full(4.8)
        rows = figure.subplots(len(PREFIXES), len(_COLUMNS), sharex="col", sharey="col")
        letters = iter("abcdef")
        for row, attention in zip(rows, PREFIXES, strict=True):
            own = {run: summary for run, summary in summaries.items() if summary.attrs["data"] == attention}
            there = {run.removeprefix(PREFIXES[attention]): summary for run, summary in own.items()}
            row[0].set_ylabel("direction error, 1 - cos")
            for axes, column in zip(row, _COLUMNS, strict=True):
                found = _panel(axes, there, column)
                axes.set_title(f"({next(letters)}) {attention}, {column.name}:\n{found}")
        for axes, column in zip(rows[-1], _COLUMNS, strict=True):
            axes.set_xlabel("step" if column.along == "snapshot" else "radius $R$")
        figure.legend(handles=_key(), loc="outside upper center", ncols=4, columnspacing=1.2)
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _panel(axes: Axes, there: Datasets, column: _Column) -> str:
    """Draw what is there of a column's runs, and return the finding, or what is missing."""
    axes.set(xscale="log", yscale="log")
    # Between the powers of ten, labels of a short axis would overlap.
    axes.xaxis.set_minor_formatter(NullFormatter())
    if column.longer in there:
        direction_error(axes, there[column.longer], column.norm, linestyle=_LONGER)
    if column.run not in there:
        return f"run with {column.variant} only" if column.longer in there else "not run"
    one = there[column.run]
    for norm in map(str, one["norm"].values):
        direction_error(axes, one, norm, column.along)
    found = f"{page.NORMS[nearest(one, column.along)]} is nearest"
    return found if column.longer in ("", *there) else f"{found}\n({column.variant} not run)"


def _key() -> list[Line2D]:
    """Return the entries of the key: the norms, and the longer runs."""
    looks: dict[str, tuple[str, Any]]
    looks = {label: (palette.COLOURS[norm], palette.DASHES[norm]) for norm, label in page.NORMS.items()}
    for column in _COLUMNS:
        if column.longer:
            norm, _, _ = page.NORMS[column.norm].partition(" ")
            looks[f"{norm}, {column.variant}"] = palette.COLOURS[column.norm], _LONGER
    return [Line2D([], [], label=label, color=colour, linestyle=dash) for label, (colour, dash) in looks.items()]


def _remark(summaries: Datasets) -> str:
    """Say what the curves are, and whether the optimal tokens of all positions can be separated."""
    separable = [
        f"{one.attrs['optimal_kept']} of {one.attrs['attempted']} problems ({attention})"
        for attention, prefix in PREFIXES.items()
        if (one := summaries.get(f"{prefix}W")) is not None
    ]
    return (
        "Means over kept seeds with 95 % bootstrap intervals. Training is compared with the SVMs of the selected "
        "tokens, the path with those of the optimal tokens"
        + (f", which one SVM separates in {' and '.join(separable)}." if separable else ".")
    )
