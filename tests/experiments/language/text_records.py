"""Records of trained texts that several tests share."""

from __future__ import annotations

from functools import cache, partial

import jax
import numpy as np
import xarray

from jaxattn import data, descent, language, losses
from jaxattn.parallel import batch
from jaxattn.study.settings.recording import from_words
from jaxattn.study.settings.schedule import Logarithmically
from jaxattn.study.settings.texts import TextTraining

SIZES = {"m": 4, "n": 4, "d": 7, "V": 5, "entropy": 0.3}


@cache
def drawn_record(steps: int = 300, seeds: int = 6, d: int = SIZES["d"]) -> xarray.Dataset:
    """A record as `recording.run` writes it, made in memory."""
    sizes = {**SIZES, "d": d}
    setting = TextTraining(
        law=partial(data.language, **sizes),
        optimizer=descent.normalized_gd(0.1, 0.0, 0.0),
        loss=losses.cross_entropy,
        seeds=seeds,
        key=2308,
        steps=steps,
        snapshots=Logarithmically(2),
    )
    root = np.asarray(jax.random.key_data(jax.random.key(setting.key)))
    arrays = setting.block(np.arange(seeds), root)
    assert isinstance(batch.over_seeds(from_words(setting.law), arrays["data_key"]), language.Choices)
    return xarray.Dataset(
        {name: (("seed", *setting.dims(name)), array) for name, array in arrays.items()},
        {"seed": np.arange(seeds), **setting.coordinates},
    )
