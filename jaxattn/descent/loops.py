"""Internal: a training run as one compiled program, for one seed or a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxattn import attention, models
from jaxattn.attention import Weights
from jaxattn.descent import autodiff_engine, engines, gradients, padding, penalties, stalling, stepping
from jaxattn.descent.noise import NOISE_GENERATOR, drawn, full_batch, through
from jaxattn.descent.penalties import unpenalized
from jaxattn.descent.run import Rule, Run, trained_weights
from jaxattn.parallel import batch
from jaxattn.problem import Problem


@lru_cache(maxsize=64)
def trainer(rule: Rule, engine: engines.Engine | None = None) -> batch.Lifting:
    """Return the compiled run of one seed, with an engine of choice or the cheapest one.

    Its arguments are the weights, the problem, the optimizer's state, the words of the noise's key or None, the arrays
    that are missing in the rule (see `array_fields`), and the snapshots. Of the rule's optimizer only the type and the
    update are used (see `autodiff_engine.begun`), so that optimizers of other numbers share a program. The same
    arguments return the same function object: `jit` and `vmap` of it compile once.

    Under `vmap` it trains all seeds at once. Lanes are trailing axes, or leading ones if that is faster
    (`engines.Cost.is_wide`), or the rule has noise, a penalty, another `read`, arrays or a model without an engine.
    """
    simple = rule.noise is full_batch and rule.penalty is unpenalized and rule.read is trained_weights
    in_front = partial(jax.vmap, in_axes=(0, 0, 0, 0, 0, None))
    if not isinstance(rule.model, models.TransformedInputs):
        run = partial(_train_model, rule=rule)
        return _lifting(run, in_front(run))
    run = partial(_train, rule=rule, engine=engine)

    def lifted(weights: Weights, problem: Problem, state: Any, words: Any, arrays: Any, snapshots: Array) -> Run:
        lane = jax.tree.map(padding.of_lane, (weights, problem))
        is_wide = engine is None and engines.chosen(rule.optimizer.update, *lane)[1].is_wide
        if not simple or arrays or is_wide:
            return in_front(run)(weights, problem, state, words, arrays, snapshots)
        viewed = jax.vmap(partial(_views, rule.model))(problem)
        weights, viewed, state = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), (weights, viewed, state))
        result = run(weights, viewed, state, None, arrays, snapshots)
        every = jnp.broadcast_to(snapshots[:, None], (*snapshots.shape, problem.Y.shape[0]))
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), result._replace(snapshot_steps=every))

    return _lifting(run, lifted)


def _lifting(run: Callable[..., Run], lifted: Callable[..., Run]) -> batch.Lifting:
    """Return a compiled run of one seed with a custom rule for `vmap`."""
    one = jax.custom_batching.custom_vmap(run)

    @one.def_vmap
    def _(axis_size: int, in_batched: Any, *arguments: Any) -> tuple[Any, Any]:
        if in_batched[-1]:
            raise ValueError("snapshots: expected the same steps for all seeds, found a batch of them")

        def in_front(leaf: Array, batched: bool) -> Array:
            return leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        result = lifted(*jax.tree.map(in_front, arguments[:-1], tuple(in_batched)[:-1]), arguments[-1])
        return result, jax.tree.map(lambda _: True, result)

    return batch.Lifting(jax.jit(one), lifted)


class _Views(NamedTuple):
    """A problem as the attention sees it, and as the head reads it."""

    seen: Problem
    read: Problem


def _views(model: Any, problem: Problem) -> _Views:
    return _Views(model.for_attention(problem), model.for_head(problem))


class _Progress(NamedTuple):
    kept: Any
    series: tuple[Array, Array, Array]


# Maps a step's number and what is kept to what is kept next, and a function that computes the values of the series.
_Step = Callable[[Array, Any], tuple[Any, Callable[[], tuple[Array, Array, Array]]]]


def _stepped(
    rule: Rule, step: _Step, begin: Any, weights_of: Callable[[Any], Any], snapshots: Array, problem: Problem
) -> tuple[_Progress, Any]:
    """Take all steps; return what is kept at the end with the series, and the weights at the snapshots."""

    def one_step(k: Array, now: _Progress) -> _Progress:
        kept, values = step(k, now.kept)
        return _Progress(kept, stepping.noted(k, rule.record_every, now.series, values))

    empty = jnp.zeros((-(-rule.steps // rule.record_every), *problem.Y.shape[1:]), problem.X.dtype)
    begin = _Progress(begin, (empty, empty, empty))
    return stepping.through(one_step, begin, snapshots, rule.steps, lambda now: weights_of(now.kept))


def _train(
    weights: Weights,
    views: Problem | _Views,
    state: Any,
    words: Any,
    arrays: Any,
    snapshots: Array,
    rule: Rule,
    engine: Any,
) -> Run:
    rule = rule.filled(arrays)
    views = _views(rule.model, views) if isinstance(views, Problem) else views
    problem, update = views.seen, rule.optimizer.update
    if rule.read is not trained_weights:
        engine = engines.Direct(update)
    engine = engines.cheapest(update, weights, problem) if engine is None else engine

    def shown(kept: Any) -> Any:
        weights = engine.weights(kept, problem)
        return (
            weights if rule.read is trained_weights else rule.read(autodiff_engine.state_of(update, kept[1]), weights)
        )

    read = gradients.reading(views.read, rule.head)
    key = None if words is None else jax.random.wrap_key_data(words, impl=NOISE_GENERATOR)
    given = gradients.rule_of(rule.optimizer, published=rule.penalty is unpenalized)

    def step(k: Array, kept: Any) -> tuple[Any, Any]:
        logits, formed = engine.logits(k, kept, problem)
        draw = drawn(rule.noise, key, k, problem)
        noisy = through(draw, penalties.added(given, rule.penalty))
        slope = noisy(k, attention.masked(logits, problem), problem.Y, read, rule.loss)
        kept, length = engine.move(k, kept, formed, slope.coefficients, slope.log_scale, problem)

        def values() -> tuple[Array, Array, Array]:
            probability = jnp.mean(jnp.max(slope.probabilities, axis=1), axis=0)
            return probability, jnp.mean(slope.losses, axis=0), length() * jnp.exp(slope.log_scale)

        return kept, values

    begin = engine.start(weights, problem, state)
    now, kept = _stepped(rule, step, begin, shown, snapshots, problem)
    end, final, lanes = shown(now.kept), engine.weights(now.kept, problem), problem.Y.shape[1:]
    if given is gradients.direction:
        return Run(end, kept, *now.series, jnp.full(lanes, stalling.NEVER), snapshots)
    others = jnp.zeros(lanes, problem.X.dtype) + stalling.added(final, state, update)
    if given is gradients.gradient:
        logits = attention.masked(engine.logits(jnp.asarray(rule.steps), now.kept, problem)[0], problem)
        others = others + stalling.rounding(final, logits, problem, read, rule.loss)
    stalled = stalling.stalled(now.series[-1], others, rule.record_every)
    return Run(end, kept, *now.series, stalled, snapshots)


def _train_model(
    params: Any, problem: Problem, state: Any, words: Any, arrays: Any, snapshots: Array, rule: Rule
) -> Run:
    rule, updates = rule.filled(arrays), cast(Any, rule.optimizer.update)
    key = None if words is None else jax.random.wrap_key_data(words, impl=NOISE_GENERATOR)
    given = gradients.rule_of(rule.optimizer, published=False)

    def step(k: Array, kept: autodiff_engine.Kept) -> tuple[Any, Any]:
        draw = drawn(rule.noise, key, k, problem)
        slope = autodiff_engine.slope(kept.params, problem, rule.model, given, rule.loss, rule.head, draw, rule.penalty)

        def values() -> tuple[Array, Array, Array]:
            probability = jnp.mean(jnp.max(slope.probabilities, axis=2))
            return probability, jnp.mean(slope.losses), autodiff_engine.length_of(slope)

        return autodiff_engine.moved(updates, slope, kept), values

    begin = autodiff_engine.Kept(params, state)

    def shown(kept: autodiff_engine.Kept) -> Any:
        return rule.read(autodiff_engine.state_of(updates, kept.state), kept.params)

    now, kept = _stepped(rule, step, begin, shown, snapshots, problem)
    final, stalled = now.kept.params, jnp.asarray(stalling.NEVER)
    if given is gradients.exact:
        others = jnp.zeros((), problem.X.dtype) + stalling.added(final, state, updates[0])
        stalled = stalling.stalled(now.series[-1], others, rule.record_every)
    return Run(shown(now.kept), kept, *now.series, stalled, snapshots)
