"""What the measured ranks say of the published ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from jaxattn.study.claims import Claim, Verdict, agree, too_few

_SOURCE = "arXiv 2308.16898, rank figure"
# Read from the authors' figure: mean ranks of both norms at these (n, T, d).
_SETTINGS = ((10, 5, 10), (15, 5, 15), (15, 5, 20))
_PUBLISHED = {"frobenius": (10.0, 15.0, 15.0), "nuclear": (9.1, 13.9, 14.9)}
# A rank is clean if its mean changes by at most so much between these two tolerances.
CLEAN, _SPREAD = (1e-9, 1e-3), 0.1

Numbers = tuple[dict[str, float], dict[str, tuple[float, float]]]


def judged(summaries: Mapping[str, xarray.Dataset], counts: Mapping[str, Mapping[str, int]]) -> list[Claim]:
    """Judge the claims on the summaries of `svm_rank.summarize`."""
    summary = summaries["certified"]
    there = [(n, T, d) for n, T, d in _SETTINGS if f"n={n} T={T}" in summary["run"] and d in summary["d"]]
    if len(there) < len(_SETTINGS):
        undecided = f"No problems were drawn at some of the settings (n, T, d) = {_SETTINGS} of the paper's numbers."
        there = []
    else:
        undecided = too_few(min(int(_at(summary["kept"], *setting)) for setting in there))
    return [
        _frobenius_claim(summary, there, undecided, counts),
        _nuclear_claim(summaries, there, undecided, counts),
        _small_claim(summary, undecided, counts),
    ]


def _at(array: xarray.DataArray, n: int, T: int, d: int) -> xarray.DataArray:
    return array.sel(run=f"n={n} T={T}", d=d)


def _published(summary: xarray.Dataset, there: list[tuple[int, int, int]], norm: str) -> dict[str, np.ndarray]:
    """Return the published means of a norm and, at the same settings, what was measured."""
    of_norm = summary.sel(norm=norm)
    parts = ("rank", "rank_low", "rank_high", "rank_error", "spread")
    measured = {part: np.array([float(_at(of_norm[part], *one)) for one in there]) for part in parts}
    return {"expected": np.array(_PUBLISHED[norm][: len(there)]), **measured}


def _expected(norm: str) -> dict[str, float]:
    return {f"n={n} T={T} d={d}": mean for (n, T, d), mean in zip(_SETTINGS, _PUBLISHED[norm], strict=True)}


def _all(summary: xarray.Dataset, name: str, label: str) -> Numbers:
    """Return every estimated mean of a variable with axes `run` and `d`, and its interval, under its setting."""
    mean, interval = {}, {}
    for run in summary["run"].values:
        for d in summary["d"].values:
            here = summary.sel(run=run, d=d)
            if np.isfinite(here[name]):
                mean[label.format(f"{run} d={d}")] = float(here[name])
                interval[label.format(f"{run} d={d}")] = (float(here[f"{name}_low"]), float(here[f"{name}_high"]))
    return mean, interval


def _frobenius_claim(
    summary: xarray.Dataset, there: list[tuple[int, int, int]], undecided: str, counts: Mapping[str, Mapping[str, int]]
) -> Claim:
    at = _published(summary, there, "frobenius")
    bound = np.minimum(summary["n"], summary["d"])
    bounded = bool((summary["largest"].sel(norm="frobenius") <= bound).all())
    holds = bounded and agree(at["rank"], at["rank_error"], at["expected"])
    measured, interval = _all(summary.sel(norm="frobenius"), "rank", "{}")
    return Claim(
        id="svm-rank:frobenius",
        source=_SOURCE,
        statement="The Frobenius solution has rank n at d >= n = 10 and 15.",
        expected=_expected("frobenius"),
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.OPEN if undecided else Verdict.HOLDS if holds else Verdict.FAILS,
        note=undecided
        or "Certified solutions of feasible problems. Holds if no rank exceeds min(n, d) and the published means are "
        "within two standard errors of the difference; the mean falls short of min(n, d) where some inputs have no "
        "support vector.",
    )


def _nuclear_claim(
    summaries: Mapping[str, xarray.Dataset],
    there: list[tuple[int, int, int]],
    undecided: str,
    counts: Mapping[str, Mapping[str, int]],
) -> Claim:
    summary = summaries["certified"]
    at, other = (_published(summary, there, norm) for norm in ("nuclear", "frobenius"))
    frobenius, nuclear = (summary.sel(norm=norm) for norm in ("frobenius", "nuclear"))
    never_higher = not bool((nuclear["rank"] > frobenius["rank"]).any())
    lower = never_higher and bool((at["rank_high"] < other["rank_low"]).all())
    stronger = bool((at["rank_high"] < at["expected"]).all())
    as_published = agree(at["rank"], at["rank_error"], at["expected"])
    spread = float(at["spread"].max(initial=0.0))
    if not undecided and spread > _SPREAD:
        undecided = f"The mean rank changes by {spread:.2f} between the tolerances {CLEAN[1]:g} and {CLEAN[0]:g}."
    measured, interval = _all(nuclear, "rank", "{}")
    inexact = {solver: one for solver, one in summaries.items() if solver != "certified"}
    for solver, curves in inexact.items():
        for setting in curves["setting"].values:
            here = curves.sel(setting=setting, solver=solver)
            label = f"n={int(here['n'])} T={int(here['T'])} d={int(here['d'])} by {solver}, counted as published"
            measured[label] = float(here["published"])
            interval[label] = (float(here["published_low"]), float(here["published_high"]))
    if not lower:
        verdict, note = Verdict.FAILS, "The nuclear rank is not below the Frobenius rank."
    elif as_published:
        verdict, note = Verdict.HOLDS, "The published means are within two standard errors of the difference."
    else:
        how = "more strongly than published" if stronger else "with other ranks than published"
        verdict = Verdict.CORRECTED
        note = (
            f"Holds, {how}. The mean rank of the certified solutions changes by at most {spread:.2f} between the "
            f"tolerances {CLEAN[1]:g} and {CLEAN[0]:g} relative to the largest singular value; the published count of "
            "singular values above an absolute 1e-7 is, for an inexact solution, a count of its errors."
        )
    return Claim(
        id="svm-rank:nuclear",
        source=_SOURCE,
        statement="The nuclear solution has lower rank than the Frobenius solution.",
        expected=_expected("nuclear"),
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.OPEN if undecided else verdict,
        note=undecided or note,
    )


def _small_claim(summary: xarray.Dataset, undecided: str, counts: Mapping[str, Mapping[str, int]]) -> Claim:
    """Judge the published convention where it differs from a mean over solutions."""
    frobenius = summary.sel(norm="frobenius")
    # Where all problems are feasible the two conventions count the same solutions.
    mixed = frobenius.where(frobenius["feasible"] < 1)
    below, above = mixed["published_high"] < mixed["rank_low"], mixed["published_low"] > mixed["rank_high"]
    apart = bool((below | above).any())
    numbers = [_all(mixed, "feasible", "{}, feasible share"), _all(mixed, "published", "{}, counted as published")]
    numbers.append(_all(mixed, "rank", "{}, feasible problems"))
    return Claim(
        id="svm-rank:small-d",
        source=_SOURCE,
        statement="The points of the figure at small d are mean ranks of solutions.",
        expected={},
        measured={name: mean for means, _ in numbers for name, mean in means.items()},
        interval={name: bounds for _, intervals in numbers for name, bounds in intervals.items()},
        counts=counts,
        verdict=Verdict.OPEN if undecided else Verdict.FAILS if apart else Verdict.HOLDS,
        note=undecided
        or "Frobenius ranks where some problems are infeasible. The published code counts an infeasible problem as "
        "rank 1, so that a point is a mixture of the feasible share and the rank. Does not hold if somewhere the "
        "interval of the published count is apart from that of the feasible problems' rank.",
    )
