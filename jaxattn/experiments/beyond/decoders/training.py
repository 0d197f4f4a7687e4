"""How these decoders are trained: Muon for several heads at once, and the last decade of steps as snapshots."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from optax import contrib

from jaxattn.experiments.beyond.hierarchy.decoder import Parameters


def muon(learning_rate: float, of_others: float) -> optax.GradientTransformation:
    """Return Muon for the layers' matrices, each head its own, and Adam of rate `of_others` for the other parts."""
    return contrib.muon(learning_rate, adam_learning_rate=of_others, muon_weight_dimension_numbers=_matrices)


def _matrices(parameters: Any) -> Any:
    def last_two(part: Any) -> contrib.MuonDimensionNumbers:
        return contrib.MuonDimensionNumbers(part.ndim - 2, part.ndim - 1)

    nothing: Any = None
    return Parameters(nothing, nothing, jax.tree.map(last_two, parameters.layers), nothing)


def last_decade(steps: int, count: int) -> tuple[int, ...]:
    """Return this many steps from a tenth of all to all of them, evenly in their logarithm."""
    return tuple(np.unique(np.rint(np.geomspace(steps / 10, steps, count)).astype(int)).tolist())
