"""Long runs built by hand, in the form that `limits.measure` returns, for the examples of several claims."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float
from numpy.typing import ArrayLike

from jaxattn.study.settings.schedule import Logarithmically

SEEDS, D = 30, 10
STEPS = np.array(Logarithmically(8)(200_000))
# Standard deviations over the seeds, similar to those of the published runs: of the logarithm (base 10) of the distance
# near step 2000, and of the exponent in the step.
_LEVEL, _EXPONENTS = 0.1, {"W": 0.07, "KQ": 0.25}
# The same for the natural logarithm of the ratio of the gradient's norm to that of the penalty.
_BALANCE = 0.04


def long_run(
    off: ArrayLike,
    weights: str = "W",
    optimizer: str = "normalized_gd",
    penalty: float = 0.0,
    ratio: float = 1.0,
    norms: Sequence[str] = ("frobenius", "nuclear"),
    spread: float | None = None,
    margin: ArrayLike = 0.999,
    balance: ArrayLike = 1.0,
    **more: Any,
) -> xarray.Dataset:
    """Return a run at these distances from the solutions, 1 - cos, with a spread of distances and rates over the seeds.

    The logarithms of the distances have these means, and the exponents in the step are those of `off`, up to rounding.
    Two runs with different attributes have independent exponents; the distance near step 2000 depends on the seed.

    Args:
        off: for every norm and snapshot, or what broadcasts to (norm, snapshot).
        weights: "W" or "KQ".
        optimizer: its name.
        penalty: its coefficient; also the floor.
        ratio: of the gradient's norm at the end to that of the penalty, as the geometric mean over the seeds.
        norms: of the solutions.
        spread: standard deviation of the exponent over the seeds; as published for these weights if None.
        margin: margin ratio for every norm and snapshot, or what broadcasts to (norm, snapshot).
        balance: ||K|| / ||Q|| of factors at every snapshot, or what broadcasts to (snapshot,).
        more: other attributes, such as `scale` or `steps`.
    """
    every = np.broadcast_to(np.asarray(off, float), (len(norms), len(STEPS)))
    width = D if weights == "KQ" else 0
    told = {"weights": weights, "optimizer": optimizer, "floor": penalty, "penalty": penalty, "width": width}
    told |= {"step": "constant", "step_size": 0.1, "scale": 1.0, "steps": int(STEPS[-1])} | more
    run = ", ".join(f"{name} {value}" for name, value in told.items())
    levels = 10 ** (_LEVEL * _normal(0))
    exponents = (_EXPONENTS[weights] if spread is None else spread) * _normal(zlib.crc32(run.encode()))
    of_seeds = levels[:, None] * (STEPS / 2000) ** exponents[:, None]
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    length, of_penalty = 7.0, np.exp(_BALANCE * _normal(1))
    margins = 1 - (1 - np.broadcast_to(np.asarray(margin, float), every.shape)) * levels[:, None, None]
    variables = {
        "off": (("seed", "norm", "snapshot"), np.minimum(of_seeds[:, None] * every, 2.0)),
        "gradient_norm": (("seed", "step"), 2 * penalty * length * ratio * np.tile(of_penalty[:, None], 2)),
        "length": (("seed",), np.full(SEEDS, length)),
        "size": (("seed", "snapshot"), np.tile(STEPS ** (2.0 if told["step"] == "constant" else 1.0), (SEEDS, 1))),
        "margin_ratio": (("seed", "norm", "snapshot"), margins),
    }
    if width:
        # Half of the seeds on each side, at different distances.
        side = np.sign(_normal(2) - np.median(_normal(2))) * (1 + 0.2 * _normal(3))
        variables["balance"] = (("seed", "snapshot"), np.broadcast_to(balance, STEPS.shape) ** side[:, None])
    coordinates = {"seed": np.arange(SEEDS), "norm": np.array(norms, object), "snapshot": STEPS, "step": [0, 1000]}
    return xarray.Dataset(variables, coordinates, {"run": run, **counts, **told})


def _normal(key: int) -> Float[np.ndarray, " seeds"]:
    """Draw one number per seed, with mean zero and standard deviation one over the seeds."""
    drawn = np.random.default_rng(key).normal(size=SEEDS)
    return (drawn - drawn.mean()) / drawn.std()


def named(runs: Sequence[xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """Return runs by their names.

    Raises:
        ValueError: two have the same.
    """
    if len({one.attrs["run"] for one in runs}) < len(runs):
        raise ValueError("runs: expected different ones, found two of the same name")
    return {one.attrs["run"]: one for one in runs}
