"""The gradient-sparsity figure: the share of pairs that carry the gradient, and what is left beside the limit's."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_COLOURS = {"vocabulary": palette.TEAL, "prefix": palette.WINE}
# By increasing d.
_DASHES, _MARKERS = ("--", "-", ":", "-."), ("s", "o", "^", "D")
# Multipliers are marked so far beyond the last step.
_BEYOND = 2.0


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw shares and what is left beside, of feasible texts in the first row, of others in the second.

    Args:
        summaries: of `claims.summarize`.
    """
    sizes = sorted({int(one.attrs["d"]) for one in summaries.values()})
    with page.style():
        figure = page.full(5.4)
        panels = figure.subplots(2, 2, sharex=True)
        for row, kind in zip(panels, ("feasible", "infeasible"), strict=True):
            for one in summaries.values():
                if f"{kind}_share" in one:
                    place = sizes.index(int(one.attrs["d"]))
                    for axes, name in zip(row, ("share", "beside"), strict=True):
                        _curve(axes, one, f"{kind}_{name}", place)
                    if kind == "feasible":
                        _multipliers(row[0], one, place)
            row[0].set(xscale="log", ylim=(0, 1.02), ylabel="share of pairs with 99 %\nof the gradient")
            row[1].set(xscale="log")
            if row[1].lines:
                row[1].set_yscale("log")
                row[1].set_ylim(None, 1.5)
        panels[0, 0].set_title("(a) feasible texts")
        panels[0, 1].set(title="(b) feasible texts", ylabel="gradient beside\nsupport vectors")
        panels[1, 0].set(title="(c) infeasible texts", xlabel="step")
        panels[1, 1].set(title="(d) infeasible texts", ylabel="gradient beside\ncontested words", xlabel="step")
        for axes, title in ((panels[0, 0], None), (panels[0, 1], "candidates"), (panels[1, 1], "candidates")):
            if axes.get_legend_handles_labels()[1]:
                axes.legend(loc="lower left", title=title)
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _curve(axes: Axes, one: xarray.Dataset, name: str, place: int) -> None:
    number = int(one[f"{name.partition('_')[0]}_texts"])
    curve = (one[part].values for part in (name, f"{name}_low", f"{name}_high"))
    label = f"{one.attrs['candidates']}, $d = {one.attrs['d']}$" if name.endswith("beside") else None
    look = {"color": _COLOURS.get(one.attrs["candidates"], "black"), "linestyle": _DASHES[place % len(_DASHES)]}
    # One text alone has a thin line.
    page.band(axes, one["snapshot"].values, *curve, label=label, linewidth=1.5 if number > 1 else 0.8, **look)


def _multipliers(axes: Axes, one: xarray.Dataset, place: int) -> None:
    axes.plot(
        _BEYOND * float(one["snapshot"][-1]),
        float(one["feasible_limit"]),
        color=_COLOURS.get(one.attrs["candidates"], "black"),
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=5,
        linestyle="none",
        label=None if axes.get_legend_handles_labels()[1] else "of the solution's multipliers",
    )


def _remark(summaries: Mapping[str, xarray.Dataset]) -> str:
    parts = [
        f"{run}: {int(one['feasible_texts'])} feasible and {int(one['infeasible_texts'])} infeasible, "
        f"{float(one['dropped']):.0%} of the prefixes without a choice, {float(one['pairs']):.0f} pairs left"
        for run, one in summaries.items()
    ]
    return (
        "Means with 95 % bootstrap intervals. Contested words of infeasible texts: those that follow one word. "
        + "; ".join(parts)
        + "."
    )
