"""The finite part that a problem determines without a run: that of the best distributions on the selected sets.

W_fin is defined by the ratios at the end of descent, so that W_SVMeq = W_fin + C W_mm is never farther from W than W_mm
(`descriptions.describe`). The ratios of the best distribution (`stationary`), if it is unique and mixes the whole set,
do not depend on a run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import Bool, Float, Int

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions, screening, stationary
from jaxattn.problem import Problem

# The best distribution on a set of several tokens: unique, on all its tokens or on fewer; or not unique.
KINDS = ("mixes the set", "mixes fewer", "not unique")


class Prediction(NamedTuple):
    """What the problems determine about the attention inside the selected sets.

    Attributes:
        best: the best distribution on every set, or one of them.
        kind: its kind, an index into KINDS.
        several: whether an input selects several tokens.
    """

    best: Float[np.ndarray, "seeds n T"]
    kind: Int[np.ndarray, "seeds n"]
    several: Bool[np.ndarray, "seeds n"]

    @property
    def whole(self) -> Bool[np.ndarray, " seeds"]:
        """The runs that select several tokens in some input, and whose ratios are determined in all such inputs."""
        return self.several.any(axis=1) & ((self.kind == 0) | ~self.several).all(axis=1)


def predict(problems: Problem, selected: Bool[np.ndarray, "seeds n T"], penalty: float | None) -> Prediction:
    """Find the best distribution on every selected set.

    Args:
        problems: with a leading axis of seeds.
        selected: tokens of every input, at least one.
        penalty: lambda of `heads.Quadratic` on orthonormal tokens, or None for `heads.mlp`.
    """
    best, unique = (
        stationary.relu(problems, selected) if penalty is None else stationary.quadratic(problems, penalty, selected)
    )
    kind = np.where(~unique, 2, np.where(((best > 0) == selected).all(axis=2), 0, 1))
    return Prediction(best, kind, selected.sum(axis=2) > 1)


def described(
    runs: screening.Runs, seeds: Int[np.ndarray, " kept"], penalty: float | None, solver: svm.Solver | None
) -> tuple[xarray.Dataset, Int[np.ndarray, " kept"]]:
    """Return `descriptions.compared` and `held_against`, for the runs that both can solve.

    Also returned are the reasons why the others are excluded, as by `held_against`.
    """
    compared = descriptions.compared(runs, seeds, solver)
    against, failed = held_against(runs, seeds, penalty, solver)
    failed = np.where(compared["reason"].values < 0, failed, compared["reason"].values)
    joined = compared.drop_vars("reason").merge(against.assign_coords(seed=seeds))
    solved = np.isin(joined["whole_seed"].values, seeds[failed < 0])
    return joined.isel(seed=failed < 0, whole=solved), failed


def held_against(
    runs: screening.Runs, seeds: Int[np.ndarray, " kept"], penalty: float | None, solver: svm.Solver | None
) -> tuple[xarray.Dataset, Int[np.ndarray, " kept"]]:
    """Compare some runs with W_SVMeq with the predicted finite part, where all of it is determined.

    None of them may be excluded by `screening.unselected`; the penalty is as in `predict`.

    Returns:
        With an axis `whole`, the runs of `Prediction.whole`: `fitted` and `foretold`, final 1 - cos with W_SVMeq, its
        finite part fitted to the run or predicted; `whole_seed`, the numbers of the runs; and with an axis `seed`,
        `several`, the runs that select several tokens in some input. Also, for each seed, the reason why its solution
        is missing, an index into `claims.EXCLUDED`, or -1.
    """
    own = screening.taken(runs, seeds)
    selected = screening.selected_sets(own)
    found = predict(own.problems, selected, penalty)
    whole = np.flatnonzero(found.whole)
    with np.errstate(divide="ignore"):
        logits = np.where(selected[whole], np.log(found.best[whole]), 0.0)
    ends = screening.taken(own, whole)
    both = [descriptions.describe(ends.problems, ends.W, selected[whole], solver, of) for of in (None, logits)]
    fitted, foretold = (descriptions.distances(ends.problems, ends.logits, ends.size, one.W)[:, 0, -1] for one in both)
    failed = descriptions.failures(np.concatenate([one.status for one in both], axis=1))
    reason = np.full(len(seeds), -1)
    reason[whole] = failed
    of_whole = {"fitted": fitted, "foretold": foretold, "whole_seed": seeds[whole]}
    solved = {name: (("whole",), values[failed < 0]) for name, values in of_whole.items()}
    return xarray.Dataset(solved | {"several": (("seed",), found.several.any(axis=1))}), reason
