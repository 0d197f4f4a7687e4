"""Plain descent on texts: its direction and growth, compared with the max-margin solutions, and estimates of these."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxattn import language, metrics, svm
from jaxattn.experiments.language import arrival, text_solutions
from jaxattn.experiments.language.lm_theorems import ties
from jaxattn.experiments.language.subsets import by_kind
from jaxattn.parallel import batch
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.estimates import Estimator, estimated, exact, mean, share
from jaxattn.study.measuring import exclusions


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the max-margin solutions of its texts; runs from drawn weights as in `arrival.measure`.

    A text is feasible if some W separates all its next words: then its solution is the hard-margin one. For other texts
    it is that of the words that continue to receive attention, tied if there are several (see `ties`). All texts have a
    soft-margin solution, with C = 10. The scores are within [0, 1], and the loss is logistic.

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
    texts, finite = text_solutions.read(record)
    final = np.where(finite[:, None, None], record["pairs"].values, 0.0)
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
    kept = finite & clear & text_solutions.is_solved(soft, first, tied) & (feasible | infeasible)
    W = np.where(feasible[:, None, None], hard.W, tied.W)
    given = record["pairs_snapshots"].values, record["pairs"].values, W, soft.W, compact, texts
    found = batch.over_seeds(_along, *exclusions.only(kept, given))
    found |= {"feasible": feasible[kept], "least": least[kept]}
    return xarray.Dataset(
        {name: (("seed", "snapshot")[: np.ndim(array)], array) for name, array in found.items()}
        | {"loss": (("seed", "step"), record["loss"].values[kept])},
        {name: record[name].values for name in ("snapshot", "step")} | {"seed": record["seed"].values[kept]},
        exclusions.count(kept, diverged=~finite, ambiguous=~clear),
    )


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
) -> dict[str, Array]:
    """Return what `measure` does for one seed."""
    W = jax.vmap(lambda pairs: language.weights(pairs, compact).W)(snapshots)
    off, off_soft = (1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, one) for one in (W_mm, W_soft))
    logits = language.logits(language.weights(final, text), text)
    chosen = jnp.mean(jnp.argmax(logits, axis=1) == text.next, dtype=final.dtype)
    # For every asking word, the next word that follows it most often.
    pairs = language.followers(compact)
    choosable = jnp.sum(jnp.max(pairs, axis=1)) / jnp.sum(pairs)
    return {
        "off": off,
        "off_soft": off_soft,
        "growth": jax.vmap(metrics.norm)(W) / metrics.norm(W_mm),
        "apart": 1 - metrics.correlation(W_mm, W_soft),
        # The logistic loss of a nonnegative score has a slope of at most 1/2.
        "bound": language.score_bound(text, slope=0.5),
        "chosen": chosen,
        "choosable": choosable,
    }


# 1 - cos cannot be distinguished from 0 below the first; solutions within the second are the same.
_LEAST, _SAME = 1e-14, 1e-6


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate growth and direction along the steps from W = 0, or where descent from other starts has ended.

    Returns:
        From W = 0, over the snapshots: `time`, step size times steps; `within`, the step size in units of 1 / L;
        `rises`, the number of increases of the recorded risk among `compared` pairs of recorded steps; `{kind}_texts`,
        the number of texts. For a kind with texts: `slope`, that of the norm of W over that of W_mm in the logarithm of
        the steps; the errors `off` and `off_soft`, their exponents in ||W||, and the other estimates, all with the kind
        as a prefix; `unchosen`, the number of texts in which a selectable next word is not selected; and `astray`, the
        number that keep other words than those of least risk.

        From other starts: the numbers of texts that have `arrived`, have `left` prefixes unserved, are `moving`,
        `unexplained` or `opposed`, as defined in `arrival.outcomes`; the means of `off` over the snapshots and of
        `off_kept`; and the largest `within`.
    """
    return (_ends if "weights.radius" in run.attrs else _courses)(run, key)


def _courses(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    step_size, changes = run.attrs["optimizer.step_size"], np.diff(run["loss"].values, axis=1)
    courses = estimated(
        run,
        key,
        time=exact(step_size * run["snapshot"].astype(float)),
        within=exact(step_size * run["bound"].max()),
        rises=exact(int((changes > 1e-12).sum())),
        compared=exact(changes.size),
    )
    return courses.assign(by_kind(run, key, _of_kind).data_vars)


def _of_kind(texts: xarray.Dataset) -> dict[str, Estimator]:
    steps, growth = texts["snapshot"].values, texts["growth"].values
    decade = steps * 10 >= steps[-1]
    all_chosen = texts["chosen"] > texts["choosable"] - 1e-9
    # Of each seed's own line through the last decade.
    estimates = {"slope": mean(_slope(np.log(steps[decade]), growth[:, decade]))}
    for name in ("off", "off_soft"):
        off = texts[name].clip(min=_LEAST)
        exponent = _slope(np.log(growth[:, decade]), np.log(off.values[:, decade]))
        estimates |= {f"{name}_exponent": mean(exponent), name: mean(off)}
    return estimates | {
        "apart": mean(texts["apart"]),
        "differ": share(texts["apart"] > _SAME),
        "least": share(texts["least"]),
        "chosen": mean(texts["chosen"]),
        "all_chosen": share(all_chosen),
        "unchosen": exact((~all_chosen).sum()),
        "astray": exact((~texts["least"]).sum()),
    }


def _slope(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "seeds steps"]) -> xarray.DataArray:
    """Return the slope of the least squares line of every seed; 0 where x does not change."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    slope = np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)
    return xarray.DataArray(slope, dims="seed")


def _ends(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    estimates = {
        "off": (("snapshot",), bootstrap(run["off"].values, key)),
        "off_kept": ((), bootstrap(run["off_kept"].values, jax.random.fold_in(key, 1))),
    }
    numbers = {name: int(hits.sum()) for name, hits in arrival.outcomes(run)._asdict().items()} | {
        "texts": run.sizes["seed"],
        "within": float(run["within"].max()),
    }
    return xarray.Dataset(variables(estimates) | numbers, {"snapshot": run["snapshot"].values}, run.attrs)
