"""The sequence and causal figures: the panels of local convergence, and how far runs and path are from their SVMs."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, PATH
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import draw_panels

_LOOKS = {
    "W": ("frobenius", "$W$, Frobenius", palette.FROBENIUS, "-"),
    "KQ": ("nuclear", "$(K, Q)$, nuclear", palette.NUCLEAR, "--"),
    LONG: ("frobenius", "$W$, exact direction", palette.AMBER, ":"),
    FALLING: ("nuclear", "$(K, Q)$, exact, step falls", palette.ROSE, "-."),
}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw five panels, or four without a path, each curve a mean over seeds with its 95 % interval.

    Args:
        summaries: as `claims.summarize` returns them.
    """
    with page.style():
        figure = page.full(5.6)
        followed = PATH in summaries
        panels = figure.subplot_mosaic([list("aabbcc"), list("dddeee" if followed else "dddddd")])
        draw_panels([panels[letter] for letter in "abc"], summaries)
        for run, (norm, *look) in _LOOKS.items():
            if run in summaries:
                _distance(panels["d"], summaries[run].sel(norm=norm), "snapshot", *look)
        panels["d"].set(title="(d) from its own solution", xlabel="step")
        if followed:
            path = summaries[PATH]
            for norm in path["norm"].values:
                look = page.NORMS[str(norm)], palette.COLOURS[str(norm)], palette.DASHES[str(norm)]
                _distance(panels["e"], path.sel(norm=norm), "radius", *look)
            panels["e"].set(title="(e) path of $W$, from the optimal tokens' solutions", xlabel="radius $R$")
        for letter in "de" if followed else "d":
            panels[letter].set(ylabel="1 - correlation", xscale="log", yscale="log")
            panels[letter].legend(loc="lower left")
        one = summaries["W"].attrs
        page.add_counts(
            figure,
            summaries,
            "Means over kept seeds; bands: 95 % bootstrap intervals of the mean."
            + (" Position 0 sees one token, which counts as probability 1." if one["attention"] == "causal" else "")
            + f" One W for {one['inputs']} inputs, one a position; the optimal tokens of all of them are separable in "
            f"{one['optimal_kept']} of {one['attempted']} problems.",
        )
    return figure


def _distance(axes: Axes, summary: xarray.Dataset, along: str, label: str, colour: str, dashes: str) -> None:
    curve = (1 - summary[part].values for part in ("correlation", "correlation_high", "correlation_low"))
    page.band(axes, summary[along].values, *curve, color=colour, linestyle=dashes, label=label)
