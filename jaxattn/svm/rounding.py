"""Internal: sums of products with proven bounds of their rounding errors, and exact scaling by powers of two.

Each factor is split into a head, its leading bits on a grid shared by the whole array, and a remainder. Heads are so
short that all products and partial sums of them are exact, in any order, with or without fusion, as the compiler
chooses (except with `xla_cpu_enable_fast_math`, which JAX does not set and which rounds divisions differently from IEEE
754). Only the remainder is rounded, and it is small: the error of a sum of k terms is about `k^2 2^-75` of the largest
term in double precision and `k^2 2^-32` in single precision (the splitting of Rump, Ogita and Oishi, "Accurate
floating-point summation", 2008).

XLA flushes numbers below the normal range to zero; each flush counts as an error of the smallest normal number.

`scaled` rescales a problem by powers of two, without rounding, so that its numbers are about 1. Row k is divided by
`rows_k`, which makes its largest product of two entries about 1, and W by `whole`, which makes the largest target about
1. Products then neither overflow nor underflow where it matters. The objective `||W||^power / power` is in units of
`whole^power`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.pivoting import positive

# A factor that covers the rounding of a bound itself.
_SAFE = 1.0625


class Enclosed(NamedTuple):
    """Numbers `head + tail`, the sum taken without rounding.

    Attributes:
        head: the larger part, an array.
        tail: the smaller part, an array.
        small: an upper bound of the absolute tails, ().
        error: an upper bound of the absolute error of each number, ().
    """

    head: Float[Array, "*shape"]
    tail: Float[Array, "*shape"]
    small: Float[Array, ""]
    error: Float[Array, ""]


def exactly(x: Float[Array, "*shape"]) -> Enclosed:
    """Return numbers without an error as `Enclosed`."""
    zero = jnp.zeros((), x.dtype)
    return Enclosed(x, jnp.zeros_like(x), zero, zero)


def unit(dtype: jnp.dtype) -> float:
    """Return the largest relative error of one rounding."""
    return float(jnp.finfo(dtype).eps) / 2


def power_below(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the largest power of two that is at most |x|; 0 for 0 and flushed numbers, inf for inf and NaN."""
    return lax.bitcast_convert_type(_bits(x) & _bits(jnp.asarray(jnp.inf, x.dtype)), x.dtype)


def is_flushed(x: Float[Array, "*shape"]) -> Bool[Array, "*shape"]:
    """Return whether a number is nonzero but below the normal range, so that comparisons treat it as 0."""
    return ((_bits(x) << 1) != 0) & (_bits(power_below(x)) == 0)


def is_normal(x: Float[Array, "*shape"]) -> Bool[Array, "*shape"]:
    """Return whether a positive number is within the normal range."""
    return (x >= float(jnp.finfo(x.dtype).tiny)) & (x < jnp.inf)


def dot(A: Float[Array, "*batch k i"], B: Enclosed) -> Enclosed:
    """Return `A^T B`, (*batch, i, j), for A with entries of at most 1 in absolute value and B, (*batch, k, j)."""
    count, info = A.shape[-2], jnp.finfo(A.dtype)
    bits = (info.nmant + 1 - (count - 1).bit_length()) // 2
    largest = jnp.max(jnp.abs(B.head))
    grid = jnp.maximum(power_below(largest) * 2.0 ** (1 - bits), float(info.tiny))
    short = jnp.round(A * 2.0**bits) * 2.0**-bits
    head = jnp.round(B.head / grid) * grid
    rest = (B.head - head) + B.tail
    # The rounded sums are `A - short` times `head`, and A times `rest`: at most half a step and a whole step of the
    # grid.
    weight = jnp.max(jnp.sum(jnp.abs(A), axis=-2))
    step = 2.0**-bits * largest
    small = step + B.small
    terms = 0.5 * count * step * (1 + 2.0**-bits) + weight * small
    # Whatever the order of each sum, count its products, its additions, the final addition, `rest`, and all flushed
    # numbers.
    flushed = jnp.where((largest > 0) | (B.small > 0), 8 * count * float(info.tiny) * (2 * largest + 1), 0.0)
    rounded = (count + 4) * unit(A.dtype) * terms
    return Enclosed(
        head=_product(short, head),
        tail=_product(A - short, head) + _product(A, rest),
        small=terms,
        error=_SAFE * (rounded + weight * B.error + flushed),
    )


def _product(A: Float[Array, "*batch k i"], B: Float[Array, "*batch k j"]) -> Float[Array, "*batch i j"]:
    # Some accelerators would round the factors of products at default precision.
    return jnp.einsum("...ki,...kj->...ij", A, B, precision=lax.Precision.HIGHEST)


def _bits(x: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
    return lax.bitcast_convert_type(x, jnp.dtype(f"int{jnp.finfo(x.dtype).bits}"))


class Scaled(NamedTuple):
    """Rescaled constraints; rows that are not present are 0.

    Attributes:
        constraints: the rows with their targets and penalties, entries below 1.
        of: targets, kinds and multiplier bounds of the rows.
        rows: the unit of each row, (n, m).
        whole: the unit of W, ().
        multipliers: the factors that take multipliers of the problem to these units, (n, m).
        fits: whether all intermediate numbers stay in the normal range, ().
    """

    constraints: Constraints
    of: Rows
    rows: Float[Array, "n m"]
    whole: Float[Array, ""]
    multipliers: Float[Array, "n m"]
    fits: Bool[Array, ""]


def scaled(constraints: Constraints, power: int) -> Scaled:
    """Return the rescaled problem of finite constraints with the objective `||W||^power / power`."""
    of = cons.rows(constraints)
    differences, queries, *_ = cons.without_absent(constraints)
    targets = jnp.where(of.present, of.targets, 0.0)
    of_differences = positive(2 * power_below(jnp.max(jnp.abs(differences), axis=-1)))
    of_queries = positive(2 * power_below(jnp.max(jnp.abs(queries), axis=-1)))
    rows = of_differences * of_queries[:, None]
    whole = positive(jnp.max(power_below(targets) / rows))
    multipliers = rows if power == 1 else rows / whole
    units = [of_differences, of_queries, rows, 1 / rows, multipliers, 1 / multipliers, whole**power, rows * whole]
    fits = jnp.stack([is_normal(one).all() for one in units]).all()
    shrunk, upper = targets / (rows * whole), of.upper * multipliers
    priced = of.present & ~of.hard
    fits = fits & ((targets == 0) | is_normal(jnp.abs(shrunk))).all() & (~priced | is_normal(upper)).all()
    of = of._replace(targets=jnp.where(fits, shrunk, 0.0), upper=jnp.where(fits, upper, of.upper))
    small = constraints._replace(
        differences=jnp.where(fits, differences / of_differences[..., None], 0.0),
        queries=jnp.where(fits, queries / of_queries[:, None], 0.0),
        targets=of.targets,
        penalty=None if constraints.penalty is None else jnp.where(priced, of.upper, jnp.inf),
    )
    rows, whole, multipliers = (jnp.where(fits, one, 1.0) for one in (rows, whole, multipliers))
    return Scaled(small, of, rows, whole, multipliers, fits)


def is_posed(constraints: Constraints) -> Bool[Array, ""]:
    """Return whether all numbers satisfy `constraints.check`; usable under `jit` and `vmap`.

    Numbers below the normal range, which compiled programs flush to 0, do not.
    """
    differences, queries, targets, _, _, penalty = constraints
    numbers = (leaf for leaf in (differences, queries, targets) if leaf is not None)
    posed = jnp.stack([(jnp.isfinite(leaf) & ~is_flushed(leaf)).all() for leaf in numbers]).all()
    return posed if penalty is None else posed & ((penalty > 0) & ~is_flushed(penalty)).all()
