"""The runs of a screening: which tokens each selects, which runs are kept, and why the others are excluded."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from jaxattn.problem import Problem
from jaxattn.study.claims import EXCLUDED
from jaxattn.study.settings.parameters import finite_seeds

# The published thresholds: a token is selected at or above the first, and masked at or below the second.
SELECTED, MASKED = 1e-3, 1e-6
# The published figure uses this many kept runs per setting; the one without a selection uses this many first runs.
SEEDS = 500


class Runs(NamedTuple):
    """Runs of a `Screening`: final weights W, and at the snapshots the steps, logits, and `size`, the norm of W."""

    problems: Problem
    W: Float[np.ndarray, "seeds d d"]
    logits: Float[np.ndarray, "seeds snapshots n T"]
    size: Float[np.ndarray, "seeds snapshots"]
    steps: Int[np.ndarray, " snapshots"]


def runs_of(record: xarray.Dataset) -> Runs:
    """Read the runs of a record of a `Screening`."""
    fields = (record[name].values for name in ("X", "Z", "Y", "v"))
    arrays = (record[name].values for name in ("W", "logits_snapshots", "size_snapshots", "snapshot"))
    return Runs(Problem(*fields), *arrays)


def taken(runs: Runs, seeds: Int[np.ndarray, " some"]) -> Runs:
    """Return only these runs."""
    problems = jax.tree.map(lambda leaf: np.asarray(leaf)[seeds], runs.problems)
    return Runs(problems, runs.W[seeds], runs.logits[seeds], runs.size[seeds], runs.steps)


def labels_of_one_kind(runs: Runs) -> Bool[np.ndarray, " seeds"]:
    """Whether all labels of a run are +1: then a convex head mixes no tokens, and the published code excludes it."""
    return (np.asarray(runs.problems.Y) == 1).all(axis=1)


def selected_sets(runs: Runs) -> Bool[np.ndarray, "seeds n T"]:
    """Return the tokens that each run selects: those before the first gap.

    A gap is where, in decreasing order, a probability is at most 1e-3 of the previous one. For a run that `published`
    keeps, these are the published sets, the tokens with a probability of at least 1e-3.
    """
    falling = np.argsort(-runs.logits[:, -1], axis=-1)
    ordered = np.take_along_axis(runs.logits[:, -1], falling, axis=-1)
    gaps = ordered[..., :-1] - ordered[..., 1:] >= -np.log(SELECTED)
    before = np.concatenate([np.ones_like(gaps[..., :1]), ~np.logical_or.accumulate(gaps, axis=-1)], axis=-1)
    selected = np.zeros_like(before)
    np.put_along_axis(selected, falling, before, axis=-1)
    return selected


def published(runs: Runs, **further: Bool[np.ndarray, " seeds"]) -> Int[np.ndarray, " seeds"]:
    """Return why the published code excludes a run, as an index into `claims.EXCLUDED`, or -1 if it is kept.

    The reasons are, in this order: "diverged"; those in `further`; "ambiguous", a probability in (1e-6, 1e-3];
    "finite", no probability of at most 1e-6, so that nothing shows that W grows.
    """
    s = softmax(runs.logits[:, -1], axis=-1)
    return first_reason(
        {
            "diverged": ~finite_seeds(runs.W),
            **further,
            "ambiguous": ((s > MASKED) & (s <= SELECTED)).any(axis=(1, 2)),
            "finite": (s > MASKED).all(axis=(1, 2)),
        }
    )


def unselected(runs: Runs) -> Int[np.ndarray, " seeds"]:
    """Return why a run is excluded even without the published selection, in the encoding of `published`.

    The reasons are "diverged", and "finite": no token is masked, so that no direction is predicted.
    """
    selected = selected_sets(runs)
    return first_reason({"diverged": ~finite_seeds(runs.W), "finite": np.all(selected, axis=(1, 2))})


def attempts(
    runs: Runs, **further: Bool[np.ndarray, " seeds"]
) -> tuple[Int[np.ndarray, " published"], Int[np.ndarray, " every"]]:
    """Return `published` for as many runs as contain 500 kept ones (or all), and `unselected` for the first 500."""
    reason = published(runs, **further)
    enough = np.flatnonzero(reason < 0)[:SEEDS]
    return reason[: enough[-1] + 1] if len(enough) == SEEDS else reason, unselected(runs)[:SEEDS]


def kept_of(seeds: Int[np.ndarray, " kept"], reason: Int[np.ndarray, " attempts"]) -> Bool[np.ndarray, " kept"]:
    """Return which of these seeds are attempts that are not excluded."""
    return np.isin(seeds, np.flatnonzero(reason < 0))


def first_reason(conditions: dict[str, Bool[np.ndarray, " seeds"]]) -> Int[np.ndarray, " seeds"]:
    """Return the first reason that applies to each run, an index into `claims.EXCLUDED`, or -1 if none does."""
    holds = list(conditions.values())
    return np.select(holds, [EXCLUDED.index(name) for name in conditions], -1)


def counts(
    reason: Int[np.ndarray, " seeds"], reasons: tuple[str, ...] = ("diverged", "finite", "infeasible", "unsolved")
) -> dict[str, int]:
    """Return the number of runs attempted, kept, and excluded by each of these reasons."""
    by_reason = {name: int((reason == EXCLUDED.index(name)).sum()) for name in reasons}
    return {"attempted": len(reason), "kept": int((reason < 0).sum()), **by_reason}
