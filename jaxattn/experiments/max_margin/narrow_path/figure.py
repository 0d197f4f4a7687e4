"""The narrow-path figure: the path of few columns against the best solution found, and the margin of descent."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

# Margins below this are drawn as this: descent ends at other tokens.
_LEAST = -1.0
# Where descent ends: marker, its words, and the height that they stand above.
_ENDS = {True: ("o", "the\noptimal tokens", 1.25), False: ("x", "other\ntokens", _LEAST)}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of the paths over the radius, and the margin of every descent."""
    colours = dict(zip(summaries, palette.ramp(len(summaries)), strict=True))
    with page.style():
        figure = page.full(3.7)
        left, middle, right = figure.subplots(1, 3)
        for (name, run), dashes in zip(summaries.items(), palette.STYLES, strict=False):
            look = {"color": colours[name], "linestyle": dashes, "label": f"$m = {run.attrs['weights.m']}$"}
            curve = (run[part].values for part in ("radius", "distance", "distance_low", "distance_high"))
            page.band(left, *curve, **look)
            short = (1 - run[part].values for part in ("share", "share_high", "share_low"))
            page.band(middle, run["radius"].values, *short, **look)
        first = next(iter(summaries.values()))
        last, distance = float(first["radius"][-1]), float(first["distance"][-1])
        guide = {"color": palette.INK, "linewidth": 0.7, "linestyle": ":"}
        left.plot([last / 10, last], [25 * distance, 2.5 * distance], label="$R^{-1}$", **guide)
        powers = " and ".join(f"$R^{{{float(run['exponent']):.2f}}}$" for run in summaries.values())
        left.set(
            title=f"(a) distance from the best solution: {powers}", xlabel="radius $R$", xscale="log", yscale="log"
        )
        left.set_ylabel("distance of the path from the best")
        left.legend(loc="lower left", title="mean, 95 % interval")
        short = max(1 - float(run["share"][-1]) for run in summaries.values())
        middle.set_title(f"(b) its margin is {short:.1%} short of the best's")
        middle.set(xlabel="radius $R$", ylabel="1 - margin / that of the best", xscale="log", yscale="log")
        _descents(right, summaries, colours)
        every, there = (sum(run.attrs[name] for run in summaries.values()) for name in ("above", "there"))
        right.set_title(f"(c) {every - there} of {every} descents end at other tokens")
        verdicts = {name: judgements[f"narrow-path:{name}"].verdict for name in ("limit", "descent", "margin")}
        figure.suptitle(
            f"The path of $(K, Q)$ with few columns tends to the best solution of this rank: {verdicts['limit']}.\n"
            f"Descent follows the path: {verdicts['descent']}; where it ends at the same tokens, it has the path's "
            f"margin: {verdicts['margin']}"
        )
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _descents(axes: Axes, summaries: Datasets, colours: dict[str, str]) -> None:
    """Draw every descent's margin over that of the path, in increasing order, by the tokens that it ends at."""
    for x, (name, run) in enumerate(summaries.items()):
        margins, there = run["each_margin"].values, run["end"].values
        order = np.argsort(margins)
        spread, heights = x + np.linspace(-0.35, 0.35, len(order)), np.maximum(margins[order], _LEAST)
        for is_there, (marker, label, height) in _ENDS.items():
            drawn = there[order] == is_there
            axes.scatter(spread[drawn], heights[drawn], s=12, marker=marker, color=colours[name], linewidths=0.8)
            if drawn.any():
                look = {"ha": "center", "va": "bottom", "color": colours[name]}
                beside(axes, f"{drawn.sum()} at {label}", (x, height), (0, 6), **look)
    axes.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(summaries)), [f"$m = {run.attrs['weights.m']}$" for run in summaries.values()])
    axes.set_yticks([_LEAST, -0.5, 0, 0.5, 1], [rf"$\leq{_LEAST:g}$", "$-0.5$", "0.0", "0.5", "1.0"])
    axes.set(xlim=(-0.5, len(summaries) - 0.5), ylim=(_LEAST - 0.1, 1.8))
    axes.set_ylabel("margin / that of the path")


def _remark(summaries: Datasets) -> str:
    drawn = ", ".join(str(run.attrs["above"]) for run in summaries.values())
    worst = max(float(run["residual"].max()) for run in summaries.values())
    return (
        f"Drawn: kept seeds of nuclear rank above $m$ ({drawn}); means in (a) are geometric; (c): one mark per seed. "
        f"Largest residual {page.power(worst)}."
    )
