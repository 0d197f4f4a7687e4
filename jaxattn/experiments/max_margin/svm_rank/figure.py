"""The rank figure: mean ranks as published and of certified solutions, the feasible share, and the tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.svm_rank.claims import PUBLISHED, SETTINGS
from jaxattn.experiments.max_margin.svm_rank.estimates import ABSOLUTE, nuclear_values, pairs
from jaxattn.study.claims import Datasets, Judgements, total
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside
from jaxattn.study.style.view import rounded

# The larger, the darker, and a marker for each size; the norms differ by their dashes.
_RAMP = palette.ramp(3)
_LOOKS = {
    (5, 5): (_RAMP[0], "o"),
    (10, 5): (_RAMP[1], "s"),
    (15, 5): (_RAMP[2], "^"),
    (5, 10): (_RAMP[1], "D"),
    (5, 15): (_RAMP[2], "v"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the mean ranks over n and over T beside the printed ones, the feasible share, and what tells them apart."""
    certified = {name: run for name, run in summaries.items() if not run.attrs["solver"]}
    inexact = {name: run for name, run in summaries.items() if run.attrs["solver"]}
    counts, solver = total(inexact), next(iter(inexact.values())).attrs["solver"]
    with page.style():
        figure = page.full(6.4)
        verdicts = {name: judgements[f"svm-rank:{name}"].verdict for name in ("nuclear", "numbers")}
        figure.suptitle(
            f"The nuclear solution has a lower rank than the Frobenius solution: {verdicts['nuclear']}; "
            f"the mean ranks are as published: {verdicts['numbers']}"
        )
        (over_n, over_T), (feasible, tolerance) = figure.subplots(2, 2)
        by_n, by_T = ([run for run in certified.values() if run.attrs[other] == 5] for other in "Tn")
        _curves(over_n, by_n, "n")
        _printed(over_n, by_n)
        _curves(over_T, by_T, "T")
        ranks = [run["rank"].isel(d=-1) for run in by_T]
        gaps = page.span((float(rank.sel(norm="frobenius") - rank.sel(norm="nuclear")) for rank in ranks), ".1f")
        over_T.set_title(f"(b) $n = 5$: at the largest $d$ the nuclear rank is {gaps} lower")
        over_n.legend(loc="upper left", ncols=2, columnspacing=1.0)
        over_T.legend(loc="lower right", ncols=2)
        _feasible(feasible, list(certified.values()))
        _tolerance(tolerance, list(inexact.values()))
        page.add_counts(
            figure,
            {"certified": xarray.Dataset(attrs=total(certified))},
            "Means with 95 % intervals of the number of singular values above 1e-6 of the largest, of feasible "
            "problems with a certified relative gap of at most 1e-8; means of fewer than 8 are not drawn. Crosses: the "
            "count by the published rule, of singular values above an absolute 1e-7, where an infeasible problem "
            f"counts as rank 1. (d): {counts['attempted']:,} of the problems, solved by {solver} as well; its "
            f"solutions are not exact ({counts['kept']:,} pass the certificate), and all are counted.",
            counted="problems",
        )
    return figure


def _look(run: xarray.Dataset) -> tuple[str, str]:
    return _LOOKS[run.attrs["n"], run.attrs["T"]]


def _curves(axes: Axes, runs: list[xarray.Dataset], name: str) -> None:
    for run in runs:
        for norm in ("frobenius", "nuclear"):
            of_norm = run.sel(norm=norm)
            _errors(axes, of_norm, "rank", linestyle=palette.DASHES[norm])
            # Elsewhere both conventions count alike.
            mixed = of_norm.isel(d=of_norm["feasible"].values < 1)
            axes.plot(mixed["d"].values, mixed["published"].values, "x", color=_look(run)[0], markersize=4)
    for run in sorted(runs, key=lambda run: run.attrs[name]):
        colour, marker = _look(run)
        axes.plot([], [], color=colour, marker=marker, markersize=4, label=f"${name} = {run.attrs[name]}$")
    for norm, label in page.NORMS.items():
        axes.plot([], [], color=palette.NOTE, linestyle=palette.DASHES[norm], label=label)
    axes.plot([], [], "x", color=palette.NOTE, markersize=4, label="count by their rule")
    axes.set(xlabel="dimension $d$", ylabel="mean rank of certified solutions", ylim=(0, None), xlim=(0, None))
    axes.locator_params(integer=True)


def _errors(axes: Axes, run: xarray.Dataset, name: str, **look: Any) -> None:
    colour, marker = _look(run)
    shares = (run[f"{name}{part}"].values for part in ("", "_low", "_high"))
    page.bars(axes, run["d"].values, *shares, color=colour, marker=marker, linewidth=1.3, **look)


def _printed(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Mark the nuclear ranks of the authors' figure, each with its n, and say them beside the certified ones."""
    palette.published(axes, [d for *_, d in SETTINGS], PUBLISHED["nuclear"], "2308.16898")
    certified = {run.attrs["n"]: run for run in runs}
    ranks = []
    for (n, _, d), printed in zip(SETTINGS, PUBLISHED["nuclear"], strict=True):
        if n in certified:
            rank = float(certified[n]["rank"].sel(norm="nuclear", d=d))
            beside(axes, f"$n = {n}$", (d, printed), (5, -2), ha="left", va="top", color=_look(certified[n])[0])
            ranks.append((f"{printed:g}", f"{rank:.1f}"))
    printed, rank = (", ".join(numbers) for numbers in zip(*ranks, strict=True))
    axes.set_title(f"(a) $T = 5$: nuclear rank printed {printed}; certified {rank}")
    # Room for the key above all curves.
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])


def _feasible(axes: Axes, certified: list[xarray.Dataset]) -> None:
    for run in certified:
        _errors(axes, run, "feasible", linestyle="-", label=f"$n = {run.attrs['n']}$, $T = {run.attrs['T']}$")
    some = max(float(run["d"].where(run["feasible"] < 1).max()) for run in certified)
    axes.set(title=f"(c) some problems are infeasible up to $d = {some:.0f}$", ylim=(-0.03, 1.05))
    axes.set(xlabel="dimension $d$", ylabel="share of problems")
    axes.locator_params(axis="x", integer=True)
    axes.legend(loc="lower right")


def _tolerance(axes: Axes, inexact: list[xarray.Dataset]) -> None:
    for run in inexact:
        n, d, solver, (colour, _) = run.attrs["n"], int(run["d"]), run.attrs["solver"], _look(run)
        size = f"$n = d = {n}$" if n == d else f"n={n} d={d}"
        for which, label, dashes in (("certified", "certified", "-"), ("inexact", solver, ":")):
            of_solver = run.sel(solver=which)
            curve = (of_solver[part].values for part in ("tolerance", "rank", "rank_low", "rank_high"))
            page.band(axes, *curve, color=colour, linestyle=dashes, label=f"{size}, {label}")
    threshold = float(np.mean([run["threshold"] for run in inexact]))
    look = {"color": palette.GUIDE, "linewidth": 0.9, "linestyle": "--", "zorder": 1}
    axes.axvline(threshold, label="published, 1e-7 absolute", **look)
    largest = max(inexact, key=lambda run: run.attrs["n"])
    by_inexact, by_certified = (float(largest["published"].sel(solver=which)) for which in ("inexact", "certified"))
    count = f"the count by their rule is {by_inexact:.1f} by {largest.attrs['solver']}, {by_certified:.1f} certified"
    axes.set(title=f"(d) $n = {largest.attrs['n']}$: {count}", xscale="log", ylim=(0, None))
    axes.set(xlabel=r"tolerance, relative to $\sigma_1$", ylabel="mean nuclear rank")
    axes.legend(loc="upper right")


# Where singular values that are 0 are drawn on the site: logarithms to base 10.
_LEAST = -17.0


def view(runs: Datasets) -> dict[str, Any]:
    """Return the singular values of nuclear solutions of the problems that both kinds of solver solved.

    Returns:
        `settings`, for each its `name`, the inexact `solver`, the `published` tolerance relative to the largest
        singular value, and `certified` and `inexact`: log10 of the singular values over the largest, (problem, value).
    """
    settings = []
    for certified, inexact in pairs(runs).values():
        values, of_inexact = nuclear_values(certified), nuclear_values(inexact)
        settings.append(
            {
                "name": f"n = {inexact.attrs['n']}, T = {inexact.attrs['T']}, d = {int(inexact['d'])}",
                "solver": inexact.attrs["solver"],
                "published": rounded(np.log10(ABSOLUTE / values[:, 0]).mean()),
                "certified": _logarithms(values),
                "inexact": _logarithms(of_inexact),
            }
        )
    return {"settings": settings}


def _logarithms(values: np.ndarray) -> Any:
    return rounded(np.log10(np.maximum(values / values[:, :1], 10.0**_LEAST)))
