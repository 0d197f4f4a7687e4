"""From the record of a screening: how many tokens each run selects, and its distance from the descriptions."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions, screening, stationary
from jaxattn.experiments.several_tokens.prediction import held_against
from jaxattn.study.claims import EXCLUDED


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Count the tokens that every run selects, and describe the runs that mask some.

    Args:
        record: of a `Screening` with a `Quadratic` head on orthonormal tokens.
        solver: of all problems; the default of the Frobenius norm if None.

    Returns:
        With an axis `attempt`: `tokens`, the mean number selected per input; `best`, the number that the best attention
        of each input mixes; `diverged`. With an axis `seed`: `off` and `size` of `descriptions.compared`; with an axis
        `whole` what `prediction.held_against` returns. The counts are attributes.

    Raises:
        ValueError: another head, or tokens that are not orthonormal.
    """
    runs, penalty = screening.runs_of(record), screening.penalty_of(record)
    reason = screening.unselected(runs)
    seeds = np.flatnonzero(reason < 0)
    compared = descriptions.compared(runs, seeds, solver)
    against, failed = held_against(runs, seeds, penalty, solver)
    failed = np.where(compared["reason"].values < 0, failed, compared["reason"].values)
    reason[seeds] = failed
    best, _ = stationary.quadratic(runs.problems, penalty, np.ones(runs.logits[:, -1].shape, bool))
    joined = compared[["off", "size"]].merge(against.assign_coords(seed=seeds))
    kept = joined.isel(seed=failed < 0, whole=np.isin(joined["whole_seed"].values, seeds[failed < 0]))
    kept["tokens"] = (("attempt",), screening.selected_sets(runs).sum(axis=2).mean(axis=1))
    kept["best"] = (("attempt",), (best > 0).sum(axis=2).mean(axis=1))
    kept["diverged"] = (("attempt",), reason == EXCLUDED.index("diverged"))
    return kept.assign_attrs({"run": f"lambda = {penalty:g}", "penalty": penalty, **screening.counts(reason)})
