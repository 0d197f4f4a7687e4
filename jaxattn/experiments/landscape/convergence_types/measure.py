"""From the record of a training: the kind of tokens that every seed has selected, by certified solutions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import svm, tokens
from jaxattn.attention import Factored, Weights
from jaxattn.experiments.landscape.outcomes import read
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Classify the tokens that every seed has selected, by the certified Frobenius solution that selects them.

    Args:
        record: of a `Training`.
        solver: of the Att-SVMs; this package's own if None.

    Returns:
        A dataset with the axis `seed`, for the seeds that stayed finite and whose Att-SVM is solved: the fields of
        `tokens.Outcome`, and `nearest`, the smallest inactive margin. For (K, Q), whose own solution is the nuclear
        one, `locally_own` is like `locally`, with the support neighbours of the nuclear solution. Kept are those that
        saturated; the others count as `ambiguous`, `diverged`, `infeasible` or `unsolved`.
    """
    final, problems = read(record)
    finite = finite_seeds(final)
    constraints = batch.over_seeds(_posed, final, problems, finite)
    norms = (svm.frobenius, svm.nuclear) if isinstance(final, Factored) else (svm.frobenius,)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    classified = [batch.over_seeds(_classified, final, problems, constraints, one.W) for one in solutions]
    (outcome, nearest), own = classified[0], classified[-1][0].locally
    infeasible = finite & np.any([one.status == svm.Status.INFEASIBLE for one in solutions], axis=0)
    solved = finite & np.all([one.status == svm.Status.OPTIMAL for one in solutions], axis=0)
    kept, ambiguous = solved & outcome.saturated, solved & ~outcome.saturated
    counts = exclusions.count(kept, diverged=~finite, ambiguous=ambiguous, infeasible=infeasible)
    variables = {**outcome._asdict(), "locally_own": own, "nearest": nearest}
    return xarray.Dataset(
        {name: (("seed",), values[solved]) for name, values in variables.items()},
        {"seed": record["seed"].values[solved]},
        counts,
    )


def _posed(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> svm.Constraints:
    """Return the constraints that select a seed's tokens; those of token 0 if it diverged and selects nothing."""
    return svm.token_constraints(problem, jnp.where(finite, tokens.selected(weights, problem), 0))


def _classified(
    weights: Weights, problem: Problem, constraints: svm.Constraints, W_svm: Float[Array, "d d"]
) -> tuple[tokens.Outcome, Float[Array, ""]]:
    margins = svm.margins(constraints, W_svm)
    inactive = jnp.where(margins > 1 + tokens.ACTIVE, margins, jnp.inf)
    return tokens.outcome(weights, problem, margins), jnp.min(inactive)
