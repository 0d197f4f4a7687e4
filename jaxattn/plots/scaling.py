"""The scaling figure: milliseconds an instance of the SVM solvers against each size of the problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from jaxattn.plots import page

_LABELS = {"n": "inputs $n$", "T": "tokens $T$", "d": "dimension $d$", "batch": "problems in the batch"}


def draw(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw one panel a size, both norms, each with the exponent of its last three points.

    Args:
        lines: one a norm and size, as `make bench` keeps them: `norm`, `size`, `values`, `ms`, `exponent`, and
            under `middle` the sizes that stay.
    """
    with page.style():
        figure = page.new_figure(10.0, 2.9)
        panels = dict(zip(_LABELS, figure.subplots(1, len(_LABELS), sharey=True), strict=True))
        for line in lines:
            norm = line["norm"]
            look = {"color": page.COLOURS[norm], "linestyle": page.DASHES[norm], "marker": "o"}
            axes = panels[line["size"]]
            axes.loglog(line["values"], line["ms"], label=page.NORMS[norm], **look)
            # Each size at its own tick: powers of ten would name few of them, minor ticks too many.
            axes.set_xticks(line["values"], [str(value) for value in line["values"]])
            axes.minorticks_off()
            end = line["values"][-1], line["ms"][-1]
            axes.annotate(f"{line['exponent']:.1f}", end, (5, 0), textcoords="offset points", color=look["color"])
        for size, axes in panels.items():
            axes.set(xlabel=_LABELS[size])
            axes.margins(x=0.15)
        panels["n"].legend(loc="upper left")
        panels["n"].set_ylabel("milliseconds a problem")
        middle = ", ".join(f"{name} = {value}" for name, value in lines[0]["middle"].items())
        figure.supxlabel(
            f"One size is varied at a time around {middle}. Numbers: exponents, slopes of the last three points.",
            fontsize=7,
            color="#444444",
        )
    return figure
