"""From a record of texts: the largest second derivatives found for norms of at most R, and their bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, UInt32

from jaxattn import language, svm
from jaxattn.experiments.smoothness import bends
from jaxattn.parallel import batch

# The bounds on all norms, the number of weights drawn for each, and the smallest norm in units of the bound.
RADII = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
_DRAWS, _SHORTEST = 64, 1 / 64


def _logistic_bound(choices: language.Choices) -> Float[Array, ""]:
    return language.score_bound(bends.tied(choices))


def _of_lane(
    choices: language.Choices,
    words: UInt32[Array, " words"],
    W: Float[Array, "draws d d"],
    function: Callable[..., Array],
    bound: Callable[..., Array],
) -> tuple[Array, ...]:
    """Return the largest curvature found at W and at 0, its residual, the largest ratio between W, and the bound."""
    places = jnp.concatenate([W, jnp.zeros_like(W[:1])])
    values, residuals = bends.largest_at(partial(function, choices=choices), places, words)
    slopes = jax.vmap(jax.grad(function), in_axes=(0, None))(W, choices)
    # Free W are compared with free ones, ties with ties.
    rise, run = (jnp.linalg.norm(X - jnp.roll(X, 2, axis=0), axis=(1, 2)) for X in (slopes, W))
    # The first NaN, if there is one.
    widest = jnp.argmax(values)
    return values[widest], residuals[widest], jnp.max(rise / run), bound(choices)


# One object each, so that they compile once.
_DRAWN = partial(bends.drawn, count=_DRAWS)
RISKS = {
    "cross entropy": partial(_of_lane, function=language.risk, bound=language.cross_entropy_bound),
    "logistic": partial(_of_lane, function=bends.logistic, bound=_logistic_bound),
    "squared": partial(_of_lane, function=language.squared_risk, bound=language.squared_bound),
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the curvature of three risks of each text, for norms of at most R.

    Args:
        record: of `texts.Texts`.
        solver: not used; nothing is separated.

    Returns:
        For every kept seed, radius and risk: `bend`, the size of the largest eigenvalue of the second derivative found
        at drawn W and at 0, a lower bound of the Lipschitz constant; its `residual`; `ratio`, the largest of `||grad
        L(W) - grad L(W')|| / ||W - W'||` between drawn W; `bound`, of `language.smoothness`.
    """
    del solver
    choices = bends.texts(record)
    # From here on the spectral norm of the embeddings is the scale.
    unit = choices._replace(E=choices.E / np.linalg.norm(choices.E, ord=2, axis=(1, 2))[:, None, None])
    lanes, words, R = bends.scaled(unit, record["draw_key"].values, RADII)
    W = batch.over_seeds(_DRAWN, lanes, words, _SHORTEST * R, R)
    of_risk = [batch.over_seeds(look, lanes, words, W) for look in RISKS.values()]
    arrays = [np.stack(each, axis=1).reshape(-1, len(RADII), len(RISKS)) for each in zip(*of_risk, strict=True)]
    kept = np.asarray(np.isfinite(arrays).all(axis=(0, 2, 3)))
    dims = ("seed", "radius", "risk")
    config = json.loads(record.attrs["config"])["data"]
    attempted = len(kept)
    return xarray.Dataset(
        {name: (dims, each[kept]) for name, each in zip(("bend", "residual", "ratio", "bound"), arrays, strict=True)},
        {"seed": record["seed"].values[kept], "risk": np.array(list(RISKS), dtype=object), "radius": RADII},
        {
            "attempted": attempted,
            "kept": int(kept.sum()),
            "diverged": attempted - int(kept.sum()),
            "run": "texts",
            "n": int(config["n"]),
            "draws": _DRAWS,
        },
    )
