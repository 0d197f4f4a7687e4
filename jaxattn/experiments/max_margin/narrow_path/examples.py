"""Hand-built datasets for which the verdicts of the claims on narrow paths are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims.claim import Datasets, Verdict

RADII = np.geomspace(1.0, 10_000.0, 9)


def path(
    m: int,
    exponent: float = -1.0,
    size: float = 5.0,
    worse: float = 0.0,
    margin: float = 0.97,
    reached: float = 0.999,
    there: bool = True,
    kept: int = 30,
    radii: Float[np.ndarray, " radii"] = RADII,
) -> xarray.Dataset:
    """Return what `measure` would return for paths of m columns that approach their limits like a power of R.

    The nuclear solutions have rank m + 1, except for two further seeds of rank m; two more are unsolved.

    Args:
        m: columns.
        exponent: of the power.
        size: of the distance at R = 1, by that power; none is above 1, except for the spread over seeds.
        worse: relative excess of the limit's norm over the best solution found.
        margin: of descent over that of the path; 1 minus its correlation with the path is a quarter of 1 minus this.
        reached: correlation of descent with a stationary point.
        there: whether descent ends at the optimal tokens in every second seed, or in one only.
        kept: seeds of rank above m.
        radii: of the balls.
    """
    rng = np.random.default_rng(m)
    seeds = kept + 2
    spread = 10 ** rng.normal(0, 0.1, (seeds, 1))
    wobble = 1e-3 * np.sin(np.arange(seeds))
    flat = np.ones((seeds, radii.size))
    arrays = {
        "rank": (("seed",), np.where(np.arange(seeds) < kept, m + 1, m)),
        "bound": (("seed",), 0.3 + wobble),
        "worse": (("seed",), worse + 1e-2 * wobble),
        "optimal": (("seed",), np.arange(seeds) % 2 == 0 if there else np.arange(seeds) == 0),
        "margin": (("seed",), margin + wobble),
        "correlation": (("seed",), 1 - (1 - margin) / 4 + wobble),
        "reached": (("seed",), reached + 1e-2 * wobble),
        "distance": (("seed", "radius"), np.minimum(1.0, size * radii**exponent)[None] * spread),
        "share": (("seed", "radius"), flat - 0.5 / radii),
        "residual": (("seed", "radius"), 1e-9 * flat),
        "agreeing": (("seed", "radius"), 0.3 * flat),
        "minimum": (("seed", "radius"), flat > 0),
        "continued": (("seed", "radius"), flat < 0),
    }
    counts = {"attempted": seeds + 2, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 2, "missed": 1}
    return xarray.Dataset(arrays, {"seed": np.arange(seeds), "radius": radii}, {"run": f"m={m}", "width": m, **counts})


def runs(**changed: Any) -> Datasets:
    """Return the runs with one and two columns.

    Args:
        changed: arguments of `path` to change.
    """
    return {f"m={m}": path(m, **changed) for m in (1, 2)}


def of_limit() -> dict[Verdict, Datasets]:
    """The limit is the best solution; one of larger norm; none is approached like 1 / R; or there are too few seeds."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(worse=0.1),
        Verdict.FAILS: runs(exponent=-0.5),
        Verdict.OPEN: runs(kept=12),
    }


def of_descent() -> dict[Verdict, Datasets]:
    """Descent ends along the path; along another stationary point; along none; or close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(margin=0.3),
        Verdict.FAILS: runs(margin=0.3, reached=0.9),
        Verdict.OPEN: runs(margin=0.9),
    }


def of_margin() -> dict[Verdict, Datasets]:
    """The margin is that of the path; it is smaller; or too few seeds end at the optimal tokens."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(margin=0.3), Verdict.OPEN: runs(there=False)}
