"""Claims on the rank of both SVM solutions against d (2308.16898)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray

from jaxattn.experiments.max_margin.svm_rank.estimates import CLEAN
from jaxattn.study.claims import Datasets, Judgement, Needs, Setting, Source, claim, too_few
from jaxattn.study.claims.claim import MissingRunError
from jaxattn.study.claims.criteria import Number, agrees, below
from jaxattn.study.estimates import number

_SOURCE = Source("arXiv 2308.16898", "rank figure", Setting.EXACT)
# Read from the picture in the last cell of the authors' notebook svm_rank.ipynb: mean ranks at these (n, T, d).
SETTINGS = ((10, 5, 10), (15, 5, 15), (15, 5, 20))
PUBLISHED = {"frobenius": (10.0, 15.0, 15.0), "nuclear": (9.1, 13.9, 14.9)}
# Two estimates of a mean rank count as equal if they differ by at most this.
_SAME = 0.1
# A published mean is read from a figure and has an error of its own: the two may differ by at most half a rank.
_WITHIN = 0.5
# Fixed beforehand: in one problem in twenty the rank may be smaller by one.
_MISSED = 0.05
# Ranks are integers, so a mean that is lower at all is lower by at least 1 / problems.
_LOWER = -1e-6
# The solved problems at each of SETTINGS are counted instead.
_NEEDS = Needs(seeds=0)


@claim("svm-rank:frobenius", _SOURCE, "The Frobenius solution has rank n for all d >= n.", needs=_NEEDS)
def _frobenius(runs: Datasets) -> Judgement:
    """Wherever d >= n the rank must be n, and as published; as corrected, wherever d > n."""
    few, ranks = _in_norm(runs, "frobenius")
    excess = max(int((run["largest"] - np.minimum(run.attrs["n"], run["d"])).max()) for run in ranks.values())
    at_n, beyond = [], []
    for (name, d), rank in _every(ranks, "rank"):
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
        numbers=_numbers(ranks, "rank"),
        expected={_named(*setting): float(setting[0]) for setting in SETTINGS},
        undecided=few,
    )


@claim("svm-rank:nuclear", _SOURCE, "The nuclear solution has a lower rank than the Frobenius solution.", needs=_NEEDS)
def _nuclear(runs: Datasets) -> Judgement:
    """The mean nuclear rank must nowhere be higher, and lower at the sizes of the figure."""
    few, ranks = _in_norm(runs, "nuclear")
    quantity = "mean nuclear rank minus the Frobenius rank"
    largest = _largest([value for _, value in _every(ranks, "difference")])
    lower = [below(f"{quantity}, largest over all sizes,", largest, 0.0)]
    at = {setting: _at(ranks, *setting) for setting in SETTINGS}
    lower += [below(f"{quantity} at {_named(*one)}", number(at[one], "difference"), _LOWER) for one in SETTINGS]
    spread = max(float(at[setting]["spread"]) for setting in SETTINGS)
    changes = f"The mean rank changes by {spread:.2f} between the tolerances {CLEAN[1]:g} and {CLEAN[0]:g}"
    return Judgement(
        lower,
        remark=f"Ranks of certified solutions of feasible problems. {changes} relative to the largest singular value.",
        numbers=_numbers(ranks, "rank"),
        undecided=few or (f"{changes}." if spread > _SAME else ""),
    )


@claim("svm-rank:numbers", _SOURCE, "The mean ranks are those of the figure.", needs=_NEEDS)
def _printed(runs: Datasets) -> Judgement:
    """The mean ranks of certified solutions must agree with those that the figure shows, in both norms."""
    few, ranks = _certified(runs)
    at = {(norm, setting): _at(ranks, *setting).sel(norm=norm) for norm in PUBLISHED for setting in SETTINGS}
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
    published = {
        (norm, setting): mean
        for norm, means in PUBLISHED.items()
        for setting, mean in zip(SETTINGS, means, strict=True)
    }
    return Judgement(
        [
            agrees(
                f"mean {norm} rank at {_named(*setting)}",
                float(at[norm, setting]["rank"]),
                float(at[norm, setting]["rank_error"]),
                mean,
                _WITHIN,
            )
            for (norm, setting), mean in published.items()
        ],
        remark="The printed nuclear ranks are an artefact of the tolerance: they count singular values above an "
        f"absolute 1e-7. This count finds {by_inexact} in solutions by {solver}, at {sizes}, and {by_certified} in the "
        f"certified solutions of the same problems. A difference of more than {_WITHIN:g} would be seen.",
        numbers={f"{norm}, {_named(*setting)}": number(run, "rank") for (norm, setting), run in at.items()}
        | of_inexact,
        expected={f"{norm}, {_named(*setting)}": mean for (norm, setting), mean in published.items()},
        undecided=few,
    )


CLAIMS = (_frobenius, _nuclear, _printed)


def _certified(runs: Datasets) -> tuple[str, dict[str, xarray.Dataset]]:
    """Return why the certified solutions decide nothing, empty if they do, and their estimates.

    Raises:
        MissingRunError: one of SETTINGS was not drawn.
    """
    ranks = {name: run for name, run in runs.items() if not run.attrs["solver"]}
    return too_few(min(int(_at(ranks, *setting)["solved"]) for setting in SETTINGS)), ranks


def _in_norm(runs: Datasets, norm: str) -> tuple[str, dict[str, xarray.Dataset]]:
    few, ranks = _certified(runs)
    return few, {name: run.sel(norm=norm) for name, run in ranks.items()}


def _at(ranks: Datasets, n: int, T: int, d: int) -> xarray.Dataset:
    name = f"n={n} T={T}"
    if name not in ranks or d not in ranks[name]["d"].values:
        raise MissingRunError(_named(n, T, d))
    return ranks[name].sel(d=d)


def _named(n: int, T: int, d: int) -> str:
    return f"n={n} T={T} d={d}"


def _every(runs: Datasets, name: str) -> Iterator[tuple[tuple[str, int], Number]]:
    """Yield an estimate of all runs and dimensions, without those that could not be made."""
    for run, summary in runs.items():
        for d in summary["d"].values:
            if np.isfinite(summary[name].sel(d=d)):
                yield (run, int(d)), number(summary, name, d=d)


def _numbers(runs: Datasets, name: str, ending: str = "") -> dict[str, Number]:
    return {f"{run} d={d}{ending}": value for (run, d), value in _every(runs, name)}


def _largest(numbers: Sequence[Number]) -> Number:
    """Return the largest of several numbers; its interval is above a threshold if the interval of one of them is."""
    return Number(*map(max, zip(*numbers, strict=True)))
