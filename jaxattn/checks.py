"""Internal: checks of numbers and functions that users pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.core import Tracer

P = ParamSpec("P")
Made = TypeVar("Made")

# The largest count of steps, seeds or sizes: JAX may have only 32-bit integers.
MOST = 2**31 - 1


def positive(name: str, number: Any) -> float:
    """Return a positive finite number, or raise ValueError."""
    if not _is_real(number) or not 0 < number < float("inf"):
        raise ValueError(f"{name}: expected a positive finite number, found {number!r}")
    return float(number)


def at_least_zero(name: str, number: Any) -> float:
    """Return a finite number of at least 0, or raise ValueError."""
    if not _is_real(number) or not 0 <= number < float("inf"):
        raise ValueError(f"{name}: expected a finite number of at least 0, found {number!r}")
    return float(number)


def step_or_schedule(name: str, step: Any) -> None:
    """Raise ValueError unless a step is a positive finite number or a schedule, a function of the number of steps."""
    if not (callable(step) or (_is_real(step) and 0 < float(step) < float("inf"))):
        raise ValueError(f"{name}: expected a positive number or a schedule, found {step!r}")


def count(name: str, number: Any) -> None:
    """Raise ValueError unless a number is an integer from 1 to 2^31 - 1."""
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise ValueError(f"{name}: expected an integer, found {number!r}")
    if number < 1:
        raise ValueError(f"{name}: expected at least 1, found {number}")
    if number > MOST:
        raise ValueError(f"{name}: expected at most {MOST:,}, found {number:,}")


def transformation(name: str, value: Any) -> None:
    """Raise ValueError unless a value is an optax transformation."""
    if not (hasattr(value, "init") and hasattr(value, "update")):
        raise ValueError(f"{name}: expected an optax transformation such as descent.gd(0.1), found {value!r}")


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


def _is_real(number: Any) -> bool:
    return hasattr(number, "__float__") and not isinstance(number, bool)


def remembered(make: Callable[P, Made]) -> Callable[P, Made]:
    """Let a function return one object for equal arguments; arrays of one number count as that number."""
    known = lru_cache(maxsize=64)(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Made:
        return known(*map(hashable, args), **{name: hashable(value) for name, value in kwargs.items()})

    return made


def hashable(value: Any) -> Any:
    """Return the number of an array without axes; other values unchanged."""
    is_array = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer)
    return value.item() if is_array and value.ndim == 0 else value


@dataclass(frozen=True, eq=False)
class Keyed:
    """A value as a key of compiled programs: equal to values of the same content, which may hold arrays.

    Attributes:
        value: a hashable value, or a dataclass or tuple of such values and of arrays.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and _content(self.value) == _content(other.value)

    def __hash__(self) -> int:
        return hash(_content(self.value))


def _content(value: Any) -> Any:
    with suppress(TypeError):
        hash(value)
        return value
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer):
        array = np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    if is_dataclass(value):
        return type(value), *(_content(getattr(value, field.name)) for field in fields(value) if field.compare)
    return (type(value), *map(_content, value)) if isinstance(value, tuple) else value
