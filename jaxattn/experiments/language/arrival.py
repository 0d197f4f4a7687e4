"""Where descent from a given start ends on separable texts: at the solution, or with some prefixes unserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import language, metrics, svm
from jaxattn.experiments.language import text_solutions
from jaxattn.parallel import batch
from jaxattn.study.claims import Datasets
from jaxattn.study.claims.criteria import Criterion, Number, below
from jaxattn.study.estimates import added
from jaxattn.study.measuring import exclusions, served
from jaxattn.study.style import palette
from jaxattn.study.style.rows import Part

# Fixed beforehand. A run has converged to a solution if 1 - cos with it is at most this.
NEAR = 0.05
# A prefix is left unserved if its next word is behind by more than the margin 1 along the solution of the others.
_MARGIN = 1 + 1e-6


def measure(record: xarray.Dataset, delta: float, step_size: float, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every separable text where descent from its start has ended.

    The solution of what a run `keeps` selects the next words of the prefixes that it serves, those whose next word has
    the largest logit; where the other scores differ it also selects the word that each other prefix attends to.

    Args:
        record: of a `StartedTraining`.
        delta: of the scores that are not largest; positive if they differ.
        step_size: of descent.
        solver: of the max-margin problems; each problem's default if None.

    Returns:
        For every kept seed at the snapshots `off`, 1 - cos with W_mm, and `growth`, the norm of W over that of W_mm;
        `start`, the same for the start; at the end `margin`, the margin ratio, and `attention`, the smallest attention
        of a prefix to its next word; `off_kept` and `margin_kept`, the same with the solution of what the run keeps (1
        and 0 if it keeps nothing); `unserved`, the number of unserved prefixes; `behind`, the smallest amount by which
        the next word of one of them is behind along that solution (0 if there are none); `within`, the step size times
        the smoothness constant L. Texts that no W separates count as infeasible, those in which no prefix has a choice
        as ambiguous.
    """
    texts, finite = text_solutions.read(record)
    compact = language.compact(texts._replace(scores=None))
    chooses = np.asarray(texts.weight).sum(axis=1) > 0
    hard = svm.solve_batch(batch.over_seeds(language.constraints, compact), svm.frobenius, solver=solver)
    status = np.asarray(hard.status)
    final = np.where(finite[:, None, None], record["pairs"].values, 0.0)
    right, problem = batch.over_seeds(_kept_by, final, compact, np.full(len(final), delta > 0))
    of_kept = svm.solve_batch(problem, svm.frobenius, solver=solver)
    kept = finite & chooses & text_solutions.is_solved(hard, of_kept)
    given = (record[name].values for name in ("pairs_initial", "pairs_snapshots"))
    of_seeds = exclusions.only(kept, (*given, hard, of_kept, problem, right, compact, texts))
    found = batch.over_seeds(_ended, *of_seeds)
    found["within"] = step_size * found.pop("bound")
    return xarray.Dataset(
        {name: (("seed", "snapshot")[: np.ndim(array)], array) for name, array in found.items()},
        {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values},
        exclusions.count(kept, diverged=~finite, ambiguous=~chooses, infeasible=status == svm.Status.INFEASIBLE),
    )


def _kept_by(
    pairs: Float[Array, "V V"], text: language.Choices, selects: Bool[Array, ""]
) -> tuple[Bool[Array, " N"], svm.Constraints]:
    """Return which prefixes are served, and the problem of what the run keeps; others select only on request."""
    logits = language.logits(language.weights(pairs, text), text)
    own = language.constraints(text)
    right = served.served(language.weights(pairs, text).W, own)
    first = jnp.argmax(language.counted(logits, text), axis=1)
    chosen = text._replace(next=jnp.where(right, text.next, first))
    return right, served.alone(language.constraints(chosen), right | selects)


def _ended(
    start: Float[Array, "V V"],
    snapshots: Float[Array, "snapshot V V"],
    solution: svm.Solution,
    of_kept: svm.Solution,
    problem: svm.Constraints,
    right: Bool[Array, " N"],
    compact: language.Choices,
    text: language.Choices,
) -> dict[str, Array]:
    """Return what `measure` does for one seed, with the bound of the slope in place of the step."""
    W_mm, W_kept = solution.W, of_kept.W
    W = jax.vmap(lambda pairs: language.weights(pairs, compact).W)(snapshots)
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    wrong = ~right & (compact.weight > 0)
    behind = jnp.min(served.behind(W_kept, language.constraints(compact), wrong))
    at_start = metrics.norm(language.weights(start, compact).W)
    # A run that keeps nothing is near no solution.
    nothing = metrics.norm(W_kept) == 0
    off_kept = 1 - metrics.correlation(W[-1], jnp.where(nothing, W_mm, W_kept))
    logits = language.logits(language.weights(snapshots[-1], compact), compact)
    attention = jnp.take_along_axis(language.softmax(logits, compact), compact.next[:, None], axis=1)[:, 0]
    return {
        "off": off,
        "margin": metrics.margin_ratio(W[-1], language.constraints(compact), svm.frobenius, solution),
        "attention": jnp.min(jnp.where(compact.weight > 0, attention, 1.0)),
        "off_kept": jnp.where(nothing, 1.0, off_kept),
        "margin_kept": jnp.where(nothing, 0.0, metrics.margin_ratio(W[-1], problem, svm.frobenius, of_kept)),
        "unserved": jnp.sum(wrong),
        "behind": jnp.where(jnp.any(wrong), behind, 0.0),
        "start": at_start / metrics.norm(W_mm),
        "growth": jax.vmap(metrics.norm)(W) / metrics.norm(W_mm),
        # The logistic loss of a nonnegative score has a slope of at most 1/2.
        "bound": language.score_bound(text, slope=0.5),
    }


class Outcomes(NamedTuple):
    """The outcome of every start."""

    # All prefixes are served, and W is near W_mm.
    arrived: Bool[np.ndarray, " seed"]
    # W is near the solution of what it keeps, and each unserved prefix is behind by more than the margin along it.
    left: Bool[np.ndarray, " seed"]
    # Neither; and of these, with a negative correlation of W and W_mm.
    moving: Bool[np.ndarray, " seed"]
    opposed: Bool[np.ndarray, " seed"]
    # Prefixes are unserved although less behind.
    unexplained: Bool[np.ndarray, " seed"]


def outcomes(run: xarray.Dataset) -> Outcomes:
    """Return the outcome of every start of a run, of `measure`."""
    unserved, behind = run["unserved"].values > 0, run["behind"].values
    arrived = ~unserved & (run["off"].values[:, -1] <= NEAR)
    left = unserved & (run["off_kept"].values <= NEAR) & (behind > _MARGIN)
    moving = ~arrived & ~left
    opposed = moving & (run["off"].values[:, -1] > 1)
    return Outcomes(arrived, left, moving, opposed, unserved & (behind <= _MARGIN))


def elsewhere(what: str, ends: Datasets) -> Criterion:
    """Ask that no start ends elsewhere: between the number left unserved and the number that have not arrived."""
    left = added(ends, "left")
    return below(what, Number(left, left, left + added(ends, "moving")), 0)


def few(runs: Datasets, texts: str, least: int, kind: str) -> str:
    """Return why runs with these counts of texts of a kind decide nothing; empty if they do."""
    fewest = min(int(run[texts]) for run in runs.values())
    return f"{fewest} {kind} texts are too few; at least {least} are needed." if fewest < least else ""


def parts(runs: Sequence[xarray.Dataset], every: str) -> list[Part]:
    """Return the parts of each run's bar, as shares of the count `every`; those that are 0 in all runs are missing."""
    arrived, left, moving, opposed, whole = (
        np.array([int(run[count]) for run in runs]) for count in ("arrived", "left", "moving", "opposed", every)
    )
    kinds = (
        (f"1 - cos at most {NEAR:g}", palette.FROBENIUS, arrived),
        ("prefixes unserved", palette.WINE, left),
        ("on the way", palette.EXCLUDED, moving - opposed),
        ("turned away", palette.AMBER, opposed),
    )
    return [Part(label, colour, count / whole) for label, colour, count in kinds if count.any()]
