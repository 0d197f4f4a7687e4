"""The landscapes of the instance made by hand, for the picture on the site."""

from __future__ import annotations

from typing import Any

import xarray

from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]


def view(datasets: Datasets) -> dict[str, Any]:
    """Return the risk over the plane of W z, with unequal and with equal scores, and its stationary points.

    Args:
        datasets: of `measure`.

    Returns:
        `first` and `second`, the coordinates of the grid, and for each instance in `landscapes` its `name`, the `risk`
        on the grid, (second, first), the `minima` and `saddles` on the axis, and the direction of the `solution`.
    """
    equal, unequal = sorted(datasets.values(), key=lambda one: float(one.attrs["spread"]))
    grid = {name: rounded(unequal[name].values) for name in ("first", "second")}
    return grid | {"landscapes": [_landscape("unequal scores", unequal), _landscape("equal scores", equal)]}


def _landscape(name: str, one: xarray.Dataset) -> dict[str, Any]:
    is_minimum = one["trap_least"].values > 0
    return {
        "name": name,
        # The slope of neighbouring values is drawn, too.
        "risk": rounded(one["trap_risk"].values, 6),
        "minima": rounded(one["trap_place"].values[is_minimum]),
        "saddles": rounded(one["trap_place"].values[~is_minimum]),
        "solution": rounded(one["trap_solution"].values),
    }
