"""Hand-built datasets for which the verdicts of the claims on the ranks are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.svm import Status

DIMENSIONS, WIDTH = (1, 3, 10, 15, 20), 20
SIZES = ((5, 5), (10, 5), (15, 5), (5, 10))
NORMS = ("frobenius", "nuclear")
# The mean nuclear ranks of the authors' figure.
_PRINTED = ((10, 10, 9.1), (15, 15, 13.9), (15, 20, 14.9))


def separated(
    n: int,
    T: int,
    nuclear: int,
    *,
    noise: float = 1e-12,
    feasible: float = 0.5,
    first: float | None = None,
    d: Sequence[int] = DIMENSIONS,
    seeds: int = 24,
    solver: str = "",
    frobenius: int = 0,
    short: int = 0,
    edge: int = 0,
) -> xarray.Dataset:
    """Return a run whose Frobenius ranks are min(n, d) and whose nuclear ranks are given.

    Singular values are 2, and `noise` beyond the rank.

    Args:
        n: inputs.
        T: tokens.
        nuclear: the nuclear rank of half of the problems, if at most min(n, d); the others have one more.
        noise: singular values beyond the rank.
        feasible: share of feasible problems at d < 10, where only some are.
        first: this share at d = 1, if different.
        d: dimensions.
        seeds: number of problems per dimension.
        solver: an inexact solver, which leaves all problems unsolved.
        frobenius: reduction of the Frobenius rank from d = 10.
        short: number of problems whose Frobenius rank is one less from d = 10.
        edge: number of problems whose Frobenius rank is one less at d = n.
    """
    dimensions = np.array(d)
    ranks = np.zeros((seeds, len(dimensions), 2), int)
    for k, dimension in enumerate(dimensions):
        ranks[:, k, 0] = min(n, dimension) - (frobenius if dimension >= 10 else 0)
        ranks[: short if dimension >= 10 else 0, k, 0] -= 1
        ranks[: edge if dimension == n else 0, k, 0] -= 1
        ranks[:, k, 1] = np.minimum(nuclear + np.arange(seeds) % 2, min(n, dimension))
    values = np.where(np.arange(WIDTH) < ranks[..., None], 2.0, noise)
    status = np.full(ranks.shape, Status.NOT_CONVERGED if solver else Status.OPTIMAL)
    if not solver:
        share = np.where(dimensions >= 10, 1.0, feasible)
        share[dimensions == 1] = feasible if first is None else first
        infeasible = np.arange(seeds)[:, None] >= share * seeds
        status[infeasible] = Status.INFEASIBLE
        values[infeasible] = ranks[infeasible] = 0
    optimal, lost = (status == Status.OPTIMAL).all(axis=2), (status == Status.INFEASIBLE).any(axis=2)
    counts = {"attempted": optimal.size, "kept": int(optimal.sum()), "infeasible": int(lost.sum())}
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {"status": (axes, status), "rank": (axes, ranks), "singular_values": ((*axes, "direction"), values)},
        {"seed": np.arange(seeds), "d": dimensions, "norm": np.array(NORMS, dtype=object)},
        {"run": f"n={n} T={T}" + (f" by {solver}" if solver else ""), "n": n, "T": T, "solver": solver}
        | counts
        | {"unsolved": int((~optimal & ~lost).sum())},
    )


def runs(nuclear: int = 4, **changed: Any) -> Datasets:
    """Return one run per size (n, T), and some problems of one size solved by an inexact solver.

    Args:
        nuclear: as in `separated`.
        changed: other arguments of `separated` to change.
    """
    found = [separated(n, T, nuclear, **changed) for n, T in SIZES]
    found.append(separated(10, 5, nuclear, noise=1e-6, d=(10,), seeds=6, solver="SCS"))
    return {one.attrs["run"]: one for one in found}


def as_published(seeds: int = 40) -> Datasets:
    """Return runs with the nuclear ranks of the authors' figure.

    Args:
        seeds: number of problems per size and dimension; a multiple of 10 for exact means.
    """
    found = runs(seeds=seeds)
    for n, d, mean in _PRINTED:
        ranks = np.full(seeds, int(mean)) + (np.arange(seeds) < round((mean % 1) * seeds))
        at = {"d": d, "norm": "nuclear"}
        found[f"n={n} T=5"]["rank"].loc[at] = ranks
        found[f"n={n} T=5"]["singular_values"].loc[at] = 2.0 * (np.arange(WIDTH) < ranks[:, None])
    return found


def frobenius() -> dict[Verdict, Datasets]:
    """The ranks are n; n except at d = n; less by two; or there are too few problems."""
    return {
        Verdict.HOLDS: runs(seeds=30),
        Verdict.CORRECTED: runs(edge=6, seeds=30),
        Verdict.FAILS: runs(frobenius=2, seeds=30),
        Verdict.OPEN: runs(seeds=19),
    }


def nuclear() -> dict[Verdict, Datasets]:
    """Nuclear ranks are as published; lower; as high as the Frobenius ranks; or without a clear value."""
    return {
        Verdict.HOLDS: as_published(),
        Verdict.CORRECTED: runs(seeds=40),
        Verdict.FAILS: runs(nuclear=WIDTH, seeds=40),
        Verdict.OPEN: runs(noise=1e-6, seeds=40),
    }


def small() -> dict[Verdict, Datasets]:
    """Problems are infeasible where the rank is 1 anyway; where it is 3; or there are too few problems."""
    return {
        Verdict.HOLDS: runs(first=0.5, feasible=1.0),
        Verdict.FAILS: runs(first=1.0, feasible=0.5),
        Verdict.OPEN: runs(seeds=19),
    }
