"""From a record of texts: curvatures and the largest steps that descend, with softmax and with linear attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, UInt32

from jaxattn import language, svm
from jaxattn.experiments.smoothness import bends
from jaxattn.language.model import Attention
from jaxattn.parallel import batch
from jaxattn.parallel.effort import SOLVING

# The embeddings are unit vectors times these.
SCALES = 2.0 ** np.arange(-2, 4)
# Drawn W have logits of these sizes, between the asking word and itself: norms are divided by the square of the scale.
_DRAWS, _SHORTEST, _LONGEST = 48, 0.25, 256.0
# Numbers of steps, each of 1 / curvature at 0, after which the curvature is measured.
_PATH = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
# The number of steps in which the risk must not rise; the number of grid points and of bisections; and the ends of the
# grid of step sizes, from `2 / sup / 4` to `1024 * 2 / curvature at 0`, for the largest and the smallest of the
# attentions.
STEPS, _POINTS, _HALVINGS, _BELOW, BEYOND = 500, 30, 10, 4.0, 1024.0

LOSSES: dict[str, Callable[..., Array]] = {"logistic": bends.logistic, "squared": language.squared_risk}


def _summed(logits: Float[Array, "N V"], choices: language.Choices) -> Float[Array, "N V"]:
    """Return linear attention without the division by the number of candidates, (N, V)."""
    return logits if choices.counts is None else logits * choices.counts


# Linear attention can be a mean of the candidates, each times its logit, or their sum.
LINEAR: dict[str, Attention] = {"mean": language.linear, "sum": _summed}
ATTENTIONS: dict[str, Attention] = {"softmax": language.softmax, **LINEAR}


def _curvatures(
    choices: language.Choices, words: UInt32[Array, " words"], W: Float[Array, "draws d d"], risk: Callable[..., Array]
) -> tuple[Array, ...]:
    """Return lower bounds of the largest curvature at W = 0, at the drawn W and along a descent."""
    function, zero = partial(risk, choices=choices), jnp.zeros_like(W[:1])
    at_zero, _ = bends.largest_at(function, zero, words)
    path = bends.descent(function, zero[0], 1 / at_zero[0], jnp.asarray(_PATH))
    sizes, _ = bends.largest_at(function, jnp.concatenate([W, path]), words)
    return at_zero[0], jnp.max(sizes[: len(W)]), jnp.max(sizes[len(W) :])


def _steps(
    choices: language.Choices, low: Float[Array, ""], high: Float[Array, ""], risk: Callable[..., Array]
) -> bends.Largest:
    """Return the largest step of plain descent from W = 0."""
    start = jnp.zeros(2 * choices.E.shape[-1:])
    return bends.largest_step(partial(risk, choices=choices), start, low, high, STEPS, _POINTS, _HALVINGS)


def _bounds(choices: language.Choices) -> tuple[Array, Array]:
    """Return the bounds of `language.smoothness`, for softmax attention, in the order of `LOSSES`."""
    return language.score_bound(bends.tied(choices)), language.squared_bound(choices)


_RISKS = [partial(loss, attention=attention) for loss in LOSSES.values() for attention in ATTENTIONS.values()]
# One object each, so that they compile once.
_DRAWN = partial(bends.drawn, count=_DRAWS)
_CURVATURES = [partial(_curvatures, risk=risk) for risk in _RISKS]
_LARGEST = [partial(_steps, risk=risk) for risk in _RISKS]


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure curvature and the largest step that descends, for all attentions, at every scale of the embeddings.

    Returns:
        For every scale, loss and attention: the curvature `at_zero`, the largest of `drawn` W and along the `path` of
        descent, all lower bounds; the largest `step`; whether the threshold is `beyond` the search interval, or `below`
        it; whether a larger step of the grid descends `again`; whether for some step of the grid the risk `exceeds` its
        start. For every scale and loss the `bound` of the curvature with softmax. Whether the text is `forked`: some
        word is followed by two different ones.
    """
    del solver
    lanes, words, scale = bends.scaled(bends.texts(record), record["draw_key"].values, SCALES)
    seeds, scales = record.sizes["seed"], len(SCALES)
    # Loops of thousands of steps: with little compiler optimization they would take two to three times as long.
    solved = partial(batch.over_seeds, effort=SOLVING)
    W = batch.over_seeds(_DRAWN, lanes, words, _SHORTEST / scale**2, _LONGEST / scale**2)
    at_zero, drawn, path = (
        np.stack(each, axis=1).reshape(-1, len(LOSSES), len(ATTENTIONS))
        for each in zip(*(solved(of_risk, lanes, words, W) for of_risk in _CURVATURES), strict=True)
    )
    # All attentions are searched on the same interval, so that its ends mean the same for each.
    low = 2 / np.maximum(np.maximum(drawn, path), at_zero).max(axis=-1) / _BELOW
    high = 2 / at_zero.min(axis=-1) * BEYOND
    found = [
        solved(of_risk, lanes, low[:, loss], high[:, loss])
        for of_risk, loss in zip(_LARGEST, np.repeat(range(len(LOSSES)), len(ATTENTIONS)), strict=True)
    ]
    step, descends, exceeds = (np.stack(each, axis=1) for each in zip(*found, strict=True))
    fails = ~descends
    after = np.arange(_POINTS) > fails.argmax(axis=-1)[..., None]
    arrays = {
        "at_zero": at_zero,
        "drawn": drawn,
        "path": path,
        "step": step,
        "beyond": ~fails.any(axis=-1),
        "below": fails[..., 0],
        "again": fails.any(axis=-1) & (after & ~fails).any(axis=-1),
        "exceeds": exceeds.any(axis=-1),
    }
    arrays = {name: each.reshape(seeds, scales, len(LOSSES), len(ATTENTIONS)) for name, each in arrays.items()}
    bound = np.stack(batch.over_seeds(_bounds, lanes), axis=-1).reshape(seeds, scales, len(LOSSES))
    kept = np.all([np.isfinite(each).reshape(seeds, -1).all(axis=1) for each in (*arrays.values(), bound)], axis=0)
    dims = ("seed", "scale", "loss", "attention")
    following = batch.over_seeds(language.followers, jax.tree.map(lambda leaf: leaf[::scales], lanes)) > 0
    forked = np.any(np.sum(following, axis=2) > 1, axis=1)
    return xarray.Dataset(
        {name: (dims, each[kept]) for name, each in arrays.items()}
        | {"bound": (dims[:3], bound[kept]), "forked": (("seed",), forked[kept])},
        {
            "seed": record["seed"].values[kept],
            "scale": SCALES,
            "loss": np.array(list(LOSSES), dtype=object),
            "attention": np.array(list(ATTENTIONS), dtype=object),
        },
        {"attempted": seeds, "kept": int(kept.sum()), "diverged": seeds - int(kept.sum())},
    )
