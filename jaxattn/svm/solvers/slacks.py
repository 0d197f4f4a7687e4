"""Internal: slacks of the rows on a central path, for any norm (`a s = mu`, `(C - a) x = mu`), and step lengths.

C is None if all rows are hard; otherwise it is inf for hard rows.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.svm.pivoting import positive


def is_soft(C: Float[Array, "n m"] | None, equal: Bool[Array, "n m"]) -> Bool[Array, "n m"]:
    """Return which rows are soft."""
    return jnp.zeros_like(equal) if C is None else jnp.isfinite(C)


def room(C: Float[Array, "n m"] | None, a: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Return how far each multiplier is below its upper bound; 1 if it has none."""
    return jnp.ones_like(a) if C is None else jnp.where(jnp.isfinite(C), C - a, 1.0)


def first_slacks(
    over: Float[Array, "n m"], b: Float[Array, "n m"], C: Float[Array, "n m"] | None, equal: Bool[Array, "n m"]
) -> tuple[Float[Array, "n m"], Float[Array, "n m"], Float[Array, "n m"]]:
    """Return initial slacks s and x for margins that exceed their targets b by `over`, and multipliers `1 / s`.

    A row that does not exceed its target gets s = 1; an equality gets s = 0 and no multiplier.
    """
    soft = is_soft(C, equal)
    # A soft row has both slacks, with this difference and a sum of at least |b|; never 0.
    both = jnp.sqrt(over**2 + jnp.where(b == 0, 1.0, b) ** 2)
    s = jnp.where(soft, (both + over) / 2, over)
    x = jnp.where(soft, (both - over) / 2, 0.0)
    s = jnp.where(equal, 0.0, positive(s))
    return s, x, jnp.where(equal, 0.0, 1 / positive(s))


def balanced(
    x: Float[Array, "n m"], a: Float[Array, "n m"], s: Float[Array, "n m"], C: Float[Array, "n m"]
) -> Float[Array, "n m"]:
    """Return x, made small for large penalties so that no product `(C - a) x` is far from the others."""
    return jnp.where(jnp.isfinite(C), jnp.minimum(x, a * s / (C - a)), 0.0)


def given_up(
    s: Float[Array, "n m"],
    x: Float[Array, "n m"],
    a: Float[Array, "n m"],
    room: Float[Array, "n m"],
    equal: Bool[Array, "n m"],
) -> Float[Array, "n m"]:
    """Return the decrease of each row's slacks per increase of its multiplier, for the Newton matrix."""
    return jnp.where(equal, 0.0, s / jnp.where(equal, 1.0, a) + x / room)


def toward(
    product: Float[Array, "n m"],
    s: Float[Array, "n m"],
    a: Float[Array, "n m"],
    da: Float[Array, "n m"],
    counts: Bool[Array, "n m"],
) -> Float[Array, "n m"]:
    """Return the move of a slack s that takes `a s` to a product, to first order, while its a moves by da."""
    return jnp.where(counts, (product - s * da) / jnp.where(counts, a, 1.0) - s, 0.0)


def longest(x: Float[Array, "*shape"], dx: Float[Array, "*shape"], reach: float) -> Float[Array, ""]:
    """Return how far `x + t dx` may go, at most 1: the fraction `reach` of the way to 0."""
    ratio = jnp.where(dx < 0, -x / jnp.where(dx < 0, dx, -1.0), jnp.inf)
    return jnp.minimum(1.0, reach * jnp.min(ratio))
