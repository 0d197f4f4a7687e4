"""Long runs built by hand, as `limits.measure` would return them: what the examples of several claims are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from numpy.typing import ArrayLike

from jaxattn.study.settings.schedule import Logarithmically

SEEDS, D = 30, 10
STEPS = np.array(Logarithmically(8)(200_000))


def long_run(
    off: ArrayLike,
    weights: str = "W",
    optimizer: str = "normalized_gd",
    penalty: float = 0.0,
    ratio: float = 1.0,
    norms: Sequence[str] = ("frobenius", "nuclear"),
    **more: Any,
) -> xarray.Dataset:
    """Return a run that is this far from the solutions, 1 - cos, each seed a little nearer or farther.

    Args:
        off: of every norm and snapshot, or what broadcasts to (norm, snapshot).
        weights: "W" or "KQ".
        optimizer: its name.
        penalty: its coefficient; also its floor.
        ratio: of the gradient's length at the end to that of the penalty.
        norms: of the solutions.
        more: other attributes, such as `scale` or `steps`.
    """
    factors = 10 ** np.random.default_rng(0).normal(0, 0.1, SEEDS)
    every = np.broadcast_to(np.asarray(off, float), (len(norms), len(STEPS)))
    width = D if weights == "KQ" else 0
    told = {"weights": weights, "optimizer": optimizer, "floor": penalty, "penalty": penalty, "width": width}
    told |= {"scale": 1.0, "steps": int(STEPS[-1])} | more
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    length = 7.0
    variables = {
        "off": (("seed", "norm", "snapshot"), np.minimum(factors[:, None, None] * every, 2.0)),
        "gradient_norm": (("seed", "step"), np.full((SEEDS, 2), 2 * penalty * length * ratio)),
        "length": (("seed",), np.full(SEEDS, length)),
    }
    coordinates = {"seed": np.arange(SEEDS), "norm": np.array(norms, object), "snapshot": STEPS, "step": [0, 1000]}
    run = ", ".join(f"{name} {value}" for name, value in told.items())
    return xarray.Dataset(variables, coordinates, {"run": run, **counts, **told})


def named(runs: Sequence[xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """Return runs by their names.

    Raises:
        ValueError: two have the same.
    """
    if len({one.attrs["run"] for one in runs}) < len(runs):
        raise ValueError("runs: expected different ones, found the same name twice")
    return {one.attrs["run"]: one for one in runs}
