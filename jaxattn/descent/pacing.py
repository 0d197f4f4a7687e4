"""Steps that grow shorter: rules of this package whose step falls with their number, or with the weights' length.

A constant step of normalized descent bounces about its limit at a distance that the step decides. A step that falls,
but slowly enough to go any distance, settles.
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
from jaxattn.descent.optimizers import along, length_of
from jaxattn.parallel.lanes import spread

__all__ = ["FallingStep", "falling", "falling_step", "plain", "relative"]


class PacedState(NamedTuple):
    """The state of a rule, how many steps it took, and the power of that number by which its step falls."""

    rule: Any
    taken: Int[Array, ""]
    power: Float[Array, ""]


# From a state and the length of the weights that a step moves to what the step is multiplied by.
Factor = Callable[[PacedState, Array], Array]


@dataclass(frozen=True)
class Paced:
    """An update whose steps are those of another, each multiplied by a factor.

    Attributes:
        update: of an optimizer of `optimizers`.
        factor: of each matrix's step, or of both.
    """

    update: Callable[..., Any]
    factor: Factor

    def __call__(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, PacedState]:
        """Return the steps and the state after them, as an optax transformation does."""
        moves, rule = self.update(updates, state.rule, params)
        lengths = [length_of(leaf, state.power.ndim) for leaf in jax.tree.leaves(params)]
        factors = jax.tree.unflatten(jax.tree.structure(moves), self.factors(state, lengths))
        moves = jax.tree.map(lambda move, factor: spread(factor, move) * move, moves, factors)
        return moves, self.after(state, rule)

    def factors(self, state: PacedState, lengths: list[Array]) -> list[Array]:
        """Return the factor of each matrix's step, from the lengths of the matrices; a rule of one norm has one."""
        rule = along(self.update)
        assert rule is not None
        counted = rule.lengths(*lengths) if len(lengths) == len(Factored._fields) else lengths
        return [self.factor(state, length) for length in counted]

    def after(self, state: PacedState, rule: Any) -> PacedState:
        """Return the state after a step, with that of the rule."""
        return state._replace(rule=rule, taken=state.taken + 1)


def plain(update: Callable[..., Any]) -> Callable[..., Any]:
    """Return the update that a paced one makes shorter, and any other as it is.

    Example:
        >>> from jaxattn.descent import pacing
        >>> rule = descent.gd(0.1)
        >>> pacing.plain(descent.falling(rule).update) is pacing.plain(rule.update)
        True
    """
    return update.update if isinstance(update, Paced) else update


def falling(optimizer: optax.GradientTransformation, power: float = 0.5) -> optax.GradientTransformation:
    """Make the k-th step of an optimizer k^-power times as long, k = 1, 2, ...

    The optimizer is given the same gradient as before: `falling` of one that is `ScaleFree` or `Exact` is so, too.
    Factors take the fast path of constant steps, free weights the general one; texts refuse it.

    Args:
        optimizer: one of this package that moves along the gradient: `gd`, `normalized_gd`, `exact_normalized_gd`,
            `jointly_normalized_gd`.
        power: up to 1, beyond which steps no longer go any distance.

    Raises:
        ValueError: another optimizer, or a power outside (0, 1].

    Example:
        >>> rule = descent.falling(descent.jointly_normalized_gd(1.0, penalty=0.0))
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    _check_power(power)
    return _paced(optimizer, _by_steps, power)


def relative(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Divide every step of an optimizer by the Frobenius norm of the weights that it moves.

    K and Q each by its own, or both by `sqrt(||K||_F^2 + ||Q||_F^2)` where the optimizer has one norm for both. As
    normalized descent makes the weights longer, its steps then fall like k^-1/2. Weights of zero move by whole steps.
    Otherwise as `falling`.

    Raises:
        ValueError: another optimizer than `falling` takes.

    Example:
        >>> rule = descent.relative(descent.normalized_gd(1.0, floor=0.0, penalty=0.0))
        >>> run = descent.train(initial.factored(key, 5), problem, optimizer=rule, steps=10)
    """
    return _paced(optimizer, _by_length, 0.0)


@dataclass(frozen=True)
class FallingStep:
    """A schedule: `step (1 + k)^-power`, k the number of steps taken; equal ones compile once.

    Attributes:
        step: the first.
        power: by which the others fall.
    """

    step: float
    power: float

    def __call__(self, k: Any) -> Any:
        """Return the step after k steps."""
        # Of no precision of its own: the step is of that of the weights.
        return self.step * (1 + k) ** -self.power


def falling_step(step: float, power: float = 0.5) -> FallingStep:
    """Return the schedule `step (1 + k)^-power`, which optax has not, for `steepest`, `mirror` and optax's rules.

    Args:
        step: the first.
        power: up to 1, beyond which steps no longer go any distance.

    Raises:
        ValueError: a step that is not positive and finite, or a power outside (0, 1].

    Example:
        >>> rule = descent.steepest("spectral", descent.falling_step(0.3))
        >>> run = descent.train(start, problem, optimizer=rule, steps=10)
    """
    checks.positive("step", step)
    _check_power(power)
    return FallingStep(step, power)


def _check_power(power: float) -> None:
    if not 0 < power <= 1:
        raise ValueError(f"power: expected a number above 0 and at most 1, found {power!r}")


def _paced(optimizer: optax.GradientTransformation, factor: Factor, power: float) -> optax.GradientTransformation:
    if along(optimizer.update) is None:
        found = getattr(optimizer.update, "__qualname__", optimizer.update)
        raise ValueError(f"optimizer: expected one that moves along the gradient, gd or normalized_gd, found {found}")
    # `ScaleFree` and `Exact` are kinds of transformation, and tell which gradient is given.
    return type(optimizer)(partial(_init, optimizer.init, power), Paced(optimizer.update, factor))


def _init(init: Callable[[Any], Any], power: float, params: optax.Params) -> PacedState:
    dtype = jax.tree.leaves(params)[0].dtype
    return PacedState(init(params), jnp.zeros((), jnp.int32), jnp.asarray(power, dtype))


def _by_steps(state: PacedState, length: Array) -> Array:
    return (state.taken + 1).astype(length.dtype) ** -state.power


def _by_length(state: PacedState, length: Array) -> Array:
    del state
    return 1 / jnp.where(length > 0, length, 1.0)
