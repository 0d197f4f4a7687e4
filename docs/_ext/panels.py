"""The panels of the pictures: titles, axes and keys; pictures.js draws in them.

An axis has a label, the ends of its values, ticks with names, and `by`, what function of a value it is linear in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Axis = dict[str, Any]
Panel = dict[str, Any]


def linear(label: str, ends: Sequence[float], ticks: Sequence[float], names: Sequence[Any] = ()) -> Axis:
    """Return an axis with these ticks, called by their values if no names are given."""
    shown = [str(name) for name in names] or [f"{tick:g}" for tick in ticks]
    return {"label": label, "ends": list(ends), "ticks": list(ticks), "names": shown, "by": "value"}


def logarithmic(label: str, ends: Sequence[float], every: int = 1) -> Axis:
    """Return a logarithmic axis with ticks at the powers of ten, or at those divisible by `every`."""
    low, high = (round(math.log10(end), 9) for end in ends)
    powers = [power for power in range(math.ceil(low), math.floor(high) + 1) if power % every == 0]
    names = ["1" if power == 0 else f"1e{power}" for power in powers]
    ticks = [10.0**power for power in powers]
    return {"label": label, "ends": list(ends), "ticks": ticks, "names": names, "by": "logarithm"}


def curbed(label: str, ends: Sequence[float]) -> Axis:
    """Return an axis that is linear near zero and logarithmic away from it."""
    ticks = [tick for tick in (-100, -10, -1, 0, 1, 10, 100) if ends[0] < tick < ends[1]]
    return linear(label, ends, ticks) | {"by": "asinh"}


def panel(title: str, x: Axis, y: Axis, height: int = 290) -> Panel:
    """Return a panel; it is 360 wide."""
    return {"title": title, "x": x, "y": y, "height": height}


def _flat(values: Any) -> Iterable[float]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _trajectories(view: Any) -> list[Panel]:
    T = len(view["seeds"][0]["X"][0])
    reach = 1.25 * max(abs(value) for seed in view["seeds"] for value in _flat(seed["X"]))
    across, up = (linear(f"{which} coordinate", (-reach, reach), (-1, 0, 1)) for which in ("first", "second"))
    places = [*range(T), *range(T + 1, 2 * T + 1)]
    tokens = linear("tokens of input 1 (left) and 2 (right)", (-1, 2 * T + 1), places, [*range(1, T + 1)] * 2)
    steps = logarithmic("step", (1, max(steps[-1] for steps in view["steps"].values())))
    return [
        panel("", across, up, 372),
        panel("Attention", tokens, linear("probability", (0, 1), (0, 0.5, 1))),
        panel("Distance from both solutions", steps, logarithmic("1 - cos", (1e-8, 2), 2)),
    ]


def _trap(view: Any) -> list[Panel]:
    across = linear("first coordinate of W z", (view["first"][0], view["first"][-1]), (-6, -4, -2, 0, 2))
    up = linear("second, the scores'", (view["second"][0], view["second"][-1]), (-2, 0, 2))
    return [panel("Risk over W z: click a start", across, up, 260)]


def _ranks(view: Any) -> list[Panel]:
    most = max(len(setting["certified"][0]) for setting in view["settings"])
    fives = range(0, most + 1, 5)
    which = linear("number of the singular value", (0.2, most + 0.8), [1, *fives[1:]])
    tolerances = linear("log10 of the tolerance", (-12, -1), (-12, -9, -6, -3))
    return [
        panel("Singular values over the largest", which, linear("log10", (-17.5, 0.5), (-16, -12, -8, -4, 0))),
        panel("Mean rank against the tolerance", tolerances, linear("mean rank", (0, most + 0.5), fives)),
    ]


def _atlas(view: Any) -> list[Panel]:
    steps = logarithmic("step", (1, max(row["steps"][-1] for row in view["rows"])))
    # What begins far below 0 is cut off: all of interest is above.
    low = max(-0.5, min(0.0, *_flat([row["ratio"] for row in view["rows"]])))
    ticks = [tick for tick in (-0.5, 0, 0.5, 1) if tick >= low]
    return [panel("", steps, linear("mean margin ratio", (low, 1.02), ticks), 240)]


def _margins(view: Any) -> list[Panel]:
    margins = [value for text in view["texts"] for value in _flat(text["margins"])]
    margin = curbed("margin", (1.3 * min(*margins, -1.0), 1.3 * max(margins)))
    steps = logarithmic("step", (view["steps"][0], view["steps"][-1]))
    kinds = linear("", (2.5, -0.5), (0, 1, 2), "ABC")
    return [panel("Every margin along the steps", steps, margin), panel("Margins at this step", margin, kinds)]


def _paths(view: Any) -> list[Panel]:
    distances = [value for path in view["paths"] for seeds in path["distance"].values() for value in _flat(seeds)]
    ends = (min(distances) / 1.3, 1.3 * max(distances))
    radii = logarithmic("radius R", (view["radii"][0], view["radii"][-1]))
    frobenius = logarithmic("distance from the Frobenius solution", ends)
    return [
        panel("Distance against the radius", radii, logarithmic("distance", ends)),
        panel("Every seed at this radius", frobenius, logarithmic("from the nuclear solution", ends)),
    ]


def _heads(view: Any) -> list[Panel]:
    heads = view["heads"]
    T = max(len(sequence) for head in heads for sequence in head["sequences"])
    steps = logarithmic("step", (heads[0]["steps"][0], heads[0]["steps"][-1]))
    # What begins far below 0 is cut off, as in the figure.
    ratio = linear("margin ratio", (-0.5, 1.05), (-0.5, 0, 0.5, 1))
    # The letters stand in the first row and in the first column.
    read, query = (linear(label, ends, ()) for label, ends in (("read", (-1.6, T - 0.4)), ("query", (T - 0.4, -1.6))))
    return [panel("Margin ratio along the steps", steps, ratio), panel("Attention at this step", read, query)]


# By the kind of a picture.
PANELS: dict[str, Callable[[Any], list[Panel]]] = {
    kind.__name__[1:]: kind for kind in (_trajectories, _trap, _ranks, _atlas, _margins, _paths, _heads)
}
_NORMS = {"frobenius": "from the Frobenius solution", "nuclear": "from the nuclear solution"}
# What the looks of a picture mean.
KEYS: dict[str, dict[str, str]] = {
    "trajectories": {"first": "input 1", "second": "input 2", "ray": "ray of the solution", **_NORMS},
    "trap": {"contour": "equal risk", "second": "steepest descent", "minimum": "local minimum", "saddle": "saddle"}
    | {"ray": "direction of the solution"},
    "ranks": {"frobenius": "certified", "nuclear": "inexact", "published": "published tolerance"},
    "atlas": {"frobenius": "the chosen norm", "contour": "the other norms"},
    "margins": {
        "third": "A: no conflict",
        "first": "B: with a conflict, other words",
        "second": "C: with a conflict, words that also follow",
    },
    "paths": {**_NORMS, "third": "a seed"},
    "heads": {
        "nuclear": "the head",
        "contour": "untrained matrices, 5 and 95 %",
        "second": "mean of the rows",
        "zero": "the head when it first selected its final tokens",
        "shade": "attention",
        "selected": "selected at the end",
        "saddle": "support vector",
    },
}
