"""Margin ratios of trained weights in several norms, along a batch of runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxattn import attention, descent, metrics, models, norms, svm, tokens
from jaxattn.attention import Weights
from jaxattn.bias import checking, posing, semidefinite
from jaxattn.bias import exponents as families
from jaxattn.bias import verdict as verdicts
from jaxattn.bias.exponents import Exponent
from jaxattn.bias.verdict import ROUNDING, Verdict
from jaxattn.descent.array_fields import has_holes
from jaxattn.descent.stalling import NEVER
from jaxattn.lengths import euclidean
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.statistics import Estimate, derive_key
from jaxattn.svm import constraints as cons
from jaxattn.svm.packing import picked

__all__ = ["NORMS", "Ranking", "rank"]

# The norms ranked by default.
NORMS = ("frobenius", "nuclear", "spectral", "max", "l1")
# No usual memory of gradients decays more slowly than this per step.
_SLOW = 1e-4


@dataclass(frozen=True)
class Ranking:
    """The margin ratios of a batch of runs in several norms, with the verdict.

    Attributes:
        norms: the names of the norms, as given.
        steps: the steps of the snapshots, (snapshots,).
        seeds: the lanes of the batch that are kept, (seeds,); `counts` classifies the others.
        margin_ratio: `min_k <A_k, W> / ||W||` divided by its optimum, (seeds, norms, snapshots); 1 if W obeys the norm.
        cosine: the cosine with one max-margin solution, (seeds, norms, snapshots); meaningful only if that is unique.
        unique: a `svm.Unique` for each solution, (seeds, norms).
        probability: the smallest over inputs of the largest attention probability, (seeds, snapshots).
        size: the Frobenius norm of W, (seeds, snapshots).
        fall: by how much the smallest margin grows per step between the last two snapshots, (seeds,); 0 for one
            snapshot. With a loss of exponential tail the gradient shrinks by `exp(-fall)` a step.
        stalled: whether each seed stalled before the last snapshot, (seeds,); such seeds say nothing about limits.
        ratio: the mean margin ratio over seeds with its 95 % interval, infinite for one seed, (norms, snapshots).
        trend: its change per decade of steps over the last decade, (norms,); None if the snapshots do not suffice.
        decades: the number of decades of steps used for the trend.
        limit: the median over seeds of the ratio's limit as W grows (`bias.limits`), (norms,); None if the snapshots do
            not suffice.
        obeys: 1 for a seed whose limit is close to 1, 0 for one whose limit is not, NaN for one that does not tell,
            (seeds, norms).
        confusion: for each norm (row) the mean margin ratio of its certified solutions in each norm (column). A run
            whose ratio in a norm is no better may as well obey the other.
        exponents: those that fit best in the families l_p and schatten_p of the best norm; none if no norm is named.
        counts: the numbers of lanes attempted, kept, diverged, infeasible and unsolved.
        verdict: the norms that the runs obey.
    """

    norms: tuple[str, ...]
    steps: Int[np.ndarray, " snapshots"]
    seeds: Int[np.ndarray, " seeds"]
    margin_ratio: Float[np.ndarray, "seeds norms snapshots"]
    cosine: Float[np.ndarray, "seeds norms snapshots"]
    unique: Int[np.ndarray, "seeds norms"]
    probability: Float[np.ndarray, "seeds snapshots"]
    size: Float[np.ndarray, "seeds snapshots"]
    fall: Float[np.ndarray, " seeds"]
    stalled: Bool[np.ndarray, " seeds"]
    ratio: Estimate
    trend: Estimate | None
    decades: float
    limit: Estimate | None
    obeys: Float[np.ndarray, "seeds norms"]
    confusion: Float[np.ndarray, "norms norms"]
    exponents: tuple[Exponent, ...]
    counts: dict[str, int]
    verdict: Verdict

    @property
    def saturated(self) -> Bool[np.ndarray, " seeds"]:
        """Whether each input of a seed gives a token a probability of `tokens.SATURATED` or more at the end."""
        return self.probability[:, -1] >= tokens.SATURATED

    def table(self) -> str:
        """Return a table for a terminal: the numbers at the last snapshot, one line per norm, and the verdict."""
        width = max(map(len, (*self.norms, "norm")))
        lines = [f"{'norm':{width}}  {'margin ratio':23}  {'limit':23}  obey        cosine  unique"]
        unique = self.unique == svm.Unique.YES
        for k, name in enumerate(self.norms):
            ratio = _in_words(*(getattr(self.ratio, part)[k, -1] for part in ("mean", "low", "high")))
            limit = "?" if self.limit is None else _in_words(*(part[k] for part in self.limit[:3]))
            obey = f"{(self.obeys[:, k] == 1).sum()} of {len(self.seeds)}"
            is_unique = unique[:, k]
            # Average the cosine over unique solutions only.
            cosine = f"{self.cosine[is_unique, k, -1].mean():6.4f}" if is_unique.any() else "     -"
            of_seeds = f"{is_unique.sum()} of {is_unique.size}"
            lines.append(f"{name:{width}}  {ratio:23}  {limit:23}  {obey:10}  {cosine}  {of_seeds}")
        reasons = [name for name in self.counts if name not in ("attempted", "kept")]
        lost = ", ".join(f"{self.counts[name]} {name}" for name in reasons)
        lines.append(
            f"step {self.steps[-1]}: {self.counts['kept']} of {self.counts['attempted']} seeds kept ({lost}), largest "
            f"probability {np.median(self.probability[:, -1]):.4f} in the worst input of the median seed"
        )
        if not self.verdict.norms and (fall := float(np.median(self.fall))) > _SLOW:
            lines.append(
                f"the gradient shrinks by a factor of {np.exp(-fall):.4g} a step; momentum, or the root of a second "
                "moment, that decays more slowly would outlive it"
            )
        lines += [f"{one.family}: p = {one.p:.4g}, from {one.low:.4g} to {one.high:.4g}" for one in self.exponents]
        return "\n".join([*lines, f"verdict: {self.verdict}"])

    def plot(self) -> Any:
        """Return a Matplotlib figure of the margin ratios against the steps, drawn by `plots.alignment`."""
        # Imported by name: what is measured does not depend on how it is drawn (`study.fingerprints`).
        return importlib.import_module("jaxattn.plots").alignment(self)


def _in_words(mean: float, low: float, high: float) -> str:
    return f"{mean:.4f} " + (f"[{low:.4f}, {high:.4f}]" if np.isfinite(low) else "no interval")


def rank(
    run: descent.Run,
    problems: Problem,
    norms: Sequence[str | norms.Norm] = NORMS,
    key: PRNGKeyArray | None = None,
    model: Any = None,
) -> Ranking:
    """Compare the margins of a batch of runs with the certified max-margin optima of several norms.

    The max-margin problem of each lane is that of the tokens selected at its last snapshot. Excluded and counted are
    lanes whose weights diverged, whose tokens cannot be separated, or for which the optimum in some norm is not
    certified. If a norm is named, the neighbours in its families are solved too, to tell it from them.

    Args:
        run: the result of `descent.train_batch`, with snapshots, the last of them near the end. Weights in a lower
            precision than that of the problems are converted.
        problems: the problems it was trained on.
        norms: names or Norms; besides those of `norms.named` also "trace", for matrices that are positive semidefinite,
            as tied keys and queries make them (`models.tied`).
        key: the random key of the bootstrap over seeds. Default: `jax.random.key(0)`.
        model: the model that was trained. Default: the one in the run's rule, or `models.plain` for a run without a
            rule. For several heads the joint max-margin problem is solved (`models.Heads`).

    Raises:
        ValueError: no norm, a norm given twice, with a rank bound, or of an unknown name; a run that is no batch, or
            whose fields do not match the problems or each other; no snapshots, or zero weights at one; no seed is kept;
            a model whose logits are not linear in one matrix (`posing.posed`).

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        >>> given = {"optimizer": rule, "steps": 5000, "snapshots": (500, 1500, 5000)}
        >>> ranking = bias.rank(descent.train_batch(jnp.zeros((8, 5, 5)), problems, **given), problems, ["frobenius"])
        >>> ranking.verdict.norms
        ('frobenius',)
    """
    asked = named(norms, trace=semidefinite.trace)
    return of_posed(asked, checking.random_key(key), posed_batch(run, problems, model))


def of_posed(asked: tuple[tuple[str, ...], list[norms.Norm]], key: PRNGKeyArray, posed: Posed) -> Ranking:
    """Return the ranking of runs whose max-margin problems are posed, in norms with these names, as `rank` does."""
    names, values = asked
    run, problems, steps, finite, constraints = posed
    checking.check_directions(picked(run.snapshots, np.flatnonzero(finite)), steps)
    solutions = [
        semidefinite.solve_batch(constraints) if norm == semidefinite.trace else svm.solve_batch(constraints, norm)
        for norm in values
    ]
    status = np.stack([solution.status for solution in solutions], axis=1)
    optimal = (status == svm.Status.OPTIMAL).all(axis=1)
    infeasible = finite & (status == svm.Status.INFEASIBLE).any(axis=1)
    kept = np.flatnonzero(finite & optimal)
    if kept.size == 0:
        open_in = np.sum(status[finite & ~infeasible] != svm.Status.OPTIMAL, axis=0)
        without = ", ".join(f"{number} {name}" for name, number in zip(names, open_in, strict=True) if number)
        raise ValueError(
            f"run: expected a seed that can be compared, found {finite.size}, of which {int((~finite).sum())} diverged "
            f"and {int(infeasible.sum())} select tokens that no matrix separates; without a certified optimum: "
            f"{without or 'none'}"
        )

    snapshots, rows, tasks = (picked(tree, kept) for tree in (run.snapshots, constraints, problems))
    held = [
        batch.over_seeds(_against(norm), snapshots, rows, picked(solution, kept))
        for norm, solution in zip(values, solutions, strict=True)
    ]
    ratio, cosine = (np.stack(leaves, axis=1) for leaves in zip(*held, strict=True))
    # A larger ratio contradicts the certificate: the certified optimum is not one.
    proven = (ratio <= 1 + ROUNDING).all(axis=(1, 2))
    kept, ratio, cosine, rows = kept[proven], ratio[proven], cosine[proven], picked(constraints, kept[proven])
    counts = {
        "attempted": finite.size,
        "kept": kept.size,
        "diverged": int((~finite).sum()),
        "infeasible": int(infeasible.sum()),
        "unsolved": int((finite & ~infeasible).sum()) - kept.size,
    }
    probability = batch.over_seeds(probabilities, snapshots, tasks)[proven]
    matrices = np.asarray(attention.matrix(snapshots))[proven]
    fall = np.zeros(len(kept))
    if len(steps) > 1:
        last = batch.over_seeds(smallest_margins, matrices[:, -2:], rows)
        fall = np.diff(last, axis=1)[:, 0] / np.diff(steps)[-1]
    size = euclidean(matrices)
    stalled = stalled_before(run, int(steps[-1]))[kept]
    exact = np.stack([np.asarray(picked(solution, kept).W) for solution in solutions], axis=1)
    confusion = confused(exact, values).mean(axis=0)

    def located(position: int) -> list[Exponent]:
        best, found = values[position], []
        for place, family in enumerate(families.families_of(best), start=1):
            members = families.around(family, best)
            found.append(families.located(family, members, matrices, steps, rows, best, derive_key(key, place)))
        return [one for one in found if one is not None]

    weighed = verdicts.weighed(names, ratio, probability, size, stalled, steps, key, confusion, located)
    return Ranking(
        norms=names,
        steps=steps,
        seeds=kept,
        margin_ratio=ratio,
        cosine=cosine,
        unique=np.stack([solution.unique[kept] for solution in solutions], axis=1),
        probability=probability,
        size=size,
        fall=fall,
        stalled=stalled,
        confusion=confusion,
        counts=counts,
        **weighed._asdict(),
    )


class Posed(NamedTuple):
    """A batch of runs of one matrix W, with the problems in which their logits are `X_i W z_i`.

    The constraints are those of the tokens selected at the end, meaningless for seeds that diverged.
    """

    run: descent.Run
    problems: Problem
    steps: Int[np.ndarray, " snapshots"]
    finite: Bool[np.ndarray, " seeds"]
    constraints: svm.Constraints


def posed_batch(run: descent.Run, problems: Problem, model: Any) -> Posed:
    """Return the max-margin problems of a batch of runs; arguments and errors are those of `rank`."""
    run, steps = checking.checked(run, problems)
    if model is None:
        model = models.plain if run.rule is None else run.rule.model
    if has_holes(model):
        raise ValueError("model: expected one of known numbers, found one with traced values; pass `model`")
    leaves = jax.tree.leaves((run.weights, run.snapshots))
    finite = np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves], axis=0)
    if not finite.any():
        raise ValueError(f"run: expected a seed that can be compared, found {finite.size}, all of which diverged")
    run, problems = posing.posed(run, problems, models.of(model), finite)
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[:, -1], run.snapshots)
    return Posed(run, problems, steps, finite, batch.over_seeds(_posed, last, problems, finite))


def confused(
    solutions: Float[np.ndarray, "seeds norms d e"], values: Sequence[norms.Norm]
) -> Float[np.ndarray, "seeds norms norms"]:
    """Return for each norm (row) the margin ratio of its solution in each norm (column); solutions have margin 1."""
    sizes = batch.over_seeds(families.sizes(tuple(values)), solutions)
    return np.einsum("sbb->sb", sizes)[:, None, :] / sizes


def named(given: Sequence[str | norms.Norm], **own: norms.Norm) -> tuple[tuple[str, ...], list[norms.Norm]]:
    """Return the names of norms, as given, and the norms; `own` has those that only the caller knows.

    Raises:
        ValueError: as `rank` for its norms.
    """
    if isinstance(given, str | norms.Norm) or not isinstance(given, Iterable):
        raise ValueError(f"norms: expected a list of norms, found {given!r}")  # noqa: TRY004
    values = [own[norm] if isinstance(norm, str) and norm in own else norms.named(norm) for norm in given]
    if not values:
        raise ValueError("norms: expected at least one, found an empty list")
    if bounded := [norm.name for norm in values if isinstance(norm, norms.OfRank)]:
        raise ValueError(
            f"norms: expected norms without a bound on the rank, whose optima can be certified, found {bounded}"
        )
    if len(set(values)) < len(values):
        raise ValueError(f"norms: expected different ones, found one twice in {[norm.name for norm in values]}")
    return tuple(norm if isinstance(norm, str) else norm.name for norm in given), values


def _posed(last: Weights, problem: Problem, finite: Bool[Array, ""]) -> svm.Constraints:
    """Return the constraints of the tokens that weights select; of token 0 for diverged lanes, which are excluded."""
    return svm.token_constraints(problem, jnp.where(finite, tokens.selected(last, problem), 0))


@lru_cache(maxsize=64)
def _against(norm: norms.Norm) -> Callable[..., Any]:
    # One function object per norm, so that it compiles once.
    return partial(_held, norm=norm)


def _held(
    snapshots: Weights, constraints: svm.Constraints, solution: svm.Solution, norm: norms.Norm
) -> tuple[Float[Array, " snapshots"], Float[Array, " snapshots"]]:
    W = attention.matrix(snapshots)
    ratio = jax.vmap(metrics.margin_ratio, in_axes=(0, None, None, None))(W, constraints, norm, solution)
    return ratio, jax.vmap(metrics.correlation, in_axes=(0, None))(W, solution.W)


def stalled_before(run: descent.Run, step: int) -> Bool[np.ndarray, " seeds"]:
    """Return which seeds of a batch of runs stalled before a step."""
    since = np.asarray(run.stalled)
    return (since != NEVER) & (since < step)


def smallest_margins(W: Float[Array, "k d e"], constraints: svm.Constraints) -> Float[Array, " k"]:
    """Return the smallest margin of each of several matrices, over the rows that are present."""
    present = constraints.present
    margins = jax.vmap(cons.margins, in_axes=(None, 0))(constraints, W)
    return jnp.min(margins if present is None else jnp.where(present, margins, jnp.inf), axis=(1, 2))


def probabilities(snapshots: Weights, problem: Problem) -> Float[Array, " snapshots"]:
    """Return the smallest over inputs of the largest attention probability at each snapshot."""
    largest = jax.vmap(lambda weights: jnp.max(attention.probabilities(weights, problem), axis=1))(snapshots)
    return jnp.min(largest, axis=1)
