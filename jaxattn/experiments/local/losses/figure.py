"""The figure of the losses: 1 - cos of training W with both solutions, under each loss."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.local.losses.claims import LOSSES, PARALLEL
from jaxattn.study.style import page

_LOOKS = {"logistic": ("#000000", "-"), "exponential": ("#0072B2", "--"), "correlation": ("#D55E00", ":")}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel a solution, and in each the medians under all losses.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.new_figure(6.75, 3.6)
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, norm in zip(panels, ("frobenius", "nuclear"), strict=True):
            for loss, (colour, dashes) in _LOOKS.items():
                one = summaries[loss].sel(norm=norm)
                curve = (one[f"off_{q}"].values for q in (50, 10, 90))
                label = f"{loss}, ${LOSSES[loss].replace('log', chr(92) + 'log').replace('exp', chr(92) + 'exp')}$"
                page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
            axes.axhline(1 - PARALLEL, color="#777777", linewidth=0.8)
            axes.set(xscale="log", yscale="log", xlabel="step")
        shares = ", ".join(f"{float(one['parallel']):.0%}" for one in summaries.values())
        panels[0].set_title(f"(a) Frobenius SVM: {shares}\nof the seeds end parallel", fontsize=8)
        panels[1].set_title("(b) nuclear SVM", fontsize=8)
        panels[0].set_ylabel("1 - cos")
        panels[0].legend(loc="lower left", fontsize=7)
        page.add_counts(
            figure,
            summaries,
            f"Training W; medians over the seeds, bands from the 10th to the 90th percentile; grey: cos = {PARALLEL}.",
        )
    return figure
