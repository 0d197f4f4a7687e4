"""From the record of a training: the kind of tokens that every seed has selected, by certified solutions."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Shaped

from jaxattn import descent, heads, losses, svm, tokens
from jaxattn.attention import Factored, Weights
from jaxattn.experiments.landscape.outcomes import read
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds

# Fixed beforehand: runs that end at tokens that are not locally optimal are trained on for so many steps in turn, until
# they have left them. They follow the exact gradient direction: the published rule stalls by rounding before.
_ROUNDS = (100_000, 400_000, 1_500_000)
FURTHER = sum(_ROUNDS)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Classify the tokens that every seed has selected, by the certified Frobenius solution that selects them.

    Seeds whose tokens are not locally optimal by their own solution are first trained on, see `FURTHER`. The own
    solution is the Frobenius one for W, and the nuclear one for (K, Q).

    Args:
        record: of a `Training`.
        solver: of the Att-SVMs; this package's own if None.

    Returns:
        A dataset with the axis `seed`, for the seeds that stayed finite and whose Att-SVM is solved: the fields of
        `tokens.Outcome`; `nearest`, the smallest inactive margin; `locally_own`, like `locally`, with the support
        neighbours of the own solution; whether the seed was `trained_on`; and whether it was and still selects no
        locally optimal tokens, `remains`. Kept are those that saturated; the others count as `ambiguous`, `diverged`,
        `infeasible` or `unsolved`.
    """
    final, problems = read(record)
    finite = finite_seeds(final)
    classes = _classes(final, problems, finite, solver)
    remains = trained_on = classes.solved & classes.outcome.saturated & ~classes.own
    for steps in _ROUNDS:
        if remains.any():
            weights, posed, ended = jax.tree.map(lambda leaf, chosen=remains: leaf[chosen], (final, problems, finite))
            weights = _further(weights, posed, steps)
            new = weights, _classes(weights, posed, ended, solver)
            final, classes = jax.tree.map(partial(_replaced, remains), (final, classes), new)
            remains = trained_on & ~(classes.outcome.saturated & classes.own)
    outcome, solved = classes.outcome, classes.solved
    kept, ambiguous = solved & outcome.saturated, solved & ~outcome.saturated
    counts = exclusions.count(kept, diverged=~finite, ambiguous=ambiguous, infeasible=classes.infeasible)
    variables = {**outcome._asdict(), "locally_own": classes.own, "nearest": classes.nearest}
    variables |= {"trained_on": trained_on, "remains": remains}
    return xarray.Dataset(
        {name: (("seed",), values[solved]) for name, values in variables.items()},
        {"seed": record["seed"].values[solved]},
        counts,
    )


class _Classes(NamedTuple):
    """What every seed selects, by the Frobenius solution and by its own, and whether both are solved."""

    outcome: tokens.Outcome
    nearest: Float[np.ndarray, " seeds"]
    own: Bool[np.ndarray, " seeds"]
    solved: Bool[np.ndarray, " seeds"]
    infeasible: Bool[np.ndarray, " seeds"]


def _classes(
    final: Weights, problems: Problem, finite: Bool[np.ndarray, " seeds"], solver: svm.Solver | None
) -> _Classes:
    constraints = batch.over_seeds(_posed, final, problems, finite)
    norms = (svm.frobenius, svm.nuclear) if isinstance(final, Factored) else (svm.frobenius,)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    classified = [batch.over_seeds(_classified, final, problems, constraints, one.W) for one in solutions]
    solved = finite & np.all([one.status == svm.Status.OPTIMAL for one in solutions], axis=0)
    infeasible = finite & np.any([one.status == svm.Status.INFEASIBLE for one in solutions], axis=0)
    outcome, nearest = classified[0]
    return _Classes(outcome, nearest, classified[-1][0].locally, solved, infeasible)


def _further(weights: Weights, problems: Problem, steps: int) -> Weights:
    """Return the weights after training on along the exact gradient direction."""
    return descent.train_batch(
        weights,
        problems,
        optimizer=descent.exact_normalized_gd(0.1, floor=0.0, penalty=0.0),
        steps=steps,
        record_every=steps,
        loss=losses.logistic,
        head=heads.linear,
    ).weights


def _replaced(
    chosen: Bool[np.ndarray, " seeds"], leaf: Shaped[np.ndarray, "seeds ..."], new: Shaped[np.ndarray, "chosen ..."]
) -> Shaped[np.ndarray, "seeds ..."]:
    """Return an array with new values for the chosen seeds."""
    leaf = np.array(leaf)
    leaf[chosen] = new
    return leaf


def _posed(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> svm.Constraints:
    """Return the constraints that select a seed's tokens; those of token 0 if it diverged and selects nothing."""
    return svm.token_constraints(problem, jnp.where(finite, tokens.selected(weights, problem), 0))


def _classified(
    weights: Weights, problem: Problem, constraints: svm.Constraints, W_svm: Float[Array, "d d"]
) -> tuple[tokens.Outcome, Float[Array, ""]]:
    margins = svm.margins(constraints, W_svm)
    inactive = jnp.where(margins > 1 + tokens.ACTIVE, margins, jnp.inf)
    return tokens.outcome(weights, problem, margins), jnp.min(inactive)
