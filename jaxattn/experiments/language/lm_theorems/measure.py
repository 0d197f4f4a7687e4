"""From the record of plain descent on texts: its direction and growth, compared with the max-margin solutions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import language, metrics, svm
from jaxattn.experiments.language import arrival
from jaxattn.experiments.language.lm_theorems import ties
from jaxattn.parallel import batch
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.texts import choices_of


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the max-margin solutions of its texts; runs from drawn weights as in `arrival.measure`.

    A text is feasible if some W separates all its next words: then its solution is the hard-margin one. For other texts
    it is that of the words that continue to receive attention, tied if there are several (see `ties`). All texts have a
    soft-margin solution, with C = 10.

    Args:
        record: of a `TextTraining` by plain descent with the logistic loss, on texts with scores within [0, 1].
        solver: of the max-margin problems.

    Returns:
        For every kept seed whether it is `feasible`; at the snapshots `off` and `off_soft`, 1 - cos with its solution
        and with the soft one, and `growth`, `||W|| / ||W_mm||`; `apart`, 1 - cos of the two solutions; `least`, whether
        the kept words are those of least risk; `bound`, the smoothness constant L; `chosen`, the share of prefixes
        whose next word has the largest logit at the end, and `choosable`, the largest share that any W reaches; the
        recorded risk.
    """
    if "pairs_initial" in record:
        delta, step_size = record.attrs.get("data.delta", 0.0), record.attrs["optimizer.step_size"]
        return arrival.measure(record, delta, step_size, solver)
    texts = choices_of({str(name): record[name].values for name in record.data_vars})
    finite = np.asarray(np.isfinite(record["pairs"].values).all(axis=(1, 2)))
    final = np.where(finite[:, None, None], record["pairs"].values, 0.0)
    solved = _solved(texts, final, solver)
    kept = finite & solved.clear & solved.certified

    def only(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)

    given = (record[name].values for name in ("pairs_snapshots", "pairs"))
    found = batch.over_seeds(_along, *map(only, (*given, solved.W, solved.W_soft, solved.compact, texts)))
    along = ("seed", "snapshot")
    dims = {"off": along, "off_soft": along, "growth": along}
    names = ("off", "off_soft", "growth", "apart", "bound", "chosen", "choosable")
    return xarray.Dataset(
        {name: (dims.get(name, ("seed",)), one) for name, one in zip(names, found, strict=True)}
        | {"feasible": (("seed",), solved.feasible[kept]), "least": (("seed",), solved.least[kept])}
        | {"loss": (("seed", "step"), record["loss"].values[kept])},
        {"seed": only(record["seed"].values), "snapshot": record["snapshot"].values, "step": record["step"].values},
        exclusions.count(kept, diverged=~finite, ambiguous=~solved.clear),
    )


class _Solved(NamedTuple):
    """For every text: its kind, the solutions in compact coordinates, and whether all this is certain."""

    feasible: np.ndarray
    W: np.ndarray
    W_soft: np.ndarray
    compact: language.Choices
    least: np.ndarray
    clear: np.ndarray
    certified: np.ndarray


def _solved(texts: language.Choices, final: np.ndarray, solver: svm.Solver | None) -> _Solved:
    compact = language.compact(texts._replace(scores=None))
    hard, soft = (
        svm.solve_batch(batch.over_seeds(pose, compact), svm.frobenius, solver=solver)
        for pose in (language.constraints, language.soft)
    )
    best, clear = batch.over_seeds(_of_least_risk, texts)
    first = svm.solve_batch(batch.over_seeds(language.set_constraints, compact, best), svm.frobenius, solver=solver)
    of_kept, least = batch.over_seeds(_kept, final, first.W, texts, compact, best)
    tied = svm.solve_batch(of_kept, svm.frobenius, solver=solver)
    feasible, infeasible = (np.asarray(hard.status) == status for status in (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    certified = np.logical_and.reduce([np.asarray(one.status) == svm.Status.OPTIMAL for one in (soft, first, tied)])
    W = np.where(feasible[:, None, None], hard.W, tied.W)
    return _Solved(feasible, W, np.asarray(soft.W), compact, least, clear, certified & (feasible | infeasible))


def _of_least_risk(text: language.Choices) -> tuple[Bool[Array, "V V"], Bool[Array, ""]]:
    return ties.selected(ties.best_attention(text), text)


def _kept(
    final: Float[Array, "V V"],
    W_best: Float[Array, "V V"],
    text: language.Choices,
    compact: language.Choices,
    best: Bool[Array, "V V"],
) -> tuple[svm.Constraints, Bool[Array, ""]]:
    """Return the problem of the kept words, and whether they are those of least risk."""
    weights = language.weights(final, compact)
    length = metrics.norm(weights.W) / metrics.norm(W_best)
    kept = ties.kept(language.table(weights, compact), length)
    asked = jax.ops.segment_sum(text.weight, text.last, num_segments=len(final)) > 0
    return language.set_constraints(compact, kept), jnp.all((kept == best) | ~asked[:, None])


def _along(
    snapshots: Float[Array, "snapshot V V"],
    final: Float[Array, "V V"],
    W_mm: Float[Array, "V V"],
    W_soft: Float[Array, "V V"],
    compact: language.Choices,
    text: language.Choices,
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed, in its order."""
    W = jax.vmap(lambda pairs: language.weights(pairs, compact).W)(snapshots)
    off, off_soft = (1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, one) for one in (W_mm, W_soft))
    growth = jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)
    logits = language.logits(language.weights(final, text), text)
    chosen = jnp.mean(jnp.argmax(logits, axis=1) == text.next, dtype=final.dtype)
    # For every asking word, the next word that follows it most often.
    pairs = language.followers(compact)
    choosable = jnp.sum(jnp.max(pairs, axis=1)) / jnp.sum(pairs)
    # The logistic loss of a nonnegative score has a slope of at most 1/2.
    bound = language.score_bound(text, slope=0.5)
    return off, off_soft, growth, 1 - metrics.correlation(W_mm, W_soft), bound, chosen, choosable
