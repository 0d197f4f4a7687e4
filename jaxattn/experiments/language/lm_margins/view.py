"""The margins of some texts at every shown step, for the picture on the site."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxattn.experiments.language.lm_margins.claims import KINDS, kinds
from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]

# How many texts without and with a conflict are shown.
_TEXTS = 3


def view(datasets: Datasets) -> dict[str, Any]:
    """Return the margins of the first texts without a conflict, and with one.

    Args:
        datasets: of `measure`, of one run.

    Returns:
        The `steps`, the names of the `kinds` of margins, and `texts`, for each its `seed`, whether it is `feasible`,
        and its `margins`: of every kind a list of margins, each along the steps.
    """
    (one,) = datasets.values()
    masks, feasible = kinds(one), one["feasible"].values
    chosen = [*np.flatnonzero(feasible)[:_TEXTS], *np.flatnonzero(~feasible)[:_TEXTS]]
    margins = one["margins"].values
    return {
        "steps": one["snapshot"].values.tolist(),
        "kinds": list(KINDS),
        "texts": [
            {
                "seed": int(one["seed"].values[text]),
                "feasible": bool(feasible[text]),
                "margins": [rounded(margins[text][:, mask[text]].T) for mask in masks],
            }
            for text in chosen
        ],
    }
