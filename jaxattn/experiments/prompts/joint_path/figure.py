"""The figure of joint regularization paths: distance from three max-margin problems, over the radius of p."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LOOKS = {"unrelaxed": (palette.TEAL, "-"), "relaxed": (palette.WINE, "--"), "offset": (palette.INK, ":")}
_WORDS = {
    "unrelaxed": "unrelaxed, $\\geq 1$",
    "relaxed": "relaxed, $\\geq 0$",
    "offset": "offset, for the last $r/R$",
}
_LAWS = {0.5: "r \\propto R^{1/2}", 1.0: "r \\propto R", 2.0: "r \\propto R^2"}
# Shades of one colour, as the laws are ordered.
_SHADES = dict(zip(_LAWS, zip(palette.ramp(len(_LAWS)), ("-", "--", ":"), strict=True), strict=True))
# One of two problems is named as the limit if the other's direction error is this many times larger.
_CLEARLY = 10.0


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw direction errors of p where some inputs are no support vectors, law by law, where all are, and of v.

    Args:
        summaries: of `claims.summarize`.
    """
    laws = {float(one.attrs["growth"]): one for one in summaries.values()}
    with page.style():
        figure = page.full(5.2)
        panels = figure.subplots(2, 3, sharey="row")
        for axes, (growth, law), letter in zip(panels[0], _LAWS.items(), "abc", strict=True):
            # If all inputs of all seeds are support vectors, there is nothing to draw.
            is_drawn = growth in laws and laws[growth].attrs["mixed"]
            axes.set_title(f"({letter}) $p$, ${law}$:\n{_nearer(laws[growth]) if is_drawn else 'no seeds'}")
            if is_drawn:
                for problem, (colour, dashes) in _LOOKS.items():
                    at = laws[growth].sel(problem=problem)
                    _curve(axes, at, "off", color=colour, linestyle=dashes, label=_WORDS[problem])
        of_support, of_head, key = panels[1]
        for growth, one in laws.items():
            colour, dashes = _SHADES.get(growth, (palette.GUIDE, "-"))
            look = {"color": colour, "linestyle": dashes, "label": f"${_LAWS.get(growth, '')}$"}
            if one.attrs["whole"]:
                _curve(of_support, one, "whole", **look)
            _curve(of_head, one, "off_v", **look)
        of_support.set_title("(d) $p$, all inputs support vectors,\nfrom its token SVM")
        of_head.set_title("(e) $v$, from the\nmax-margin classifier")
        for axes in (*panels[0], of_support, of_head):
            axes.set(xscale="log", yscale="log", xlabel="radius $R$ of $p$")
        for axes in panels[:, 0]:
            axes.set_ylabel("direction error, $1 - \\cos$")
        key.axis("off")
        _keys(key, panels[0], of_head)
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _nearer(one: xarray.Dataset) -> str:
    """Say which of the paper's two problems is clearly nearer at the largest radius."""
    unrelaxed, relaxed = (float(one["off_50"].sel(problem=name)[-1]) for name in ("unrelaxed", "relaxed"))
    if relaxed > _CLEARLY * unrelaxed:
        return "nearer the unrelaxed problem"
    if unrelaxed > _CLEARLY * relaxed:
        return "nearer the relaxed problem"
    return "neither is clearly nearer"


def _curve(axes: Axes, one: xarray.Dataset, name: str, **look: str) -> None:
    quantiles = (one[f"{name}_{q}"].values for q in (50, 10, 90))
    page.band(axes, one["radius"].values, *quantiles, **look)


def _keys(key: Axes, of_problems: list[Axes], of_laws: Axes) -> None:
    """Put the keys of both rows into an empty panel."""
    drawn = next((axes for axes in of_problems if axes.lines), None)
    if drawn:
        first = key.legend(handles=drawn.lines, title="(a)-(c): 1 - cos with", loc="upper left")
        key.add_artist(first)
    key.legend(handles=of_laws.lines, title="(d), (e): radius $r$ of $v$", loc="lower left")


def _remark(summaries: Mapping[str, xarray.Dataset]) -> str:
    mixed, whole = (", ".join(str(one.attrs[kind]) for one in summaries.values()) for kind in ("mixed", "whole"))
    unsolved, points = (sum(one.attrs[name] for one in summaries.values()) for name in ("unsolved_points", "points"))
    worst = max(float(one["residual"]) for one in summaries.values())
    return (
        f"Medians and bands from the 10th to the 90th percentile. (a)-(c): the {mixed} seeds some of whose inputs are "
        f"no support vectors of v; (d): the {whole} others. {unsolved} of {points} points are unsolved; largest "
        f"residual of a kept seed: {worst:.0e}."
    )
