"""What is the rank of the SVM solutions, and is it lower in the nuclear norm?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.separation import separate
from jaxattn.experiments.max_margin.svm_rank.estimates import ABSOLUTE, CLEAN, nuclear_values, pairs, summarize
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim
from jaxattn.study.claims.claim import MissingRunError
from jaxattn.study.claims.counts import too_few, total
from jaxattn.study.claims.criteria import Number, agrees, below
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside
from jaxattn.study.style.view import rounded

_SOURCE = Source("arXiv 2308.16898", "rank figure", Setting.EXACT)
# Read from the picture in the last cell of the authors' notebook svm_rank.ipynb: mean ranks at these (n, T, d).
_SETTINGS = ((10, 5, 10), (15, 5, 15), (15, 5, 20))
_PUBLISHED = {"frobenius": (10.0, 15.0, 15.0), "nuclear": (9.1, 13.9, 14.9)}
# Fixed beforehand: how far two estimates of a mean rank may be apart; how far ours and a published one, which is read
# from a figure; in which share of the problems the rank may be smaller by one; and, as ranks are integers, a mean that
# is lower at all.
_SAME, _WITHIN, _MISSED, _LOWER = 0.1, 0.5, 0.05, -1e-6
# The solved problems at each of _SETTINGS are counted instead.
_NEEDS = Needs(seeds=0)


@claim("svm-rank:frobenius", _SOURCE, "The Frobenius solution has rank n for all d >= n.", needs=_NEEDS)
def _frobenius(runs: Datasets) -> Judgement:
    few, ranks = _certified(runs, "frobenius")
    excess = max(int((run["largest"] - np.minimum(run.attrs["n"], run["d"])).max()) for run in ranks.values())
    at_n, beyond = [], []
    for (name, d), rank in _every(ranks, "rank").items():
        if d >= (n := ranks[name].attrs["n"]):
            (beyond if d > n else at_n).append(Number(n - rank.mean, n - rank.high, n - rank.low))
    bounded = below("largest excess of a Frobenius rank over min(n, d)", Number.exact(excess), 0.0)
    quantity = "n minus the mean Frobenius rank, largest over all sizes with"
    return Judgement(
        (bounded, below(f"{quantity} d >= n,", _largest([*at_n, *beyond]), _MISSED)),
        (bounded, below(f"{quantity} d > n,", _largest(beyond), _MISSED)),
        correction=f"this is true wherever d > n. At d = n a mean is below n by up to {_largest(at_n).mean:.2g}: an "
        "input without a support vector contributes nothing to W.",
        remark="Ranks of certified solutions of feasible problems.",
        numbers=_numbers(ranks),
        expected={_named(*setting): float(setting[0]) for setting in _SETTINGS},
        undecided=few,
    )


@claim("svm-rank:nuclear", _SOURCE, "The nuclear solution has a lower rank than the Frobenius solution.", needs=_NEEDS)
def _nuclear(runs: Datasets) -> Judgement:
    few, ranks = _certified(runs, "nuclear")
    quantity = "mean nuclear rank minus the Frobenius rank"
    lower = [below(f"{quantity}, largest over all sizes,", _largest([*_every(ranks, "difference").values()]), 0.0)]
    at = {_named(*setting): _at(ranks, *setting) for setting in _SETTINGS}
    lower += [below(f"{quantity} at {size}", number(run, "difference"), _LOWER) for size, run in at.items()]
    spread = max(float(run["spread"]) for run in at.values())
    changes = f"The mean rank changes by {spread:.2f} between the tolerances {CLEAN[1]:g} and {CLEAN[0]:g}"
    return Judgement(
        lower,
        remark=f"Ranks of certified solutions of feasible problems. {changes} relative to the largest singular value.",
        numbers=_numbers(ranks),
        undecided=few or (f"{changes}." if spread > _SAME else ""),
    )


@claim("svm-rank:numbers", _SOURCE, "The mean ranks are those of the figure.", needs=_NEEDS)
def _printed(runs: Datasets) -> Judgement:
    at, published, few = {}, {}, ""
    for norm, means in _PUBLISHED.items():
        few, ranks = _certified(runs, norm)
        for setting, mean in zip(_SETTINGS, means, strict=True):
            label = f"{norm}, {_named(*setting)}"
            at[label], published[label] = _at(ranks, *setting), mean
    inexact = [run for run in runs.values() if run.attrs["solver"]]
    solver, sizes = inexact[0].attrs["solver"], ", ".join(f"n={run.attrs['n']} d={int(run['d'])}" for run in inexact)
    by_inexact, by_certified = (
        ", ".join(f"{float(run['published'].sel(solver=which)):.3g}" for run in inexact)
        for which in ("inexact", "certified")
    )
    of_inexact = {
        f"nuclear, {_named(run.attrs['n'], run.attrs['T'], int(run['d']))} by {run.attrs['solver']}, counted as "
        "published": number(run, "published", solver="inexact")
        for run in inexact
    }
    return Judgement(
        [
            agrees(f"mean {norm} rank at {size}", run["rank"].item(), run["rank_error"].item(), mean, _WITHIN)
            for (label, run), mean in zip(at.items(), published.values(), strict=True)
            for norm, size in [label.split(", ")]
        ],
        remark="The printed nuclear ranks are an artefact of the tolerance: they count singular values above an "
        f"absolute 1e-7. This count finds {by_inexact} in solutions by {solver}, at {sizes}, and {by_certified} in the "
        f"certified solutions of the same problems. A difference of more than {_WITHIN:g} would be seen.",
        numbers={label: number(run, "rank") for label, run in at.items()} | of_inexact,
        expected=published,
        undecided=few,
    )


def _certified(runs: Datasets, norm: str) -> tuple[str, dict[str, xarray.Dataset]]:
    """Return why the certified solutions decide nothing, empty if they do, and their estimates in this norm."""
    ranks = {name: run.sel(norm=norm) for name, run in runs.items() if not run.attrs["solver"]}
    return too_few(min(int(_at(ranks, *setting)["solved"]) for setting in _SETTINGS)), ranks


def _at(ranks: Datasets, n: int, T: int, d: int) -> xarray.Dataset:
    name = f"n={n} T={T}"
    if name not in ranks or d not in ranks[name]["d"].values:
        raise MissingRunError(_named(n, T, d))
    return ranks[name].sel(d=d)


def _named(n: int, T: int, d: int) -> str:
    return f"n={n} T={T} d={d}"


def _every(runs: Datasets, name: str) -> dict[tuple[str, int], Number]:
    """Return an estimate of all runs and dimensions, without those that could not be made."""
    every = {(run, int(d)): number(one, name, d=d) for run, one in runs.items() for d in one["d"].values}
    return {key: value for key, value in every.items() if np.isfinite(value.mean)}


def _numbers(runs: Datasets) -> dict[str, Number]:
    return {f"{run} d={d}": value for (run, d), value in _every(runs, "rank").items()}


def _largest(numbers: Sequence[Number]) -> Number:
    """Return the largest of several numbers; its interval is above a threshold if the interval of one of them is."""
    return Number(*map(max, zip(*numbers, strict=True)))


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
        _mark_printed(over_n, by_n)
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


def _mark_printed(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Mark the nuclear ranks of the authors' figure, each with its n, and say them beside the certified ones."""
    palette.published(axes, [d for *_, d in _SETTINGS], _PUBLISHED["nuclear"], "2308.16898")
    certified = {run.attrs["n"]: run for run in runs}
    ranks = []
    for (n, _, d), printed in zip(_SETTINGS, _PUBLISHED["nuclear"], strict=True):
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
    settings = [
        {
            "name": f"n = {inexact.attrs['n']}, T = {inexact.attrs['T']}, d = {int(inexact['d'])}",
            "solver": inexact.attrs["solver"],
            "published": rounded(np.log10(ABSOLUTE / nuclear_values(certified)[:, 0]).mean()),
            "certified": _logarithms(nuclear_values(certified)),
            "inexact": _logarithms(nuclear_values(inexact)),
        }
        for certified, inexact in pairs(runs).values()
    ]
    return {"settings": settings}


def _logarithms(values: np.ndarray) -> Any:
    return rounded(np.log10(np.maximum(values / values[:, :1], 10.0**_LEAST)))


EXPERIMENT = Experiment(separate, claims=(_frobenius, _nuclear, _printed), summarize=summarize, draw=draw, view=view)
