"""Synthetic margin ratios of a run, and the names of an experiment's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from omegaconf import OmegaConf

from jaxattn.experiments.bias.ratios import NORMS
from jaxattn.study.configuration.names import root
from jaxattn.study.settings.schedule import Logarithmically

SEEDS, STEPS = 20, np.array(Logarithmically(4)(20_000))
# Factors of 1 - ratio, with mean 1.
SPREAD = 1 + 0.1 * np.resize([-1.0, 1.0, -0.5, 0.5], SEEDS)


def run(
    ratios: Mapping[str, float],
    norms: Sequence[str] = NORMS,
    moving: float = 0.0,
    steps: np.ndarray = STEPS,
    **attrs: Any,
) -> xarray.Dataset:
    """A run with these mean margin ratios at the end, 0.6 for other norms, and their change per decade of steps.

    The norm of the weights is the number of steps.
    """
    ends = np.array([ratios.get(norm, 0.6) for norm in norms])
    of_seeds = 1 - (1 - ends) * SPREAD[:, None]
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    return xarray.Dataset(
        {
            "margin_ratio": (
                ("seed", "norm", "snapshot"),
                of_seeds[:, :, None] + moving * np.log10(np.maximum(steps, 1) / steps[-1]),
            ),
            "probability": (("seed", "snapshot"), np.full((SEEDS, len(steps)), 0.9999)),
            "size": (("seed", "snapshot"), np.tile(np.maximum(steps, 1.0), (SEEDS, 1))),
            "stalled": (("seed",), np.zeros(SEEDS, bool)),
            # Solutions of one norm are far from those of the others, and no neighbours were compared.
            "confusion": (("norm", "rival"), 0.6 + 0.4 * np.eye(len(norms))),
        },
        {"seed": np.arange(SEEDS), "norm": np.array(norms, object), "snapshot": steps},
        {**counts, "steps": int(steps[-1]), "exponents": "[]", **attrs},
    )


def run_names(experiment: str) -> list[str]:
    """The names of the runs in the YAML of an experiment that sweeps none."""
    return [str(name) for name in OmegaConf.load(Path(root()) / f"conf/experiment/{experiment}.yaml").study.runs]
