"""Internal: steps towards a stationary point of `min (||K||_F^2 + ||Q||_F^2) / 2  s.t. <A_k, K Q^T> >= b_k`.

With `x = (K, Q)` a row is `<J_k, x> / 2`, `J_k = (A_k Q, A_k^T K)`, and linearized at x it asks a new x for
`<J_k, x> >= b_k + <A_k, K Q^T>`. The x of least norm that does is a Frobenius problem again, solved by an active set
on the Gram matrix of the J_k: `x = sum_k a_k J_k`. Where that x is the old one, it says `K = G Q`, `Q = G^T K`
with `G = sum_k a_k A_k`: x is stationary. Otherwise a share of the way is gone.

Far from feasible the linearized rows may contradict each other, so a shortfall `h (a_k - a_k of the step before)` is
free: at first with h large (a penalty on it), then small; at the end, where a stays, there is none whatever h is.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.least_squares import least_squares
from jaxattn.svm.pivoting import positive
from jaxattn.svm.stationarity import rows_of_factors

# Shares of the longest step that are tried in this order, and that step as a share of the Lagrangian's least value.
_SHARES = tuple(0.7**k for k in range(20))
_RELAXED = 0.9
# What a unit of shortfall costs in the merit function, over the largest multiplier.
_PRICE = 1.5
# The freedom h to begin with, from step to step, and least, as a share of the root of the rounding unit.
_FREE, _SHRINK, _LEAST = 0.1, 0.3, 8.0


class Task(NamedTuple):
    """Rows `<A_k, W> >= b_k` of length 1, for W of about length 1; hard ones of every kind."""

    rows: Constraints
    b: Float[Array, "n m"]
    of: Rows


class Iterate(NamedTuple):
    """Factors, and what the step to them found.

    Attributes:
        K: (p, r).
        Q: (q, r).
        a: multipliers times `||x||^2`, (c).
        free: h.
        price: of a unit of shortfall in the merit function.
        moved: length of the whole step from the factors before, as a share of theirs: how far these were from
            stationary.
        short: the worst shortfall, as a share of the largest target.
        iterations: steps made.
    """

    K: Float[Array, "p r"]
    Q: Float[Array, "q r"]
    a: Float[Array, " c"]
    free: Float[Array, ""]
    price: Float[Array, ""]
    moved: Float[Array, ""]
    short: Float[Array, ""]
    iterations: Int[Array, ""]

    @property
    def worth(self) -> Float[Array, ""]:
        """About the norm that a feasible W along these factors has; inf far from feasible."""
        left = 1.0 - self.short
        return jnp.where(left > 0, _square(self.K, self.Q) / 2 / positive(left), jnp.inf)


def begin(task: Task, K: Float[Array, "p r"], Q: Float[Array, "q r"]) -> Iterate:
    """Return the first iterate."""
    nothing, unknown = jnp.zeros((), K.dtype), jnp.full((), jnp.inf, K.dtype)
    free = jnp.full((), _FREE, K.dtype)
    a = jnp.zeros(task.b.size, K.dtype)
    return Iterate(K, Q, a, free, nothing, unknown, unknown, jnp.zeros((), int))


def step(task: Task, now: Iterate) -> Iterate:
    """Return the next iterate."""
    rows, equal, K, Q = task.rows, task.of.equal.ravel(), now.K, now.Q
    n, m, p = rows.differences.shape
    eps = jnp.finfo(K.dtype).eps
    least = _LEAST * jnp.sqrt(eps)
    at = rows_of_factors(rows, K, Q)
    b, length = task.b.ravel(), positive(_square(K, Q))
    H = at.gram / length + now.free * jnp.eye(b.size, dtype=b.dtype)
    found = least_squares(H, b + at.reached + now.free * now.a, task.of, now.a, 4 * b.size)
    a = found.u / length
    G = cons.combination(rows, a.reshape(n, m))
    dK, dQ = G @ Q - K, G.T @ K - Q

    # Margins are `reached + t first + t^2 second` a share t of the way.
    dleft = rows.differences.reshape(n * m, p) @ dK
    dright = jnp.repeat(rows.queries @ dQ, m, axis=0)
    first, second = jnp.sum(dleft * at.right + at.left * dright, axis=1), jnp.sum(dleft * dright, axis=1)

    def shortfall(margins: Array) -> Array:
        return jnp.where(equal, jnp.abs(b - margins), jnp.maximum(b - margins, 0.0))

    # The price falls with the multipliers at first; later it may not, or steps and price could go in circles.
    price = jnp.maximum(_PRICE * jnp.max(jnp.abs(a)), jnp.where(now.free > least, 0.8, 1.0) * now.price)
    before, along, size = jnp.sum(shortfall(at.reached)), jnp.sum(K * dK) + jnp.sum(Q * dQ), _square(dK, dQ)
    # Beyond this the Lagrangian rises again: it may be curved several times as much as the objective, and a whole
    # step would overshoot for ever (by as much, where it changes the balance of K and Q).
    curve = size - 2 * jnp.sum(G * (dK @ dQ.T))
    shares = jnp.asarray(_SHARES, b.dtype) * jnp.minimum(
        1.0, _RELAXED * size / jnp.maximum(curve, _RELAXED * size + eps)
    )
    change = jax.vmap(
        lambda t: (
            t * along + t**2 * size / 2 + price * (jnp.sum(shortfall(at.reached + t * first + t**2 * second)) - before)
        )
    )(shares)
    hoped = along + size / 2 + price * (jnp.sum(shortfall(at.reached + first)) - before)
    rounding = 8 * eps * (length + price * jnp.sum(jnp.abs(b)))
    good = change <= 1e-4 * shares * jnp.minimum(hoped, 0.0) + rounding
    t = jnp.where(good.any(), shares[jnp.argmax(good)], shares[-1])
    short = jnp.max(shortfall(at.reached + t * first + t**2 * second))
    return Iterate(
        K=K + t * dK,
        Q=Q + t * dQ,
        a=found.u,
        free=jnp.maximum(least, _SHRINK * now.free),
        price=price,
        moved=jnp.sqrt(size / length),
        short=short / positive(jnp.max(jnp.where(task.of.present, jnp.abs(task.b), 0.0))),
        iterations=now.iterations + 1,
    )


def _square(K: Float[Array, "p r"], Q: Float[Array, "q r"]) -> Float[Array, ""]:
    return jnp.sum(K * K) + jnp.sum(Q * Q)
