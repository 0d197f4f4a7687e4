"""The direction of the gradient at many weights, and the landscape of a constructed instance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, UInt32

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.experiments.landscape.no_stationary_point import trap
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem
from jaxattn.study.measuring.optimum import optimum

# Norms of the drawn weights; bins of the cosines; draws computed at once.
_SHORTEST, _LONGEST = 1e-2, 1e2
_EDGES = np.linspace(-1, 1, 101)
_AT_ONCE = 250


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the gradient at many weights, with norms from 0.01 to 100, half of them aligned with or against `W_mm`.

    The gradient's direction is computed in the log domain, so that a saturated softmax loses nothing. The record is of
    a `Landscape`.

    Returns:
        For every kept seed: `least`, the smallest cosine of `-grad L` and `W_mm`; `negative`, the share of negative
        ones; `histogram`, the numbers per bin; `bound`, which the proof gives for equal scores, see `_bound`;
        `readout`, the smallest cosine of `-grad L` and `v u^T` with `u . z_i = Y_i`. Also the landscape of the
        constructed instance, see `trap.landscape`, with unequal scores if the problems have them; its variables have
        the prefix `trap_`.

    Raises:
        ValueError: no seed was kept.
    """
    optima = optimum(record, solver)
    if not optima.kept.any():
        raise ValueError(f"no-stationary-point: expected a kept seed, found counts {optima.counts}")
    u = np.einsum("sen,sn->se", np.linalg.pinv(np.asarray(optima.problems.Z)), np.asarray(optima.problems.Y))
    cosine, readout = batch.over_seeds(_looked_at, optima.of(record["draw_keys"]), optima.W, u, optima.problems)
    by_hand = trap.landscape(trap.SCORE if record.attrs["data.spread"] else 0.0)
    histogram = np.stack([np.histogram(one, _EDGES)[0] for one in cosine])
    drawn = xarray.Dataset(
        {
            "least": (("seed",), cosine.min(axis=1)),
            "negative": (("seed",), (cosine < 0).mean(axis=1)),
            "histogram": (("seed", "bin"), histogram),
            "bound": (("seed",), batch.over_seeds(_bound, optima.W, optima.problems, optima.alpha)),
            "readout": (("seed",), readout.min(axis=1)),
        },
        {"seed": optima.of(record["seed"]), "bin": (_EDGES[1:] + _EDGES[:-1]) / 2},
        {**optima.counts, "draws": record.sizes["draw"]},
    )
    return drawn.merge(by_hand.rename({name: f"trap_{name}" for name in by_hand.data_vars}), combine_attrs="override")


def _looked_at(
    words: UInt32[Array, "draws words"], W_mm: Float[Array, "d d"], u: Float[Array, " d"], problem: Problem
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """Return the cosines of `-grad L` with `W_mm` and with `v u^T` at every drawn W."""
    towards = W_mm / metrics.norm(W_mm)
    wanted = attention.logits(towards, problem)
    read_off = jnp.outer(problem.v, u) / metrics.norm(jnp.outer(problem.v, u))
    reading = gradients.reading(problem, heads.linear)

    def of_one(key_words: Array) -> tuple[Array, Array]:
        logits = attention.logits(_drawn(key_words, towards), problem)
        a = gradients.direction(lanes.before(), logits, problem.Y, reading, losses.logistic).coefficients
        length = metrics.norm(jnp.einsum("nd,ne->de", attention.attended(a, problem), problem.Z))
        return -jnp.sum(a * wanted) / length, -jnp.sum(a * attention.logits(read_off, problem)) / length

    return jax.lax.map(of_one, words, batch_size=min(_AT_ONCE, len(words)))


def _drawn(words: UInt32[Array, " words"], towards: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Draw W: its norm is log-uniform, its direction uniform or with uniform cosine to that of `W_mm`."""
    of_direction, of_length, of_cosine, of_kind = jax.random.split(jax.random.wrap_key_data(words), 4)
    free = jax.random.normal(of_direction, (towards.size,)).reshape(towards.shape)
    free = free / metrics.norm(free)
    across = free - jnp.sum(free * towards) * towards
    cosine = jax.random.uniform(of_cosine, minval=-1.0, maxval=1.0)
    turned = cosine * towards + jnp.sqrt(1 - cosine**2) * across / metrics.norm(across)
    low, high = np.log(_SHORTEST), np.log(_LONGEST)
    length = jnp.exp(jax.random.uniform(of_length, minval=low, maxval=high))
    return length * jnp.where(jax.random.bernoulli(of_kind), free, turned)


def _bound(W_mm: Float[Array, "d d"], problem: Problem, alpha: Array) -> Float[Array, ""]:
    """Return `1 / (||W_mm|| max_it ||z_i|| ||x_i,alpha_i - x_it||)`, a lower bound of every cosine if scores are equal.

    With two values of the scores, `gap_i` apart, the gradient of input i is `c_i gap_i s (1 - s)` times the mean of
    `(x_it - x_i,alpha_i) z_i^T` over the other tokens, where s is the probability of the optimal one: each has an inner
    product of at least 1 with `W_mm`, and at most that norm.
    """
    constraints = svm.token_constraints(problem, alpha)
    lengths = jnp.linalg.norm(constraints.differences, axis=-1) * jnp.linalg.norm(problem.Z, axis=-1)[:, None]
    return 1 / (metrics.norm(W_mm) * jnp.max(lengths))
