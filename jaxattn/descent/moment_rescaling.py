"""Internal: carry the gradient's scale beside the moments of an optimizer that does not depend on it.

Such an optimizer takes the same steps for the gradients `g_1, g_2, ...` and `c g_1, c g_2, ...`, and each array of its
state is multiplied by a power of c: momentum by c, a mean of squares by c^2, a count by c^0. So its moments can be
stored divided by powers of a common scale, and no gradient is too small for them. The scale is a power of two, so
changing it causes no rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn.descent.hyperparameters import Begin
from jaxattn.parallel import eager
from jaxattn.parallel.lanes import largest, spread

# The number of steps compared to find the powers, and the powers that are tried; 0 if several fit.
_COMPARED = 8
_POWERS = (0, 1, 2, 3, 4, -1, -2)
# Decompositions, for example, round otherwise at another scale. What depends on the scale differs by far more.
_ROUNDING = 1e-6
# Binary digits of the exponent reserved for an entry's own size and for factors of its square in the moments.
_SPARE = 24
# The gradient's exponent may differ from that of the state by this fraction of the largest exponent: 102 binary digits
# in double precision. The fourth power must not overflow.
_BAND = 10
_LOG_2 = math.log(2)


class RescaledState(NamedTuple):
    """An optimizer's state, each array divided by its power of `2 ** exponent`; the exponent is an integer."""

    kept: Any
    exponent: Float[Array, "*lanes"]


@dataclass(frozen=True)
class Rescaled:
    """A scale independent update, given the gradient as a direction and the logarithm of its scale.

    `powers` has the power of the scale for each array of the optimizer's state.
    """

    update: Callable[..., Any]
    powers: tuple[int, ...]

    def __call__(
        self, direction: Any, state: RescaledState, params: Any, log_scale: Float[Array, "*lanes"]
    ) -> tuple[Any, RescaledState]:
        """Return the optimizer's steps for the gradient `exp(log_scale) * direction`, and its next state.

        Arrays may have trailing lanes, with one scale each. An entry whose gradients have all been zero, where the
        optimizer would compute 0 / 0, does not move. Entries smaller than 1e-120 times the largest (1e-12 in single
        precision), whose squares might underflow, count as zero.
        """
        kept, exponent = self._within_reach(_log2_of_largest(direction, log_scale.ndim) + log_scale / _LOG_2, state)
        factor = jnp.exp(log_scale - exponent * _LOG_2)
        gradient = jax.tree.map(lambda leaf: _without_traces(leaf * spread(factor, leaf)), direction)
        update = self.update
        for _ in range(log_scale.ndim):
            update = jax.vmap(update, in_axes=-1, out_axes=-1)
        updates, after = update(gradient, kept, params)
        updates = jax.tree.map(lambda u, g: jnp.where(jnp.isnan(u) & (g == 0), 0, u), updates, gradient)
        return updates, RescaledState(after, exponent)

    def with_scale(self, state: RescaledState) -> Any:
        """Return the optimizer's own state; parts of it may overflow or underflow."""
        leaves, structure = jax.tree.flatten(state.kept)
        scaled = [
            _times_power_of_two(leaf, power * state.exponent) if power else leaf
            for leaf, power in zip(leaves, self.powers, strict=True)
        ]
        return jax.tree.unflatten(structure, scaled)

    def _within_reach(self, size: Float[Array, "*lanes"], state: RescaledState) -> RescaledState:
        """Return the state, divided by another power of two if the gradient's, `2 ** size`, is too far from it.

        This is rare, so most steps do not pass over the state. It changes no digit of a lane, whatever other lanes do.
        """
        reach = jnp.finfo(state.exponent.dtype).maxexp // _BAND
        # As long as all gradients were zero there is nothing to scale.
        far = jnp.isfinite(size) & (jnp.abs(size - state.exponent) > reach)

        def moved() -> RescaledState:
            leaves, structure = jax.tree.flatten(state.kept)
            powers = list(zip(leaves, self.powers, strict=True))
            sizes = [_log2_of_largest(leaf, size.ndim) / power + state.exponent for leaf, power in powers if power]
            near = jnp.ceil(reduce(jnp.maximum, sizes, size)).astype(state.exponent.dtype)
            exponent = jnp.where(far, near, state.exponent)
            shift = state.exponent - exponent
            kept = [_times_power_of_two(leaf, power * shift) if power else leaf for leaf, power in powers]
            return RescaledState(jax.tree.unflatten(structure, kept), exponent)

        return jax.lax.cond(jnp.any(far), moved, lambda: state)


def rescaled(init: Begin, update: Callable[..., Any], weights: Any) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """Return an optimizer's init function and an update that carries the gradient's scale.

    Scale independence, up to rounding, is tested on weights of the given shapes, with typical numbers in place of
    traced ones. The functions of an optimizer without moments are returned unchanged.

    Raises:
        ValueError: its steps depend on the scale, or its state does not scale with a power of it.
    """
    leaves, structure = jax.tree.flatten(weights)
    shapes = tuple((leaf.shape, jnp.result_type(leaf)) for leaf in leaves)
    powers = _powers(init.typical, update, structure, shapes)
    return (partial(_init, init), Rescaled(update, powers)) if any(powers) else (init, update)


def _init(init: Callable[[Any], Any], params: Any) -> RescaledState:
    return RescaledState(init(params), jnp.zeros((), jax.tree.leaves(params)[0].dtype))


@lru_cache(maxsize=64)
def _powers(
    init: Callable[..., Any],
    update: Callable[..., Any],
    structure: Any,
    shapes: tuple[tuple[tuple[int, ...], np.dtype], ...],
) -> tuple[int, ...]:
    """Return the power of the gradient's scale for each array of an optimizer's state; they must scale, up to rounding.

    The same gradients are passed three times, multiplied by 1, 2^h and 2^-h, with h as large as squares allow. Anything
    the optimizer adds, compares with or clips at shows as a difference if it is at least 2^-h of what it is added to;
    smaller terms count as zero.
    """

    def drawn(number: int, shift: int = 0) -> Any:
        rng = np.random.default_rng(number)
        entries = [np.ldexp(rng.normal(size=shape), shift).astype(dtype) for shape, dtype in shapes]
        return jax.tree.unflatten(structure, [jnp.asarray(entry) for entry in entries])

    # Also while `train` is being traced.
    with eager.computing():
        params = drawn(0)
        state = jax.tree.map(jnp.asarray, init(params))  # A state may hold plain numbers.
        paths = [jax.tree_util.keystr(path[1:]) for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
        types = [leaf.dtype for leaf in jax.tree.leaves((params, state)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        reach = min(jnp.finfo(dtype).maxexp for dtype in types) // 2 - _SPARE
        shifts = 0, reach, -reach
        states = [state for _ in shifts]
        possible = _followed(states, shifts)
        for k in range(1, _COMPARED + 1):
            results = [_stepped(update, drawn(k, h), state, params) for h, state in zip(shifts, states, strict=True)]
            states = [state for _, state in results]
            possible = [one & other for one, other in zip(possible, _followed(states, shifts), strict=True)]
            moves = _followed([moved for moved, _ in results], shifts)
            if any(0 not in powers for powers in moves):
                raise _refused("a step that changes with it by more than rounding")
    lost = [path for path, powers in zip(paths, possible, strict=True) if not powers]
    if lost:
        raise _refused(f"a state whose {lost[0]} follows no power of it")
    return tuple(min(powers, key=_POWERS.index) for powers in possible)


@partial(jax.jit, static_argnums=0)
def _stepped(update: Callable[..., Any], *arguments: Any) -> Any:
    return update(*arguments)


def _followed(trees: list[Any], shifts: tuple[int, ...]) -> list[set[int]]:
    """Return for each array of a pytree the powers p such that scaling the gradients by 2^h scales it by 2^(p h)."""
    # Double precision represents all other types exactly.
    first, *others = ([np.asarray(leaf, float) for leaf in jax.tree.leaves(tree)] for tree in trees)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return [
            {
                power
                for power in _POWERS
                if all(
                    _is_close(np.asarray(np.ldexp(leaf, power * shift)), other[number])
                    for other, shift in zip(others, shifts[1:], strict=True)
                )
            }
            for number, leaf in enumerate(first)
        ]


def _is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays are equal, or differ by rounding relative to the largest entry."""
    if np.array_equal(one, other):
        return True
    largest = np.max(np.abs(other), initial=0.0)
    return bool(np.isfinite(largest) and np.max(np.abs(one - other), initial=0.0) <= _ROUNDING * largest)


def _refused(found: str) -> ValueError:
    return ValueError(
        "optimizer: expected one that is blind to the gradient's scale: c times the gradients give the same steps, as "
        f"with optax.adam(0.01, eps=0.0); found {found} (an eps, a clipping, a step proportional to the gradient?); "
        "descent.Exact(*optimizer) takes any, on the command line optimizer=optax"
    )


def _log2_of_largest(tree: Any, number: int) -> Float[Array, "*lanes"]:
    """Return the logarithm of the largest absolute entry of a pytree whose arrays have this number of lane axes."""
    sizes = [largest(jnp.abs(leaf), leaf.ndim - number) for leaf in jax.tree.leaves(tree)]
    return jnp.log2(reduce(jnp.maximum, sizes))


def _times_power_of_two(leaf: Array, exponent: Float[Array, "*lanes"]) -> Array:
    # A larger exponent takes even the largest number to zero.
    most = 2 * jnp.finfo(leaf.dtype).maxexp
    return jnp.ldexp(leaf, spread(jnp.clip(exponent, -most, most).astype(jnp.int32), leaf))


def _without_traces(gradient: Array) -> Array:
    """Return a gradient without the entries whose squares would underflow in a moment."""
    least = 2.0 ** (12 - jnp.finfo(gradient.dtype).maxexp // 2)
    return jnp.where(jnp.abs(gradient) < least, 0, gradient)
