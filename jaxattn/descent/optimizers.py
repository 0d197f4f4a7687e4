"""Optimizers of attention weights: values of optax, and what the engines of descent know of them.

Any optax transformation can train. Those of this module move every matrix along its own gradient, by a rate that
depends on the gradient's length alone; and some look at nothing but its direction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxattn import checks
from jaxattn.attention import Factored
from jaxattn.parallel.lanes import largest, spread, total

__all__ = [
    "PUBLISHED_EPSILON",
    "Exact",
    "ScaleFree",
    "exact_normalized_gd",
    "gd",
    "jointly_normalized_gd",
    "long_first_gd",
    "normalized_gd",
]

# The published runs add a unit in the last place of 1.0 (2.2e-16) in two places: to the gradient's
# norm, which they divide by, and as the coefficient of ||K||_F^2 + ||Q||_F^2.
PUBLISHED_EPSILON = 2.0**-52


class StepState(NamedTuple):
    """The numbers of a descent rule. They live in the state, so changing them compiles nothing anew."""

    step_size: Float[Array, ""]
    floor: Float[Array, ""]
    penalty: Float[Array, ""]


class ScaleFree(optax.GradientTransformation):
    """An optimizer that is blind to the gradient's scale: it moves alike for all gradients, and for all times a number.

    `train` gives it `gradients.direction`, which never underflows, so it does not stall however far the softmax
    has gone. Sign descent, Adam or Muon are made so by `ScaleFree(*optimizer)`, with an eps of 0. The scale is carried
    beside the direction (`carried`): momentum and second moments are those of the gradient itself, exact to rounding.
    That the optimizer is blind to the scale is tried out by `train`, which refuses any other.

    Example:
        >>> run = descent.train(start, problem, optimizer=descent.ScaleFree(*optax.adam(0.01, eps=0.0)), steps=10)
    """


class Exact(optax.GradientTransformation):
    """An optimizer that is given the gradient by way of the log domain, exact to rounding until it underflows.

    Others are given it as the published code forms it, where the selected tokens' terms cancel: once the softmax has
    saturated, an absolute error of about 1e-16 is left, which is as large as the published floor and penalty. Any
    optimizer is made so by `Exact(*optimizer)`.
    """


def gd(step_size: float) -> optax.GradientTransformation:
    """Plain gradient descent, `W <- W - step_size * gradient`.

    Raises:
        ValueError: a step size that is not positive and finite.

    Example:
        >>> descent.train(start, problem, optimizer=descent.gd(0.5), steps=10).loss.shape
        (10,)
    """
    return optax.GradientTransformation(_beginning(_positive(step_size), 0.0, 0.0), _gd_update)


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

    Example:
        >>> never_stalls = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        >>> run = descent.train(start, problem, optimizer=never_stalls, steps=10)
    """
    for name, number in (("floor", floor), ("penalty", penalty)):
        checks.at_least_zero(name, number)
    kind = ScaleFree if floor == penalty == 0 else optax.GradientTransformation
    return kind(_beginning(_positive(step_size), floor, penalty), _normalized_update)


def _positive(length: float, name: str = "step_size") -> float:
    return checks.positive(name, length)


def _beginning(step_size: float, floor: float, penalty: float) -> Callable[..., Any]:
    # Numbers may come as arrays, which have no hash.
    return _begin(float(step_size), float(floor), float(penalty))


# One object for equal numbers: optimizers made of the same ones are equal, and so are the rules of their runs.
@lru_cache(maxsize=256)
def _begin(*numbers: float) -> Callable[..., Any]:
    return partial(_init, *numbers)


def _init(step_size: float, floor: float, penalty: float, params: optax.Params) -> StepState:
    dtype = jax.tree.leaves(params)[0].dtype
    return StepState(*(jnp.asarray(number, dtype) for number in (step_size, floor, penalty)))


def exact_normalized_gd(
    step_size: float, floor: float = 0.0, penalty: float = PUBLISHED_EPSILON
) -> optax.GradientTransformation:
    """Normalized gradient descent without the published rounding errors: `normalized_gd`, as `Exact`.

    Raises:
        ValueError: as `normalized_gd`.

    Example:
        >>> rule = descent.exact_normalized_gd(0.1, penalty=1e-100)
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    optimizer = normalized_gd(step_size, floor, penalty)
    return optimizer if isinstance(optimizer, ScaleFree) else Exact(*optimizer)


def jointly_normalized_gd(
    step_size: float, floor: float = 0.0, penalty: float = PUBLISHED_EPSILON
) -> optax.GradientTransformation:
    """Normalized gradient descent with one norm for K and Q together; else as `exact_normalized_gd`.

    Raises:
        ValueError: as `normalized_gd`.

    Example:
        >>> rule = descent.jointly_normalized_gd(0.1)
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    kind = type(exact_normalized_gd(step_size, floor, penalty))
    return kind(_beginning(step_size, floor, penalty), _jointly_normalized_update)


def long_first_gd(step_size: float, first: float) -> optax.GradientTransformation:
    """Normalized gradient descent whose first step has another length, as `ScaleFree`.

    A long first step from `W = 0` makes the first gradient the direction to start from: the protocol of the global
    convergence theorem under a good initial gradient (2308.16898, section 4).

    Raises:
        ValueError: a length that is not positive and finite.

    Example:
        >>> rule = descent.long_first_gd(0.1, first=100.0)
        >>> run = descent.train(jnp.zeros((5, 5)), problem, optimizer=rule, steps=10)
    """
    return ScaleFree(partial(_long_first_init, _positive(step_size), _positive(first, "first")), _long_first_update)


class _LongFirstState(NamedTuple):
    now: StepState
    then: Float[Array, ""]


def _long_first_init(step_size: float, first: float, params: optax.Params) -> _LongFirstState:
    now, then = (_init(length, 0.0, 0.0, params) for length in (first, step_size))
    return _LongFirstState(now, then.step_size)


def _long_first_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, _LongFirstState]:
    updates, now = _normalized_update(updates, state.now, params)
    return updates, _LongFirstState(now._replace(step_size=state.then), state.then)


def _gd_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    del params
    return jax.tree.map(lambda g: -spread(state.step_size, g) * g, updates), state


def _normalized_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    def step(gradient: Array) -> Array:
        return _step(gradient, length_of(gradient, state.step_size.ndim), state)

    return jax.tree.map(step, _penalized(updates, state, params)), state


def _jointly_normalized_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    updates = _penalized(updates, state, params)
    length = length_of(updates, state.step_size.ndim)
    return jax.tree.map(lambda gradient: _step(gradient, length, state), updates), state


def _step(gradient: Array, length: Array, state: StepState) -> Array:
    length = length + state.floor
    # One division a lane; the inverse of a length that is not zero is finite.
    inverse = spread(1 / jnp.where(length > 0, length, 1.0), gradient)
    return -spread(state.step_size, gradient) * (gradient * inverse)


def _penalized(updates: Any, state: Any, params: Any) -> Any:
    if not isinstance(params, Factored):
        return updates
    return jax.tree.map(lambda g, w: g + 2 * spread(state.penalty, w) * w, updates, params)


def length_of(gradient: Any, lanes: int) -> Float[Array, "*lanes"]:
    """Return the Euclidean length of all entries of a pytree, lane by lane, without under- or overflow of squares.

    Args:
        gradient: a pytree of arrays.
        lanes: how many of their last axes are lanes.
    """
    leaves = jax.tree.leaves(gradient)
    # One division a lane, where `metrics.norm` has one an entry: in the loop over steps that would be felt.
    size = size_of(leaves, lanes)
    squares = [total((leaf * spread(1 / size, leaf)) ** 2, leaf.ndim - lanes) for leaf in leaves]
    return size * jnp.sqrt(reduce(jnp.add, squares))


def size_of(gradient: Any, lanes: int) -> Float[Array, "*lanes"]:
    """Return the largest entry of a pytree, lane by lane, or a bound below which it has no finite inverse.

    What was divided by it has squares that do not underflow. Arguments as of `length_of`.
    """
    sizes = [largest(jnp.abs(leaf), leaf.ndim - lanes) for leaf in jax.tree.leaves(gradient)]
    least = jnp.finfo(sizes[0].dtype).tiny * 1e8
    return jnp.maximum(reduce(jnp.maximum, sizes), least)


def _gd_rate(state: StepState, length: Array, size: Array) -> Array:
    del length
    return state.step_size * size


def _normalized_rate(state: StepState, length: Array, size: Array) -> Array:
    length = length + state.floor / jnp.where(size > 0, size, 1.0)
    return state.step_size / jnp.where(length > 0, length, 1.0)


class Along(NamedTuple):
    """How an update moves every matrix along its own gradient.

    Attributes:
        rate: a gradient that was divided by `size`, and has `length` since, is multiplied by minus
            `rate(state, length, size)`.
        penalty: the coefficient of `||K||_F^2 + ||Q||_F^2`; free weights are never penalized.
        lengths: from the lengths of K's and Q's gradients to those that they count with.
    """

    rate: Callable[[Any, Array, Array], Array]
    penalty: Callable[[Any], Array]
    lengths: Callable[[Array, Array], tuple[Array, Array]]


def _no_penalty(state: StepState) -> Array:
    return jnp.zeros_like(state.penalty)


def _of_state(state: StepState) -> Array:
    return state.penalty


def _each(K: Array, Q: Array) -> tuple[Array, Array]:
    return K, Q


def _both(K: Array, Q: Array) -> tuple[Array, Array]:
    length = jnp.sqrt(K**2 + Q**2)
    return length, length


_ALONG = {
    _gd_update: Along(_gd_rate, _no_penalty, _each),
    _normalized_update: Along(_normalized_rate, _of_state, _each),
    _jointly_normalized_update: Along(_normalized_rate, _of_state, _both),
}


def along(update: Callable[..., Any]) -> Along | None:
    """Return how an update of this module moves every matrix along its gradient; of others None.

    With such an update the weights stay in the span of their start and of the problem's tokens and queries. It also
    takes weights and states with lanes behind their axes.
    """
    return _ALONG.get(update)
