"""Optimizers for attention weights, as optax values.

Any optax transformation can be used for training. The optimizers of this module move each matrix along its own
gradient, at a rate that depends only on the gradient's length. Some use only the gradient's direction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxattn import checks
from jaxattn.attention import Factored
from jaxattn.checks import Number
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

# The published runs use the machine epsilon of 1.0 (2.2e-16) twice: added to the gradient's norm, which they divide by,
# and as the coefficient of ||K||_F^2 + ||Q||_F^2.
PUBLISHED_EPSILON = 2.0**-52


P = ParamSpec("P")
Made = TypeVar("Made", bound="_Pickled")


class StepState(NamedTuple):
    """The parameters of a descent rule, kept in the optimizer's state so that changing them does not recompile."""

    step_size: Float[Array, ""]
    floor: Float[Array, ""]
    penalty: Float[Array, ""]


class _Pickled(optax.GradientTransformation):
    """An optimizer that is pickled as the call that made it, if `pickled_as_made` knows it."""

    def __reduce__(self) -> tuple[Any, ...]:
        call = vars(self).get("call")
        return (type(self), tuple(self)) if call is None else (call, ())


def pickled_as_made(make: Callable[P, Made]) -> Callable[P, Made]:
    """Let a function return one optimizer for equal arguments, which is pickled as the function's call.

    The functions inside such an optimizer have no names under which another process would find them.
    """
    known = checks.remembered(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Made:
        optimizer = known(*args, **kwargs)
        vars(optimizer)["call"] = partial(made, *args, **kwargs)
        return optimizer

    return made


class ScaleFree(_Pickled):
    """An optimizer that does not depend on the gradient's scale: it takes the same steps for c times the gradients.

    `train` passes it `gradients.direction`, which never underflows, so it does not stall however far the softmax has
    saturated. `ScaleFree(*optimizer)` makes such an optimizer of sign descent, or of Adam or Muon with eps = 0. The
    scale is kept beside the direction (`moment_rescaling`), so momentum and second moments are those of the gradient
    itself, exact to rounding. `train` tests scale independence, and refuses other optimizers.

    Example:
        >>> run = descent.train(start, problem, optimizer=descent.ScaleFree(*optax.adam(0.01, eps=0.0)), steps=10)
    """


class Exact(_Pickled):
    """An optimizer that gets the gradient computed in the log domain, exact to rounding until it underflows.

    Other optimizers get it as the published code computes it, where the terms of the selected tokens cancel. Once the
    softmax has saturated, this leaves an absolute error of about 1e-16, as large as the published floor and penalty.
    `Exact(*optimizer)` makes such an optimizer of any other.
    """


def gd(step_size: Number) -> optax.GradientTransformation:
    """Return plain gradient descent, `W <- W - step_size * gradient`.

    Raises:
        ValueError: a step size that is not positive and finite.

    Example:
        >>> descent.train(start, problem, optimizer=descent.gd(0.5), steps=10).loss.shape
        (10,)
    """
    return optax.GradientTransformation(_beginning(step_size, 0.0, 0.0), _gd_update)


def normalized_gd(
    step_size: Number,
    floor: Number = PUBLISHED_EPSILON,
    penalty: Number = PUBLISHED_EPSILON,
) -> optax.GradientTransformation:
    """Return normalized gradient descent, the published protocol (2308.16898, section 3, experiments).

    Each weight matrix moves by `step_size * gradient / (||gradient||_F + floor)`: W, or K and Q each with its own norm.
    For factored weights the gradient is that of the risk plus `penalty * (||K||_F^2 + ||Q||_F^2)`. Free weights are not
    penalized.

    Both defaults are the published ones, and they determine where a long run ends. Once the gradient is smaller than
    the floor, free weights almost stop moving. Factored weights stop where the gradients of risk and penalty balance.
    With floor = penalty = 0 the optimizer is `ScaleFree`: any gradient gives a full step, however small, except zero,
    which gives none.

    Raises:
        ValueError: a step size that is not positive and finite, a floor or penalty below 0 or infinite.

    Example:
        >>> never_stalls = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        >>> run = descent.train(start, problem, optimizer=never_stalls, steps=10)
    """
    for name, number in (("floor", floor), ("penalty", penalty)):
        checks.at_least_zero(name, number)
    kind = ScaleFree if checks.is_zero(floor, penalty) else optax.GradientTransformation
    return kind(_beginning(step_size, floor, penalty), _normalized_update)


def _beginning(step_size: Number, floor: Number, penalty: Number) -> Callable[..., Any]:
    return _begin(checks.positive("step_size", step_size), floor, penalty)


# One object for equal numbers: optimizers made from the same numbers are equal, and so are the rules of runs.
@checks.remembered
def _begin(step_size: Number, floor: Number, penalty: Number) -> Callable[..., Any]:
    return partial(_init, step_size, floor, penalty)


def _init(step_size: Number, floor: Number, penalty: Number, params: optax.Params) -> StepState:
    dtype = jax.tree.leaves(params)[0].dtype
    return StepState(*(jnp.asarray(number, dtype) for number in (step_size, floor, penalty)))


def exact_normalized_gd(
    step_size: Number, floor: Number = 0.0, penalty: Number = PUBLISHED_EPSILON
) -> optax.GradientTransformation:
    """Return `normalized_gd` as `Exact`: normalized gradient descent without the published rounding errors.

    Raises:
        ValueError: as in `normalized_gd`.

    Example:
        >>> rule = descent.exact_normalized_gd(0.1, penalty=1e-100)
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    optimizer = normalized_gd(step_size, floor, penalty)
    return optimizer if isinstance(optimizer, ScaleFree) else Exact(*optimizer)


def jointly_normalized_gd(
    step_size: Number, floor: Number = 0.0, penalty: Number = PUBLISHED_EPSILON
) -> optax.GradientTransformation:
    """Return `exact_normalized_gd` with one common norm for K and Q.

    Raises:
        ValueError: as in `normalized_gd`.

    Example:
        >>> rule = descent.jointly_normalized_gd(0.1)
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    kind = type(exact_normalized_gd(step_size, floor, penalty))
    return kind(_beginning(step_size, floor, penalty), _jointly_normalized_update)


def long_first_gd(step_size: Number, first: Number) -> optax.GradientTransformation:
    """Return normalized gradient descent, as `ScaleFree`, whose first step has another length.

    With a long first step from `W = 0`, descent effectively starts in the direction of the first gradient. This is the
    protocol of the global convergence theorem under a good initial gradient (2308.16898, section 4).

    Raises:
        ValueError: a length that is not positive and finite.

    Example:
        >>> rule = descent.long_first_gd(0.1, first=100.0)
        >>> run = descent.train(jnp.zeros((5, 5)), problem, optimizer=rule, steps=10)
    """
    lengths = checks.positive("step_size", step_size), checks.positive("first", first)
    return ScaleFree(partial(_long_first_init, *lengths), _long_first_update)


class _LongFirstState(NamedTuple):
    now: StepState
    then: Float[Array, ""]


def _long_first_init(step_size: Number, first: Number, params: optax.Params) -> _LongFirstState:
    now, then = (_init(length, 0.0, 0.0, params) for length in (first, step_size))
    return _LongFirstState(now, then.step_size)


def _long_first_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, _LongFirstState]:
    updates, now = _normalized_update(updates, state.now, params)
    return updates, _LongFirstState(now._replace(step_size=state.then), state.then)


def _gd_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    del params
    return jax.tree.map(lambda g: -spread(state.step_size, g) * g, updates), state


def _normalized_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    updates = _penalized(updates, state, params)
    return jax.tree.map(lambda g: _step(g, length_of(g, state.step_size.ndim), state), updates), state


def _jointly_normalized_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, StepState]:
    updates = _penalized(updates, state, params)
    length = length_of(updates, state.step_size.ndim)
    return jax.tree.map(lambda g: _step(g, length, state), updates), state


def _step(gradient: Array, length: Array, state: StepState) -> Array:
    length = length + state.floor
    # One division per lane. The inverse of a nonzero length is finite.
    inverse = spread(1 / jnp.where(length > 0, length, 1.0), gradient)
    return -spread(state.step_size, gradient) * (gradient * inverse)


def _penalized(updates: Any, state: Any, params: Any) -> Any:
    if not isinstance(params, Factored):
        return updates
    return jax.tree.map(lambda g, w: g + 2 * spread(state.penalty, w) * w, updates, params)


def length_of(gradient: Any, lanes: int) -> Float[Array, "*lanes"]:
    """Return the Euclidean norm of all entries of a pytree, without underflow or overflow of squares.

    The last `lanes` axes of its arrays are lanes, each of which has its own norm.
    """
    leaves = jax.tree.leaves(gradient)
    # One division per lane; `metrics.norm` has one per entry, too slow for the loop over steps.
    size = size_of(leaves, lanes)
    squares = [total((leaf * spread(1 / size, leaf)) ** 2, leaf.ndim - lanes) for leaf in leaves]
    return size * jnp.sqrt(reduce(jnp.add, squares))


def size_of(gradient: Any, lanes: int) -> Float[Array, "*lanes"]:
    """Return the largest absolute entry of a pytree per lane, at least the least number with a finite inverse.

    After division by it, squares do not underflow. The arguments are those of `length_of`.
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
    """How an update moves each matrix along its own gradient.

    Attributes:
        rate: the step is `-rate(state, length, size)` times the gradient, which has been divided by `size` and then has
            this `length`.
        penalty: returns the coefficient of `||K||_F^2 + ||Q||_F^2`; free weights are not penalized.
        lengths: maps the lengths of the gradients of K and Q to the lengths used in their rates.
    """

    rate: Callable[[Any, Array, Array], Array]
    penalty: Callable[[Any], Array]
    lengths: Callable[[Array, Array], tuple[Array, Array]]


_ALONG = {
    _gd_update: Along(_gd_rate, lambda state: jnp.zeros_like(state.penalty), lambda K, Q: (K, Q)),
    _normalized_update: Along(_normalized_rate, lambda state: state.penalty, lambda K, Q: (K, Q)),
    _jointly_normalized_update: Along(
        _normalized_rate, lambda state: state.penalty, lambda K, Q: (length := jnp.sqrt(K**2 + Q**2), length)
    ),
}


def along(update: Callable[..., Any]) -> Along | None:
    """Return how an update of this module moves each matrix along its gradient; None for other updates.

    With such an update the weights stay in the span of their start and of the problem's tokens and queries. The update
    also accepts weights and states with trailing lane axes.
    """
    return _ALONG.get(update)
