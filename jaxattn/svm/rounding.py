"""Internal: sums of products with a proven bound of their rounding, and exact scaling by powers of two.

A factor is split into a head, its leading bits on a grid that the whole array shares, and what is left. Heads are so
short that every product and every partial sum of them is exact: in any order, fused or not, as the compiler likes (but
for `xla_cpu_enable_fast_math`, which JAX does not set and which rounds divisions otherwise than IEEE 754). Only what is
left is rounded, and it is small: the error of a sum of k terms is about `k^2 2^-75` of the largest in double precision
and `k^2 2^-32` in single precision (Rump, Ogita and Oishi, "Accurate floating-point summation", 2008, split sums so).

Numbers below the normal range are flushed to zero by XLA; each flush counts with the smallest normal number.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# What covers the rounding of a bound itself.
_SAFE = 1.0625


class Enclosed(NamedTuple):
    """Numbers `head + tail`, the sum not rounded.

    Attributes:
        head: the larger part, as an array.
        tail: the smaller part, as an array.
        small: what no tail exceeds, ().
        error: what no number is off by more than, ().
    """

    head: Float[Array, "*shape"]
    tail: Float[Array, "*shape"]
    small: Float[Array, ""]
    error: Float[Array, ""]


def exactly(x: Float[Array, "*shape"]) -> Enclosed:
    """Return numbers that are what they are."""
    zero = jnp.zeros((), x.dtype)
    return Enclosed(x, jnp.zeros_like(x), zero, zero)


def unit(dtype: jnp.dtype) -> float:
    """Return the largest relative error of one rounding."""
    return float(jnp.finfo(dtype).eps) / 2


def power_below(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the largest power of two that is not above |x|; 0 for 0 and what is flushed to it, inf for inf and NaN."""
    return lax.bitcast_convert_type(_bits(x) & _bits(jnp.asarray(jnp.inf, x.dtype)), x.dtype)


def is_flushed(x: Float[Array, "*shape"]) -> Bool[Array, "*shape"]:
    """Whether a number is not 0 but below the normal range: comparisons take it for 0."""
    return ((_bits(x) << 1) != 0) & (_bits(power_below(x)) == 0)


def is_normal(x: Float[Array, "*shape"]) -> Bool[Array, "*shape"]:
    """Whether a positive number is within the normal range."""
    return (x >= float(jnp.finfo(x.dtype).tiny)) & (x < jnp.inf)


def dot(A: Float[Array, "*batch k i"], B: Enclosed) -> Enclosed:
    """Return `A^T B`, of A with entries of at most 1 and of B (*batch, k, j), as (*batch, i, j)."""
    count, info = A.shape[-2], jnp.finfo(A.dtype)
    bits = (info.nmant + 1 - (count - 1).bit_length()) // 2
    largest = jnp.max(jnp.abs(B.head))
    grid = jnp.maximum(power_below(largest) * 2.0 ** (1 - bits), float(info.tiny))
    short = jnp.round(A * 2.0**bits) * 2.0**-bits
    head = jnp.round(B.head / grid) * grid
    rest = (B.head - head) + B.tail
    # What is rounded are sums of `A - short` times `head` and of A times `rest`: at most half and a whole grid's step.
    weight = jnp.max(jnp.sum(jnp.abs(A), axis=-2))
    step = 2.0**-bits * largest
    small = step + B.small
    terms = 0.5 * count * step * (1 + 2.0**-bits) + weight * small
    # Whatever the order of each sum: its products, its additions, that of both, `rest`, and all that is flushed.
    flushed = jnp.where((largest > 0) | (B.small > 0), 8 * count * float(info.tiny) * (2 * largest + 1), 0.0)
    rounded = (count + 4) * unit(A.dtype) * terms
    return Enclosed(
        head=_product(short, head),
        tail=_product(A - short, head) + _product(A, rest),
        small=terms,
        error=_SAFE * (rounded + weight * B.error + flushed),
    )


def _product(A: Float[Array, "*batch k i"], B: Float[Array, "*batch k j"]) -> Float[Array, "*batch i j"]:
    # Some accelerators would round the factors of products that need not be precise.
    return jnp.einsum("...ki,...kj->...ij", A, B, precision=lax.Precision.HIGHEST)


def _bits(x: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
    return lax.bitcast_convert_type(x, jnp.dtype(f"int{jnp.finfo(x.dtype).bits}"))
