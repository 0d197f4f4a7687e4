"""The finite part that a problem determines by itself: that of the best distributions on the selected sets.

W_fin is defined by the ratios that descent ends with, so that W_SVMeq = W_fin + C W_mm is a projection of W, and never
farther from W than W_mm. What can be: the same with the ratios of the best distribution (`stationary`), which knows no
run, where there is one only and it mixes the whole set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import Bool, Float, Int

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions, screening, stationary
from jaxattn.problem import Problem

# What the best distribution on a set of several tokens is: the only one, of all its tokens or of fewer; or one of many.
KINDS = ("mixes the set", "mixes fewer", "not unique")


class Prediction(NamedTuple):
    """What the problems determine of the attention inside the selected sets.

    Attributes:
        best: the best distribution on every set, or one of them.
        kind: of it, a place in KINDS.
        several: whether an input selects several tokens.
    """

    best: Float[np.ndarray, "seeds n T"]
    kind: Int[np.ndarray, "seeds n"]
    several: Bool[np.ndarray, "seeds n"]

    @property
    def whole(self) -> Bool[np.ndarray, " seeds"]:
        """The runs that select several tokens in some input, and whose ratios are determined in all of these."""
        return self.several.any(axis=1) & ((self.kind == 0) | ~self.several).all(axis=1)


def predict(problems: Problem, selected: Bool[np.ndarray, "seeds n T"], penalty: float | None) -> Prediction:
    """Find the best distribution on every selected set.

    Args:
        problems: with a leading axis of seeds.
        selected: tokens of every input, at least one.
        penalty: lambda of `heads.Quadratic` on orthonormal tokens, or None for `heads.mlp`.
    """
    if penalty is None:
        best, unique = stationary.relu(problems, selected)
    else:
        best, unique = stationary.quadratic(problems, penalty, selected)
    kind = np.where(~unique, 2, np.where(((best > 0) == selected).all(axis=2), 0, 1))
    return Prediction(best, kind, selected.sum(axis=2) > 1)


def held_against(
    runs: screening.Runs, seeds: Int[np.ndarray, " kept"], penalty: float | None, solver: svm.Solver | None = None
) -> tuple[xarray.Dataset, Int[np.ndarray, " kept"]]:
    """Hold runs against W_SVMeq with the predicted finite part, where all of it is determined.

    Args:
        runs: of a record.
        seeds: which of them, none of them excluded by `screening.unselected`.
        penalty: as of `predict`.
        solver: of all problems; those of the Frobenius norm if None.

    Returns:
        With an axis `whole`, the runs of `Prediction.whole`: `fitted` and `foretold`, 1 - correlation at the end with
        W_SVMeq, its finite part from the run and from the prediction; `whole_seed`, which runs they are; and with an
        axis `seed`, `several`, the runs that select several tokens in some input. And for each seed why it has no such
        solution though it is one of them, a place in `claims.EXCLUDED`, or -1.
    """
    own = screening.taken(runs, seeds)
    selected = screening.selected_sets(own)
    found = predict(own.problems, selected, penalty)
    whole = np.flatnonzero(found.whole)
    with np.errstate(divide="ignore"):
        logits = np.where(selected[whole], np.log(found.best[whole]), 0.0)
    of_whole = screening.taken(own, whole)
    described = [
        descriptions.describe(of_whole.problems, of_whole.W, selected[whole], solver, of) for of in (None, logits)
    ]
    fitted, foretold = (
        descriptions.distances(of_whole.problems, of_whole.logits, of_whole.size, one.W)[:, 0, -1] for one in described
    )
    failed = descriptions.failures(np.concatenate([one.status for one in described], axis=1))
    reason = np.full(len(seeds), -1)
    reason[whole] = failed
    solved = failed < 0
    variables = {
        "fitted": (("whole",), fitted[solved]),
        "foretold": (("whole",), foretold[solved]),
        "whole_seed": (("whole",), seeds[whole[solved]]),
        "several": (("seed",), found.several.any(axis=1)),
    }
    return xarray.Dataset(variables), reason
