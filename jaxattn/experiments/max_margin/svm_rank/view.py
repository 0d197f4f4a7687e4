"""The singular values of certified and of inexact solutions of the same problems, for the picture on the site."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxattn.experiments.max_margin.svm_rank.ranks import ABSOLUTE, shared
from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]

# Where singular values that are 0 are drawn: logarithms to base 10.
_LEAST = -17.0


def view(datasets: Datasets) -> dict[str, Any]:
    """Return the singular values of nuclear solutions of the problems that both kinds of solver solved.

    Args:
        datasets: of `measure`.

    Returns:
        `settings`, for each its `name`, the inexact `solver`, the `published` tolerance relative to the largest
        singular value, and `certified` and `inexact`: log10 of the singular values over the largest, (problem, value).
    """
    certified = {run: one for run, one in datasets.items() if not one.attrs["solver"]}
    settings = []
    for run, one in datasets.items():
        if run in certified or not (both := shared(one, certified)).sizes["seed"]:
            continue
        n, d = int(one.attrs["n"]), int(both["d"])
        pair = both, one.sel(d=d, seed=both["seed"].values)
        exact, inexact = (each["singular_values"].sel(norm="nuclear").values[:, : min(n, d)] for each in pair)
        settings.append(
            {
                "name": f"n = {n}, T = {one.attrs['T']}, d = {d}",
                "solver": one.attrs["solver"],
                "published": rounded(np.log10(ABSOLUTE / exact[:, 0]).mean()),
                "certified": _logarithms(exact),
                "inexact": _logarithms(inexact),
            }
        )
    return {"settings": settings}


def _logarithms(values: np.ndarray) -> Any:
    return rounded(np.log10(np.maximum(values / values[:, :1], 10.0**_LEAST)))
