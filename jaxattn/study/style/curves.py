"""The three panels of compared runs: probability (a), correlations of training W (b) and of training (K, Q) (c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray
from matplotlib.axes import Axes

from jaxattn.study.style import page, palette


def draw_panels(panels: Sequence[Axes], summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw the saturation and the correlations of the runs "W" and "KQ" into three panels.

    Args:
        panels: from left to right.
        summaries: of `measuring.curves.curves`, by run; each curve is a mean over seeds with its 95 % interval.
    """
    left, middle, right = panels
    for axes, run in ((middle, "W"), (right, "KQ")):
        _band(left, summaries[run], "probability", run, page.RUNS[run])
        for norm in summaries[run]["norm"].values:
            _band(axes, summaries[run].sel(norm=norm), "correlation", str(norm), page.NORMS[str(norm)])
    left.set(title="(a) saturation", ylabel="mean largest probability")
    middle.set(title="(b) run of $W$", ylabel="correlation with SVM solution")
    right.set(title=r"(c) run of $(K, Q)$", ylabel="correlation with SVM solution")
    for axes in (left, middle, right):
        axes.set(xlabel="step", ylim=(0, 1.03), xlim=(0, None))
        axes.legend(loc="lower right")


def _band(axes: Axes, summary: xarray.Dataset, name: str, look: str, label: str) -> None:
    curve = (summary[part].values for part in ("snapshot", name, f"{name}_low", f"{name}_high"))
    page.band(axes, *curve, color=palette.COLOURS[look], linestyle=palette.DASHES[look], label=label)
