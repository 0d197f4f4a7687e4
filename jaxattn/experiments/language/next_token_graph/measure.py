"""From the record of texts trained with the log-loss: their distances from both parts of the predicted limit."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import language, metrics, svm
from jaxattn.experiments.language import text_solutions
from jaxattn.language import priority
from jaxattn.parallel import batch
from jaxattn.study.measuring import exclusions

# A finite part counts as found if the slope of its risk is at most this.
_STATIONARY = 1e-9
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-15


class _Parts(NamedTuple):
    """The prediction from the graphs of a text: components, rows and solution of the Graph-SVM, and the finite part.

    The logits minimize the risk within components; the residual is the largest entry of the slope at these.
    """

    groups: Int[Array, "V V"]
    rows: svm.Constraints
    hard: svm.Solution
    finite: svm.Solution
    logits: Float[Array, "V V"]
    residual: Float[Array, ""]


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare W with the Graph-SVM solution and the finite part of each text's graphs.

    The record is of a `StartedTraining` with cross entropy from normal weights.

    Returns:
        For every kept seed at the snapshots: `whole`, 1 - cos of W with the Graph-SVM solution; `both`, with `W_fin + C
        W_svm`, C fitted; `growing`, 1 - cos of the part of W outside the cyclic subspace, and `margin`, its margin
        ratio; `finite`, the Frobenius distance of the part inside from W_fin. For the change of the part outside over
        the last decade of steps: `increment`, 1 - cos with W_svm, and `rate`, its length along W_svm over `||W_svm||
        log 10`. At the end: `predicted` and `reached`, the softmax over the words of one component, (seed, asking,
        word); `cyclic`, whether the component has other words; `error`, the largest difference; `size`, the norm of
        W_fin. `text` numbers the texts. Relative to the first start of the same text, `growth_apart` is 1 - cos of
        these changes, `finite_apart` the distance of the finite parts, and `finite_apart_0` the same at the start.
        `midpoint` is the mean of the risks at start and end minus the risk halfway; `within` the step size times a
        smoothness constant; `sets_apart` the relative distance of both parts from those of `language.set_constraints`,
        if all words are candidates. Texts whose graphs have no edge between components have no direction; they count as
        ambiguous.

    Raises:
        ValueError: fewer than a decade of snapshots, or no kept text.
    """
    steps = record["snapshot"].values
    earlier = _a_tenth(steps)
    texts, finite = text_solutions.read(record)
    texts = language.compact(texts)
    parts = _parts(texts, solver)
    solved = text_solutions.is_solved(parts.hard, parts.finite) & (np.asarray(parts.residual) <= _STATIONARY)
    directed = np.asarray(_between(parts.rows).present).any(axis=(1, 2))
    kept = finite & solved & directed
    if not kept.any():
        raise ValueError(f"next-token-graph: expected a text with both parts of its limit, found none of {len(kept)}")
    courses = record["pairs_initial"].values, record["pairs_snapshots"].values
    courses, texts, parts = exclusions.only(kept, (courses, texts, parts))
    inside = _projections(texts, parts.groups)
    found = batch.over_seeds(_of_path, *courses, texts, parts, inside, shared=(jnp.asarray(earlier),))
    seeds = record["seed"].values[kept]
    found["text"] = seeds // record.attrs["weights.starts"]
    found |= _apart(found["text"], *(found.pop(name) for name in ("gained", "inside", "inside_0")))
    found["sets_apart"] = _from_sets(texts, parts, solver)
    found["within"] = record.attrs["optimizer.step_size"] * found.pop("bound")
    # By number of axes.
    dims = ("seed",), ("seed", "snapshot"), ("seed", "asking", "word")
    return xarray.Dataset(
        {name: (dims[np.ndim(array) - 1], array) for name, array in found.items()},
        {"seed": seeds, "snapshot": steps},
        exclusions.count(kept, diverged=~finite, ambiguous=solved & ~directed),
    )


def _between(rows: svm.Constraints) -> svm.Constraints:
    """Return only the rows between components."""
    assert rows.equal is not None
    assert rows.present is not None
    return rows._replace(equal=None, present=rows.present & ~rows.equal)


def _a_tenth(steps: Int[np.ndarray, " snapshot"]) -> int:
    """Return the index of the snapshot at a tenth of the last step."""
    if steps[0] * 10 > steps[-1]:
        raise ValueError(f"snapshot: expected a decade of steps or more, found {steps[0]}..{steps[-1]}")
    return int(np.argmin(np.abs(np.log(steps * 10 / steps[-1]))))


def _parts(texts: language.Choices, solver: svm.Solver | None) -> _Parts:
    groups = jnp.asarray(priority.components(batch.over_seeds(priority.edges, texts)))
    rows = batch.over_seeds(priority.constraints, texts, groups)
    logits, residual = batch.over_seeds(_least, texts, groups)
    equations = batch.over_seeds(priority.finite_constraints, texts, groups, logits)
    hard, finite = (svm.solve_batch(one, svm.frobenius, solver=solver) for one in (rows, equations))
    return _Parts(groups, rows, hard, finite, logits, residual)


def _least(text: language.Choices, groups: Int[Array, "V V"]) -> tuple[Float[Array, "V V"], Float[Array, ""]]:
    logits = priority.finite_logits(text, groups)
    slope = language.pair_slopes(priority.cyclic(text, groups))(jnp.asarray(0), logits).coefficients
    return logits, jnp.max(jnp.abs(slope))


def _projections(texts: language.Choices, groups: Int[np.ndarray, "seed V V"]) -> Float[np.ndarray, "seed D D"]:
    """Return the orthogonal projections of a flat W on the cyclic subspaces, the spans of `(e_i - e_j) e_k^T`."""
    E = np.asarray(texts.E)
    first = np.take_along_axis(E[:, None], groups[..., None], axis=2)
    spanning = np.einsum("sktd,ske->sktde", first - E[:, None], E)
    flat = spanning.reshape(len(E), -1, E.shape[-1] ** 2)
    return np.linalg.pinv(flat, rcond=1e-10) @ flat


def _of_path(
    start: Float[Array, "V V"],
    snapshots: Float[Array, "snapshot V V"],
    text: language.Choices,
    parts: _Parts,
    projection: Float[Array, "D D"],
    earlier: Int[Array, ""],
) -> dict[str, Array]:
    """Return what `measure` does for one seed, without the comparisons with other seeds and solutions."""

    def matrix(pairs: Array) -> Array:
        return language.weights(pairs, text).W

    def within(W: Array) -> Array:
        return (projection @ W.ravel()).reshape(W.shape)

    W_svm, W_fin, rows = parts.hard.W, parts.finite.W, _between(parts.rows)
    W_0, W = matrix(start), jax.vmap(matrix)(snapshots)
    inside = jax.vmap(within)(W)
    outside = W - inside
    gained = outside[-1] - outside[earlier]
    length = metrics.norm(W_svm)

    def off(one: Array, other: Array) -> Array:
        return jnp.maximum(1 - metrics.correlation(one, other), _SAME)

    table = language.table(W[-1], text)
    same = parts.groups[:, :, None] == parts.groups[:, None, :]
    predicted, reached = (_softmax_within(logits, same) for logits in (parts.logits, table))
    halfway = (language.risk(W_0, text) + language.risk(W[-1], text)) / 2
    return {
        "whole": jax.vmap(lambda one: off(one, W_svm))(W),
        "both": jax.vmap(lambda one: off(one, svm.with_finite_part(one, W_fin, W_svm)))(W),
        "growing": jax.vmap(lambda one: off(one, W_svm))(outside),
        "margin": jax.vmap(lambda one: metrics.margin_ratio(one, rows, svm.frobenius, parts.hard))(outside),
        "finite": jax.vmap(lambda one: metrics.norm(one - W_fin))(inside),
        "increment": off(gained, W_svm),
        "rate": jnp.sum(gained * W_svm) / (length**2 * jnp.log(10.0)),
        "predicted": predicted,
        "reached": reached,
        "cyclic": jnp.sum(same, axis=2) > 1,
        "error": jnp.max(jnp.abs(predicted - reached)),
        "size": metrics.norm(W_fin),
        "midpoint": halfway - language.risk((W_0 + W[-1]) / 2, text),
        "bound": language.cross_entropy_bound(text),
        "gained": gained,
        "inside": inside[-1],
        "inside_0": within(W_0),
    }


def _softmax_within(logits: Float[Array, "V V"], same: Array) -> Float[Array, "V V"]:
    """Return the softmax over the component of each word."""
    others = jnp.where(same, jnp.broadcast_to(logits[:, None, :], same.shape), -jnp.inf)
    return jnp.exp(logits - jax.nn.logsumexp(others, axis=2))


def _apart(
    text: Int[np.ndarray, " seed"], gained: np.ndarray, inside: np.ndarray, inside_0: np.ndarray
) -> dict[str, np.ndarray]:
    """Compare the limits of every start with those of the first start of the same text."""
    _, first, place = np.unique(text, return_index=True, return_inverse=True)
    of_first = first[place]
    flat = gained.reshape(len(gained), -1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)

    def distance(one: np.ndarray) -> np.ndarray:
        return np.linalg.norm(one - one[of_first], axis=(1, 2))

    return {
        "growth_apart": np.maximum(1 - np.sum(unit * unit[of_first], axis=1), 0.0),
        "finite_apart": distance(inside),
        "finite_apart_0": distance(inside_0),
    }


def _from_sets(texts: language.Choices, parts: _Parts, solver: svm.Solver | None) -> np.ndarray:
    """Return the relative distance of both parts from those of `language.set_constraints`; 0 with other candidates."""
    if texts.counts is not None:
        return np.zeros(len(texts.last))
    sets = (batch.over_seeds(pose, texts) for pose in (text_solutions.of_sets, language.finite_constraints))
    far = []
    for rows, own in zip(sets, (parts.hard, parts.finite), strict=True):
        other = svm.solve_batch(rows, svm.frobenius, solver=solver).W
        far.append(np.linalg.norm(own.W - other, axis=(1, 2)) / np.maximum(1.0, np.linalg.norm(other, axis=(1, 2))))
    return np.maximum(*far)
