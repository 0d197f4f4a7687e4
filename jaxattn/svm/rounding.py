"""Internal: sums of products with proven bounds of their rounding errors, and exact scaling by powers of two.

Each factor is split into a head, its leading bits on a grid shared by the whole array, and a remainder. Heads are so
short that all products and partial sums of them are exact, in any order, with or without fusion, as the compiler
chooses (except with `xla_cpu_enable_fast_math`, which JAX does not set and which rounds divisions differently from IEEE
754). Only the remainder is rounded, and it is small: the error of a sum of k terms is about `k^2 2^-75` of the largest
term in double precision and `k^2 2^-32` in single precision (the splitting of Rump, Ogita and Oishi, "Accurate
floating-point summation", 2008).

XLA flushes numbers below the normal range to zero; each flush counts as an error of the smallest normal number.

All functions take one problem of JAX's arrays, or NumPy arrays with a leading axis of lanes.

`scaled` rescales a problem by powers of two, without rounding, so that its numbers are about 1. Row k is divided by
`rows_k`, which makes its largest product of two entries about 1, and W by `whole`, which makes the largest target about
1. Products then neither overflow nor underflow where it matters. The objective `||W||^power / power` is in units of
`whole^power`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Int, Shaped

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.pivoting import LAST, AnyArray, module_of, positive

# A factor that covers the rounding of a bound itself.
_SAFE = 1.0625


class Enclosed(NamedTuple):
    """Numbers `head + tail`, the sum taken without rounding.

    Attributes:
        head: the larger part, an array.
        tail: the smaller part, an array.
        small: an upper bound of the absolute tails of each lane.
        error: an upper bound of the absolute error of each of a lane's numbers.
    """

    head: Float[AnyArray, "*lanes *shape"]
    tail: Float[AnyArray, "*lanes *shape"]
    small: Float[AnyArray, "*lanes"]
    error: Float[AnyArray, "*lanes"]


def exactly(x: Float[AnyArray, "*lanes *shape"], lanes: int = 0) -> Enclosed:
    """Return numbers without an error as `Enclosed`, with a number of leading axes of lanes."""
    xp = module_of(x)
    zero = xp.zeros(x.shape[:lanes], x.dtype)
    return Enclosed(x, xp.zeros_like(x), zero, zero)


def unit(dtype: jnp.dtype) -> float:
    """Return the largest relative error of one rounding."""
    return float(jnp.finfo(dtype).eps) / 2


def power_below(x: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape"]:
    """Return the largest power of two that is at most |x|; 0 for 0 and flushed numbers, inf for inf and NaN."""
    return (_bits(x) & _bits(np.asarray(np.inf, x.dtype))).view(x.dtype)


def is_flushed(x: Float[AnyArray, "*shape"]) -> Bool[AnyArray, "*shape"]:
    """Return whether a number is nonzero but below the normal range, so that comparisons treat it as 0."""
    return ((_bits(x) << 1) != 0) & (_bits(power_below(x)) == 0)


def is_normal(x: Float[AnyArray, "*shape"]) -> Bool[AnyArray, "*shape"]:
    """Return whether a positive number is within the normal range."""
    return (x >= float(jnp.finfo(x.dtype).tiny)) & (x < jnp.inf)


def dot(A: Float[AnyArray, "*batch k i"], B: Enclosed) -> Enclosed:
    """Return `A^T B`, (*batch, i, j), for A with entries of at most 1 in absolute value and B, (*batch, k, j)."""
    count, info, xp = A.shape[-2], jnp.finfo(A.dtype), module_of(A)
    bits = (info.nmant + 1 - (count - 1).bit_length()) // 2
    own = tuple(range(B.small.ndim, A.ndim))
    largest = xp.max(xp.abs(B.head), axis=own)
    grid = xp.maximum(power_below(largest) * 2.0 ** (1 - bits), float(info.tiny))
    short = xp.rint(A * 2.0**bits) * 2.0**-bits
    grids = xp.expand_dims(grid, own)
    head = xp.rint(B.head / grids) * grids
    rest = (B.head - head) + B.tail
    # The rounded sums are `A - short` times `head`, and A times `rest`: at most half a step and a whole step of the
    # grid.
    weight = xp.max(xp.sum(xp.abs(A), axis=-2), axis=own[:-1])
    step = 2.0**-bits * largest
    small = step + B.small
    terms = 0.5 * count * step * (1 + 2.0**-bits) + weight * small
    # Whatever the order of each sum, count its products, its additions, the final addition, `rest`, and all flushed
    # numbers.
    flushed = xp.where((largest > 0) | (B.small > 0), 8 * count * float(info.tiny) * (2 * largest + 1), 0.0)
    rounded = (count + 4) * unit(A.dtype) * terms
    return Enclosed(
        head=_product(short, head),
        tail=_product(A - short, head) + _product(A, rest),
        small=terms,
        error=_SAFE * (rounded + weight * B.error + flushed),
    )


def _product(A: Float[AnyArray, "*batch k i"], B: Float[AnyArray, "*batch k j"]) -> Float[AnyArray, "*batch i j"]:
    # Some accelerators would round the factors of products at default precision.
    return A.mT @ B if isinstance(A, np.ndarray) else jnp.matmul(A.mT, B, precision=lax.Precision.HIGHEST)


def _bits(x: Float[AnyArray, "*shape"]) -> Int[AnyArray, "*shape"]:
    return x.view(f"int{jnp.finfo(x.dtype).bits}")


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
    rows: Float[AnyArray, "*lanes n m"]
    whole: Float[AnyArray, "*lanes"]
    multipliers: Float[AnyArray, "*lanes n m"]
    fits: Bool[AnyArray, "*lanes"]


def scaled(constraints: Constraints, power: int) -> Scaled:
    """Return the rescaled problem of finite constraints with the objective `||W||^power / power`."""
    of, xp = cons.rows(constraints), module_of(constraints.queries)
    differences, queries, *_ = cons.without_absent(constraints)
    targets = xp.where(of.present, of.targets, 0.0)
    of_differences = positive(2 * power_below(xp.max(xp.abs(differences), axis=-1)))
    of_queries = positive(2 * power_below(xp.max(xp.abs(queries), axis=-1)))
    rows = of_differences * of_queries[..., None]
    whole = positive(xp.max(power_below(targets) / rows, axis=LAST))
    multipliers = rows if power == 1 else rows / per_row(whole)
    of_rows = (of_differences, rows, 1 / rows, multipliers, 1 / multipliers, rows * per_row(whole))
    fits = is_normal(of_queries).all(axis=-1) & is_normal(whole**power)
    for one in of_rows:
        fits = fits & is_normal(one).all(axis=LAST)
    shrunk, upper = targets / (rows * per_row(whole)), of.upper * multipliers
    priced = of.present & ~of.hard
    usable = ((targets == 0) | is_normal(xp.abs(shrunk))) & (~priced | is_normal(upper))
    fits = fits & usable.all(axis=LAST)
    each = per_row(fits)
    of = of._replace(targets=xp.where(each, shrunk, 0.0), upper=xp.where(each, upper, of.upper))
    small = constraints._replace(
        differences=xp.where(each[..., None], differences / of_differences[..., None], 0.0),
        queries=xp.where(each, queries / of_queries[..., None], 0.0),
        targets=of.targets,
        penalty=None if constraints.penalty is None else xp.where(priced, of.upper, xp.inf),
    )
    rows, multipliers = (xp.where(each, one, 1.0) for one in (rows, multipliers))
    return Scaled(small, of, rows, xp.where(fits, whole, 1.0), multipliers, fits)


def per_row(of_lane: Shaped[AnyArray, "*lanes"]) -> Shaped[AnyArray, "*lanes 1 1"]:
    """Return each lane's number with two more axes, as a factor of its rows or its matrix."""
    return of_lane[..., None, None]


def is_posed(constraints: Constraints) -> Bool[AnyArray, "*lanes"]:
    """Return whether all numbers satisfy `constraints.check`; usable under `jit` and `vmap`.

    Numbers below the normal range, which compiled programs flush to 0, do not.
    """
    differences, queries, targets, _, _, penalty = constraints
    lanes, xp = differences.ndim - 3, module_of(differences)

    def ordinary(leaf: AnyArray) -> AnyArray:
        return (xp.isfinite(leaf) & ~is_flushed(leaf)).all(axis=tuple(range(lanes, leaf.ndim)))

    posed = ordinary(differences) & ordinary(queries)
    posed = posed if targets is None else posed & ordinary(targets)
    return posed if penalty is None else posed & ((penalty > 0) & ~is_flushed(penalty)).all(axis=LAST)
