"""The landscapes of the instance that is constructed, for the picture on the site."""

from __future__ import annotations

from typing import Any

import contourpy
import numpy as np
import xarray

from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

# How many contours are drawn, each with as many points of the grid above as below it as its place says.
_CONTOURS = 24


def view(runs: Datasets) -> dict[str, Any]:
    """Return the risk over the plane of W z, with unequal and with equal scores, and its stationary points.

    Args:
        runs: as measured.

    Returns:
        `first` and `second`, the coordinates of the grid, and for each instance in `landscapes` its `name`, the `risk`
        on the grid, (second, first), its `contours`, each a list of points, the `minima` and `saddles` on the axis, and
        the direction of the `solution`.
    """
    equal, unequal = runs["equal"], runs["free"]
    grid = {name: rounded(unequal[name].values) for name in ("first", "second")}
    return grid | {"landscapes": [_landscape("unequal scores", unequal), _landscape("equal scores", equal)]}


def _landscape(name: str, run: xarray.Dataset) -> dict[str, Any]:
    is_minimum, risk = run["trap_least"].values > 0, run["trap_risk"].values
    lines = contourpy.contour_generator(run["first"].values, run["second"].values, risk)
    heights = np.quantile(risk, (np.arange(_CONTOURS) + 0.5) / _CONTOURS)
    contours = [np.asarray(points, float) for height in heights for points in lines.lines(height)]
    return {
        "name": name,
        # The slope of neighbouring values is drawn, too.
        "risk": rounded(risk, 6),
        "contours": [rounded(points, 3) for points in contours],
        "minima": rounded(run["trap_place"].values[is_minimum]),
        "saddles": rounded(run["trap_place"].values[~is_minimum]),
        "solution": rounded(run["trap_solution"].values),
    }
