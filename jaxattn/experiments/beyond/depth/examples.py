"""Hand-built datasets of two layers for which the verdicts of the claims are known."""

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
        second: final mean margin ratio of the second layer in the Frobenius norm; .6 in the nuclear norm.
        first: the same for the first layer at the positions that are read.
        every: the same for the first layer at every position.
        gone: share of seeds whose unread positions have a negligible share of the first layer's gradient.
        moving: by how much ratios change per decade of steps, for "second", "first" and "every".
        probability: of the selected tokens.
        seeds: number of seeds.
    """
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    arrays: dict[str, Any] = {}
    for name, ratio in (("second", second), ("first", first), ("every", every)):
        ends = np.array([ratio, _FAR])
        # The seeds differ by a fraction of 1 - ratio.
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
    """The layer obeys the Frobenius norm; none, and nothing moves; or the ratio still moves."""
    name = prediction.row["layer"]
    lower: dict[str, Any] = {name: 0.9}
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**lower),
        Verdict.OPEN: runs(**lower, moving={name: 0.05}),
    }


def of_every() -> dict[Verdict, Datasets]:
    """The ratio at every position is close to 1; far from it and constant; or close to the threshold."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(every=0.1), Verdict.OPEN: runs(every=0.97)}


def of_unread() -> dict[Verdict, Datasets]:
    """Unread positions lose their share in all seeds; in four fifths; or in about the share asked for."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(gone=0.8), Verdict.OPEN: runs(gone=0.95)}
