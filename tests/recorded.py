"""Small records that several tests make: a training, written to disk and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from jaxattn import Problem, data, descent, heads, initial, losses, records
from jaxattn.study.settings import recording
from jaxattn.study.settings.training import Training


def recorded(
    path: Path,
    law: data.Law,
    start: initial.Law = initial.free,
    optimizer: Any = None,
    config: dict[str, Any] | None = None,
    **setting: Any,
) -> xarray.Dataset:
    """The record of a training with logistic loss and linear head, and by the published rule if none is given."""
    rule = descent.normalized_gd(0.1) if optimizer is None else optimizer
    trained = Training(law, start, rule, losses.logistic, heads.linear, key=1, **setting)
    return written(trained, path, config=json.dumps(config or {}))


def written(setting: recording.Setting, folder: Path, **attributes: Any) -> xarray.Dataset:
    """The record of a setting, written to a folder and read back."""
    recording.run(setting, folder / "record.zarr", attributes)
    return records.load(folder / "record.zarr")


def ended(problems: Problem, config: dict[str, Any] | None = None, **weights: Any) -> xarray.Dataset:
    """The record of seeds that end with these weights: W, or K and Q."""
    axes = {"W": ("feature", "e"), "K": ("feature", "width"), "Q": ("e", "width")}
    axes |= {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    arrays = {name: np.asarray(array) for name, array in (problems.arrays | weights).items()}
    variables = {name: (("seed", *axes[name]), array) for name, array in arrays.items()}
    seeds = np.arange(len(arrays["X"]))
    return xarray.Dataset(variables, {"seed": seeds}, {"config": json.dumps(config or {"steps": 1500})})


def problem_of(record: xarray.Dataset, seed: int) -> Problem:
    """One problem of a record."""
    return Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})
