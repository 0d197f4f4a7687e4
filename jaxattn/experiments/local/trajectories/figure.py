"""The trajectory figures: paths of `W(k) z_i` in the plane against the rays of the SVM solutions, and how near."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.trajectories.claims import EXACT, OWN_NORM, PARALLEL, RULES
from jaxattn.study.style import page, palette
from jaxattn.study.style.plane import plane

_SOLUTIONS = {"frobenius": r"$W_F$", "nuclear": r"$W_*$"}
_RULES = {"": (palette.NOTE, "published rule"), EXACT: (palette.AMBER, "exact direction")}
# Distances below this are drawn here: rounding leaves none smaller.
_LEAST = 1e-16


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the paths of one seed by the published rule, and below the distance from the rays over all seeds.

    Above: tokens, the selected ones as stars, paths, rays, separating lines. A path is scaled by its own largest length
    to the panel, since only its direction is compared; the line through the star's nearest rival perpendicular to the
    ray separates the star from the other tokens of its input.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(6.6)
        panels = figure.subplots(2, 2, height_ratios=(1.35, 1))
        for column, (run, letter) in enumerate(zip(OWN_NORM, "ab", strict=True)):
            _paths(panels[0, column], letter, run, summaries[run])
        for column, (run, letter) in enumerate(zip(OWN_NORM, "cd", strict=True)):
            _distances(panels[1, column], letter, run, {rule: summaries[run + rule] for rule in RULES})
        # Below the panel: inside, some path would be under it.
        panels[0, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
        panels[1, 0].legend(loc="lower left")
        panels[0, 1].set_ylabel("")
        W, KQ = (summaries[run] for run in OWN_NORM)
        page.add_counts(
            figure,
            summaries,
            f"(a), (b): seed {int(W['seed'])}, the median in final cos when training {page.RUNS['W']} as published; "
            f"{float(KQ.attrs['place']):.0%} of the seeds end below it in {page.RUNS['KQ']}. Paths and rays (grey) are "
            "scaled to the panel; dots: steps near powers of ten and the last. "
            f"(c), (d): median over all seeds, band from the 10th to the 90th percentile; dotted: cos = {PARALLEL}.",
        )
    return figure


def _paths(axes: Axes, letter: str, run: str, summary: xarray.Dataset) -> None:
    norm = OWN_NORM[run]
    paths = summary["path"].values.swapaxes(0, 1)
    steps = summary["snapshot"].values
    powers = [int(np.abs(np.log10(steps) - power).argmin()) for power in range(int(np.log10(steps[-1])) + 1)]
    marked = {snapshot: f"{steps[snapshot]:,}" for snapshot in [*powers, len(steps) - 1]}
    rays = summary["ray"].sel(norm=norm).values
    plane(axes, summary["X"].values, summary["selected"].values, paths, rays, marked)
    final = summary["correlation"].isel(snapshot=-1)
    values = ", ".join(f"{_SOLUTIONS[str(name)]} {float(final.sel(norm=name)):.4f}" for name in final["norm"].values)
    nearest = str(final["norm"].values[int(final.values.argmax())])
    title = f"({letter}) training {page.RUNS[run]}, rays of {_SOLUTIONS[norm]}\ncos at the end: {values}"
    axes.set_title(title if nearest == norm else f"{title}\nnearer to {_SOLUTIONS[nearest]} in this seed")


def _distances(axes: Axes, letter: str, run: str, rules: Mapping[str, xarray.Dataset]) -> None:
    """Draw 1 - cos along the steps by both rules, and that of the drawn seed from both solutions."""
    for rule, (colour, label) in _RULES.items():
        one = rules[rule]
        curve = (np.maximum(one[f"off_{q}"].values, _LEAST) for q in (50, 10, 90))
        page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle="-" if rule else "--", label=label)
    own, drawn = OWN_NORM[run], rules[""]
    for norm in sorted(map(str, drawn["norm"].values), key=lambda norm: norm != own):
        off = np.maximum(1 - drawn["correlation"].sel(norm=norm).values, _LEAST)
        look = {"color": palette.COLOURS[norm], "linewidth": 0.9, "linestyle": palette.DASHES[norm]}
        axes.plot(drawn["snapshot"].values, off, label=f"seed of (a), (b): {_SOLUTIONS[norm]}", **look)
    axes.axhline(1 - PARALLEL, color="black", linewidth=0.8, linestyle=":")
    published, exact = (f"{float(rules[rule]['parallel']):.0%}" for rule in ("", EXACT))
    axes.set_title(
        f"({letter}) {page.RUNS[run]} and {_SOLUTIONS[own]}: share of seeds that end\n"
        f"parallel {published} (published), {exact} (exact)",
    )
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-8, 3))
    axes.set_ylabel("direction error, 1 - cos")
