"""Internal: rescale a problem by powers of two, without rounding, so that its numbers are about 1.

Row k is divided by `rows_k`, which makes its largest product of two entries about 1, and W by `whole`, which makes the
largest target about 1. Products then neither overflow nor underflow where it matters. The objective `||W||^power /
power` is in units of `whole^power`.
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
