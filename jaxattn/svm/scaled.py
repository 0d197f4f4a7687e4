"""Internal: a problem in units in which its numbers are about 1, by powers of two and so without rounding.

Row k is divided by `rows_k`, which makes its largest product of two entries about 1, and W by `whole`, which makes the
largest target of such a row about 1. Products then neither over- nor underflow where that matters. The objective
`||W||^power / power` is in units of `whole^power`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.pivoting import positive
from jaxattn.svm.rounding import is_flushed, is_normal, power_below


class Scaled(NamedTuple):
    """Constraints in such units; rows that are not present are 0.

    Attributes:
        constraints: the rows with their targets and prices, entries below 1.
        of: what every row asks for.
        rows: the unit of each row, (n, m).
        whole: the unit of W, ().
        multipliers: what multipliers of the problem are multiplied by in these units, (n, m).
        fits: whether no number leaves the normal range on the way, ().
    """

    constraints: Constraints
    of: Rows
    rows: Float[Array, "n m"]
    whole: Float[Array, ""]
    multipliers: Float[Array, "n m"]
    fits: Bool[Array, ""]


def scaled(constraints: Constraints, power: int) -> Scaled:
    """Return constraints of finite numbers in units of their own, for `||W||^power / power`."""
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
    """Whether all numbers are such as `constraints.check` asks for, as far as these can be read there.

    Numbers below the normal range, which compiled programs take for 0, are not.
    """
    differences, queries, targets, _, _, penalty = constraints
    numbers = (leaf for leaf in (differences, queries, targets) if leaf is not None)
    posed = jnp.stack([(jnp.isfinite(leaf) & ~is_flushed(leaf)).all() for leaf in numbers]).all()
    return posed if penalty is None else posed & ((penalty > 0) & ~is_flushed(penalty)).all()
