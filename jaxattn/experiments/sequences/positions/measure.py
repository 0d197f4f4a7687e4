"""Compare a run or a path on sequences with the SVMs over the tokens of all positions."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn import svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.study.measuring import paths
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.measuring.growth import lengths
from jaxattn.study.measuring.optimum import optimum

# The published optimizer; all others follow the exact gradient direction.
PUBLISHED = "normalized_gd"
_KEPT = ("margin_ratio", "status", "gap", "violation", "correlation", "rank", "probability", "optimal_share", "length")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the SVMs that select its tokens, or a path with those of the optimal tokens.

    The SVMs have a constraint set for each input and position. A run along the exact gradient direction is compared
    only with the solution of its own norm.

    Args:
        record: of a `Training` on `data.sequence` or `data.causal` with a linear head, with the attribute `optimizer`,
            or of a `Regularization` on them, which has an axis `radius`.
        solver: for all norms; each norm's default if None.

    Returns:
        Of a run: the dataset of `compare` without its paths and solutions, with `optimal_share`, the share of the
        positions with a choice that select their optimal token, (seed,); and `length`, the Frobenius norm of the paths,
        (seed, snapshot). Its attributes: `inputs`, the number of positions; and the numbers of problems whose optimal
        tokens one SVM separates, `optimal_kept`, or does not, `optimal_infeasible`. Of a path: the dataset of
        `measuring.paths.measure`.
    """
    if "radius" in record.dims:
        return paths.measure(record, solver)
    own = svm.frobenius if "W" in record else svm.nuclear
    compared = compare(record, NORMS if record.attrs["optimizer"] == PUBLISHED else (own,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    arrays = {str(name): record[name].values for name in record.data_vars}
    right = compared["selected"].values == batch.over_seeds(tokens.optimal, of_arrays(arrays))[kept]
    chooses = np.ones_like(right)
    if "present" in record:
        chooses = record["present"].values[kept].sum(axis=2) > 1
    compared["optimal_share"] = (("seed",), (right & chooses).sum(axis=1) / chooses.sum(axis=1))
    compared["length"] = lengths(compared)
    of_optimal = optimum(record, solver).counts
    return compared[list(_KEPT)].assign_attrs(
        inputs=record.sizes["input"],
        optimal_kept=of_optimal["kept"],
        optimal_infeasible=of_optimal["infeasible"],
    )
