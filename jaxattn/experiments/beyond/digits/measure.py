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
from jaxattn.study.measuring.ranked import ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of

NORMS = ("frobenius", "nuclear")
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Frobenius and the nuclear Att-SVM of the tokens that it selects.

    Returns:
        For every kept seed `margin_ratio` and `off`, 1 - cos, (seed, norm, snapshot); `probability`, the largest one of
        the worst input, and `size`, the norm of W, (seed, snapshot); and `optimal`, the share of inputs whose optimal
        token it selects, (seed,). For all seeds `optimal_margin`, the largest margin of the optimal tokens over
        matrices of Frobenius norm 1, 0 if no matrix separates them, (attempt,). Attributes: counts, and `unknown`, the
        number of problems for which this is not certified.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    arrays: dict[str, Any] = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    with jax.enable_x64(True):
        ranking = to_dataset(ranked(record, NORMS))
        optimal = np.asarray(batch.over_seeds(_share, weights_of(arrays), problems))
        solution = svm.solve_batch(batch.over_seeds(_of_optimal, problems), "frobenius")
    certified = np.isin(solution.status, (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    length = np.linalg.norm(solution.W, axis=(1, 2))
    separable = (np.asarray(solution.status) == svm.Status.OPTIMAL) & (length > 0)
    run = ranking[ratios.KEPT].assign(
        off=(("seed", "norm", "snapshot"), np.maximum(1 - ranking["cosine"].values, _SAME)),
        optimal=(("seed",), optimal[np.isin(record["seed"].values, ranking["seed"].values)]),
        optimal_margin=(("attempt",), np.where(separable, 1 / np.where(separable, length, 1.0), 0.0)),
    )
    run.attrs = ratios.counts(ranking.attrs) | {"unknown": int((~certified).sum())}
    return run


def _share(weights: Any, problem: Problem) -> Float[Array, ""]:
    return (tokens.selected(weights, problem) == tokens.optimal(problem)).mean()


def _of_optimal(problem: Problem) -> svm.Constraints:
    return svm.token_constraints(problem, tokens.optimal(problem))
