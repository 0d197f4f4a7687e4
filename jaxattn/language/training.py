"""Gradient descent on a text, with W stored as coefficients of pairs of words.

The gradient of any risk of the logits is `sum_at G_at e_t e_a^T`: one number per pair of words, for any d and any
length of the text. If W starts as such a sum it stays one, and its logits move by `K G K`, K the Gram matrix of the
embeddings. Any other part of the start neither affects the logits nor changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxattn import checks, losses, metrics
from jaxattn.attention import Spanned
from jaxattn.descent import gradients, normalized_gd, stalling, stepping
from jaxattn.descent.gradients import rule_of
from jaxattn.descent.optimizers import along
from jaxattn.language.choices import Choices, check
from jaxattn.language.slopes import pair_slopes
from jaxattn.parallel import batch
from jaxattn.parallel.effort import worth
from jaxattn.problem import is_concrete

__all__ = ["TextRun", "train", "train_batch", "weights"]

# The cost of a logit in a step besides the two products of matrices of pairs, in multiply-adds: its exponential.
_OF_LOGIT = 20


class TextRun(NamedTuple):
    """One training run on a text.

    Attributes:
        pairs: the coefficients C after the last update, (V, V): `W = sum_at C_at e_t e_a^T` (see `weights`).
        snapshots: the coefficients after the steps of the snapshots, (snapshots, V, V).
        probability: the mean over prefixes of the attention to the next word, (steps,).
        loss: the risk, (steps,).
        gradient_norm: the Frobenius norm of the gradient with respect to W, (steps,).
        stalled: the first step from which the gradient is lost to rounding or the floor, (), as in `descent.Run`.

    The three series are read before the update of their step; with `record_every` above 1 only every `record_every`
    steps.
    """

    pairs: Float[Array, "V V"]
    snapshots: Float[Array, "snapshots V V"]
    probability: Float[Array, " steps"]
    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    stalled: Int[Array, ""]


def weights(pairs: Float[Array, "V V"], choices: Choices) -> Spanned:
    """Return the attention weights given by coefficients of pairs; their `W` is (d, d).

    Raises:
        ValueError: choices other than those of one text, or coefficients other than (V, V).

    Example:
        >>> language.weights(jnp.zeros((5, 5)), text).W.shape
        (6, 6)
    """
    check(choices)
    V = choices.E.shape[0]
    if jnp.shape(pairs)[-2:] != (V, V):
        raise ValueError(f"pairs: expected coefficients ({V}, {V}), found shape {jnp.shape(pairs)}")
    return Spanned(pairs @ choices.E, choices.E)


def train(
    choices: Choices,
    start: Float[Array, "V V"] | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.cross_entropy,
) -> TextRun:
    """Train a free W on one text. Pure; works under `jit` and `vmap`.

    Args:
        choices: of one text, without batch axes.
        start: the coefficients of the initial W, as in `weights`. Default: W = 0.
        optimizer: `descent.normalized_gd`, `descent.gd` or an exact version of these. Default: `normalized_gd(0.1)`.
        steps: the number of updates.
        snapshots: the steps after which the coefficients are kept, increasing, within 0..steps.
        record_every: the number of steps from one entry of the series to the next.
        loss: of the attended score.

    Raises:
        ValueError: choices other than those of one text, an optimizer that does not move W along its gradient, steps or
            record_every < 1, snapshots out of order or range, a start other than (V, V) or not finite, an invalid loss.

    Example:
        >>> text_run = language.train(text, steps=20)
        >>> language.weights(text_run.pairs, text).W.shape
        (6, 6)
    """
    check(choices)
    state, kept, run = _prepared(optimizer, steps, snapshots, record_every, loss, choices.E.dtype)
    return run(choices, _start_of(start, choices), state, kept)


def train_batch(
    choices: Choices,
    start: Float[Array, "batch V V"] | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.cross_entropy,
) -> TextRun:
    """Train a batch of texts with one leading axis, in parts of bounded memory. Arguments and errors as in `train`.

    Returns NumPy arrays with the batch axis first. Lane i equals the result of `train` for it alone, to rounding;
    differences grow if normalized steps oscillate about a finite minimum.

    Example:
        >>> texts = jax.tree.map(lambda leaf: leaf[None], text)
        >>> text_runs = language.train_batch(texts, steps=20)
    """
    check(choices, batch=True)
    state, kept, run = _prepared(optimizer, steps, snapshots, record_every, loss, choices.E.dtype)
    lanes, V = choices.E.shape[:2]
    # Equal query words are one input if nothing else distinguishes inputs.
    inputs = V if choices.counts is None and choices.scores is None else choices.last.shape[1]
    work = float(lanes) * steps * (_OF_LOGIT * inputs * V + 2 * V**3)
    return batch.over_seeds(run, choices, _start_of(start, choices), shared=(state, kept), effort=worth(work))


def _start_of(start: Any, choices: Choices) -> Float[Array, "*batch V V"]:
    """Return the coefficients of the start, zeros for None; raise ValueError if they are not finite ones of pairs."""
    E = choices.E
    expected = (*E.shape[:-1], E.shape[-2])
    start = jnp.zeros(expected, E.dtype) if start is None else jnp.asarray(start, E.dtype)
    if start.shape != expected:
        raise ValueError(f"start: expected coefficients of pairs, {expected}, found shape {start.shape}")
    if is_concrete(start) and not np.isfinite(np.asarray(start)).all():
        raise ValueError("start: expected finite numbers, found NaN or infinity")
    return start


def _prepared(
    optimizer: optax.GradientTransformation | None,
    steps: int,
    snapshots: Sequence[int],
    record_every: int,
    loss: losses.Loss,
    dtype: Any,
) -> tuple[Any, Int[Array, " snapshots"], Callable[..., TextRun]]:
    """Return the optimizer's state, the snapshots, and the training function, for arguments that are checked."""
    kept = stepping.checked(steps, record_every, snapshots)
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    checks.transformation("optimizer", optimizer)
    checks.function("loss", loss, ("score",))
    if along(optimizer.update) is None:
        name = getattr(optimizer.update, "__qualname__", optimizer.update)
        raise ValueError(f"optimizer: expected one that moves W along its gradient, gd or normalized_gd, found {name}")
    # The state contains only numbers, whatever the weights are.
    state = optimizer.init(jnp.zeros((), dtype))
    return state, kept, _trainer(optimizer.update, steps, record_every, loss, rule_of(optimizer))


@lru_cache(maxsize=64)
def _trainer(
    update: Callable[..., Any], steps: int, record_every: int, loss: losses.Loss, rule: gradients.Rule
) -> Callable[..., TextRun]:
    """Return training as a function of choices, start, state and snapshots; equal arguments return the same object."""
    return jax.jit(partial(_train, update=update, steps=steps, record_every=record_every, loss=loss, rule=rule))


class _Series(NamedTuple):
    probability: Array
    loss: Array
    gradient_norm: Array


class _Progress(NamedTuple):
    pairs: Array
    table: Array
    series: _Series


def _train(
    choices: Choices,
    start: Float[Array, "V V"],
    state: Any,
    snapshots: Array,
    *,
    update: Callable[..., Any],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    rule: gradients.Rule,
) -> TextRun:
    rates = along(update)
    assert rates is not None
    K = choices.E @ choices.E.T
    slopes = pair_slopes(choices, loss, rule)
    tiny = jnp.finfo(K.dtype).tiny * 1e8

    def one_step(k: Array, now: _Progress) -> _Progress:
        slope = slopes(k, now.table)
        # After division by the largest entry, squares do not underflow.
        size = jnp.maximum(jnp.max(jnp.abs(slope.coefficients)), tiny)
        G = slope.coefficients / size
        of_table = K @ G @ K
        length = jnp.sqrt(jnp.maximum(jnp.sum(G * of_table), 0.0))
        rate = rates.rate(state, length, size)

        def values() -> _Series:
            return _Series(slope.probability, slope.risk, length * size * jnp.exp(slope.log_scale))

        series = stepping.noted(k, record_every, now.series, values)
        return _Progress(now.pairs - rate * G, now.table - rate * of_table, series)

    series = jnp.zeros(-(-steps // record_every), K.dtype)
    now = _Progress(start, K @ start @ K, _Series(series, series, series))
    now, kept = stepping.through(one_step, now, snapshots, steps, lambda now: now.pairs)
    if rule is gradients.direction:
        return TextRun(now.pairs, kept, *now.series, stalled=jnp.asarray(stalling.NEVER))
    others = jnp.asarray(stalling.added(now.pairs, state, update))
    if rule is gradients.gradient:
        lengths = jnp.sqrt(jnp.diag(K))
        errors = pair_slopes(choices, loss, gradients.errors)(jnp.asarray(steps), now.table).coefficients
        others = others + metrics.norm(errors * jnp.outer(lengths, lengths))
    return TextRun(
        now.pairs, kept, *now.series, stalled=stalling.stalled(now.series.gradient_norm, others, record_every)
    )
