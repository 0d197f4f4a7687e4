"""Hand-built datasets for which the verdicts of the claims on the probability of the optimal tokens are known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.landscape.outcomes import named
from jaxattn.study.claims.claim import Datasets, Verdict

# The runs: d, and (n, T).
DIMENSIONS, SIZES = (4, 10, 20), ((5, 5), (10, 5), (5, 10))
# Close to the independent run; smaller with more inputs and tokens, larger with d.
SHARES = {(5, 5): (0.6, 0.9, 0.97), (10, 5): (0.12, 0.65, 0.87), (5, 10): (0.45, 0.72, 0.82)}
# Shares by weights, n, T and d that differ from these.
Changes = Mapping[tuple[str, int, int, int], float]


def run(
    weights: str, n: int, T: int, d: int, share: float, seeds: int = 200, unsaturated: int = 0, steps: int = 1500
) -> xarray.Dataset:
    """Return a run in which this share of the seeds ends at the optimal tokens.

    Args:
        weights: "W" or "KQ".
        n: inputs.
        T: tokens.
        d: dimension.
        share: of optimal seeds, the first ones.
        seeds: number of seeds, all finite.
        unsaturated: how many of the first ones have not saturated.
        steps: of the run.
    """
    sizes = {"n": n, "T": T, "d": d}
    attrs = {"run": named(weights, sizes), "weights": weights, **sizes, "steps": steps}
    attrs |= {"attempted": seeds, "kept": seeds - unsaturated, "diverged": 0, "ambiguous": unsaturated}
    variables = {
        "saturated": (("seed",), np.arange(seeds) >= unsaturated),
        "globally": (("seed",), np.arange(seeds) < share * seeds),
    }
    return xarray.Dataset(variables, {"seed": np.arange(seeds)}, attrs)


def runs(changes: Changes | None = None, **more: Any) -> Datasets:
    """Return runs of all weights and sizes with `SHARES`, slightly larger for (K, Q) at the smallest d.

    Args:
        changes: shares to change.
        more: of every `run`.
    """
    made = []
    for weights, (n, T), (k, d) in itertools.product(("W", "KQ"), SIZES, enumerate(DIMENSIONS)):
        usual = SHARES[n, T][k] + (0.03 if weights == "KQ" and k == 0 else 0.0)
        made.append(run(weights, n, T, d, (changes or {}).get((weights, n, T, d), usual), **more))
    return {one.attrs["run"]: one for one in made}


def of_d() -> dict[Verdict, Datasets]:
    """Every curve rises to 1; one levels off below; one falls at its end; or one is still rising."""
    arrived = {(weights, *size, DIMENSIONS[-1]): 0.995 for weights in ("W", "KQ") for size in SIZES}

    def ending(*shares: float) -> Datasets:
        """Return runs that reach 1, except for one, which ends with these shares."""
        places = (("W", 5, 10, d) for d in DIMENSIONS[-len(shares) :])
        return runs(arrived | dict(zip(places, shares, strict=True)), seeds=4000)

    return {
        Verdict.HOLDS: ending(0.995),
        Verdict.CORRECTED: ending(0.80, 0.82),
        Verdict.FAILS: ending(0.5),
        Verdict.OPEN: ending(0.72, 0.85),
    }


def of_n() -> dict[Verdict, Datasets]:
    """Every curve falls; one rises; or the fall is too small to decide."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({("KQ", 10, 5, 4): 0.85, ("KQ", 10, 5, 10): 0.85}),
        Verdict.OPEN: runs({("KQ", 10, 5, 4): 0.6}),
    }


def of_T() -> dict[Verdict, Datasets]:
    """Every curve falls; one rises; or the fall is too small to decide."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({("KQ", 5, 10, 4): 0.85, ("KQ", 5, 10, 10): 0.85}),
        Verdict.OPEN: runs({("KQ", 5, 10, 4): 0.62}),
    }


def of_independent() -> dict[Verdict, Datasets]:
    """All are close to the independent run; three are not; or there are too few seeds to decide."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({("W", 5, 5, 4): 0.4, ("W", 5, 10, 4): 0.2, ("KQ", 10, 5, 4): 0.35}),
        Verdict.OPEN: runs(seeds=24),
    }
