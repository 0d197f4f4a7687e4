"""Internal: arithmetic on arrays that may carry lanes: further axes behind the named ones, one entry a seed.

One source serves one seed (no lanes) and a batch. With the lanes last, neighbouring numbers in memory belong to
neighbouring seeds, so every operation runs along them with the processor's vector instructions, however small the
named axes are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Int

# Sums of up to so many terms are written out as one, longer ones in a loop over groups. Measured; more terms in a group
# are more streams of memory than a core follows.
TERMS, GROUP = 16, 8


def stored(step: Int[Array, ""], compute: Callable[[], Array], shape: jax.ShapeDtypeStruct | None = None) -> Array:
    """Return `compute()`, computed once and written to memory; for use inside the loop over steps.

    XLA on the CPU fuses a cheap sum into each of its readers, and computes it again for every entry of theirs: ten
    times the work for `X K Q^T z`. A conditional is never fused; that the number of a step is not negative,
    XLA does not know. Accelerators would wait for the condition, and fuse sums well: there it does nothing.

    Args:
        step: of the loop that this stands in.
        compute: without arguments.
        shape: of what it returns, where that is known; else it is read once more to find out.
    """
    # Outside of a compiled program nothing is fused, and every conditional would be a program of its own.
    if jax.default_backend() != "cpu" or not isinstance(step, Tracer):
        return compute()
    known = jax.eval_shape(compute) if shape is None else shape
    return jax.lax.cond(step >= 0, compute, lambda: jnp.zeros(known.shape, known.dtype))


def before() -> Int[Array, ""]:
    """Return the number of a step, for sums before and after the loop over steps."""
    return jnp.zeros((), int)


def spread(number: Array, A: Array) -> Array:
    """Return one number a lane with an axis of length 1 for every named axis of A, to be combined with its entries."""
    return jnp.expand_dims(number, tuple(range(A.ndim - number.ndim)))


def einsum(step: Int[Array, ""], spec: str, A: Array, B: Array) -> Array:
    """Return the product of two arrays summed over one letter, as `jnp.einsum` does, lane by lane, stored.

    Args:
        step: of the loop that this stands in.
        spec: such as "ntd,nd->nt": the named axes; letters that stay keep their order, and one letter is summed.
        A: named axes in front; lanes behind them, the same as B has, or none.
        B: likewise.
    """
    inputs, out = spec.split("->")
    a, b = inputs.split(",")
    if A.ndim == len(a):
        return jnp.einsum(spec, A, B)
    (summed,) = set(a + b) - set(out)
    length = A.shape[a.index(summed)]

    def term(k: int | Array) -> Array:
        return _placed(A, a, out, summed, k) * _placed(B, b, out, summed, k)

    def whole() -> Array:
        return reduce(jnp.add, [term(k) for k in range(length)])

    sizes = dict(zip(a + b, A.shape[: len(a)] + B.shape[: len(b)], strict=True))
    named = tuple(sizes[letter] for letter in out)
    shape = jax.ShapeDtypeStruct(named + A.shape[len(a) :], jnp.result_type(A, B))
    return stored(step, whole, shape) if length <= TERMS else _grouped(term, length, shape)


def _grouped(term: Callable[[int | Array], Array], length: int, shape: jax.ShapeDtypeStruct) -> Array:
    """Sum many terms in groups: each group is one pass over the sum so far."""

    def add(group: Array, so_far: Array) -> Array:
        return reduce(jnp.add, [term(group * GROUP + k) for k in range(GROUP)], so_far)

    so_far = jax.lax.fori_loop(0, length // GROUP, add, jnp.zeros(shape.shape, shape.dtype))
    return reduce(jnp.add, [term(k) for k in range(length - length % GROUP, length)], so_far)


def _placed(A: Array, letters: str, out: str, summed: str, k: int | Array) -> Array:
    """Return the k-th part of A along the summed letter, with an axis of length 1 for every letter it lacks."""
    part = jax.lax.dynamic_index_in_dim(A, k, letters.index(summed), keepdims=False)
    lacking = [axis for axis, letter in enumerate(out) if letter not in letters]
    return jnp.expand_dims(part, lacking)
