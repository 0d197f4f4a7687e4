"""Internal: arithmetic on arrays with optional lanes: extra trailing axes with one entry per seed.

The same code serves one seed (no lanes) and a batch. With lanes last, neighbouring numbers in memory belong to
neighbouring seeds, so all operations use vector instructions, however short the named axes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

# Sums of at most TERMS terms are written out at once, longer ones in groups of GROUP, and those longer than LONG in a
# loop over groups. Measured; larger groups read more streams of memory than a core can follow.
TERMS, GROUP, LONG = 16, 8, 48


def stored(step: Int[Array, ""], compute: Callable[[], Array], shape: jax.ShapeDtypeStruct | None = None) -> Array:
    """Return `compute()`, computed once and written to memory; for use inside the loop over steps.

    On the CPU, XLA fuses a cheap sum into each of its readers and recomputes it for each of their entries: ten times
    the work for `X K Q^T z`. A conditional is never fused, unless XLA can tell that it always holds. Accelerators fuse
    sums well and would wait for the condition; for them XLA can tell, and removes the conditional.

    Args:
        step: the number of the current step.
        compute: a function without arguments.
        shape: the shape and type of its result. Default: found by tracing it once more.
    """
    # Outside a compiled program nothing is fused, and each conditional would be compiled separately.
    if not isinstance(step, Tracer):
        return compute()
    known = jax.eval_shape(compute) if shape is None else shape
    return jax.lax.cond(_always(step), compute, lambda: jnp.zeros(known.shape, known.dtype))


def _always(step: Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether the step number is at least 0: unknown to XLA on the CPU, a constant when lowered for others."""
    return jax.lax.platform_dependent(step, cpu=_counted, default=_known)


def _counted(step: Int[Array, ""]) -> Bool[Array, ""]:
    return step >= 0


def _known(step: Int[Array, ""]) -> Bool[Array, ""]:
    return jnp.ones(step.shape, bool)


def before() -> Int[Array, ""]:
    """Return a step number for sums before and after the loop over steps."""
    return jnp.zeros((), int)


def spread(number: Array, A: Array) -> Array:
    """Return one number per lane with axes of length 1 in place of the named axes of A, for broadcasting."""
    return jnp.expand_dims(number, tuple(range(A.ndim - number.ndim)))


def einsum(step: Int[Array, ""], spec: str, A: Array, B: Array) -> Array:
    """Return the product of two arrays summed over one letter, like `jnp.einsum`, lane by lane, stored.

    Args:
        step: the number of the current step.
        spec: for example "ntd,nd->nt", for the named axes. Remaining letters keep their order; one letter is summed.
        A: named axes, followed by the same lanes as B or none.
        B: the same for the other factor.
    """
    if A.ndim == len(spec.split(",")[0]):
        return jnp.einsum(spec, A, B)
    term, length, shape = _terms(spec, A, B)
    if length > TERMS:
        return _grouped(step, term, length, shape)
    return stored(step, lambda: _sum(term, range(length)), shape)


def fused(step: Int[Array, ""], spec: str, A: Array, B: Array) -> Array:
    """Return the same as `einsum` for a single reader: a short sum is computed where it is read, and not stored.

    Args:
        step: as in `einsum`.
        spec: as in `einsum`.
        A: as in `einsum`.
        B: as in `einsum`.
    """
    if A.ndim == len(spec.split(",")[0]):
        return jnp.einsum(spec, A, B)
    term, length, shape = _terms(spec, A, B)
    return _grouped(step, term, length, shape) if length > TERMS else _sum(term, range(length))


def _terms(spec: str, A: Array, B: Array) -> tuple[Callable[[int | Array], Array], int, jax.ShapeDtypeStruct]:
    """Return the function from a number to a term of a sum, the number of terms, and the sum's shape and type."""
    inputs, out = spec.split("->")
    a, b = inputs.split(",")
    (summed,) = set(a + b) - set(out)
    sizes = dict(zip(a + b, A.shape[: len(a)] + B.shape[: len(b)], strict=True))
    named = tuple(sizes[letter] for letter in out)

    def term(k: int | Array) -> Array:
        return _placed(A, a, out, summed, k) * _placed(B, b, out, summed, k)

    return term, sizes[summed], jax.ShapeDtypeStruct(named + A.shape[len(a) :], jnp.result_type(A, B))


def _sum(term: Callable[[int | Array], Array], numbers: Iterable[int]) -> Array:
    return reduce(jnp.add, map(term, numbers))


def _more(term: Callable[[int | Array], Array], numbers: Iterable[int], so_far: Array) -> Array:
    return reduce(jnp.add, map(term, numbers), so_far)


def _grouped(
    step: Int[Array, ""], term: Callable[[int | Array], Array], length: int, shape: jax.ShapeDtypeStruct
) -> Array:
    """Sum many terms in groups: each group is one pass over the partial sum."""
    if length <= LONG:
        groups = [range(first, min(first + GROUP, length)) for first in range(0, length, GROUP)]
        so_far = stored(step, lambda: _sum(term, groups[0]), shape)
        for group in groups[1:]:
            so_far = stored(step, partial(_more, term, group, so_far), shape)
        return so_far

    def add(group: Array, so_far: Array) -> Array:
        return reduce(jnp.add, [term(group * GROUP + k) for k in range(GROUP)], so_far)

    so_far = jax.lax.fori_loop(0, length // GROUP, add, jnp.zeros(shape.shape, shape.dtype))
    return reduce(jnp.add, [term(k) for k in range(length - length % GROUP, length)], so_far)


def _placed(A: Array, letters: str, out: str, summed: str, k: int | Array) -> Array:
    """Return the k-th part of A along the summed letter, with an axis of length 1 for each letter it lacks."""
    part = jax.lax.dynamic_index_in_dim(A, k, letters.index(summed), keepdims=False)
    lacking = [axis for axis, letter in enumerate(out) if letter not in letters]
    return jnp.expand_dims(part, lacking)


def total(A: Array, named: int, axis: int | None = None) -> Array:
    """Return the sum over one named axis or all of them, lane by lane.

    Args:
        A: named axes, followed by lanes or none.
        named: the number of named axes.
        axis: the axis to sum over. Default: all named ones.
    """
    return _over(jnp.add, jnp.sum, A, named, axis)


def largest(A: Array, named: int, axis: int | None = None) -> Array:
    """Return the maximum over one named axis or all of them, lane by lane. The arguments are those of `total`."""
    return _over(jnp.maximum, jnp.max, A, named, axis)


def _over(
    combine: Callable[[Array, Array], Array], all_of: Callable[..., Array], A: Array, named: int, axis: int | None
) -> Array:
    """Combine along axes, written out: XLA's own reduction along a leading axis takes about ten times as long."""
    axes = range(named) if axis is None else (axis,)
    if A.ndim == named:
        return all_of(A, axis=tuple(axes))
    # First axes first, so that neighbours in memory are combined last, when few are left.
    for done, one in enumerate(axes):
        parts = (jax.lax.index_in_dim(A, k, one - done, keepdims=False) for k in range(A.shape[one - done]))
        A = reduce(combine, parts) if A.shape[one - done] <= TERMS else all_of(A, axis=one - done)
    return A
