"""The rank figure: mean ranks as published and of certified solutions, the feasible share, and the tolerance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.svm_rank.claims import PUBLISHED, SETTINGS
from jaxattn.study.style import page, palette

# The larger, the darker, and a marker for each size; the norms differ by their dashes.
_RAMP = palette.ramp(3)
_LOOKS = {
    (5, 5): (_RAMP[0], "o"),
    (10, 5): (_RAMP[1], "s"),
    (15, 5): (_RAMP[2], "^"),
    (5, 10): (_RAMP[1], "D"),
    (5, 15): (_RAMP[2], "v"),
}
_OTHER = (palette.GUIDE, "x")


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the mean ranks over n and over T beside the printed ones, the feasible share, and what tells them apart.

    Args:
        summaries: "certified" and each inexact solver's, as `summarize` returns them.
    """
    summary = summaries["certified"]
    inexact = {solver: one for solver, one in summaries.items() if solver != "certified"}
    with page.style():
        figure = page.full(6.2)
        axes = figure.subplots(2, 2)
        for panel, (name, other) in zip(axes[0], (("n", "T"), ("T", "n")), strict=True):
            smallest = int(summary[other].min())
            runs = summary.isel(run=(summary[other] == smallest).values)
            _curves(panel, runs, name)
            panel.set(xlabel="dimension $d$", ylabel="mean rank of certified solutions", ylim=(0, None), xlim=(0, None))
            panel.set_title(f"({'a' if name == 'n' else 'b'}) ${other} = {smallest}$: {_found(runs)}")
        _printed(axes[0, 0], summary)
        axes[0, 0].legend(loc="upper left", ncols=2, columnspacing=1.0)
        axes[0, 1].legend(loc="lower right", ncols=2)
        _feasible(axes[1, 0], summary)
        _tolerance(axes[1, 1], inexact)
        for panel in axes.flat[:2]:
            panel.locator_params(integer=True)
        axes[1, 0].locator_params(axis="x", integer=True)
        by_others = "".join(
            f" (d): {one.attrs['attempted']:,} of the problems, solved by {solver} as well; its solutions are not "
            f"exact ({one.attrs['kept']:,} pass the certificate), and all are counted."
            for solver, one in inexact.items()
        )
        page.add_counts(
            figure,
            {"certified": summary},
            "Means with 95 % intervals of the number of singular values above 1e-6 of the largest, of feasible "
            "problems with a certified relative gap of at most 1e-8; means of fewer than 8 are not drawn. Crosses: the "
            "published count, of singular values above an absolute 1e-7, where an infeasible problem counts as rank "
            f"1.{by_others}",
            counted="problems",
        )
    return figure


def _found(runs: xarray.Dataset) -> str:
    """Say whether the nuclear rank is below the Frobenius rank wherever the latter is its largest."""
    ranks = runs["rank"].sel(d=runs["d"].max())
    lower = bool((ranks.sel(norm="nuclear") < ranks.sel(norm="frobenius")).all())
    return f"at the largest $d$ the nuclear rank is {'' if lower else 'not always '}the lower one"


def _curves(axes: Axes, runs: xarray.Dataset, name: str) -> None:
    for run in runs["run"].values:
        one = runs.sel(run=run)
        colour, marker = _look(one)
        for norm in ("frobenius", "nuclear"):
            own = one.sel(norm=norm)
            _errors(axes, own, "rank", colour, marker, palette.DASHES[norm])
            # Elsewhere both conventions count alike.
            mixed = (own["feasible"] < 1).values
            axes.plot(own["d"].values[mixed], own["published"].values[mixed], "x", color=colour, markersize=4)
    looks = {int(runs[name].sel(run=run)): _look(runs.sel(run=run)) for run in runs["run"].values}
    for size, (colour, marker) in sorted(looks.items()):
        axes.plot([], [], color=colour, marker=marker, markersize=4, label=f"${name} = {size}$")
    for norm, label in page.NORMS.items():
        axes.plot([], [], color=palette.NOTE, linestyle=palette.DASHES[norm], label=label)
    axes.plot([], [], "x", color=palette.NOTE, markersize=4, label="published count")


def _look(one: xarray.Dataset) -> tuple[str, str]:
    return _LOOKS.get((int(one["n"]), int(one["T"])), _OTHER)


def _errors(
    axes: Axes, one: xarray.Dataset, variable: str, colour: str, marker: str, dashes: str, label: str | None = None
) -> None:
    mean = one[variable].values
    below, above = mean - one[f"{variable}_low"].values, one[f"{variable}_high"].values - mean
    axes.errorbar(
        one["d"].values,
        mean,
        np.clip([below, above], 0, None),
        color=colour,
        marker=marker,
        markersize=4,
        linestyle=dashes,
        linewidth=1.3,
        elinewidth=0.8,
        label=label,
    )


def _printed(axes: Axes, summary: xarray.Dataset) -> None:
    """Mark the nuclear ranks of the authors' figure, each with an arrow to the certified one, and say both."""
    palette.published(axes, [d for *_, d in SETTINGS], PUBLISHED["nuclear"], "2308.16898")
    nuclear, pairs = summary["rank"].sel(norm="nuclear"), []
    for (n, T, d), printed in zip(SETTINGS, PUBLISHED["nuclear"], strict=True):
        here = nuclear.isel(run=((summary["n"] == n) & (summary["T"] == T)).values)
        if here.sizes["run"] and d in here["d"].values:
            certified = float(here.sel(d=d).values[0])
            arrow = {"arrowstyle": "-|>", "color": palette.INK, "linewidth": 1.0, "shrinkA": 4, "shrinkB": 4}
            axes.annotate("", (d, certified), (d, printed), arrowprops=arrow, zorder=4)
            pairs.append((f"{printed:g}", f"{certified:.1f}"))
    if pairs:
        printed, certified = (", ".join(numbers) for numbers in zip(*pairs, strict=True))
        axes.set_title(f"(a) $T = {int(summary['T'].min())}$: nuclear rank printed {printed}; certified {certified}")
    # Room for the key above all curves.
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])


def _feasible(axes: Axes, summary: xarray.Dataset) -> None:
    for run in summary["run"].values:
        one = summary.sel(run=run)
        colour, marker = _look(one)
        label = f"$n = {int(one['n'])}$, $T = {int(one['T'])}$"
        _errors(axes, one, "feasible", colour, marker, "-", label=label)
    share, d = summary["feasible"].values, summary["d"].values
    always = next((int(each) for k, each in enumerate(d) if np.all(share[:, k:] == 1)), None)
    axes.set(
        title=f"(c) all feasible from $d = {always}$" if always else "(c) not all feasible at the largest $d$",
        xlabel="dimension $d$",
        ylabel="share of problems",
        ylim=(-0.03, 1.05),
    )
    axes.legend(loc="lower right")


def _tolerance(axes: Axes, inexact: Mapping[str, xarray.Dataset]) -> None:
    found = "no inexact solver was run"
    for solver, curves in inexact.items():
        largest = curves.isel(setting=int(curves["n"].values.argmax()))
        by_both = [float(largest["published"].sel(solver=which)) for which in (solver, "certified")]
        found = "$n = {}$: the published count is {:.1f} by {}, {:.1f} certified".format(
            int(largest["n"]), by_both[0], solver, by_both[1]
        )
        for setting in curves["setting"].values:
            for which, dashes in (("certified", "-"), (solver, ":")):
                one = curves.sel(setting=setting, solver=which)
                colour, _ = _look(one)
                label = (
                    f"$n = d = {int(one['n'])}$, {which}" if int(one["n"]) == int(one["d"]) else f"{setting}, {which}"
                )
                axes.plot(one["tolerance"], one["rank"], color=colour, linestyle=dashes, label=label)
                axes.fill_between(
                    one["tolerance"], one["rank_low"], one["rank_high"], color=colour, alpha=0.2, linewidth=0
                )
        threshold = float(curves["threshold"].mean())
        axes.axvline(
            threshold, color=palette.GUIDE, linewidth=0.9, linestyle="--", zorder=1, label="the published 1e-7"
        )
    axes.set(
        xscale="log",
        ylim=(0, None),
        xlabel=r"tolerance, relative to $\sigma_1$",
        ylabel="mean nuclear rank",
        title=f"(d) {found}",
    )
    if inexact:
        axes.legend(loc="upper right")
