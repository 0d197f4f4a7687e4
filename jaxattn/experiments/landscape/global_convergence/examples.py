"""Hand-built datasets for which the verdicts of the claims on global convergence are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.landscape.global_convergence.measure import STARTS
from jaxattn.study.claims.claim import Datasets, Verdict


def run(
    start: str,
    share: float,
    spread: float = 1.0,
    n: int = 4,
    d: int = 5,
    lost: float = 0.2,
    separated: float = 1.0,
    steps: int = 2000,
    seeds: int = 100,
    worse: bool = False,
) -> xarray.Dataset:
    """Return a run in which this share of seeds is right, those with the better first step; one in five separates.

    Args:
        start: a name of `STARTS`.
        share: of seeds that select their optimal tokens.
        spread: of the scores.
        n: inputs.
        d: dimension.
        lost: share of the last gradient on wrong inputs.
        separated: share of right seeds among those whose first step separates.
        steps: of the run.
        seeds: number of seeds, all kept.
        worse: the seeds with the worse first step are right instead.
    """
    rank = np.arange(seeds) / seeds
    hits = rank >= 1 - share - 1e-9
    hits[rank >= 0.8] &= rank[rank >= 0.8] >= 1 - 0.2 * separated - 1e-9
    if worse:
        hits = hits[::-1].copy()
    variables = {
        "optimal": (("seed",), hits),
        "correlation": (("seed",), 0.31 + 0.4 * rank),
        "margin": (("seed",), np.where(rank >= 0.8, 0.1, -0.3)),
        "lost": (("seed",), np.where(hits, 0.0, lost)),
    }
    name = f"{STARTS[start]}, n = {n}, d = {d}, spread = {spread:g}"
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    told = {"run": name, "start": start, "n": n, "T": 5, "d": d, "spread": spread, "steps": steps}
    return xarray.Dataset(variables, {"seed": np.arange(seeds)}, counts | told)


def first(zero: dict[str, Any] | None = None, long: dict[str, Any] | None = None) -> Datasets:
    """Return a run from W = 0 and one with a long first step, with these changes."""
    return named(run("zero", **{"share": 0.7, **(zero or {})}), run("long", **{"share": 0.6, **(long or {})}))


def spreads(equal: float = 1.0, half: float = 0.8, free: float = 0.5, **of_equal: Any) -> Datasets:
    """Return runs from random weights with these shares at three spreads of the scores."""
    return named(
        run("random", equal, 0.0, n=6, d=10, **of_equal),
        run("random", half, 0.5, n=6, d=10),
        run("random", free, 1.0, n=6, d=10),
    )


def named(*runs: xarray.Dataset) -> Datasets:
    """Return runs by their names."""
    return {one.attrs["run"]: one for one in runs}


def of_first_gradient() -> dict[Verdict, Datasets]:
    """All separated seeds are right; only after a long first step; not even then; or there are too few of them."""
    return {
        Verdict.HOLDS: first(),
        Verdict.CORRECTED: first(zero={"separated": 0.5}),
        Verdict.FAILS: first(long={"separated": 0.5}),
        Verdict.OPEN: first(zero={"seeds": 60}, long={"seeds": 60}),
    }


def of_alignment() -> dict[Verdict, Datasets]:
    """The better half is right more often, or less often; or nearly all are right, so that it cannot be decided."""
    return {
        Verdict.HOLDS: first(),
        Verdict.FAILS: first(zero={"worse": True}),
        Verdict.OPEN: first(zero={"share": 0.99}),
    }


def of_score_gap() -> dict[Verdict, Datasets]:
    """The share falls with the spread, or rises; or the fall is too small to decide."""
    return {
        Verdict.HOLDS: spreads(),
        Verdict.FAILS: spreads(0.5, 0.8, 1.0),
        Verdict.OPEN: spreads(1.0, 0.52, 0.5),
    }
