"""Measured datasets of two layers built by hand: what the claims on them have to say is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.beyond.depth.measure import NORMS
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS, STEPS = 120, np.array(Logarithmically(8)(20_000))
_FAR = 0.6


def runs(
    second: float = 0.99,
    first: float = 0.99,
    every: float = 0.99,
    gone: float = 1.0,
    moving: Mapping[str, float] | None = None,
    probability: float = 0.9999,
    seeds: int = SEEDS,
) -> Datasets:
    """Return the run of the experiment.

    Args:
        second: mean margin ratio of the second layer at the end, in the Frobenius norm; .6 in the nuclear one.
        first: that of the first at the positions that are read.
        every: that of the first at every position.
        gone: share of the seeds of which unread positions keep next to nothing of the first layer's gradient.
        moving: by how much ratios change in a decade of steps, by "second", "first" and "every".
        probability: of the selected tokens.
        seeds: how many.
    """
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    arrays: dict[str, Any] = {}
    for name, ratio in (("second", second), ("first", first), ("every", every)):
        ends = np.array([ratio, _FAR])
        # The seeds differ by a share of what lacks to 1.
        of_seeds = 1 - (1 - ends) * (1 + 0.1 * np.resize([-1.0, 1.0, -0.5, 0.5], seeds))[:, None]
        along = of_seeds[:, :, None] + (moving or {}).get(name, 0.0) * np.log10(STEPS / STEPS[-1])
        arrays[f"{name}_probability"] = (("seed", "snapshot"), np.full((seeds, len(STEPS)), probability))
        if name == "every":
            arrays[name] = (("seed", "snapshot"), along[:, 0])
        else:
            arrays[name] = arrays[f"{name}_cosine"] = (("seed", "norm", "snapshot"), along)
    ends = np.where(np.arange(seeds) < round(gone * seeds), -40.0, -1.0)
    arrays["unread"] = (("seed", "snapshot"), ends[:, None] * np.linspace(0.1, 1, len(STEPS)))
    coordinates = {"seed": np.arange(seeds), "norm": np.array(NORMS, object), "snapshot": STEPS}
    return {"two layers": xarray.Dataset(arrays, coordinates, counts | {"run": "two layers"})}


def of_layer(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The layer obeys the Frobenius norm; none, and all stand still; or it still moves."""
    name = prediction.row["layer"]
    lower: dict[str, Any] = {name: 0.9}
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**lower),
        Verdict.OPEN: runs(**lower, moving={name: 0.05}),
    }


def of_every() -> dict[Verdict, Datasets]:
    """The ratio at every position is close to 1; far from it and at rest; or about what is asked for."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(every=0.1), Verdict.OPEN: runs(every=0.97)}


def of_unread() -> dict[Verdict, Datasets]:
    """Unread positions lose their share in all seeds; in four fifths; or in about the share that is asked for."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(gone=0.8), Verdict.OPEN: runs(gone=0.95)}
