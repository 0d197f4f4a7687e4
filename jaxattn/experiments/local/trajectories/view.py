"""The paths of some seeds, step by step, for the picture on the site."""

from __future__ import annotations

from typing import Any

import xarray

from jaxattn.experiments.local.trajectories.claims import OWN_NORM, RULES, by_final
from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]

# Which seeds are shown, by their place among all when sorted by the final correlation of W under the published rule.
_PLACES = {"median": 0.5, "lowest tenth": 0.1, "lower quartile": 0.25, "upper quartile": 0.75, "highest tenth": 0.9}


def view(datasets: Datasets) -> dict[str, Any]:
    """Return tokens, paths, rays and distances of five seeds.

    Args:
        datasets: of `measure`.

    Returns:
        `steps`, of the snapshots of each run; and `seeds`, for each its number, its place among all, the tokens `X`
        and for each run the `selected` tokens, the `path` of W z_i, (snapshot, input, 2), the `ray` of both
        solutions, (input, 2), and how far `off` them W is, 1 - cos, (snapshot,).
    """
    runs = [run + rule for run in OWN_NORM for rule in RULES]
    order = by_final(datasets)
    chosen = {place: int(order[int(share * (len(order) - 1))]) for place, share in _PLACES.items()}
    return {
        "steps": {run: datasets[run]["snapshot"].values.tolist() for run in runs},
        "seeds": [
            {
                "seed": seed,
                "place": place,
                "X": rounded(datasets["W"]["X"].sel(seed=seed).values),
                "runs": {run: _run(datasets[run].sel(seed=seed)) for run in runs},
            }
            for place, seed in chosen.items()
        ],
    }


def _run(one: xarray.Dataset) -> dict[str, Any]:
    norms = [str(norm) for norm in one["norm"].values]
    return {
        "selected": rounded(one["selected"].values),
        "path": rounded(one["path"].values),
        "ray": {norm: rounded(one["ray"].sel(norm=norm).values) for norm in norms},
        # Rounding can leave a correlation above 1.
        "off": {norm: rounded((1 - one["correlation"].sel(norm=norm).values).clip(min=0.0), 3) for norm in norms},
    }
