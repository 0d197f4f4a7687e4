"""Hand-built datasets for which the verdict of the claim on local directions is known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

RADII = np.array([10.0, 100.0])


def measured(
    left: tuple[int, int] = (40, 0),
    wrongly: int = 0,
    local: int = 100,
    others: int = 300,
    steps: int = 4000,
    problems: int = 0,
) -> xarray.Dataset:
    """Return starts of which this many locally optimal ones are left at each radius, as are all others but `wrongly`.

    Args:
        left: locally optimal starts that are left, at each of `RADII`.
        wrongly: starts that are not locally optimal and not left.
        local: number of locally optimal starts.
        others: number of other starts.
        steps: of every run.
        problems: number of problems, to which the starts belong in turn; if 0, nine consecutive starts belong to each.
    """
    start = np.arange(local + others)
    stayed = np.stack([(start >= k) & (start < local + wrongly) for k in left], axis=1)
    of_start = {
        "locally": start < local,
        "gap": np.where(start < local, 0.3, -0.3) * (1 + 0.1 * np.sin(start)),
        "length": np.full(start.size, 2.0),
        "slack": np.where(start < local // 2, 0.1, np.inf),
        "seed": start % problems if problems else start // 9,
        "d": 2 + start % 3,
    }
    variables = {name: (("start",), values) for name, values in of_start.items()}
    variables |= {
        "stayed": (("start", "radius"), stayed),
        "correlation": (("start", "radius"), np.where(stayed, 0.999, 0.2)),
    }
    attrs = {"run": "all starts", "steps": steps, "attempted": start.size + 14, "kept": start.size}
    return xarray.Dataset(variables, {"radius": RADII}, attrs | {"infeasible": 12, "unsolved": 2})


def of_exactly() -> dict[Verdict, Datasets]:
    """At the largest radius no locally optimal choice is left; few are; many are; or there are too few problems."""
    lefts = {Verdict.HOLDS: (40, 0), Verdict.CORRECTED: (40, 2), Verdict.FAILS: (40, 25)}
    decided: dict[Verdict, Datasets] = {
        verdict: {"all starts": measured(left, problems=40)} for verdict, left in lefts.items()
    }
    return decided | {Verdict.OPEN: {"all starts": measured((40, 0), problems=7)}}
