"""Hand-built datasets for which the verdicts of the claims on the convergence types are known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.landscape.outcomes import named
from jaxattn.study.claims.claim import Datasets, Verdict

DIMENSIONS = (4, 10, 20)
# Numbers of seeds of each kind, by weights and d, that differ from the usual ones.
Changes = Mapping[tuple[str, int], Mapping[str, int]]


def run(
    weights: str,
    d: int,
    globally: int,
    locally: int,
    support: int,
    own: int | None = None,
    seeds: int = 200,
    unsaturated: int = 0,
    steps: int = 1500,
) -> xarray.Dataset:
    """Return a run with these numbers of seeds of each kind, the first ones; one more is unsolved.

    Args:
        weights: "W" or "KQ".
        d: dimension.
        globally: seeds at the optimal tokens.
        locally: seeds at locally optimal ones, by the Frobenius solution.
        support: seeds whose tokens are all support vectors.
        own: seeds at locally optimal ones by the solution that the run converges to; same as `locally` if None.
        seeds: number of seeds, all solved.
        unsaturated: how many of the last seeds have not saturated.
        steps: of the run.
    """
    seed = np.arange(seeds)
    sizes = {"n": 5, "T": 5, "d": d}
    attrs = {"run": named(weights, sizes), "weights": weights, **sizes, "steps": steps}
    attrs |= {"attempted": seeds + 1, "kept": seeds - unsaturated, "diverged": 0, "ambiguous": unsaturated}
    attrs |= {"infeasible": 0, "unsolved": 1}
    variables = {"saturated": seed < seeds - unsaturated, "globally": seed < globally, "locally": seed < locally}
    variables |= {"all_support": seed < support, "locally_own": seed < (locally if own is None else own)}
    return xarray.Dataset({name: (("seed",), value) for name, value in variables.items()}, {"seed": seed}, attrs)


def runs(changes: Changes | None = None, **more: Any) -> Datasets:
    """Return runs of W and (K, Q) in three dimensions, all local; the global and all-support ones increase with d.

    Args:
        changes: numbers of seeds to change.
        more: of every `run`.
    """
    made = []
    for weights, d in itertools.product(("W", "KQ"), DIMENSIONS):
        usual = {"globally": 100 + 4 * d, "locally": 200, "support": 4 * d}
        made.append(run(weights, d, **{**usual, **(changes or {}).get((weights, d), {}), **more}))
    return {one.attrs["run"]: one for one in made}


def of_global() -> dict[Verdict, Datasets]:
    """The share rises with d; for (K, Q) it falls from the second d; or the rise is too small to decide."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({("KQ", 10): {"globally": 198}}),
        Verdict.OPEN: runs({("KQ", 20): {"globally": 120}}),
    }


def of_local() -> dict[Verdict, Datasets]:
    """All are local; all by the solution that they converge to; not even then; or the runs are too short."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs({("KQ", 4): {"locally": 190, "own": 200}}),
        Verdict.FAILS: runs({("W", 4): {"locally": 185}}),
        Verdict.OPEN: runs(steps=500),
    }


def of_all_support() -> dict[Verdict, Datasets]:
    """The share rises with d; one run with all support is only local; or the rise is too small to decide."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({("W", 20): {"support": 181}}),
        Verdict.OPEN: runs({("W", 10): {"support": 18}, ("W", 20): {"support": 20}}),
    }
