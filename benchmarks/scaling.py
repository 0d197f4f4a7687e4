"""Draw the scaling figures: the solvers' time per problem, and the time per step of training, against each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LABELS = {
    "n": "inputs $n$",
    "T": "tokens $T$",
    "d": "dimension $d$",
    "batch": "problems in the batch",
    "seeds": "seeds in the batch",
    "devices": "virtual devices, two cores",
    "m": "sequences $m$",
    "words": "words a sequence $n$",
    "V": "vocabulary $V$",
}
# The candidates of a text.
_CANDIDATES = {"vocabulary": "among the vocabulary", "prefix": "among the prefix"}
_COLOURS = palette.COLOURS | {"vocabulary": palette.TEAL, "prefix": palette.WINE}
_DASHES = palette.DASHES | {"vocabulary": "-", "prefix": "--"}


def draw(lines: Sequence[Mapping[str, Any]], unit: str) -> Figure:
    """Draw one panel per size, each curve with the exponent of its last three points.

    Args:
        lines: one per curve and size, as stored by `make bench`: `of` (a norm, W or KQ, or candidates), `size`,
            `values`, `times`, `exponent`, and under `middle` the other sizes.
        unit: the unit of the times.
    """
    sizes = dict.fromkeys(line["size"] for line in lines)
    with page.style():
        figure = page.full(2.9)
        panels = dict(zip(sizes, figure.subplots(1, len(sizes), sharey=True), strict=True))
        for line in lines:
            of = line["of"]
            look = {"color": _COLOURS[of], "linestyle": _DASHES[of], "marker": "o"}
            axes = panels[line["size"]]
            axes.loglog(line["values"], line["times"], label=(page.NORMS | page.RUNS | _CANDIDATES)[of], **look)
            # One tick per size: powers of ten would label few of them, and minor ticks too many.
            ticks = sorted({value for other in lines if other["size"] == line["size"] for value in other["values"]})
            axes.set_xticks(ticks, [str(value) for value in ticks])
            axes.minorticks_off()
            end = line["values"][-1], line["times"][-1]
            grows = round(line["exponent"], 1) + 0.0  # Avoids "-0.0".
            axes.annotate(f"{grows:.1f}", end, (5, 0), textcoords="offset points", color=look["color"])
        for size, axes in panels.items():
            axes.set(xlabel=_LABELS[size])
            axes.margins(x=0.15)
        first = next(iter(panels.values()))
        first.legend(loc="best")
        first.set_ylabel(unit)
        middle = ", ".join(f"{name} = {value}" for name, value in lines[0]["middle"].items())
        page.note(
            figure,
            f"One size is varied at a time around {middle}. Numbers: exponents, slopes of the last three points.",
        )
    return figure
