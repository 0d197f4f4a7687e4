"""Compare the end of training with factors to the nuclear solutions with and without the rank constraint."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray

from jaxattn import attention, metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.nearest import effort_of, nearest_of_rank
from jaxattn.study.settings.parameters import weights_of

# The end of a run is compared with the nuclear solution, the best stationary point of rank m found, and the stationary
# point of rank m reached from the end of the run.
SOLUTIONS = ("nuclear", "bounded", "nearest")
# How many solutions are computed at once; smaller batches are padded, so that it compiles once.
_TOGETHER = 16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the end of every run with the nuclear solutions with and without the rank constraint.

    Args:
        record: of a `Training` of factors.
        solver: for all norms; each norm's default if None.

    Returns:
        A dataset with the axes `seed` (kept ones), `snapshot` and `solution`: final `correlation` (seed, solution); the
        `rank` of the certified nuclear solution (seed); `excess`, the relative increase of its norm at the best
        stationary point found under the constraint (seed); and the largest `probability` along the run (seed,
        snapshot). Attributes: `run`, `width`, `d` and the counts. A run whose nearest stationary point is not certified
        also counts as unsolved.

    Raises:
        TypeError: a run of a free W.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    final = weights_of(arrays)
    if not isinstance(final, attention.Factored):
        raise TypeError("factor-width: expected runs of factors K and Q, found one of a free W")
    width, d = final.K.shape[-1], record.sizes["feature"]
    bound = svm.nuclear_of_rank(width)
    compared = compare(record, (svm.nuclear, bound) if width < d else (svm.nuclear,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    end = np.asarray(final.K @ np.swapaxes(final.Q, -1, -2))[kept]
    primal = compared["primal"].values[kept]
    rank = compared["rank"].sel(norm="nuclear").values
    nearest = compared["W_svm"].values[:, -1].copy()
    solved = np.ones(len(nearest), bool)
    binds = np.flatnonzero(rank > width)
    if binds.size:
        problems = of_arrays({name: array[kept][binds] for name, array in arrays.items()})
        alpha = compared["selected"].values[binds]
        near = partial(batch.over_seeds, nearest_of_rank(width), width=_TOGETHER, effort=effort_of(problems))
        found = near(problems, alpha, end[binds])
        nearest[binds], solved[binds] = found.W, found.status == svm.Status.STATIONARY
    of_end = compared["correlation"].values[:, :, -1]
    to_nearest = _correlations(end, nearest)
    variables = {
        "rank": (("seed",), rank),
        "excess": (("seed",), primal[:, -1] / primal[:, 0] - 1),
        "correlation": (("seed", "solution"), np.stack([of_end[:, 0], of_end[:, -1], to_nearest], axis=1)),
        "probability": (("seed", "snapshot"), _along(compared)),
    }
    dataset = xarray.Dataset(
        variables,
        {
            "seed": compared["seed"].values,
            "snapshot": compared["snapshot"].values,
            "solution": np.array(SOLUTIONS, dtype=object),
        },
        compared.attrs | {"run": f"m={width}", "width": width, "d": d},
    )
    lost = int((~solved).sum())
    counts = {"kept": dataset.attrs["kept"] - lost, "unsolved": dataset.attrs["unsolved"] + lost}
    return dataset.isel(seed=solved).assign_attrs(counts)


def _along(compared: xarray.Dataset) -> np.ndarray:
    """Return the largest probability at the snapshots; the series is read before each update."""
    steps, series = compared["snapshot"].values, compared["step"].values
    return compared["probability"].values[:, np.searchsorted(series, steps - 1, side="right") - 1]


def _correlations(end: np.ndarray, W: np.ndarray) -> np.ndarray:
    return batch.over_seeds(metrics.correlation, end, W) if len(end) else np.zeros(0)
