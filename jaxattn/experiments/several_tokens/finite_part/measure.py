"""From the record of a screening to the ratios inside every set of several tokens, descended and predicted.

W_fin is defined by the ratios that descent ends with, and has them by construction. What predicts them without the run
is the best distribution on the selected tokens (`stationary`), where there is one only.
"""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions, screening, stationary
from jaxattn.experiments.several_tokens.evidence import PARTS
from jaxattn.study.claims import EXCLUDED

# What the best distribution on a set of several tokens is: the only one, of all its tokens or of fewer; or one of many.
KINDS = ("mixes the set", "mixes fewer", "not unique")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold the ratios inside every set of several tokens against those of the best distribution on the set.

    Args:
        record: of a `Screening` with the head `mlp`, or `Quadratic` on orthonormal tokens.
        solver: of W_mm and W_fin; those of the Frobenius norm if None.

    Returns:
        Three axes. `mixed`: the inputs that select several tokens, with `kind`, a place in KINDS, and `drift`, the
        largest change of the logarithm of a ratio in the second half of the run. `pair`: of an input of the first kind
        every other token of its set beside the first, with the logarithms `predicted` and `descended`. `whole`: the
        runs all of whose sets are of the first kind, with 1 - correlation with W_SVMeq, its finite part `fitted` to the
        run or `foretold`; without those whose solutions are not found. `seed` on each axis, with the prefix `pair_` or
        `whole_`, is the run; likewise `published` and `every`, whether it is in that part of `screening.attempts`. The
        counts of these are attributes, the second with a prefix.
    """
    runs = screening.runs_of(record)
    quadratic = "penalty" in json.loads(record.attrs["config"])["head"]
    further = {} if quadratic else {"labels": screening.labels_of_one_kind(runs)}
    parts = dict(zip(PARTS, screening.attempts(runs, **further), strict=True))
    seeds = np.union1d(*(np.flatnonzero(reason < 0) for reason in parts.values()))
    selected, runs = screening.selected_sets(runs)[seeds], screening.taken(runs, seeds)
    if quadratic:
        penalty = screening.penalty_of(record)
        best, unique = stationary.quadratic(runs.problems, penalty, selected)
        run = {"head": "quadratic", "run": f"lambda = {penalty:g}"}
    else:
        best, unique = stationary.relu(runs.problems, selected)
        run = {"head": "ReLU", "run": f"d = {runs.problems.d}"}

    several = selected.sum(axis=2) > 1
    kind = np.where(~unique, 2, np.where(((best > 0) == selected).all(axis=2), 0, 1))
    reference = selected.argmax(axis=2)[..., None]
    half, last = (_beside(runs.logits[:, place], reference) for place in ((len(runs.steps) - 1) // 2, -1))
    drift = np.where(selected, np.abs(last - half), 0).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = _beside(np.log(best), reference)
    pairs = selected & (several & (kind == 0))[..., None] & (np.arange(selected.shape[2]) != reference)

    whole = np.flatnonzero(several.any(axis=1) & ((kind == 0) | ~several).all(axis=1))
    fitted, foretold, failed = _distances(screening.taken(runs, whole), best[whole], selected[whole], solver)
    for reason in parts.values():
        lost = seeds[whole[failed >= 0]]
        reason[lost[lost < len(reason)]] = failed[failed >= 0][lost < len(reason)]
    solved = failed < 0

    where = {"mixed": np.nonzero(several)[0], "pair": np.nonzero(pairs)[0], "whole": whole[solved]}
    variables = {"mixed": {"kind": kind[several], "drift": drift[several]}}
    variables["pair"] = {"predicted": predicted[pairs], "descended": last[pairs]}
    variables["whole"] = {"fitted": fitted[solved], "foretold": foretold[solved]}
    for axis, of in where.items():
        prefix = "" if axis == "mixed" else f"{axis}_"
        variables[axis][f"{prefix}seed"] = seeds[of]
        variables[axis] |= {prefix + part: screening.kept_of(seeds[of], reason) for part, reason in parts.items()}
    counts = screening.counts(parts["published"], EXCLUDED)
    of_every = {f"every_{name}": count for name, count in screening.counts(parts["every"]).items()}
    return xarray.Dataset(
        {name: ((axis,), values) for axis, named in variables.items() for name, values in named.items()},
        {"snapshot": runs.steps},
        {**run, **counts, **of_every},
    )


def _beside(numbers: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the numbers of all tokens of an input less that of its reference."""
    return numbers - np.take_along_axis(numbers, reference, axis=2)


def _distances(
    runs: screening.Runs, best: np.ndarray, selected: np.ndarray, solver: svm.Solver | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 1 - correlation with W_SVMeq, its finite part fitted and foretold, and why a run has none."""
    with np.errstate(divide="ignore"):
        logits = np.where(selected, np.log(best), 0.0)
    found = [descriptions.describe(runs.problems, runs.W, selected, solver, of) for of in (None, logits)]
    fitted, foretold = (descriptions.distances(runs.problems, runs.logits, runs.size, one.W)[:, 0, -1] for one in found)
    return fitted, foretold, descriptions.failures(np.concatenate([one.status for one in found], axis=1))
