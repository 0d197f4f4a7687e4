"""Records of trained texts that several tests share."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import numpy as np
import xarray

from jaxattn import data, descent, losses
from jaxattn.experiments.language.started import StartedTraining
from jaxattn.study.settings.schedule import Logarithmically
from jaxattn.study.settings.texts import TextTraining

SIZES = {"m": 4, "n": 4, "d": 7, "V": 5, "entropy": 0.3}


def in_memory(setting: Any, **attrs: Any) -> xarray.Dataset:
    """The record of a setting as `recording.run` writes it."""
    root = np.asarray(jax.random.key_data(jax.random.key(setting.key)))
    arrays = setting.block(np.arange(setting.seeds), root)
    return xarray.Dataset(
        {name: (("seed", *setting.dims(name)), array) for name, array in arrays.items()},
        {"seed": np.arange(setting.seeds), **setting.coordinates},
        attrs,
    )


def started_training(law: Any, initial: Any, optimizer: Any, **settings: Any) -> StartedTraining:
    """A training on texts from given starts that records the risk at its end; on the logistic loss by default."""
    given = {"loss": losses.logistic, "snapshots": Logarithmically(1), "record_every": settings["steps"]}
    return StartedTraining(law=law, initial=initial, optimizer=optimizer, **(given | settings))


@cache
def drawn_record(steps: int = 300, seeds: int = 6, d: int = SIZES["d"]) -> xarray.Dataset:
    """Trained texts."""
    law, rule = partial(data.language, **{**SIZES, "d": d}), descent.normalized_gd(0.1, 0.0, 0.0)
    return in_memory(TextTraining(law, rule, losses.cross_entropy, seeds, 2308, steps, Logarithmically(2)))
