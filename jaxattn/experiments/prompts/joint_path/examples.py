"""Measured joint paths built by hand: what the claims on them have to say is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

RADII = np.geomspace(10.0, 1000.0, 5)
GROWTHS = (0.5, 1.0, 2.0)
PROBLEMS = ("unrelaxed", "relaxed", "offset")
_FAR, _NEAR = 0.05, 1e-5


def path(
    growth: float,
    seeds: int = 160,
    obeyed: tuple[str, ...] = (),
    whole: float = _NEAR,
    head: float = _NEAR,
    last: float = 1000.0,
) -> xarray.Dataset:
    """Return the paths of one law of the radii, half of whose seeds have inputs that are no support vectors.

    Args:
        growth: the exponent of R in r.
        seeds: how many.
        obeyed: the problems that p tends to in mixed seeds; it stays far from the others.
        whole: 1 - cos with all solutions, which are one, at the end in the other seeds.
        head: 1 - cos of v.
        last: the largest radius.
    """
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], seeds)[:, None]
    mixed = np.arange(seeds) % 4 < 2
    of_mixed = np.array([_NEAR if one in obeyed else _FAR for one in PROBLEMS])
    ends = np.where(mixed[:, None], of_mixed, whole) * spread
    radii = RADII * last / RADII[-1]
    falling = np.minimum(radii[-1] / radii, 20.0)
    support = np.ones((seeds, 5), bool)
    support[mixed, 0] = False
    counts = {"attempted": seeds, "kept": seeds, "ambiguous": 0, "infeasible": 0, "unsolved": 0}
    flat = np.ones((seeds, radii.size))
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "radius"), np.clip(ends[:, :, None] * falling, -1.0, 1.0)),
            "off_v": (("seed", "radius"), np.clip(head * spread * falling, -1.0, 1.0)),
            "residual": (("seed", "radius"), 1e-12 * flat),
            "lowest": (("seed", "radius"), flat > 0),
            "support": (("seed", "input"), support),
            "largest": (("seed",), np.ones(seeds, bool)),
            "solved": (("attempt", "radius"), flat > 0),
        },
        {"seed": np.arange(seeds), "attempt": np.arange(seeds), "problem": np.array(PROBLEMS, object), "radius": radii},
        {"run": f"r ~ R^{growth:g}", "growth": growth, **counts},
    )


def paths(obeyed: tuple[tuple[str, ...], ...], **changes: Any) -> Datasets:
    """Return the paths of all laws, with what p obeys under each."""
    every = [path(growth, obeyed=one, **changes) for growth, one in zip(GROWTHS, obeyed, strict=True)]
    return {one.attrs["run"]: one for one in every}


CORRECTED = (("unrelaxed",), ("offset",), ("relaxed", "offset"))
_RELAXED = (("relaxed",),) * 3


def of_head() -> dict[Verdict, Datasets]:
    """The head ends at its solution, or far from it; or there are too few seeds."""
    return {
        Verdict.HOLDS: paths(CORRECTED),
        Verdict.FAILS: paths(CORRECTED, head=_FAR),
        Verdict.OPEN: paths(CORRECTED, seeds=8),
    }


def of_support() -> dict[Verdict, Datasets]:
    """The prompt ends at its solution, or far from it; or there are too few seeds."""
    return {
        Verdict.HOLDS: paths(CORRECTED),
        Verdict.FAILS: paths(CORRECTED, whole=_FAR),
        Verdict.OPEN: paths(CORRECTED, seeds=8),
    }


def of_relaxed() -> dict[Verdict, Datasets]:
    """The prompt ends at the relaxed solution under all laws, at another under each, or at the unrelaxed under all."""
    return {
        Verdict.HOLDS: paths(_RELAXED),
        Verdict.CORRECTED: paths(CORRECTED),
        Verdict.FAILS: paths((("unrelaxed",),) * 3),
        Verdict.OPEN: paths(_RELAXED, seeds=8),
    }
