"""Gradient descent on attention weights: the optimizers, and one training run.

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

from jaxattn import attention, batch, gradients, heads, losses, metrics
from jaxattn.attention import Factored, Weights
from jaxattn.problem import Problem

# The published runs add a unit in the last place of 1.0 (2.2e-16) in two places: to the gradient's
# norm, which they divide by, and as the coefficient of ||K||_F^2 + ||Q||_F^2.
PUBLISHED_EPSILON = 2.0**-52


class Run(NamedTuple):
    """One training run.

    Attributes:
        weights: after the last update.
        snapshots: the same pytree with a leading axis over the snapshot steps; the entry of step k
            is read after k updates.
        probability: mean over inputs of the largest attention probability, (steps,).
        loss: risk, (steps,).
        gradient_norm: Euclidean norm of the gradient over all weights, (steps,).

    The three series are read *before* the update of their step, as the published code does.
    """

    weights: Weights
    snapshots: Weights
    probability: Float[Array, " steps"]
    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]


class StepState(NamedTuple):
    """The numbers of a descent rule. They live in the state, so changing them compiles nothing anew."""

    step_size: Float[Array, ""]
    floor: Float[Array, ""]
    penalty: Float[Array, ""]


class ScaleFree(optax.GradientTransformation):
    """An optimizer that is blind to the gradient's scale: it moves alike for g and for any positive multiple of g.

    `train` gives it `gradients.direction`, which never underflows, so it does not stall however far the softmax
    has gone. Sign descent or Muon are made so by `ScaleFree(*optimizer)`.
    """


def gd(step_size: float) -> optax.GradientTransformation:
    """Plain gradient descent, `W <- W - step_size * gradient`.

    Raises:
        ValueError: a step size that is not positive and finite.
    """
    return optax.GradientTransformation(partial(_init, _positive(step_size), 0.0, 0.0), _gd_update)


def normalized_gd(
    step_size: float,
    floor: float = PUBLISHED_EPSILON,
    penalty: float = PUBLISHED_EPSILON,
) -> optax.GradientTransformation:
    """Normalized gradient descent, the published protocol (2308.16898, section 3, experiments).

    Each weight matrix moves by `step_size * gradient / (||gradient||_F + floor)`: W, or K and Q each
    by its own norm. For factored weights the gradient is that of the risk plus
    `penalty * (||K||_F^2 + ||Q||_F^2)`; free weights are never penalized.

    Both defaults are the published ones, and both decide where a long run ends: once the gradient
    has fallen to the floor, free weights all but stand still; factored weights stop where the
    gradient of the risk balances that of the penalty. With both 0 the rule is `ScaleFree`: a gradient
    of any size gives a full step, however far below the smallest number it is, and one that is exactly
    zero gives none.

    Raises:
        ValueError: a step size that is not positive and finite, a floor or penalty below 0 or infinite.
    """
    for name, number in (("floor", floor), ("penalty", penalty)):
        if not 0 <= number < float("inf"):
            raise ValueError(f"{name}: expected a finite number of at least 0, found {number!r}")
    kind = ScaleFree if floor == penalty == 0 else optax.GradientTransformation
    return kind(partial(_init, _positive(step_size), floor, penalty), _normalized_update)


def _positive(step_size: float) -> float:
    if not 0 < step_size < float("inf"):
        raise ValueError(f"step_size: expected a positive finite number, found {step_size!r}")
    return step_size


def _init(step_size: float, floor: float, penalty: float, params: optax.Params) -> StepState:
    dtype = jax.tree.leaves(params)[0].dtype
    return StepState(*(jnp.asarray(number, dtype) for number in (step_size, floor, penalty)))


def _gd_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    del params
    return jax.tree.map(lambda g: -state.step_size * g, updates), state


def _normalized_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    if isinstance(params, Factored):
        updates = jax.tree.map(lambda g, w: g + 2 * state.penalty * w, updates, params)

    def step(gradient: Array) -> Array:
        length = metrics.norm(gradient) + state.floor
        return -state.step_size * (gradient / jnp.where(length > 0, length, 1.0))

    return jax.tree.map(step, updates), state


def train(
    weights: Weights,
    problem: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
) -> Run:
    """Train attention weights on one problem by `steps` updates of `optimizer`.

    Pure; works under `jit` and `vmap`. It compiles once for each shape, number of steps and
    snapshots, loss, head and kind of optimizer; other step sizes and snapshot steps reuse that.

    Args:
        weights: where descent starts; an array W, (d, d), or Factored(K, Q), (d, m) each.
        problem: one problem, without batch axes.
        optimizer: any optax transformation; `normalized_gd(0.1)` if None.
        steps: number of updates.
        snapshots: steps after which the weights are kept, increasing, within 0..steps.
        loss: a function of one margin.
        head: a function of one attention output and the head direction.

    Raises:
        ValueError: weights that do not fit the problem, steps < 1, snapshots out of order or range.
    """
    attention.check_weights(weights, problem)
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    kept = _checked(snapshots, steps)
    run = trainer(optimizer.update, steps, loss, head, rule_of(optimizer))
    return run(weights, problem, optimizer.init(weights), kept)


def train_batch(
    weights: Weights,
    problems: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    chunk: int | None = None,
) -> Run:
    """Train a batch of problems with one leading axis, in chunks of bounded memory.

    Lane i is what `train` returns for it alone. Returns a Run of NumPy arrays, the batch axis first.
    Arguments and errors as in `train`; `chunk` as in `batch.chunks`.
    """
    first = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    attention.check_weights(*first)
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    kept = _checked(snapshots, steps)
    run = trainer(optimizer.update, steps, loss, head, rule_of(optimizer))
    state = jax.vmap(optimizer.init)(weights)
    return batch.over_seeds(run, weights, problems, state, shared=(kept,), chunk=chunk)


def rule_of(optimizer: optax.GradientTransformation) -> gradients.Rule:
    """Return what an optimizer is given: the gradient, or its direction if that is all it looks at."""
    return gradients.direction if isinstance(optimizer, ScaleFree) else gradients.gradient


def _checked(snapshots: Sequence[int], steps: int) -> Int[Array, " snapshots"]:
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, found {steps}")
    kept = np.asarray(snapshots, dtype=int)
    if kept.ndim != 1 or np.any(np.diff(kept) <= 0) or np.any((kept < 0) | (kept > steps)):
        raise ValueError(f"snapshots: expected increasing steps within 0..{steps}, found {tuple(snapshots)}")
    return jnp.asarray(kept)


@lru_cache(maxsize=64)
def trainer(
    update: Callable[..., Any], steps: int, loss: losses.Loss, head: heads.Head, rule: gradients.Rule
) -> Callable[[Weights, Problem, Any, Array], Run]:
    """Return the compiled run of one seed, a function of weights, problem, optimizer state and snapshots.

    The same arguments give the same function object, so that `jit` and `vmap` of it compile once.
    """
    return jax.jit(partial(_train, update=update, steps=steps, loss=loss, head=head, rule=rule))


class _Progress(NamedTuple):
    weights: Weights
    state: Any
    probability: Array
    loss: Array
    gradient_norm: Array


def _train(
    weights: Weights,
    problem: Problem,
    state: Any,
    snapshots: Array,
    *,
    update: Callable[..., Any],
    steps: int,
    loss: losses.Loss,
    head: heads.Head,
    rule: gradients.Rule,
) -> Run:
    def one_step(k: Array, now: _Progress) -> _Progress:
        risk, probabilities, slope, log_scale = rule(now.weights, problem, loss, head)
        updates, state = update(slope, now.state, now.weights)
        largest = jnp.mean(jnp.max(probabilities, axis=-1))
        length = metrics.norm(jnp.stack([metrics.norm(leaf) for leaf in jax.tree.leaves(slope)]))
        return _Progress(
            weights=jax.tree.map(jnp.add, now.weights, updates),
            state=state,
            probability=now.probability.at[k].set(largest),
            loss=now.loss.at[k].set(risk),
            gradient_norm=now.gradient_norm.at[k].set(length * jnp.exp(log_scale)),
        )

    def to_snapshot(now: _Progress, span: tuple[Array, Array]) -> tuple[_Progress, Weights]:
        now = jax.lax.fori_loop(span[0], span[1], one_step, now)
        return now, now.weights

    series = jnp.zeros(steps, problem.X.dtype)
    now = _Progress(weights, state, series, series, series)
    # One loop from snapshot to snapshot keeps them without a buffer that every step would carry.
    spans = jnp.concatenate([jnp.zeros(1, snapshots.dtype), snapshots[:-1]])[: snapshots.size], snapshots
    now, kept = jax.lax.scan(to_snapshot, now, spans)
    last = snapshots[-1] if snapshots.size else 0
    now = jax.lax.fori_loop(last, steps, one_step, now)
    return Run(now.weights, kept, now.probability, now.loss, now.gradient_norm)
