"""The atlas with other sizes, starts and precision: which verdicts change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.bias.atlas_robust.claims import VARIANTS, pairs
from jaxattn.experiments.bias.rules import RULES, STEPS
from jaxattn.study.style import cells as tables
from jaxattn.study.style import page

_COLUMNS = {
    "": "(6, 8, 10)\nas in the atlas",
    "(4, 4, 6)": "(4, 4, 6)",
    "(10, 5, 20)": "(10, 5, 20)",
    "start as published": "$W$ starts\nas published",
    "start of scale 0.01": "$K, Q$ start\n.01 as long",
    "single precision": "single\nprecision",
}
_PARAMETERIZATIONS = {"W": "$W$", "KQ": "$(K, Q)$"}
_COLOURS, _LEAST, _SIZE = "Blues", 0.8, 7


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a row for each rule and a column for each change: the largest margin ratio, and what the verdict names.

    Args:
        summaries: of `claims.summarize`.
    """
    rows: dict[tuple[str, ...], dict[str, xarray.Dataset]] = {}
    for one in summaries.values():
        row = tuple(str(one.attrs[name]) for name in ("weights", "rule", "step"))
        rows.setdefault(row, {})[str(one.attrs["variant"])] = one
    columns = [variant for variant in _COLUMNS if any(variant in row for row in rows.values())]
    cells = np.full((len(rows), len(columns)), np.nan)
    with page.style():
        figure = page.full(1.5 + 0.33 * len(rows))
        axes = figure.subplots()
        for k, row in enumerate(rows.values()):
            for j, variant in enumerate(columns):
                if variant in row:
                    cells[k, j] = float(row[variant]["ratio"].max())
                    look = {"color": "white" if cells[k, j] > 0.5 * (1 + _LEAST) else "black", "fontsize": _SIZE}
                    weight = "bold" if bool(row[variant]["named"].any()) else "normal"
                    axes.text(j, k, _said(row[variant]), ha="center", va="center", fontweight=weight, **look)
        axes.imshow(np.ma.masked_invalid(cells), cmap=_COLOURS, vmin=_LEAST, vmax=1.0, aspect="auto")
        labels = [f"{_PARAMETERIZATIONS[weights]}, {RULES[rule]}, {STEPS[step]}" for weights, rule, step in rows]
        axes.set_yticks(range(len(rows)), labels, fontsize=_SIZE)
        axes.set_xticks(range(len(columns)), [_COLUMNS[variant] for variant in columns], fontsize=_SIZE)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(_finding(summaries))
        remark = (
            "Mean margin ratio over the seeds in the norm where it is largest, and that norm. Bold: named by the "
            "verdict; none: it names none; open: not decided."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _said(one: xarray.Dataset) -> str:
    best = int(np.argmax(one["ratio"].values))
    norm = str(one["norm"].values[best])
    verdict = "" if bool(one["named"].any()) else ", none" if one.attrs["decided"] else ", open"
    return (
        f"{min(float(one['ratio'][best]), 0.999):.3f}".replace("0.", ".", 1)
        + f"\n{tables.NORMS.get(norm, norm)}{verdict}"
    )


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    found = [pair for variants in VARIANTS.values() for pair in pairs(summaries, variants)]
    differ, left = sum(pair.differs for pair in found), sum(not pair.is_decided for pair in found)
    every, change = len(found), "with size, start or precision"
    if not differ and not left:
        return f"All {every} verdicts stay the same whatever the size, start or precision"
    said = f"{differ or 'None'} of {every} verdicts {'changes' if differ == 1 else 'change'} {change}"
    return said + (f"; {left} {'is' if left == 1 else 'are'} not decided" if left else "")
