"""Compare a run or a path on sequences with the SVMs over the tokens of all positions."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import xarray

from jaxattn import svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.study.measuring import paths
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.measuring.growth import lengths
from jaxattn.study.measuring.optimum import optimum

# The norm whose solution a run is claimed to reach.
OWN = {"W": svm.frobenius, "KQ": svm.nuclear}
_EXACT, _PATH = ", exact direction", ", regularization path"
# W for longer than published, (K, Q) also for longer and with decreasing steps, and the path of W.
LONG, FALLING, PATH = f"W{_EXACT}", f"KQ{_EXACT}", f"W{_PATH}"
# The runs with causal attention have the same names after a prefix.
PREFIXES = {"sequence": "", "causal": "causal "}
_KEPT = ("margin_ratio", "status", "gap", "violation", "correlation", "rank", "probability", "optimal_share", "length")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the SVMs that select its tokens, or a path with those of the optimal tokens.

    The SVMs have a constraint set for each input and position. A run along the exact gradient direction is compared
    only with the solution of its own norm.

    Args:
        record: of a `Training` on `data.sequence` or `data.causal` with a linear head, or of a `Regularization` on
            them, which has an axis `radius`; as `recording.run` writes it.
        solver: for all norms; each norm's default if None.

    Returns:
        Of a run: the dataset of `compare` without its paths and solutions, with `optimal_share`, the share of the
        positions with a choice that select their optimal token, (seed,); and `length`, the Frobenius norm of the paths,
        (seed, snapshot). Its attributes: `attention`, "sequence" or "causal"; `run`, the name of the run after the
        prefix of its attention; `inputs`, the number of positions; and the numbers of problems whose optimal tokens one
        SVM separates, `optimal_kept`, or does not, `optimal_infeasible`. Of a path: the dataset of
        `measuring.paths.measure`, with the attributes `run` and `attention`.
    """
    attention = "causal" if "present" in record else "sequence"
    if "radius" in record.dims:
        measured = paths.measure(record, solver)
        run = measured.attrs["run"] + _PATH
    else:
        measured = _of_run(record, solver)
        run = measured.attrs["run"]
    return measured.assign_attrs(run=PREFIXES[attention] + run, attention=attention)


def of_attention(datasets: Mapping[str, xarray.Dataset], attention: str) -> dict[str, xarray.Dataset]:
    """Return the datasets or summaries with one attention, by the names of their runs without its prefix.

    Args:
        datasets: by the names of their runs.
        attention: "sequence" or "causal".
    """
    prefix = PREFIXES[attention]
    return {run.removeprefix(prefix): one for run, one in datasets.items() if one.attrs["attention"] == attention}


def _of_run(record: xarray.Dataset, solver: svm.Solver | None) -> xarray.Dataset:
    optimizer = json.loads(record.attrs["config"])["optimizer"]
    # Optimizers with decreasing steps wrap another one.
    optimizer = optimizer.get("optimizer", optimizer)
    exact = optimizer.get("floor") == optimizer.get("penalty") == 0
    weights = "W" if "W" in record else "KQ"
    compared = compare(record, (OWN[weights],) if exact else NORMS, solver)
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
        run=f"{weights}{_EXACT}" if exact else weights,
        inputs=record.sizes["input"],
        optimal_kept=of_optimal["kept"],
        optimal_infeasible=of_optimal["infeasible"],
    )
