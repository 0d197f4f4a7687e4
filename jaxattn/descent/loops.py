"""Internal: a training run as one compiled program, for one seed or a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jaxattn import attention, heads, losses, models
from jaxattn.attention import Weights
from jaxattn.descent import engines, gradients, modelled, penalties, sharing, stalling, stepping
from jaxattn.descent.noise import Noise, full_batch, through
from jaxattn.descent.penalties import Penalty, unpenalized
from jaxattn.descent.run import Run
from jaxattn.parallel import batch
from jaxattn.problem import Problem

# Arguments: weights, problem, the optimizer's state, the words of the noise's key or None, and the snapshots.
Trainer = Callable[..., Run]


@lru_cache(maxsize=64)
def trainer(
    update: Callable[..., Any],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    engine: engines.Engine | None = None,
    model: models.Seeing = models.plain,
    noise: Noise = full_batch,
    penalty: Penalty = unpenalized,
) -> Trainer:
    """Return the compiled run of one seed with an engine, as a `Trainer`.

    Under `vmap` it trains all seeds at once. Lanes are trailing axes, or leading ones if that is faster
    (`engines.Cost.is_wide`) or there is noise or a penalty. The same arguments return the same function object, so that
    `jit` and `vmap` of it compile once.
    """
    run = partial(
        _train,
        update=update,
        steps=steps,
        record_every=record_every,
        loss=loss,
        head=head,
        rule=rule,
        engine=engine,
        noise=noise,
        penalty=penalty,
    )

    def alone(weights: Weights, problem: Problem, state: Any, words: Any, snapshots: Array) -> Run:
        return run(weights, _views(model, problem), state, words, snapshots)

    def lifted(weights: Weights, problem: Problem, state: Any, words: Any, snapshots: Array) -> Run:
        views = jax.vmap(partial(_views, model))(problem)
        one = [jax.tree.map(sharing.of_lane, batch) for batch in (weights, problem)]
        simple = noise is full_batch and penalty is unpenalized
        if not simple or (engine is None and engines.chosen(update, one[0], one[1])[1].is_wide):
            return jax.vmap(run, in_axes=(0, 0, 0, 0, None))(weights, views, state, words, snapshots)
        weights, views, state = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), (weights, views, state))
        found = run(weights, views, state, None, snapshots)
        every = jnp.broadcast_to(snapshots[:, None], (*snapshots.shape, problem.Y.shape[0]))
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), found._replace(snapshot_steps=every))

    return _lifting(alone, lifted)


@lru_cache(maxsize=64)
def trainer_of_model(
    updates: modelled.Updates,
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    model: models.Model,
    noise: Noise,
    penalty: Penalty,
) -> Trainer:
    """Return the compiled run of one seed of a model without an engine."""
    run = partial(
        _train_model,
        updates=updates,
        steps=steps,
        record_every=record_every,
        loss=loss,
        head=head,
        rule=rule,
        model=model,
        noise=noise,
        penalty=penalty,
    )

    def lifted(params: Any, problem: Problem, state: Any, words: Any, snapshots: Array) -> Run:
        return jax.vmap(run, in_axes=(0, 0, 0, 0, None))(params, problem, state, words, snapshots)

    return _lifting(run, lifted)


def _lifting(run: Callable[..., Run], lifted: Callable[..., Run]) -> batch.Lifting:
    """Return a compiled run of one seed with a custom rule for `vmap`."""
    one = jax.custom_batching.custom_vmap(run)

    @one.def_vmap
    def _(axis_size: int, in_batched: Any, *arguments: Any) -> tuple[Any, Any]:
        if in_batched[-1]:
            raise ValueError("snapshots: expected the same steps for all seeds, found a batch of them")
        of_seeds = jax.tree.map(partial(_in_front, axis_size), arguments[:-1], tuple(in_batched)[:-1])
        result = lifted(*of_seeds, arguments[-1])
        return result, jax.tree.map(lambda _: True, result)

    return batch.Lifting(jax.jit(one), lifted)


def _in_front(lanes: int, leaf: Array, batched: bool) -> Array:
    """Return an argument with its lanes as leading axes."""
    return leaf if batched else jnp.broadcast_to(leaf, (lanes, *leaf.shape))


class _Views(NamedTuple):
    """A problem as the attention sees it, and as the head reads it."""

    seen: Problem
    read: Problem


def _views(model: models.Seeing, problem: Problem) -> _Views:
    return _Views(model.see(problem), model.read(problem))


class _Series(NamedTuple):
    probability: Array
    loss: Array
    gradient_norm: Array


class _Progress(NamedTuple):
    kept: Any
    series: _Series


def _train(
    weights: Weights,
    views: _Views,
    state: Any,
    words: UInt32[Array, " words"] | None,
    snapshots: Array,
    *,
    update: Callable[..., Any],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    engine: engines.Engine | None,
    noise: Noise,
    penalty: Penalty,
) -> Run:
    problem = views.seen
    engine = engines.cheapest(update, weights, problem) if engine is None else engine
    read = gradients.reading(views.read, head)
    key = None if noise is full_batch else _key(words)

    def one_step(k: Array, now: _Progress) -> _Progress:
        logits, formed = engine.logits(k, now.kept, problem)
        draw = modelled.noise_of(noise, key, k, problem)
        whole = penalties.added(rule, penalty)
        noisy = whole if draw is None else through(draw, whole)
        slope = noisy(k, attention.masked(logits, problem), problem.Y, read, loss)
        kept, length = engine.move(k, now.kept, formed, slope.coefficients, slope.log_scale, problem)

        def values() -> _Series:
            return _Series(
                probability=jnp.mean(jnp.max(slope.probabilities, axis=1), axis=0),
                loss=jnp.mean(slope.losses, axis=0),
                gradient_norm=length() * jnp.exp(slope.log_scale),
            )

        return _Progress(kept, stepping.noted(k, record_every, now.series, values))

    def stalled(now: _Progress, final: Weights) -> Array:
        if rule is gradients.direction:
            return jnp.full(lanes, stalling.NEVER)
        others = jnp.zeros(lanes, problem.X.dtype) + stalling.added(final, state, update)
        if rule is gradients.gradient:
            logits = attention.masked(engine.logits(jnp.asarray(steps), now.kept, problem)[0], problem)
            others = others + stalling.rounding(final, logits, problem, read, loss)
        return stalling.stalled(now.series.gradient_norm, others, record_every)

    lanes = problem.Y.shape[1:]
    now = _Progress(engine.start(weights, problem, state), _empty(steps, record_every, lanes, problem))
    now, kept = stepping.through(one_step, now, snapshots, steps, lambda now: engine.weights(now.kept, problem))
    final = engine.weights(now.kept, problem)
    return Run(final, kept, *now.series, stalled=stalled(now, final), snapshot_steps=snapshots)


def _empty(steps: int, record_every: int, lanes: tuple[int, ...], problem: Problem) -> _Series:
    series = jnp.zeros((-(-steps // record_every), *lanes), problem.X.dtype)
    return _Series(series, series, series)


def _key(words: UInt32[Array, " words"] | None) -> Any:
    assert words is not None  # `train` requires a key with noise.
    return jax.random.wrap_key_data(words)


def _train_model(
    params: Any,
    problem: Problem,
    state: Any,
    words: UInt32[Array, " words"] | None,
    snapshots: Array,
    *,
    updates: modelled.Updates,
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    model: models.Model,
    noise: Noise,
    penalty: Penalty,
) -> Run:
    key = None if noise is full_batch else _key(words)

    def one_step(k: Array, now: _Progress) -> _Progress:
        draw = modelled.noise_of(noise, key, k, problem)
        found = modelled.slope(now.kept.params, problem, model, rule, loss, head, draw, penalty)

        def values() -> _Series:
            return _Series(
                probability=jnp.mean(jnp.max(found.probabilities, axis=2)),
                loss=jnp.mean(found.losses),
                gradient_norm=modelled.length_of(found),
            )

        return _Progress(modelled.moved(updates, found, now.kept), stepping.noted(k, record_every, now.series, values))

    begin = _Progress(modelled.Kept(params, state), _empty(steps, record_every, (), problem))
    now, kept = stepping.through(one_step, begin, snapshots, steps, lambda now: now.kept.params)
    final = now.kept.params
    stalled = jnp.asarray(stalling.NEVER)
    if rule is gradients.exact:
        others = jnp.zeros((), problem.X.dtype) + stalling.added(final, state, updates[0])
        stalled = stalling.stalled(now.series.gradient_norm, others, record_every)
    return Run(final, kept, *now.series, stalled=stalled, snapshot_steps=snapshots)
