"""Internal: steps towards a stationary point of `min (||K||_F^2 + ||Q||_F^2) / 2  s.t. <A_k, K Q^T> >= b_k`.

With `x = (K, Q)` a row is `<J_k, x> / 2`, `J_k = (A_k Q, A_k^T K)`. Linearized at x, it requires of a new x `<J_k, x>
>= b_k + <A_k, K Q^T>`. The least-norm x that satisfies all linearized rows is again the solution of a Frobenius
problem, found by an active set on the Gram matrix of the J_k: `x = sum_k a_k J_k`. If that x is the old one, then `K =
G Q`, `Q = G^T K` with `G = sum_k a_k A_k`: x is stationary. Otherwise a fraction of the step is taken.

Far from feasible points the linearized rows may be contradictory, so a shortfall of `h (a_k - previous a_k)` is
allowed: first with a large h (a penalty on it), then with a small one. At the end, where a converges, the shortfall
vanishes for any h.
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

# Fractions of the longest step, tried in this order, and that step relative to the minimizer of the Lagrangian.
_SHARES = tuple(0.7**k for k in range(20))
_RELAXED = 0.9
# The cost of a unit of shortfall in the merit function, relative to the largest multiplier.
_PRICE = 1.5
# The initial h, its factor from step to step, and its minimum in units of the square root of the rounding unit.
_FREE, _SHRINK, _LEAST = 0.1, 0.3, 8.0


class Task(NamedTuple):
    """Rows `<A_k, W> >= b_k` of length 1, for W of length about 1; hard rows of any kind."""

    rows: Constraints
    b: Float[Array, "n m"]
    of: Rows


class Iterate(NamedTuple):
    """Factors, and the results of the step that led to them.

    Attributes:
        K: (p, r).
        Q: (q, r).
        a: multipliers times `||x||^2`, (c).
        free: h.
        price: the cost of a unit of shortfall in the merit function.
        moved: the length of the full step from the previous factors, relative to theirs: how far these were from
            stationary.
        short: the worst shortfall, relative to the largest target.
        iterations: the number of steps made.
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
        """About the norm of a feasible W along these factors; inf far from feasible points."""
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

    # At a fraction t of the step, the margins are `reached + t first + t^2 second`.
    dleft = rows.differences.reshape(n * m, p) @ dK
    dright = jnp.repeat(rows.queries @ dQ, m, axis=0)
    first, second = jnp.sum(dleft * at.right + at.left * dright, axis=1), jnp.sum(dleft * dright, axis=1)

    def shortfall(margins: Array) -> Array:
        return jnp.where(equal, jnp.abs(b - margins), jnp.maximum(b - margins, 0.0))

    # At first the price falls with the multipliers; later it must not, to avoid cycles of steps and prices.
    price = jnp.maximum(_PRICE * jnp.max(jnp.abs(a)), jnp.where(now.free > least, 0.8, 1.0) * now.price)
    before, along, size = jnp.sum(shortfall(at.reached)), jnp.sum(K * dK) + jnp.sum(Q * dQ), _square(dK, dQ)
    # Beyond its minimizer the Lagrangian increases. Its curvature may be several times that of the objective, so full
    # steps could overshoot forever (by the same amount if they change the balance of K and Q).
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
