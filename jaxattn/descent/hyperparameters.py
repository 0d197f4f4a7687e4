"""Internal: the numbers of an optimizer as data, so that optimizers that differ only in numbers share a program.

The functions of an optax transformation contain its rates, decays and schedules. Tracing a function shows its numbers,
which then become part of the optimizer's state. They may also be traced values, for example under `jax.vmap`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.extend import core
from jaxtyping import PRNGKeyArray

from jaxattn.descent.array_fields import content
from jaxattn.descent.noise import NOISE_GENERATOR
from jaxattn.descent.steepest import Steepest
from jaxattn.parallel import batch

# These numbers stay in the program: they belong to formulas, or turn a term off.
_KEPT = (0.0, 1.0, -1.0)


@dataclass(frozen=True, repr=False)
class Program:
    """A traced function without its numbers. Equal ones do the same on arguments of the same shapes.

    Attributes:
        text: the operations.
        constants: the arrays in it, which the text does not show.
        structure: the structure of the result.
        traced: the operations, a function of numbers and of the leaves of the arguments.
    """

    text: str
    constants: tuple[Any, ...]
    structure: Any
    traced: core.ClosedJaxpr = field(compare=False)

    def __call__(self, numbers: Sequence[Any], *arguments: Any) -> Any:
        """Return the function's result with these numbers."""
        leaves = core.jaxpr_as_fun(self.traced)(*numbers, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(self.structure, leaves)

    def arrays(self, numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Return its numbers as arrays of the types and shapes with which it was traced."""
        kinds = [variable.aval for variable in self.traced.jaxpr.invars[: len(numbers)]]
        return tuple(
            jnp.broadcast_to(jnp.asarray(number, kind.dtype), kind.shape)
            for number, kind in zip(numbers, kinds, strict=True)
        )


def taken_out(function: Callable[..., Any], *shapes: Any) -> tuple[Program, tuple[Any, ...]]:
    """Return a function as a program for arguments of these shapes, and its numbers: floats and traced values.

    Exponents, and numbers within its loops and branches, stay in the program.
    """
    closed, result = jax.make_jaxpr(function, return_shape=True)(*shapes)
    jaxpr, consts = closed.jaxpr, list(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    out = [(variable, value) for variable, value in consts if _is_number(value)]
    kept = [(variable, value) for variable, value in consts if not _is_number(value)]

    def named(value: Any) -> Any:
        if not isinstance(value, core.Literal) or not _is_number(value.val) or value.val in _KEPT:
            return value
        out.append((core.Var(value.aval), value.val))
        return out[-1][0]

    def renamed(step: Any) -> Any:
        # Powers with known exponents are faster, like roots and squares.
        count = 1 if step.primitive.name == "pow" else len(step.invars)
        return step.replace(invars=[*map(named, step.invars[:count]), *step.invars[count:]])

    steps = [renamed(step) for step in jaxpr.eqns]
    jaxpr = jaxpr.replace(
        constvars=[variable for variable, _ in kept],
        invars=[*(variable for variable, _ in out), *jaxpr.invars],
        eqns=steps,
        debug_info=jaxpr.debug_info._replace(arg_names=None),
    )
    constants = [value for _, value in kept]
    program = Program(
        str(jaxpr),
        tuple(map(content, jax.tree.leaves(_words([*constants, *_constants(jaxpr)])))),
        jax.tree.structure(result),
        core.ClosedJaxpr(jaxpr, constants),
    )
    return program, tuple(value if isinstance(value, Tracer) else float(value) for _, value in out)


def _is_number(value: Any) -> bool:
    is_float = jnp.issubdtype(jnp.result_type(value), jnp.floating)
    return isinstance(value, Tracer) or (is_float and np.ndim(value) == 0)


def _constants(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """Yield the arrays within the loops, branches and functions of a program."""
    for step in jaxpr.eqns:
        for value in jax.tree.leaves(list(step.params.values())):
            if isinstance(value, core.ClosedJaxpr):
                yield from value.consts
                yield from _constants(value.jaxpr)
            elif isinstance(value, core.Jaxpr):
                yield from _constants(value)
            elif isinstance(value, np.ndarray | jax.Array):
                yield value


@partial(jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["generator"])
@dataclass(frozen=True)
class Words:
    """A random key in an optimizer's state, as words of a generator."""

    words: Any
    generator: str


class Numbered(NamedTuple):
    """An optimizer's state, with random keys as `Words`, and the numbers of its update."""

    state: Any
    numbers: tuple[Any, ...]


@dataclass(frozen=True)
class Begin:
    """An optimizer's init function, with the numbers of both of its functions."""

    program: Program
    numbers: tuple[Any, ...]
    of_update: tuple[Any, ...]
    update: Program

    def __call__(self, params: Any) -> Numbered:
        """Return the state in which the optimizer begins."""
        state = self.program(self.program.arrays(self.numbers), params)
        return Numbered(state, self.update.arrays(self.of_update))

    @property
    def is_traced(self) -> bool:
        """Whether some of the numbers are traced values."""
        return any(isinstance(number, Tracer) for number in self.numbers + self.of_update)

    @property
    def typical(self) -> Begin:
        """The same with a number for each traced value."""
        first, second = (tuple(map(_typical, numbers)) for numbers in (self.numbers, self.of_update))
        return replace(self, numbers=first, of_update=second)


def _typical(number: Any) -> Any:
    # Between 0 and 1, as rates and decays are.
    return (0.5 if jnp.issubdtype(number.dtype, jnp.floating) else 1) if isinstance(number, Tracer) else number


@dataclass(frozen=True)
class Move:
    """An optimizer's update with its numbers in the state."""

    program: Program
    name: str = field(compare=False)

    def __call__(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Numbered]:
        """Return the steps and the next state, as an optax transformation does."""
        moves, after = self.program(state.numbers, updates, state.state, params)
        return moves, Numbered(after, state.numbers)


def shared(optimizer: optax.GradientTransformation, params: Any) -> tuple[Begin, Any]:
    """Return an optimizer's init and update functions for parameters of these shapes, with its numbers in the state.

    Raises:
        TypeError: an update that needs more than gradient, state and parameters.
    """
    shapes = jax.eval_shape(lambda params: params, params)
    leaves, structure = jax.tree.flatten(shapes)
    kinds = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    known = _known(optimizer.init, optimizer.update, structure, kinds, jax.config.read("jax_enable_x64"))
    if known:
        return known[0]
    begin, move = _traced(optimizer.init, optimizer.update, shapes)
    if not begin.is_traced:
        known.append((begin, move))
    return begin, move


@lru_cache(maxsize=64)
def _known(*key: Any) -> list[tuple[Begin, Any]]:
    """Return the same list for the same optimizer and shapes, empty at first.

    Tracing an optimizer again may give an unequal program, since the text of some operations has addresses in it.
    """
    del key
    return []


def _traced(init: Callable[..., Any], update: Any, shapes: Any) -> tuple[Begin, Any]:
    own = update.scaling if isinstance(update, Steepest) else update

    def begun(params: Any) -> Any:
        return _words(init(params))

    def moved(updates: Any, words: Any, params: Any) -> Any:
        found = own(updates, with_keys(words), params)
        _check_updated(found, params, with_keys(words))
        moves, after = found
        return moves, _words(after)

    of_init, first = taken_out(begun, shapes)
    of_update, second = taken_out(moved, shapes, jax.eval_shape(begun, shapes), shapes)
    move = Move(of_update, getattr(own, "__qualname__", type(own).__name__))
    return Begin(of_init, first, second, of_update), replace(update, scaling=move) if own is not update else move


def _check_updated(found: Any, params: Any, state: Any) -> None:
    """Raise ValueError unless an update returned steps like the parameters and a state like the one before."""
    if not isinstance(found, tuple) or len(found) != 2:
        kind = type(found).__name__
        raise ValueError(f"optimizer: expected update to return a pair (steps, state), found {kind}")
    for name, after, before in (
        ("steps like the weights", found[0], params),
        ("a state like that of init", found[1], state),
    ):
        if jax.tree.structure(after) != jax.tree.structure(before) or _shapes(after) != _shapes(before):
            raise ValueError(
                f"optimizer: expected update to return {name}, of shapes {_shapes(before)}, found {_shapes(after)}"
            )
    for step, own in zip(jax.tree.leaves(found[0]), jax.tree.leaves(params), strict=True):
        if jnp.result_type(step, own) != own.dtype:
            raise ValueError(f"optimizer: expected steps of {own.dtype} as the weights have, found {step.dtype}")


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _words(state: Any) -> Any:
    def words(leaf: Any) -> Any:
        return Words(jax.random.key_data(leaf), str(jax.random.key_impl(leaf))) if batch.is_key(leaf) else leaf

    return jax.tree.map(words, state)


def with_keys(state: Any) -> Any:
    """Return an optimizer's state with random keys in place of `Words`."""

    def key(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf.words, impl=leaf.generator) if _are_words(leaf) else leaf

    return jax.tree.map(key, state, is_leaf=_are_words)


def _are_words(node: Any) -> bool:
    return isinstance(node, Words)


def has_keys(state: Any) -> bool:
    """Return whether an optimizer's state has random keys."""
    return any(map(_are_words, jax.tree.leaves(state, is_leaf=_are_words)))


def seeded(state: Any, key: PRNGKeyArray) -> Any:
    """Return an optimizer's state with its random keys drawn from another key."""
    # Training draws its own noise from the numbers of steps, which are smaller.
    numbers = itertools.count(2**31)

    def drawn(node: Any) -> Any:
        if not _are_words(node):
            return node
        own = jax.random.key_data(jax.random.fold_in(key, next(numbers)))
        if (own.shape, NOISE_GENERATOR) != (node.words.shape, node.generator):
            raise ValueError(
                f"optimizer: expected single random keys of the generator {NOISE_GENERATOR!r} in its state, "
                f"found words of shape {node.words.shape} of {node.generator!r}"
            )
        return replace(node, words=own)

    return jax.tree.map(drawn, state, is_leaf=_are_words)
