"""From the record of training on patches or on the sphere: margin ratios, distances and selected tokens."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.settings.parameters import weights_of

NORMS = ("frobenius", "nuclear")
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Frobenius and the nuclear Att-SVM of the tokens that it selects.

    Returns:
        What `ratios.compared` does; `off`, 1 - cos, (seed, norm, snapshot); and `optimal`, the share of inputs whose
        optimal token it selects, (seed,). For all seeds `optimal_margin`, the largest margin of the optimal tokens over
        matrices of Frobenius norm 1, 0 if no matrix separates them, (attempt,), and as an attribute `unknown`, the
        number of problems for which this is not certified.
    """
    arrays: dict[str, Any] = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    with jax.enable_x64(True):
        run = ratios.compared(record, solver, NORMS, "cosine")
        optimal = np.asarray(batch.over_seeds(_share, weights_of(arrays), problems))
        solution = svm.solve_batch(batch.over_seeds(_of_optimal, problems), "frobenius")
    certified = np.isin(solution.status, (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    length = np.linalg.norm(solution.W, axis=(1, 2))
    separable = (np.asarray(solution.status) == svm.Status.OPTIMAL) & (length > 0)
    return (
        run.drop_vars("cosine")
        .assign(
            off=np.maximum(1 - run["cosine"], _SAME),
            optimal=(("seed",), optimal[np.isin(record["seed"].values, run["seed"].values)]),
            optimal_margin=(("attempt",), np.where(separable, 1 / np.where(separable, length, 1.0), 0.0)),
        )
        .assign_attrs(unknown=int((~certified).sum()))
    )


def _share(weights: Any, problem: Problem) -> Float[Array, ""]:
    return (tokens.selected(weights, problem) == tokens.optimal(problem)).mean()


def _of_optimal(problem: Problem) -> svm.Constraints:
    return svm.token_constraints(problem, tokens.optimal(problem))
