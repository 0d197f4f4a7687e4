"""Solve the Frobenius Att-SVM of the optimal tokens, whatever training selected."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds, weights_of


class Optimum(NamedTuple):
    """The kept seeds of a record: problems, their optimal tokens and the direction `W_mm`; and counts by reason."""

    problems: Problem
    alpha: Int[np.ndarray, "seeds n"]
    W: Float[np.ndarray, "seeds d d"]
    kept: Bool[np.ndarray, " attempts"]
    counts: dict[str, int]

    def of(self, array: xarray.DataArray) -> np.ndarray:
        """Return an array of the record for the kept seeds only."""
        return array.values[self.kept]


def optimum(record: xarray.Dataset, solver: svm.Solver | None = None) -> Optimum:
    """Solve the Att-SVM that selects the optimal tokens for each problem of a record.

    A seed is kept if its weights, if it was trained, stayed finite and the solution is certified.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    trained = {"W", "K"} & set(arrays)
    finite = finite_seeds(weights_of(arrays)) if trained else np.ones(len(arrays["X"]), bool)
    alpha, constraints = batch.over_seeds(_posed, problems)
    solution = svm.solve_batch(constraints, svm.frobenius, solver=solver)
    kept = finite & (solution.status == svm.Status.OPTIMAL)
    reasons = {"diverged": ~finite} if trained else {}
    counts = exclusions.count(kept, **reasons, infeasible=np.asarray(solution.status == svm.Status.INFEASIBLE))
    own = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[kept]), problems)
    return Optimum(own, alpha[kept], np.asarray(solution.W)[kept], kept, counts)


def _posed(problem: Problem) -> tuple[Int[Array, " n"], svm.Constraints]:
    alpha = tokens.optimal(problem)
    return alpha, svm.token_constraints(problem, alpha)
