"""Internal: non-negative least squares with a Gram matrix, by an active set (Lawson and Hanson, chapter 23)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm.constraints import Rows
from jaxattn.svm.pivoting import diagonal, per_lane, pivot, positive


class Pivoted(NamedTuple):
    """Multipliers `u` on the active set, and the tableau after pivoting on that set.

    The last column of the tableau gives the optimum of the active set: for an active constraint its multiplier, and for
    an inactive one how far it is over-satisfied. The block of active rows and columns is the inverse of the Gram
    matrix. `pending` constraints of a warm start are still to be pivoted in; `banned` ones depend on the active set and
    cannot enter.
    """

    u: Float[Array, " c"]
    tableau: Float[Array, "c c+1"]
    active: Bool[Array, " c"]
    pending: Bool[Array, " c"]
    banned: Bool[Array, " c"]
    finished: Bool[Array, ""]
    iterations: Int[Array, ""]


def least_squares(H: Float[Array, "c c"], b: Float[Array, " c"], of: Rows, u: Float[Array, " c"], most: int) -> Pivoted:
    """Minimize `u^T H u / 2 - <b, u>` over `u >= 0` (any u at equalities), starting from the given multipliers.

    H is positive semidefinite with b in its range: for `u^T G u + (1 - <b, u>)^2` it is `G + b b^T`.
    """
    eps = jnp.finfo(H.dtype).eps
    equal, absent = of.equal.ravel(), ~of.present.ravel()
    longest = diagonal(H)
    # Rounding grows with the number of equalities, of which there are often more than dimensions.
    dependent = jnp.where(equal.any(), 1e3, 64.0) * eps * longest
    index = jnp.arange(u.size)

    def step(now: Pivoted) -> Pivoted:
        warming = now.pending.any()
        optimum = now.tableau[:, -1]
        blocking = now.active & ~equal & (optimum <= 0) & ~warming
        blocked = blocking.any()
        # Blocked: move towards the optimum until a multiplier reaches zero, and drop that one.
        ratio = jnp.where(blocking, now.u / jnp.where(blocking, now.u - optimum, 1.0), jnp.inf)
        dropped = jnp.argmin(ratio)
        toward = jnp.where(now.active, now.u + jnp.min(ratio) * (optimum - now.u), 0.0)
        toward = jnp.where(index == dropped, 0.0, feasible(toward, equal))
        # Not blocked: take the optimum, and add the most violated constraint, if there is one.
        shortfall = jnp.where(now.active | now.banned | equal | absent, -jnp.inf, -optimum)
        # Equalities enter first: they never leave, so later equalities that depend on them are implied. Of these choose
        # the most independent one, to avoid pivots at rounding level.
        share = diagonal(now.tableau) / positive(longest)
        first = jnp.where(equal, 2.0 + share, 1.0)
        shortfall = jnp.where(warming, jnp.where(now.pending, first, -jnp.inf), shortfall)
        entering = jnp.argmax(shortfall)
        finished = ~blocked & (shortfall[entering] <= 16 * eps)

        k = jnp.where(blocked, dropped, entering)
        # A pivot at rounding level means that the constraint depends on the active ones.
        refused = ~blocked & (now.tableau[k, k] <= dependent[k])
        pivots = ~finished & ~refused
        at_k = index == k
        settled = jnp.where(now.active, feasible(optimum, equal), 0.0)
        return Pivoted(
            u=jnp.where(warming, now.u, jnp.where(blocked, toward, settled)),
            tableau=jnp.where(pivots, pivot(now.tableau, k), now.tableau),
            active=jnp.where(at_k & pivots, ~now.active, now.active),
            pending=now.pending & ~at_k,
            banned=jnp.where(refused, now.banned | at_k, jnp.zeros_like(now.banned)),
            finished=finished,
            iterations=now.iterations + 1,
        )

    start = Pivoted(
        u=u,
        tableau=jnp.concatenate([H, -b[:, None]], axis=1),
        active=jnp.zeros(u.size, bool),
        pending=(u > 0) | equal,
        banned=jnp.zeros(u.size, bool),
        finished=jnp.zeros((), bool),
        iterations=jnp.zeros((), int),
    )
    return jax.lax.while_loop(lambda now: ~now.finished & (now.iterations < most), step, per_lane(start, H))


def feasible(u: Float[Array, " c"], equal: Bool[Array, " c"]) -> Float[Array, " c"]:
    """Return u with negative entries set to 0, except at equalities."""
    return jnp.where(equal, u, jnp.maximum(u, 0.0))
