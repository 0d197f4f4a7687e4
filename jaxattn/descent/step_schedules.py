"""Decreasing steps: optimizers of this package whose step falls with the step number or the weights' length.

With a constant step, normalized descent oscillates about its limit at a distance set by the step. A step that tends to
zero converges, if it falls slowly enough that the steps sum to infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxattn import checks
from jaxattn.attention import Factored
from jaxattn.checks import Number
from jaxattn.descent.optimizers import along, length_of
from jaxattn.parallel.lanes import spread

__all__ = ["FallingStep", "falling", "falling_step", "plain", "relative"]


class ScheduledState(NamedTuple):
    """The state of an optimizer, the number of its steps, and the power of that number by which its step falls."""

    rule: Any
    taken: Int[Array, ""]
    power: Float[Array, ""]


# Maps a state and the length of the weights that move to the factor of their step.
Factor = Callable[[ScheduledState, Array], Array]


@dataclass(frozen=True)
class Scheduled:
    """An update with the steps of one of `optimizers`, each multiplied by a factor, of one matrix or both."""

    update: Callable[..., Any]
    factor: Factor

    def __call__(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, ScheduledState]:
        """Return the steps and the next state, as an optax transformation does."""
        moves, rule = self.update(updates, state.rule, params)
        lengths = [length_of(leaf, state.power.ndim) for leaf in jax.tree.leaves(params)]
        factors = jax.tree.unflatten(jax.tree.structure(moves), self.factors(state, lengths))
        moves = jax.tree.map(lambda move, factor: spread(factor, move) * move, moves, factors)
        return moves, self.after(state, rule)

    def factors(self, state: ScheduledState, lengths: list[Array]) -> list[Array]:
        """Return the factor of each matrix's step from the matrices' lengths; one factor for a rule with one norm."""
        rule = along(self.update)
        assert rule is not None
        counted = rule.lengths(*lengths) if len(lengths) == len(Factored._fields) else lengths
        return [self.factor(state, length) for length in counted]

    def after(self, state: ScheduledState, rule: Any) -> ScheduledState:
        """Return the state after a step, given the rule's state."""
        return state._replace(rule=rule, taken=state.taken + 1)


def plain(update: Callable[..., Any]) -> Callable[..., Any]:
    """Return the update inside a `Scheduled` one; other updates are returned unchanged.

    Example:
        >>> from jaxattn.descent import step_schedules
        >>> rule = descent.gd(0.1)
        >>> step_schedules.plain(descent.falling(rule).update) is step_schedules.plain(rule.update)
        True
    """
    return update.update if isinstance(update, Scheduled) else update


def falling(optimizer: optax.GradientTransformation, power: Number = 0.5) -> optax.GradientTransformation:
    """Multiply the k-th step of an optimizer by k^-power, k = 1, 2, ...

    The optimizer gets the same gradient as before: a `ScaleFree` or `Exact` optimizer stays so. Factored weights train
    as fast as with constant steps; free weights use the general engine. Training on texts refuses it.

    Args:
        optimizer: one that moves along the gradient: `gd`, `normalized_gd`, `exact_normalized_gd` or
            `jointly_normalized_gd`.
        power: above 0 and at most 1; with a larger power the total length of all steps would be finite.

    Raises:
        ValueError: another optimizer, or a power outside (0, 1].

    Example:
        >>> rule = descent.falling(descent.jointly_normalized_gd(1.0, penalty=0.0))
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    return _scheduled(optimizer, _by_steps, _checked(power))


def relative(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Divide each step of an optimizer by the Frobenius norm of the weights that it moves.

    K and Q are divided each by its own norm, or both by `sqrt(||K||_F^2 + ||Q||_F^2)` if the optimizer has one norm for
    both. As normalized descent makes the weights longer, its steps then fall like k^-1/2. Zero weights move by whole
    steps. Otherwise as `falling`.

    Raises:
        ValueError: an optimizer that `falling` does not take.

    Example:
        >>> rule = descent.relative(descent.normalized_gd(1.0, floor=0.0, penalty=0.0))
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    return _scheduled(optimizer, _by_length, 0.0)


@dataclass(frozen=True)
class FallingStep:
    """The schedule `step (1 + k)^-power`, k the number of steps taken. Equal schedules compile once.

    Attributes:
        step: the first step.
        power: the power by which later steps fall.
    """

    step: Number
    power: Number

    def __call__(self, k: Any) -> Any:
        """Return the step after k steps."""
        # Without a dtype of its own, so that the step takes the weights' precision.
        return self.step * (1 + k) ** -self.power


@checks.remembered
def falling_step(step: Number, power: Number = 0.5) -> FallingStep:
    """Return the schedule `step (1 + k)^-power`, for `steepest`, `mirror` and optax's optimizers.

    Args:
        step: the first step.
        power: above 0 and at most 1; with a larger power the total length of all steps would be finite.

    Raises:
        ValueError: a step that is not positive and finite, or a power outside (0, 1].

    Example:
        >>> rule = descent.steepest("spectral", descent.falling_step(0.3))
        >>> run = descent.train(start, problem, optimizer=rule, steps=10)
    """
    return FallingStep(checks.positive("step", step), _checked(power))


def _checked(power: Any) -> Any:
    return checks.number("power", power, "a number above 0 and at most 1", lambda power: 0 < power <= 1)


def _scheduled(optimizer: optax.GradientTransformation, factor: Factor, power: Number) -> optax.GradientTransformation:
    if along(optimizer.update) is None:
        found = getattr(optimizer.update, "__qualname__", optimizer.update)
        raise ValueError(f"optimizer: expected one that moves along the gradient, gd or normalized_gd, found {found}")
    # `ScaleFree` and `Exact` are types of the transformation: keep the type, which selects the gradient.
    return type(optimizer)(partial(_init, optimizer.init, power), Scheduled(optimizer.update, factor))


def _init(init: Callable[[Any], Any], power: Number, params: optax.Params) -> ScheduledState:
    dtype = jax.tree.leaves(params)[0].dtype
    return ScheduledState(init(params), jnp.zeros((), jnp.int32), jnp.asarray(power, dtype))


def _by_steps(state: ScheduledState, length: Array) -> Array:
    return (state.taken + 1).astype(length.dtype) ** -state.power


def _by_length(_: ScheduledState, length: Array) -> Array:
    return 1 / jnp.where(length > 0, length, 1.0)
