"""Gradient descent on attention weights: one training run, and many at once.

Written for one seed; `vmap` lifts it over seeds (`train_batch`).
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

from jaxattn import attention, checks, heads, losses
from jaxattn.attention import Weights
from jaxattn.descent import engines, gradients, sharing, stalling, stepping
from jaxattn.descent.carried import carried
from jaxattn.descent.optimizers import Exact, ScaleFree, along, normalized_gd
from jaxattn.descent.pacing import plain
from jaxattn.parallel import batch
from jaxattn.problem import Problem, is_concrete

__all__ = ["Run", "train", "train_batch"]


class Run(NamedTuple):
    """One training run.

    Attributes:
        weights: after the last update.
        snapshots: the same pytree with a leading axis over the snapshot steps; the entry of step k
            is read after k updates.
        probability: mean over inputs of the largest attention probability, (steps,).
        loss: risk, (steps,).
        gradient_norm: Euclidean norm of the gradient over all weights, (steps,).
        stalled: the first step of the series at which rounding errors of the gradient, floor and penalty are together
            at least half as long as the gradient, (); what follows says nothing about limits. -1 where there is none,
            as for every `ScaleFree` optimizer.
        snapshot_steps: the steps of the snapshots, (snapshots,).

    The three series are read *before* the update of their step, as the published code does; with
    `record_every` above 1 of the steps 0, record_every, 2 record_every, ... only.
    """

    weights: Weights
    snapshots: Weights
    probability: Float[Array, " steps"]
    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    stalled: Int[Array, ""]
    snapshot_steps: Int[Array, " snapshots"]


# From weights, problem, the optimizer's state and snapshots.
Trainer = Callable[[Weights, Problem, Any, Array], Run]


def train(
    weights: Weights,
    problem: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
) -> Run:
    """Train attention weights on one problem by `steps` updates of `optimizer`.

    Pure; works under `jit` and `vmap`. It compiles once for each shape, number of steps and
    snapshots, loss, head and kind of optimizer; other step sizes and snapshot steps reuse that.

    Args:
        weights: where descent starts; an array W, (d, d), Factored(K, Q), (d, m) each, or Spanned(B, Z), (n, d)
            each: a W in the span of the queries, for any d.
        problem: one problem, without batch axes.
        optimizer: any optax transformation; `normalized_gd(0.1)` if None.
        steps: number of updates.
        snapshots: steps after which the weights are kept, increasing, within 0..steps.
        record_every: steps from one entry of the series to the next.
        loss: a function of one margin.
        head: a function of one attention output and the problem's v.

    Raises:
        ValueError: no Problem; weights or a head that do not fit it; a loss, head or optimizer that is none; weights or
            a head that are not finite where descent starts; steps or record_every < 1, snapshots out of order or range;
            a `ScaleFree` optimizer whose steps depend on the gradient's scale.

    Example:
        >>> run = descent.train(start, problem, steps=100, snapshots=(1, 10, 100))
        >>> run.snapshots.shape, run.loss.shape
        ((3, 5, 5), (100,))
    """
    attention.check_weights(weights, problem)
    checks.function("head", head, ("x", "v"))
    _check_start(weights, problem, head)
    init, kept, run = _prepared(weights, optimizer, snapshots, steps, record_every, loss, head)
    return run(weights, problem, init(weights), kept)


def outline(
    weights: Weights,
    problem: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
) -> Run:
    """Return a Run of zeros of the shapes and types that `train` has, without tracing its steps.

    Arguments as of `train`, and errors but for those that a loss or an optimizer's own steps raise.
    """
    attention.check_weights(weights, problem)
    checks.function("head", head, ("x", "v"))
    jax.eval_shape(partial(_outputs, head=head), weights, problem)
    _, kept, _ = _prepared(weights, optimizer, snapshots, steps, record_every, loss, head)
    return _outline(weights, problem, len(kept), steps, record_every)


def train_batch(
    weights: Weights,
    problems: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    chunk: int | None = None,
    of: int | None = None,
) -> Run:
    """Train a batch of problems with one leading axis, in chunks of bounded memory.

    Lane i is what `train` returns for it alone, to rounding. Short runs of a free W that moves along its gradient share
    a program for all d up to 32, 64, ..., where that is faster than to compile one. Returns a Run of NumPy arrays, the
    batch axis first.
    Arguments and errors as in `train`; `chunk` as in `batch.chunks`. A study trained in several batches names the
    number of its seeds as `of`: then all of them run the same program, and no batch shows in a result.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> descent.train_batch(jnp.zeros((8, 5, 5)), problems, steps=10).weights.shape
        (8, 5, 5)
    """
    first = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    attention.check_weights(*first)
    checks.function("head", head, ("x", "v"))
    # A head that does not fit should name the shape that was given, not that of the program.
    jax.eval_shape(partial(_outputs, head=head), *first)
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    init, kept, run = _prepared(first[0], optimizer, snapshots, steps, record_every, loss, head)
    state = jax.vmap(init)(weights)
    d, plan = problems.d, sharing.plan(optimizer.update, weights, problems, steps, len(kept), head, of)
    if plan.d != d:
        weights, problems = sharing.padded_to(weights, {1: plan.d, 2: plan.d}), sharing.laid_out(problems, plan.d)

    def cut(part: Run) -> Run:
        if plan.d == d:
            return part
        # Copies, so that what was added is let go.
        own = {name: getattr(part, name)[..., :d, :d].copy() for name in ("weights", "snapshots")}
        return part._replace(**own)

    lane = jax.tree.map(sharing.of_lane, (weights, problems, state))
    one = jax.eval_shape(partial(_outline, kept=len(kept), steps=steps, record_every=record_every), *lane[:2])
    width = batch.program_lanes(lane, one, batch.length(problems), of)
    return batch.over_seeds(
        run, weights, problems, state, shared=(kept,), chunk=chunk, width=width, of=of, effort=plan.effort, cut=cut
    )


def _outline(weights: Weights, problem: Problem, kept: int, steps: int, record_every: int) -> Run:
    """Return a Run of zeros of the shapes and types that a trained one has."""
    series = jnp.zeros(-(-steps // record_every), problem.X.dtype)
    end = jax.tree.map(jnp.zeros_like, weights)
    along_run = jax.tree.map(lambda leaf: jnp.zeros((kept, *leaf.shape), leaf.dtype), end)
    return Run(end, along_run, series, series, series, jnp.zeros((), int), jnp.zeros(kept, int))


def _check_start(weights: Weights, problem: Problem, head: heads.Head) -> None:
    """Raise ValueError unless weights and head are finite where descent starts; under `jit` this cannot be read."""
    if not all(map(is_concrete, jax.tree.leaves((weights, problem)))):
        return
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        raise ValueError("weights: expected finite numbers, found NaN or infinity among them")
    values = np.asarray(_outputs(weights, problem, head))
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"head: expected finite numbers, found {values[wrong[0]]} of input {wrong[0]} where descent starts "
            f"({wrong.size} of {values.size} inputs)"
        )


@partial(jax.jit, static_argnums=2)
def _outputs(weights: Weights, problem: Problem, head: heads.Head) -> Float[Array, " n"]:
    """Return what the head makes of every input."""
    outputs = attention.attended(attention.probabilities(weights, problem), problem)
    return jax.vmap(head, in_axes=(0, None))(outputs, problem.v)


def rule_of(optimizer: optax.GradientTransformation) -> gradients.Rule:
    """Return what an optimizer is given: the gradient as published or exact, or its direction if it sees no more."""
    if isinstance(optimizer, ScaleFree):
        return gradients.direction
    return gradients.exact if isinstance(optimizer, Exact) else gradients.gradient


def _prepared(
    weights: Weights,
    optimizer: optax.GradientTransformation | None,
    snapshots: Sequence[int],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
) -> tuple[Callable[[Any], Any], Int[Array, " snapshots"], Trainer]:
    """Check the arguments that `train` and `train_batch` share.

    Returns how the optimizer begins, the snapshots, and the compiled run.
    """
    kept = stepping.checked(steps, record_every, snapshots)
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ValueError(f"optimizer: expected an optax transformation such as descent.gd(0.1), found {optimizer!r}")
    checks.function("loss", loss, ("margin",))
    init, update = optimizer.init, optimizer.update
    if isinstance(optimizer, ScaleFree) and along(plain(update)) is None:
        init, update = carried(optimizer, weights)
    return init, kept, trainer(update, steps, record_every, loss, head, rule_of(optimizer))


@lru_cache(maxsize=64)
def trainer(
    update: Callable[..., Any],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    engine: engines.Engine | None = None,
) -> Trainer:
    """Return the compiled run of one seed, a function of weights, problem, optimizer state and snapshots.

    Under `vmap` it trains all seeds at once, with the lanes behind all other axes, or in front where that is faster
    (`engines.Cost.is_wide`). The same arguments give the same function object, so that `jit` and `vmap` of it compile
    once.
    """
    run = partial(
        _train, update=update, steps=steps, record_every=record_every, loss=loss, head=head, rule=rule, engine=engine
    )
    one = jax.custom_batching.custom_vmap(run)

    def lifted(weights: Weights, problem: Problem, state: Any, snapshots: Array) -> Run:
        one = [jax.tree.map(sharing.of_lane, batch) for batch in (weights, problem)]
        if engine is None and engines.chosen(update, one[0], one[1])[1].is_wide:
            return jax.vmap(run, in_axes=(0, 0, 0, None))(weights, problem, state, snapshots)
        weights, problem, state = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), (weights, problem, state))
        found = run(weights, problem, state, snapshots)
        every = jnp.broadcast_to(snapshots[:, None], (*snapshots.shape, problem.Y.shape[-1]))
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), found._replace(snapshot_steps=every))

    @one.def_vmap
    def _(axis_size: int, in_batched: Any, *arguments: Any) -> tuple[Any, Any]:
        if in_batched[3]:
            raise ValueError("snapshots: expected the same steps for all seeds, found a batch of them")
        weights, problem, state = jax.tree.map(partial(_in_front, axis_size), arguments[:3], tuple(in_batched)[:3])
        result = lifted(weights, problem, state, arguments[3])
        return result, jax.tree.map(lambda _: True, result)

    return batch.Lifting(jax.jit(one), lifted)


def _in_front(lanes: int, leaf: Array, batched: bool) -> Array:
    """Return an argument with its lanes in front of its other axes."""
    return leaf if batched else jnp.broadcast_to(leaf, (lanes, *leaf.shape))


class _Series(NamedTuple):
    probability: Array
    loss: Array
    gradient_norm: Array


class _Progress(NamedTuple):
    kept: Any
    series: _Series


def _train(
    weights: Weights,
    problem: Problem,
    state: Any,
    snapshots: Array,
    *,
    update: Callable[..., Any],
    steps: int,
    record_every: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
    engine: engines.Engine | None,
) -> Run:
    engine = engines.cheapest(update, weights, problem) if engine is None else engine
    read = gradients.reading(problem, head)

    def one_step(k: Array, now: _Progress) -> _Progress:
        logits, formed = engine.logits(k, now.kept, problem)
        slope = rule(k, attention.masked(logits, problem), problem.Y, read, loss)
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
    series = jnp.zeros((-(-steps // record_every), *lanes), problem.X.dtype)
    now = _Progress(engine.start(weights, problem, state), _Series(series, series, series))
    now, kept = stepping.through(one_step, now, snapshots, steps, lambda now: engine.weights(now.kept, problem))
    final = engine.weights(now.kept, problem)
    return Run(final, kept, *now.series, stalled=stalled(now, final), snapshot_steps=snapshots)
