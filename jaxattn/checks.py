"""Internal: checks of numbers and functions that users pass."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

# A number, or an array of one, which may be traced.
Number = float | Float[Array, ""]
P = ParamSpec("P")
Made = TypeVar("Made")

# The largest count of steps, seeds or sizes: JAX may have only 32-bit integers.
MOST = 2**31 - 1


def number(name: str, value: Any, expected: str, holds: Callable[[float], bool]) -> Any:
    """Return a number as a float if a condition holds, or raise ValueError. Traced values pass, here and below."""
    if isinstance(value, Tracer):
        return value
    is_number = hasattr(value, "__float__") and not isinstance(value, bool) and np.ndim(value) == 0
    if not is_number or not holds(float(value)):
        raise ValueError(f"{name}: expected {expected}, found {value!r}")
    return float(value)


def positive(name: str, value: Any) -> Any:
    """Return a positive finite number as a float, or raise ValueError."""
    return number(name, value, "a positive finite number", lambda value: 0 < value < math.inf)


def at_least_zero(name: str, value: Any) -> Any:
    """Return a finite number of at least 0 as a float, or raise ValueError."""
    return number(name, value, "a finite number of at least 0", lambda value: 0 <= value < math.inf)


def step_or_schedule(name: str, step: Any) -> None:
    """Raise ValueError unless a step is a positive finite number or a schedule, a function of the number of steps."""
    if not callable(step):
        number(name, step, "a positive number or a schedule", lambda step: 0 < step < math.inf)


def count(name: str, number: Any, least: int = 1) -> None:
    """Raise ValueError unless a number is an integer from `least` to 2^31 - 1."""
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise ValueError(f"{name}: expected an integer, found {number!r}")
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, found {number}")
    if number > MOST:
        raise ValueError(f"{name}: expected at most {MOST:,}, found {number:,}")


def transformation(name: str, value: Any) -> None:
    """Raise ValueError unless a value is an optax transformation."""
    if not (hasattr(value, "init") and hasattr(value, "update")):
        raise ValueError(
            f"{name}: expected an optax transformation such as descent.gd(0.1), found {value!r}; it has "
            "init(weights) and update(gradient, state, weights)"
        )


def function(name: str, value: Any, arguments: Sequence[str]) -> None:
    """Raise ValueError unless a value can be called with this many arguments. A function without a signature passes."""
    wanted = f"{name}({', '.join(arguments)})"
    kind = f"the class {value.__name__}" if isinstance(value, type) else "" if callable(value) else repr(value)
    if kind:
        raise ValueError(f"{name}: expected a function {wanted}, found {kind}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # A C function may have no signature.
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        shown = getattr(value, "__name__", type(value).__name__)
        taken = ", ".join(signature.parameters)
        raise ValueError(f"{name}: should be {wanted}, found {shown}({taken})") from None


def one_number(name: str, found: Array, like: Array) -> None:
    """Raise ValueError unless a function of one entry, mapped over an array, gave one number of its precision each."""
    if found.shape != like.shape:
        raise ValueError(f"{name}: expected one number, found an array of shape {found.shape[like.ndim :]}")
    if found.dtype != like.dtype:
        raise ValueError(f"{name}: expected a number of {like.dtype} as the tokens have, found {found.dtype}")


def can_be_hashed(name: str, value: Any) -> None:
    """Raise ValueError unless a value can be the key of a compiled program."""
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            f"{name}: expected a function, or a frozen dataclass of values that can be hashed and of arrays, found "
            f"{value!r} ({error})"
        ) from None


def remembered(make: Callable[P, Made]) -> Callable[P, Made]:
    """Let a function return one object for equal arguments; arrays of one number count as that number.

    What is made from traced values is not kept.
    """
    known = lru_cache(maxsize=64)(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Made:
        if any(map(_is_traced, (*args, *kwargs.values()))):
            return make(*args, **kwargs)
        return known(*map(hashable, args), **{name: hashable(value) for name, value in kwargs.items()})

    return made


def _is_traced(value: Any) -> bool:
    parts = vars(value).values() if is_dataclass(value) and not isinstance(value, type) else (value,)
    return any(isinstance(part, Tracer) for part in parts)


def is_zero(*numbers: Any) -> bool:
    """Return whether all numbers are zero; False for traced ones."""
    return not any(isinstance(number, Tracer) or number != 0 for number in numbers)


def hashable(value: Any) -> Any:
    """Return the number of an array without axes; other values unchanged."""
    is_array = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer)
    return value.item() if is_array and value.ndim == 0 else value
