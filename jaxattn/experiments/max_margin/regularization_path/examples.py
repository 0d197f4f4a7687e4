"""Hand-built datasets for which the verdicts of the claims on the regularization paths are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims.claim import Datasets, Verdict

RADII = np.geomspace(1.0, 1000.0, 13)


def path(
    run: str,
    exponent: float = -1.0,
    size: float = 5.0,
    other: float = 0.4,
    selected: bool = True,
    kept: int = 30,
    radii: Float[np.ndarray, " radii"] = RADII,
) -> xarray.Dataset:
    """Return what `measure` would return for paths that approach their solution like a power of R.

    Two further seeds are unsolved; every third kept seed is solved from one end only.

    Args:
        run: "W" or "KQ".
        exponent: of the power.
        size: of the distance at R = 1, by that power; no distance is above 1, except for the spread over seeds.
        other: distance from the other solution.
        selected: whether the optimal tokens are selected.
        kept: seeds.
        radii: of the balls.
    """
    rng = np.random.default_rng(3)
    own = np.minimum(1.0, size * radii**exponent)[None] * 10 ** rng.normal(0, 0.1, (kept, 1))
    distance = np.stack([own, np.full_like(own, other)], axis=1)
    norms = ["frobenius", "nuclear"] if run == "W" else ["nuclear", "frobenius"]
    flat = np.full((kept, radii.size), 1e-9)
    arrays = {
        "distance": (("seed", "norm", "radius"), distance),
        "off": (("seed", "norm", "radius"), np.minimum(1.0, distance**2)),
        "selected": (("seed", "radius"), np.full(flat.shape, selected)),
        "apart": (("seed", "radius"), np.where(np.arange(kept)[:, None] % 3, flat, np.inf)),
        "residual": (("seed", "radius"), flat),
        "solved": (("attempt", "radius"), np.ones((kept + 2, radii.size), bool)),
    }
    coordinates = {"seed": np.arange(kept), "attempt": np.arange(kept + 2), "norm": np.array(norms, dtype=object)}
    attrs = {"run": run, "attempted": kept + 2, "kept": kept, "infeasible": 0, "unsolved": 2}
    return xarray.Dataset(arrays, coordinates | {"radius": radii}, attrs)


def runs(**changed: Any) -> Datasets:
    """Return the paths of W and of (K, Q).

    Args:
        changed: arguments of `path` to change.
    """
    return {run: path(run, **changed) for run in ("W", "KQ")}


def paths() -> dict[Verdict, Datasets]:
    """The paths approach their solutions like 1 / R; they stall at other tokens; or there are too few seeds."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(exponent=-0.5, size=50.0, selected=False),
        Verdict.OPEN: runs(kept=8),
    }
