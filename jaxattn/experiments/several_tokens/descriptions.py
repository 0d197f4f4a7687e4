"""The second stage where an input selects several tokens: which, and how far W is from each description of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import svm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import EXCLUDED, too_little
from jaxattn.study.settings.training import finite_seeds
from jaxattn.study.statistics import Estimate

# What W is held against. W_fin is the part of W_SVMeq that is fitted to the run.
SOLUTIONS = ("W_SVMeq", "W_mm", "W_1token", "W_fin")
# The published thresholds: a token is selected from the first on, and masked up to the second.
SELECTED, MASKED = 1e-3, 1e-6
# The published figure is over so many kept runs of each setting; the one without a selection over the first so many.
SEEDS = 500
# So many problems are posed together, however many there are.
_TOGETHER = 64
# Problems of fewer dimensions are filled up to so many with zeros, which changes no solution: they compile once.
_WIDTH = 10


class Runs(NamedTuple):
    """The runs of a `Screening`, all with a leading axis of seeds.

    Attributes:
        problems: X, Z, Y and v.
        W: final weights, (seeds, d, d).
        logits: at the snapshots, (seeds, snapshots, n, T).
        size: Frobenius norm of W at the snapshots, (seeds, snapshots).
        steps: of the snapshots.
    """

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


def probabilities(runs: Runs) -> Float[np.ndarray, "seeds n T"]:
    """Return the attention at the last snapshot; NaN where a run diverged."""
    return np.asarray(jax.nn.softmax(jnp.asarray(runs.logits[:, -1]), axis=-1))


def selected_sets(runs: Runs) -> Bool[np.ndarray, "seeds n T"]:
    """Return the tokens that every run selects: those before the first gap.

    That is where, in falling order, a probability is at most 1e-3 of the one before; all tokens where none is. Of a run
    that `published` keeps these are the published sets, the tokens of a probability of at least 1e-3.
    """
    falling = np.argsort(-runs.logits[:, -1], axis=-1)
    ordered = np.take_along_axis(runs.logits[:, -1], falling, axis=-1)
    gaps = ordered[..., :-1] - ordered[..., 1:] >= -np.log(SELECTED)
    before = np.concatenate([np.ones_like(gaps[..., :1]), ~np.logical_or.accumulate(gaps, axis=-1)], axis=-1)
    selected = np.zeros_like(before)
    np.put_along_axis(selected, falling, before, axis=-1)
    return selected


def published(runs: Runs, **further: Bool[np.ndarray, " seeds"]) -> Int[np.ndarray, " seeds"]:
    """Return why the published code leaves a run out, a place in `claims.EXCLUDED`, or -1 where it does not.

    "diverged"; what is given further, by the name of its reason; "ambiguous", with a probability in (1e-6, 1e-3];
    "finite", with none of at most 1e-6, so that nothing says that W grows.
    """
    s = probabilities(runs)
    conditions = {
        "diverged": ~finite_seeds(runs.W),
        **further,
        "ambiguous": ((s > MASKED) & (s <= SELECTED)).any(axis=(1, 2)),
        "finite": (s > MASKED).all(axis=(1, 2)),
    }
    return first_reason(conditions)


def unselected(runs: Runs) -> Int[np.ndarray, " seeds"]:
    """Return why no selection at all leaves a run out: "diverged", or "finite", where no token is masked.

    Without a masked token no direction is predicted. Numbers as of `published`.
    """
    selected = selected_sets(runs)
    return first_reason({"diverged": ~finite_seeds(runs.W), "finite": np.all(selected, axis=(1, 2))})


def attempts(
    runs: Runs, **further: Bool[np.ndarray, " seeds"]
) -> tuple[Int[np.ndarray, " published"], Int[np.ndarray, " every"]]:
    """Return `published` of so many runs that 500 are kept, or of all, and `unselected` of the first 500."""
    reason = published(runs, **further)
    enough = np.flatnonzero(reason < 0)[:SEEDS]
    return reason[: enough[-1] + 1] if len(enough) == SEEDS else reason, unselected(runs)[:SEEDS]


def kept_of(seeds: Int[np.ndarray, " kept"], reason: Int[np.ndarray, " attempts"]) -> Bool[np.ndarray, " kept"]:
    """Return which of these seeds are attempts that are not left out."""
    return np.isin(seeds, np.flatnonzero(reason < 0))


def first_reason(conditions: dict[str, Bool[np.ndarray, " seeds"]]) -> Int[np.ndarray, " seeds"]:
    """Return the first reason that holds for a run, a place in `claims.EXCLUDED`, or -1 where none does."""
    places = np.array([EXCLUDED.index(name) for name in conditions])
    holds = np.stack(list(conditions.values()))
    return np.where(holds.any(axis=0), places[holds.argmax(axis=0)], -1)


def failures(status: Int[np.ndarray, "seeds problems"]) -> Int[np.ndarray, " seeds"]:
    """Return "infeasible" or "unsolved", as a place in `claims.EXCLUDED`, where a problem of a run is, or -1."""
    infeasible, optimal = status == svm.Status.INFEASIBLE, status == svm.Status.OPTIMAL
    return first_reason({"infeasible": infeasible.any(axis=1), "unsolved": ~optimal.all(axis=1)})


def counts(
    reason: Int[np.ndarray, " seeds"], left_out: tuple[str, ...] = ("diverged", "finite", "infeasible", "unsolved")
) -> dict[str, int]:
    """Return how many runs were attempted, kept, and left out by each of these reasons."""
    by_reason = {name: int((reason == EXCLUDED.index(name)).sum()) for name in left_out}
    return {"attempted": len(reason), "kept": int((reason < 0).sum()), **by_reason}


def compared(runs: Runs, seeds: Int[np.ndarray, " kept"], solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve for the descriptions of some runs, none of them left out by `unselected`, and hold the runs against them.

    Returns:
        With an axis `seed`: `reason`, "infeasible" or "unsolved" as a place in `claims.EXCLUDED`, or -1; `off`,
        1 - correlation with each solution at the snapshots; `size`, the norm of W at the end; `masked`, the largest
        probability of a token that is not selected; `selected`, the tokens that are; `W_described`, the solutions.
    """
    problems, selected = jax.tree.map(lambda leaf: leaf[seeds], runs.problems), selected_sets(runs)[seeds]
    described = describe(problems, runs.W[seeds], selected, solver)
    off = distances(problems, runs.logits[seeds], runs.size[seeds], described.W)
    return xarray.Dataset(
        data_vars={
            "reason": (("seed",), failures(described.status)),
            "off": (("seed", "solution", "snapshot"), off),
            "size": (("seed",), runs.size[seeds, -1]),
            "masked": (("seed",), np.where(selected, 0, probabilities(runs)[seeds]).max(axis=(1, 2))),
            "selected": (("seed", "input", "token"), selected),
            "W_described": (("seed", "solution", "feature", "query_feature"), described.W),
        },
        coords={"seed": seeds, "solution": np.array(SOLUTIONS, dtype=object), "snapshot": runs.steps},
    )


def undecided(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Return why the runs of one of these cannot decide a claim, or nothing if all can."""
    reasons = ((run, too_little(summary)) for run, summary in summaries.items())
    return next((f"{run}: {reason}" for run, reason in reasons if reason), "")


def variables(name: str, dims: tuple[str, ...], estimate: Estimate) -> dict[str, xarray.Variable]:
    """Name the parts of an estimate as a summary does: the mean by its name, the others with a suffix."""
    parts = estimate._asdict().items()
    return {name if part == "mean" else f"{name}_{part}": xarray.Variable(dims, value) for part, value in parts}


class Described(NamedTuple):
    """The max-margin descriptions of some descended weights.

    Attributes:
        W: each of SOLUTIONS, (seeds, 4, d, d); of no meaning where one of the three problems is not solved.
        status: of the problems of W_mm, W_fin and W_1token, (seeds, 3), each a `svm.Status`.
    """

    W: Float[np.ndarray, "seeds solutions d d"]
    status: Int[np.ndarray, "seeds problems"]


def describe(
    problems: Problem,
    W: Float[np.ndarray, "seeds d d"],
    selected: Bool[np.ndarray, "seeds n T"],
    solver: svm.Solver | None = None,
    logits: Float[np.ndarray, "seeds n T"] | None = None,
) -> Described:
    """Solve for W_mm and W_fin of the selected sets, W_1token of the likeliest tokens, and form W_SVMeq.

    `W_SVMeq = W_fin + C W_mm` with C the least-squares fit to W (2308.16898, eq. 9). W_fin has the ratios of the
    descended attention inside the sets, so W_SVMeq holds a fit to the run; W_mm and W_1token hold its sets alone.

    Args:
        problems: with a leading axis of seeds.
        W: descended weights.
        selected: tokens of every input, at least one, and in every seed an input that does not select all.
        solver: of the three problems; those of the Frobenius norm if None.
        logits: what W_fin is to agree with inside the sets; those of W if None.
    """
    d = problems.d
    if len(W) == 0:
        return Described(np.zeros((0, len(SOLUTIONS), d, d)), np.zeros((0, 3), int))
    missing = max(0, _WIDTH - d)
    X, Z, W_wide = (
        np.pad(array, [(0, 0)] * (array.ndim - axes) + [(0, missing)] * axes)
        for array, axes in ((np.asarray(problems.X), 1), (np.asarray(problems.Z), 1), (W, 2))
    )
    logits = np.einsum("sntd,sde,sne->snt", X, W_wide, Z, optimize=True) if logits is None else logits
    posed = batch.over_seeds(_posed, X, Z, logits, selected, width=_TOGETHER)
    joined = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), posed)
    solution = svm.solve_batch(joined, svm.frobenius, solver=solver)
    W_mm, W_fin, W_1token = np.moveaxis(np.asarray(solution.W)[:, :d, :d].reshape(-1, 3, d, d), 1, 0)
    square = np.sum(W_mm**2, axis=(1, 2))
    C = np.divide(np.sum((W - W_fin) * W_mm, axis=(1, 2)), square, out=np.zeros_like(square), where=square > 0)
    W_SVMeq = W_fin + C[:, None, None] * W_mm
    return Described(np.stack([W_SVMeq, W_mm, W_1token, W_fin], axis=1), np.asarray(solution.status).reshape(-1, 3))


def distances(
    problems: Problem,
    logits: Float[np.ndarray, "seeds snapshots n T"],
    size: Float[np.ndarray, "seeds snapshots"],
    W: Float[np.ndarray, "seeds solutions d d"],
) -> Float[np.ndarray, "seeds solutions snapshots"]:
    """Return 1 - correlation of a run at its snapshots with solutions in the span of all `(x_it - x_iu) z_i^T`.

    Such a solution B is `sum_it c_it (x_it - x_i0) z_i^T`, and `<W, B>` is c times the logits of W relative to those
    of the first tokens. A solution that is zero, as W_fin of single tokens, has the correlation 0 with all.

    Args:
        problems: with a leading axis of seeds.
        logits: of the run.
        size: its Frobenius norm.
        W: the solutions.
    """
    X, Z = np.asarray(problems.X), np.asarray(problems.Z)
    D = X[:, :, 1:] - X[:, :, :1]
    rows = D.shape[1] * D.shape[2]
    of_run = (logits[..., 1:] - logits[..., :1]).reshape(*logits.shape[:2], rows)
    of_solutions = np.einsum("sntd,skde,sne->sknt", D, W, Z, optimize=True).reshape(*W.shape[:2], rows)
    gram = np.einsum("sntd,smud,sne,sme->sntmu", D, D, Z, Z, optimize=True).reshape(-1, rows, rows)
    inner = of_solutions @ np.linalg.pinv(gram, hermitian=True) @ np.swapaxes(of_run, 1, 2)
    lengths = np.linalg.norm(W, axis=(2, 3))[:, :, None] * size[:, None, :]
    return 1 - np.divide(inner, lengths, out=np.zeros_like(inner), where=lengths > 0)


def _posed(
    X: Float[Array, "n T d"], Z: Float[Array, "n d"], logits: Float[Array, "n T"], selected: Bool[Array, "n T"]
) -> svm.Constraints:
    """Stack the problems of W_mm, W_fin and W_1token; none of them reads labels or head."""
    problem = Problem(X, Z, jnp.ones(len(X)), jnp.zeros(X.shape[-1]))
    single = jnp.argmax(logits, axis=1)[:, None] == jnp.arange(problem.T)[None, :]
    three = (
        svm.set_constraints(problem, selected),
        svm.finite_constraints(problem, selected, logits),
        svm.set_constraints(problem, single),
    )
    every = jnp.ones((problem.n, problem.T - 1), bool)
    alike = (one._replace(present=every if one.present is None else one.present) for one in three)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)
