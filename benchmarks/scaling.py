"""Draw the scaling figures: the solvers' time per problem, and the time per step of training, against each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LABELS = {
    "n": "inputs $n$",
    "T": "tokens $T$",
    "d": "dimension $d$",
    "batch": "problems in the batch",
    "seeds": "seeds in the batch",
    "devices": "virtual devices, 1,024 seeds",
    "m": "sequences $m$",
    "words": "words a sequence $n$",
    "V": "vocabulary $V$",
}
# The candidates of a text.
_CANDIDATES = {"vocabulary": "among the vocabulary", "prefix": "among the prefix"}
# Sizes over which the cost of one problem is shared; what it costs at best is more telling than how it falls.
_SHARED = {"batch", "seeds", "devices"}
_NAMES = page.NORMS | page.RUNS | _CANDIDATES
_SHORT = {"frobenius": "Frobenius", "vocabulary": "vocabulary", "prefix": "prefix", "nuclear": "nuclear"} | page.RUNS
_COLOURS = palette.COLOURS | {"vocabulary": palette.TEAL, "prefix": palette.WINE}
_DASHES = palette.DASHES | {"vocabulary": "-", "prefix": "--"}


def draw(lines: Sequence[Mapping[str, Any]], unit: str) -> Figure:
    """Draw one panel per size: medians with quartiles of the rounds where these are known, and exponents as titles.

    Args:
        lines: one per curve and size, as stored by `make bench`: `of` (a norm, W or KQ, or candidates), `size`,
            `values`, `times`, `exponent`, under `middle` the other sizes, and as `timing.curve` adds them `quartiles`,
            `exponent quartiles`, `rounds` and `processor`. Older ones lack these.
        unit: the unit of the times.
    """
    sizes = dict.fromkeys(line["size"] for line in lines)
    with page.style():
        figure = page.full(3.3)
        panels = dict(zip(sizes, figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], strict=True))
        for letter, (size, axes) in zip("abcdefgh", panels.items(), strict=False):
            own = [line for line in lines if line["size"] == size]
            for line in own:
                _curve(axes, line)
            # One tick per size: powers of ten would label few of them, and minor ticks too many.
            ticks = sorted({value for line in own for value in line["values"]})
            axes.set(xscale="log", yscale="log", xlabel=_LABELS[size])
            axes.set_xticks(ticks, [str(value) for value in ticks])
            axes.minorticks_off()
            axes.margins(x=0.12)
            found = [f"{_SHORT[line['of']]}: {_found(line)}" for line in own]
            axes.set_title("\n".join([f"({letter}) {found[0]}", *found[1:]]), fontsize=page.SMALLEST)
        first = next(iter(panels.values()))
        # Whole decades, so that there are at least two ticks.
        low, high = np.log10(first.get_ylim())
        first.set(ylabel=unit, ylim=(10 ** np.floor(low), 10 ** np.ceil(high)))
        figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        page.note(figure, _note(lines))
    return figure


def _curve(axes: Axes, line: Mapping[str, Any]) -> None:
    of = line["of"]
    look = {"color": _COLOURS[of], "linestyle": _DASHES[of], "marker": "o", "markersize": 3.5, "label": _NAMES[of]}
    errors = None
    if "quartiles" in line:
        low, high = np.array(line["quartiles"])
        errors = np.clip([line["times"] - low, high - line["times"]], 0, None)
    axes.errorbar(line["values"], line["times"], errors, elinewidth=0.8, capsize=1.5, **look)


def _found(line: Mapping[str, Any]) -> str:
    """Say how the time grows with a size, or at which number of problems, seeds or devices it is least."""
    size = line["size"]
    if size in _SHARED:
        return f"least at {line['values'][int(np.argmin(line['times']))]:,}"
    letter = "n" if size == "words" else size
    grows = f"${letter}^{{{round(line['exponent'], 1) + 0.0:.1f}}}$"  # Avoids "-0.0".
    if line.get("exponent quartiles"):
        low, high = (f"{round(end, 1) + 0.0:.1f}" for end in line["exponent quartiles"])
        grows += f" ({low} to {high})" if low != high else ""
    return grows


def _note(lines: Sequence[Mapping[str, Any]]) -> str:
    names = {"batch": "problems", "seeds": "seeds", "words": "n"}
    given = [f"{value:,} {names[name]}" for name, value in lines[0]["middle"].items() if name in ("batch", "seeds")]
    given += [
        f"${names.get(name, name)} = {value}$" for name, value in lines[0]["middle"].items() if name not in _SHARED
    ]
    said = f"One size is varied at a time around {', '.join(given)}. Exponents: slopes of the last three points"
    rounds = sorted({line["rounds"] for line in lines if "rounds" in line})
    if not rounds or not all("quartiles" in line for line in lines):
        return f"{said}. Medians of several rounds, whose spread was not recorded, nor the processor's name."
    processors = sorted({line["processor"] for line in lines})
    return (
        f"{said}, their quartiles over rounds in brackets. Medians of {' or '.join(map(str, rounds))} rounds, bars: "
        f"quartiles. Processor: {'; '.join(processors)}."
    )
