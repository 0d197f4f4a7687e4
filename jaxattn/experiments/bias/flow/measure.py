"""From the record of a flow: its margin ratios in the Frobenius and the nuclear norm, and the norm of W."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool

from jaxattn import models, svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.flow.model import Diagonal
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring.ranked import model_of, ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of

# The starts, by the last part of their target in the configuration.
_STARTS = {
    "free_zero": "one matrix",
    "factored": "random",
    "unbalanced": "unbalanced",
    "on_axes": "aligned",
    "diagonal": "diagonal",
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a flow with the Frobenius and the nuclear Att-SVM of the tokens that it selects, as `bias.rank` does.

    Diagonal weights are compared with the same two problems over diagonal matrices.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        `margin_ratio`, (seed, norm, snapshot); `cosine` likewise, 0 if the solution is not unique; `probability`, the
        mean largest attention probability, and `size`, `||W||_F`, (seed, snapshot); and `optimal`, 1 if every input
        selects its optimal token at the end, else 0, (seed,). Attributes: counts, `start`, `step`, the factor h, and
        `run`.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    model: Any = model_of(record)
    config = json.loads(record.attrs["config"])
    norms = ("frobenius", "l1" if isinstance(model, Diagonal) else "nuclear")
    one = to_dataset(ranked(record, norms))
    measured = one[ratios.KEPT].assign_coords(norm=np.array(["frobenius", "nuclear"], object))
    unique = one["unique"].values == svm.Unique.YES
    measured["cosine"] = one["margin_ratio"].dims, np.where(unique[:, :, None], one["cosine"].values, 0.0)

    arrays = {str(name): record[name].values for name in record.data_vars}
    kept = np.isin(record["seed"].values, one["seed"].values)
    known = np.isin(record["snapshot"].values, one["snapshot"].values)
    along = np.asarray(model.matrix(weights_of(arrays, "_snapshots")))[kept][:, known]
    measured["size"] = ("seed", "snapshot"), np.linalg.norm(along, axis=(2, 3))
    optimal = batch.over_seeds(_selects_optimal(model), weights_of(arrays), of_arrays(arrays))
    measured["optimal"] = ("seed",), optimal[kept].astype(float)

    start = _STARTS[str(config["weights"]["_target_"]).rpartition(".")[2]]
    step = float(config["optimizer"]["optimizer"]["step_size"])
    measured.attrs = ratios.counts(one.attrs) | {"run": f"{start}, h = {step:g}", "start": start, "step": step}
    return measured


# One object per model, so that it compiles once.
@lru_cache(maxsize=8)
def _selects_optimal(model: models.Model) -> Callable[[Any, Problem], Bool[Array, ""]]:
    def selects(weights: Any, problem: Problem) -> Bool[Array, ""]:
        logits = model.logits(weights, problem)[0]
        return (jnp.argmax(logits, axis=1) == tokens.optimal(problem)).all()

    return selects
