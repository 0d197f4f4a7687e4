"""Synthetic measurements, in the shape that `measure` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray


def synthetic(seeds: int, settings: dict[str, Any], coordinates: dict[str, Any] | None = None, **variables: Any):
    """A run all of whose seeds are kept, unless the settings have other counts.

    A number is that of every seed; an array has the axes seed and snapshot, or those given before it.
    """
    arrays = {}
    for name, value in variables.items():
        if not isinstance(value, tuple):
            value = (("seed", "snapshot")[: np.ndim(value) or 1], value if np.ndim(value) else np.full(seeds, value))
        arrays[name] = value
    counts = {"attempted": seeds, "kept": seeds} | dict.fromkeys(("diverged", "infeasible", "unsolved"), 0)
    return xarray.Dataset(arrays, {"seed": np.arange(seeds)} | (coordinates or {}), counts | settings)
