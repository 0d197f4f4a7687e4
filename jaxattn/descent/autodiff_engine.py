"""The gradient of any model in the log domain, and the loop of steps for models without an engine.

The chain rule goes through the logits: `gradients` forms the risk's derivatives with respect to the logits, exactly
however far the softmax has saturated, and automatic differentiation takes them to the model's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxattn import checks, heads, losses, models
from jaxattn.descent import gradients, hyperparameters, penalties
from jaxattn.descent.moment_rescaling import Rescaled, rescaled
from jaxattn.descent.noise import Draw, Sample, chosen, through
from jaxattn.descent.optimizers import ScaleFree, along
from jaxattn.descent.penalties import Penalty, unpenalized
from jaxattn.descent.step_schedules import plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

__all__ = ["Direction", "direction"]


class Direction(NamedTuple):
    """The gradient of the risk, `exp(log_scale) * gradient` for each part.

    Attributes:
        gradient: the scaled gradient with respect to the parameters, a pytree like them.
        log_scale: the scale's logarithm, (); for a `models.Joint` a `Joint` of two, since the readout's gradient does
            not vanish where the softmax saturates. -inf where the gradient is zero.
        losses: the losses of the inputs, (n,).
        probabilities: the attention of each head, (heads, n, T).
    """

    gradient: Any
    log_scale: Any
    losses: Float[Array, " n"]
    probabilities: Float[Array, "heads n T"]


def direction(
    params: Any,
    problem: Problem,
    *,
    model: Any = models.plain,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
) -> Direction:
    """Return the gradient of the risk without its common exponential factor, for a training loop of your own.

    It never underflows: where the softmax has saturated and `jax.grad(losses.risk)` returns zeros or rounding errors,
    `gradient` still has the right direction. Use it with a rule that does not depend on the gradient's scale. Pure;
    works under `jit` and `vmap`.

    Args:
        params: the model's parameters: an array W, Factored(K, Q), a tuple of heads, or any other pytree that it takes.
        problem: one problem, without batch axes.
        model: a value of `models`, or a function from params and a problem to logits.
        loss: a function of one margin.
        head: a function of one attention output and the problem's v.

    Raises:
        ValueError: parameters that do not fit the model and the problem; an invalid model, loss or head.

    Example:
        >>> W = jnp.zeros((5, 5))
        >>> for _ in range(10):
        ...     G = descent.direction(W, problem).gradient
        ...     W = W - 0.1 * G / jnp.linalg.norm(G)
    """
    checks.function("loss", loss, ("margin",))
    checks.function("head", head, ("x", "v"))
    return slope(params, problem, models.of(model), gradients.direction, loss, head)


def slope(
    params: Any,
    problem: Problem,
    model: models.Model,
    rule: gradients.Rule,
    loss: losses.Loss,
    head: heads.Head,
    draw: Draw | Sample | None = None,
    penalty: Penalty = unpenalized,
) -> Direction:
    """Return the gradient by `gradients.direction` or `gradients.exact` (log_scale 0), with noise and penalty."""
    weights, readout = models.parts(params)
    logits, pull = jax.vjp(lambda weights: model.logits(weights, problem), weights)
    count, n, T = logits.shape

    def predicted(readout: Any, probabilities: Array) -> Array:
        heard = probabilities * draw.attention[None] if isinstance(draw, Draw) else probabilities
        return model.predictions(readout, heard, problem, head)

    # The rule treats each head of each input as an input of its own, whose prediction is that of all heads together.
    def read(step: Int[Array, ""], rows: Array) -> tuple[Array, Array]:
        del step
        predictions, back = jax.vjp(predicted, readout, rows.reshape(logits.shape))
        worth = back(jnp.ones(n, rows.dtype))[1]
        worth = worth * draw.inputs[None, :, None] if isinstance(draw, Draw) else worth
        return jnp.tile(predictions, count), worth.reshape(rows.shape)

    rows = logits.reshape(count * n, T)
    whole = penalties.added(rule, penalty)
    sample = Sample(jnp.tile(draw.noise, (count, 1)), draw.tau) if isinstance(draw, Sample) else None
    noisy = whole if sample is None else through(sample, whole)
    found = noisy(lanes.before(), rows, jnp.tile(problem.Y, count), read, loss)
    # The rule took the mean over count * n inputs.
    of_logits = count * found.coefficients.reshape(logits.shape)
    (of_weights,) = pull(of_logits)
    probabilities = found.probabilities.reshape(logits.shape)
    if readout is None:
        return Direction(of_weights, found.log_scale, found.losses[:n], probabilities)
    heard = probabilities if sample is None else chosen(sample, rows).reshape(logits.shape)
    of_readout, scale = _of_readout(predicted, readout, heard, problem.Y, loss, rule, draw)
    gradient, scales = models.Joint(of_weights, of_readout), models.Joint(found.log_scale, scale)
    return Direction(gradient, scales, found.losses[:n], probabilities)


def _of_readout(
    predicted: Callable[[Any, Array], Array],
    readout: Any,
    probabilities: Float[Array, "heads n T"],
    Y: Float[Array, " n"],
    loss: losses.Loss,
    rule: gradients.Rule,
    draw: Draw | Sample | None,
) -> tuple[Any, Float[Array, ""]]:
    """Return the gradient with respect to the readout, and the logarithm of its scale."""
    predictions, back = jax.vjp(lambda readout: predicted(readout, probabilities), readout)
    sign, exponent = gradients.log_slope(loss, Y * predictions)
    share = draw.inputs if isinstance(draw, Draw) else jnp.ones_like(Y)
    exponent = jnp.where(share > 0, exponent, -jnp.inf)
    largest = jnp.max(exponent) if rule is gradients.direction else jnp.zeros((), Y.dtype)
    size = jnp.exp(exponent - jnp.where(jnp.isfinite(largest), largest, 0))
    (gradient,) = back(Y * sign * size * share / Y.shape[0])
    return gradient, largest


class Kept(NamedTuple):
    """The parameters and the optimizer's state between steps, one for each part if there are two."""

    params: Any
    state: Any


# One update of all parameters; or two, of attention and readout, the latter None if no readout is trained.
Updates = tuple[Callable[..., Any]] | tuple[Callable[..., Any], Callable[..., Any] | None]


def begun(
    optimizer: optax.GradientTransformation, params: Any, has_engine: bool
) -> tuple[Callable[[Any], Any], Callable[..., Any] | Updates]:
    """Return an optimizer's init function and its update, whose numbers are in the state.

    The update takes the gradient's scale if the optimizer is `ScaleFree` and has moments. For a model without an engine
    it is `Updates`: a `ScaleFree` optimizer then trains attention and readout by two copies, since their gradients have
    different scales.

    Raises:
        ValueError: a `ScaleFree` optimizer whose steps depend on the gradient's scale.
    """
    if not isinstance(optimizer, ScaleFree):
        init, update = _numbered(optimizer, params)
        return init, update if has_engine else (update,)
    if has_engine:
        return _scale_free(optimizer, params)
    weights, readout = models.parts(params)
    first, update = _scale_free(optimizer, weights)
    if readout is None:
        return lambda params: models.Joint(first(params), None), (update, None)
    second, of_readout = _scale_free(optimizer, readout)
    return lambda params: models.Joint(first(params.attention), second(params.readout)), (update, of_readout)


def _scale_free(optimizer: ScaleFree, part: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    init, update = _numbered(optimizer, part)
    return rescaled(init, update, part) if isinstance(init, hyperparameters.Begin) else (init, update)


def _numbered(optimizer: optax.GradientTransformation, part: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two functions of an optimizer, with its numbers in the state."""
    if along(plain(optimizer.update)) is not None:
        return optimizer.init, optimizer.update
    return hyperparameters.shared(optimizer, part)


def state_of(update: Callable[..., Any] | Updates, state: Any) -> Any:
    """Return an optimizer's state, for an update of `begun`, as the optimizer itself would have it."""
    if isinstance(update, tuple):
        if len(update) == 1:
            return state_of(update[0], state)
        of_attention = state_of(update[0], state.attention)
        return of_attention if update[1] is None else models.Joint(of_attention, state_of(update[1], state.readout))
    state = update.with_scale(state) if isinstance(update, Rescaled) else state
    return hyperparameters.with_keys(state.state) if isinstance(state, hyperparameters.Numbered) else state


def moved(updates: Updates, found: Direction, kept: Kept) -> Kept:
    """Return what is kept after one step along a gradient."""
    if len(updates) == 1:
        return _moved(updates[0], found.gradient, kept)
    (weights, readout), state = models.parts(kept.params), kept.state
    slopes, scales = models.parts(found.gradient), models.parts(found.log_scale)
    attention = _moved(updates[0], slopes.attention, Kept(weights, state.attention), scales.attention)
    if updates[1] is None:
        return Kept(attention.params, models.Joint(attention.state, None))
    other = _moved(updates[1], slopes.readout, Kept(readout, state.readout), scales.readout)
    return Kept(models.Joint(attention.params, other.params), models.Joint(attention.state, other.state))


def _moved(update: Callable[..., Any], gradient: Any, kept: Kept, log_scale: Any = None) -> Kept:
    scale = (log_scale,) if isinstance(update, Rescaled) else ()
    moves, state = update(gradient, kept.state, kept.params, *scale)
    return Kept(jax.tree.map(jnp.add, kept.params, moves), state)


def length_of(found: Direction) -> Float[Array, ""]:
    """Return the Euclidean length of the whole gradient, ()."""
    parts, scales = models.parts(found.gradient), models.parts(found.log_scale)
    squares = [
        (optax.tree.norm(part) * jnp.exp(scale)) ** 2
        for part, scale in zip(parts, scales, strict=True)
        if scale is not None
    ]
    return jnp.sqrt(sum(squares[1:], squares[0]))
