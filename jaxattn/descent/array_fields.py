"""Internal: losses, heads, models, noise laws and penalties with arrays in their fields.

A compiled program is kept for each value of these, which must be hashable; arrays are not. So a program is compiled for
the value without its arrays, which are passed to it as arguments and may be traced values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from operator import is_
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


@dataclass(frozen=True)
class Hole:
    """The place of an array that was taken out, and its number."""

    number: int


@dataclass(frozen=True)
class _Partial:
    """A `functools.partial`; equal ones compare equal."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]

    def __call__(self, *args: Any) -> Any:
        return self.function(*self.args, *args, **dict(self.keywords))


def emptied(value: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a value with a `Hole` in place of each array, and the arrays.

    They are looked for in dataclasses, tuples and partial functions, to any depth.

    Raises:
        ValueError: a function that refers to a traced value other than by an argument.
    """
    arrays: list[Any] = []

    def taken(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | jax.Array):
            _check_closure(leaf)
            return leaf
        arrays.append(leaf)
        return Hole(len(arrays) - 1)

    return _changed(taken, value), tuple(arrays)


def filled(value: Any, arrays: Sequence[Any]) -> Any:
    """Return a value with its arrays in place again."""
    return _changed(lambda leaf: arrays[leaf.number] if isinstance(leaf, Hole) else leaf, value)


def content(array: Any) -> tuple[Any, ...]:
    """Return what two arrays have in common if their types, shapes and numbers are equal, to be hashed and compared."""
    return array.shape, str(array.dtype), np.asarray(array).tobytes()


def has_holes(value: Any) -> bool:
    """Return whether arrays were taken out of a value."""
    found: list[Any] = []

    def seen(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    _changed(seen, value)
    return any(isinstance(leaf, Hole) for leaf in found)


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with its innermost parts changed; the same object if none changes."""
    if isinstance(value, partial):
        bound = _Partial(value.func, value.args, tuple(sorted(value.keywords.items())))
        changed = _changed(change, bound)
        return value if changed is bound else changed
    if isinstance(value, tuple):
        parts = [_changed(change, part) for part in value]
        if all(map(is_, parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Hole | type) or not is_dataclass(value):
        return change(value)
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    changed = {name: _changed(change, part) for name, part in parts.items()}
    if all(map(is_, changed.values(), parts.values())):
        return value
    other = copy.copy(value)
    for name, part in changed.items():
        object.__setattr__(other, name, part)
    return other


def _check_closure(function: Any) -> None:
    cells = getattr(function, "__closure__", None) or ()
    if any(isinstance(cell.cell_contents, Tracer) for cell in cells):
        raise ValueError(
            f"{function.__name__}: expected traced values as arguments of a functools.partial, or as fields of a "
            "dataclass with __call__, found one that the function takes from around it"
        )
