"""The distances of both paths from both solutions, seed by seed, for the picture on the site."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxattn.experiments.max_margin.regularization_path.claims import APART
from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]


def view(datasets: Datasets) -> dict[str, Any]:
    """Return the distances of every kept seed, radius by radius.

    Args:
        datasets: of `measure`, of the paths "W" and "KQ".

    Returns:
        The `radii`, and `paths`, for each its `name`, the `distance` from the solution of each norm, (seed, radius),
        and the shares of the seeds with the optimal tokens `selected` and with two minima `apart`, (radius,).
    """
    return {
        "radii": rounded(next(iter(datasets.values()))["radius"].values),
        "paths": [
            {
                "name": run,
                "distance": {
                    str(norm): rounded(one["distance"].sel(norm=norm).values, 3) for norm in one["norm"].values
                },
                "selected": rounded(one["selected"].mean("seed").values, 3),
                "apart": rounded(_shares(one["apart"].values), 3),
            }
            for run, one in datasets.items()
        ],
    }


def _shares(apart: np.ndarray) -> np.ndarray:
    """Return the share of seeds with two minima at every radius; a path solved from one end alone has one."""
    return (np.isfinite(apart) & (apart > APART)).mean(axis=0)
