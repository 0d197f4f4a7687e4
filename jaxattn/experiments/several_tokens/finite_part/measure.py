"""From the record of a screening: the ratios inside every set of several tokens, trained and predicted.

W_fin is defined by the ratios at the end of descent, and so has them by construction. What predicts them without the
run is the best distribution on the selected tokens (`prediction`), if it is unique.
"""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.experiments.several_tokens import screening
from jaxattn.experiments.several_tokens.evidence import PARTS
from jaxattn.experiments.several_tokens.prediction import held_against, predict
from jaxattn.study.claims import EXCLUDED


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the ratios inside every set of several tokens with those of the best distribution on the set.

    Args:
        record: of a `Screening` with the head `mlp`, or `Quadratic` on orthonormal tokens.
        solver: of W_mm and W_fin; the default of the Frobenius norm if None.

    Returns:
        Three axes. `mixed`: the inputs that select several tokens, with `kind`, an index into KINDS, and `drift`, the
        largest change of a log ratio in the second half of training. `pair`: for inputs of the first kind, every other
        token of the set paired with the first, with the log ratios `predicted` and `descended`. `whole`: the runs whose
        sets are all of the first kind and whose solutions are found, with 1 - cos to W_SVMeq, its finite part `fitted`
        to the run or `foretold` (predicted). `seed` on each axis, with the prefix `pair_` or `whole_`, is the run;
        likewise `published` and `every`, whether it is in that part of `screening.attempts`. The counts of these are
        attributes, the second with a prefix.
    """
    runs = screening.runs_of(record)
    quadratic = "penalty" in json.loads(record.attrs["config"])["head"]
    further = {} if quadratic else {"labels": screening.labels_of_one_kind(runs)}
    parts = dict(zip(PARTS, screening.attempts(runs, **further), strict=True))
    seeds = np.union1d(*(np.flatnonzero(reason < 0) for reason in parts.values()))
    penalty = screening.penalty_of(record) if quadratic else None
    against, failed = held_against(runs, seeds, penalty, solver)
    for reason in parts.values():
        lost = seeds[failed >= 0]
        reason[lost[lost < len(reason)]] = failed[failed >= 0][lost < len(reason)]
    selected, runs = screening.selected_sets(runs)[seeds], screening.taken(runs, seeds)
    best, kind, several = predict(runs.problems, selected, penalty)

    reference = selected.argmax(axis=2)[..., None]
    half, last = (_beside(runs.logits[:, place], reference) for place in ((len(runs.steps) - 1) // 2, -1))
    drift = np.where(selected, np.abs(last - half), 0).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = _beside(np.log(best), reference)
    pairs = selected & (several & (kind == 0))[..., None] & (np.arange(selected.shape[2]) != reference)

    where = {"mixed": seeds[np.nonzero(several)[0]], "pair": seeds[np.nonzero(pairs)[0]]}
    where["whole"] = against["whole_seed"].values
    variables = {"mixed": {"kind": kind[several], "drift": drift[several]}}
    variables["pair"] = {"predicted": predicted[pairs], "descended": last[pairs]}
    variables["whole"] = {name: against[name].values for name in ("fitted", "foretold")}
    for axis, of in where.items():
        prefix = "" if axis == "mixed" else f"{axis}_"
        variables[axis][f"{prefix}seed"] = of
        variables[axis] |= {prefix + part: screening.kept_of(of, reason) for part, reason in parts.items()}
    counts = screening.counts(parts["published"], EXCLUDED)
    of_every = {f"every_{name}": count for name, count in screening.counts(parts["every"]).items()}
    run = (
        {"head": "ReLU", "run": f"d = {runs.problems.d}"}
        if penalty is None
        else {"head": "quadratic", "run": f"lambda = {penalty:g}"}
    )
    return xarray.Dataset(
        {name: ((axis,), values) for axis, named in variables.items() for name, values in named.items()},
        {"snapshot": runs.steps},
        {**run, **counts, **of_every},
    )


def _beside(numbers: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the numbers of all tokens of an input minus that of its reference token."""
    return numbers - np.take_along_axis(numbers, reference, axis=2)
