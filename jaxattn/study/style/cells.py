"""Tables of margin ratios in colour: a row for each run, a column for each norm; what a verdict names is bold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from jaxattn.study.style import palette

NORMS = {"frobenius": "Frobenius", "l1": "$l_1$", "l_1.75": "$l_{1.75}$", "l_3": "$l_3$", "gamma2": "$\\gamma_2$"}

# Sequential, its lightness falling evenly, so that cells can be told without colour; and a frame that stands out from
# all of it.
_COLOURS, _LEAST, _FRAME = "Blues", 0.2, palette.NUCLEAR
SIZE = 7


class Row(NamedTuple):
    """A row of a table: `ratios.summarize` of a run, None if it is empty, and the norm that is predicted."""

    summary: xarray.Dataset | None
    predicted: str | None = None


def table(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw the mean margin ratios of runs in the norms of these names, and what their verdicts say beside them."""
    cells = np.full((len(rows), len(names)), np.nan)
    for k, row in enumerate(rows):
        if row.summary is None:
            continue
        cells[k] = row.summary["ratio"].values
        for j, norm in enumerate(names):
            if np.isfinite(cells[k, j]):
                _cell(axes, k, j, float(cells[k, j]), bool(row.summary["named"].values[j]))
            if row.predicted == norm:
                corner = (j - 0.45, k - 0.43)
                axes.add_patch(Rectangle(corner, 0.9, 0.86, fill=False, edgecolor=_FRAME, linewidth=1.4, zorder=3))
        axes.text(len(names) - 0.4, k, _verdict(row.summary), ha="left", va="center", fontsize=SIZE)
    axes.imshow(np.ma.masked_invalid(cells), cmap=_COLOURS, vmin=_LEAST, vmax=1.0, aspect="auto")
    labels = [NORMS.get(name, name) for name in names]
    axes.set_xticks(range(len(names)), labels, fontsize=SIZE, rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _cell(axes: Axes, row: int, column: int, ratio: float, is_named: bool) -> None:
    # Nothing is rounded up to 1.
    text = f"{min(ratio, 0.999):.3f}".replace("0.", ".", 1)
    is_dark = ratio > 0.5 * (1 + _LEAST)
    look: dict[str, Any] = {"fontweight": "bold" if is_named else "normal", "color": "white" if is_dark else "black"}
    axes.text(column, row, text, ha="center", va="center", fontsize=SIZE, **look)


def _verdict(one: xarray.Dataset) -> str:
    """Return what bold numbers do not say of a run's verdict."""
    named, decided = bool(one["named"].any()), bool(one.attrs["decided"])
    return "" if named and decided else "near" if named else "none" if decided else "open"


def half_width(rows: Iterable[xarray.Dataset]) -> str:
    """Return half the width of the widest interval of the largest mean of a row, rounded up."""
    best = [run.isel(norm=np.nanargmax(run["ratio"])) for run in rows]
    return f"{max(np.ceil(500 * float(one['ratio_high'] - one['ratio_low'])) / 1000 for one in best):.3f}"
