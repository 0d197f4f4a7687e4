"""Descent on K and Q with weight decay that can be switched off, and what theory says of it.

For a flow `dK = -G Q ds - c K ds`, `dQ = -G^T K ds - c Q ds`, with G the gradient with respect to `W = K Q^T`, the
gradient does not change `K^T K - Q^T Q`, and decay at the rate c(s) multiplies it by `exp(-2 int c ds)`. If K and Q are
diagonal, the flow of the diagonal w follows from this number b alone: `arcsinh(2 w / b)` moves by `-2 g ds`, g the
gradient with respect to w. That is mirror flow with the hyperbolic entropy of the parameter b(s), the potential of
2504.12883 for products. It is like a square where `|w|` is far below b, and like the l1 norm where it is far above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import checks, descent, losses
from jaxattn.attention import Factored
from jaxattn.descent.optimizers import length_of
from jaxattn.problem import Problem


def decaying(step_size: float, decay: float, until: float = math.inf) -> descent.ScaleFree:
    """Return normalized descent with one norm for K and Q, relative steps, and decoupled weight decay for a while.

    A step moves K and Q by `step_size / ||(K, Q)||` along the gradient's direction, so ||W|| grows by about the same
    per step whatever its size, and for the first `until` steps by the share `decay` towards zero. W alone is moved
    alike. Starts must not be zero.

    Raises:
        ValueError: a step size that is not positive and finite, or a decay below 0 or not below 1.
    """
    checks.positive("step_size", step_size)
    checks.number("decay", decay, "a number of at least 0 and below 1", lambda decay: 0 <= decay < 1)

    def init(params: Any) -> Int[Array, ""]:
        del params
        return jnp.zeros((), int)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        length, lost = length_of(updates, 0), jnp.where(state < until, decay, 0.0)
        step = step_size / (jnp.where(length > 0, length, 1.0) * length_of(params, 0))
        return jax.tree.map(lambda g, w: -step * g - lost * w, updates, params), state + 1

    return descent.ScaleFree(init, update)


def matrices(key: PRNGKeyArray, d: int, scale: float) -> Factored:
    """Start at W = 0 with K = scale times the identity and Q = 0, (d, d) each; nothing is drawn."""
    del key
    return Factored(K=checks.positive("scale", scale) * jnp.eye(d), Q=jnp.zeros((d, d)))


def diagonals(key: PRNGKeyArray, d: int, scale: float) -> Factored:
    """Return the diagonals of `matrices`, (d, 1) each; for model=diagonal."""
    return Factored(*(jnp.diagonal(part)[:, None] for part in matrices(key, d, scale)))


def in_full(part: Float[Array, "*batch d m"]) -> Float[Array, "*batch d d"]:
    """Return a diagonal, (..., d, 1), as a matrix; matrices are returned unchanged."""
    return part * jnp.eye(part.shape[-2]) if part.shape[-1] == 1 else part


def nuclear(weights: Factored) -> Float[Array, ""]:
    """Return `||K Q^T||_*`."""
    return jnp.linalg.norm(in_full(weights.K) @ in_full(weights.Q).T, "nuc")


def balance(scale: float, decay: float, until: float, steps: Int[Array, " k"]) -> Float[Array, " k"]:
    """Return the b of `K^T K - Q^T Q = b I` after these steps from `matrices`, if steps are too short to change it."""
    return scale**2 * (1 - decay) ** (2 * jnp.minimum(steps, until))


def imbalance(weights: Factored, b: Float[Array, ""] | float) -> Float[Array, ""]:
    """Return the largest entry of `K^T K - Q^T Q - b I`, divided by b."""
    K, Q = map(in_full, weights)
    return jnp.max(jnp.abs(K.T @ K - Q.T @ Q - b * jnp.eye(len(K)))) / b


def mirrored(
    problem: Problem, scale: float, step_size: float, decay: float, until: float, steps: Sequence[int]
) -> Float[Array, "k d"]:
    """Return the diagonal w after these steps by mirror descent on w alone, with the steps of `decaying`.

    The mirror variable `arcsinh(2 w / b)` moves along the gradient, and decay changes b only. It never forms k and q,
    whose squared lengths are `b (cosh y + 1) / 2` and `b (cosh y - 1) / 2`.
    """

    def step(taken: Int[Array, ""], y: Float[Array, " d"]) -> Float[Array, " d"]:
        b = balance(scale, decay, until, taken)
        W, sizes = jnp.diag(b / 2 * jnp.sinh(y)), b * jnp.cosh(y)
        g = jnp.diagonal(descent.direction(W, problem, loss=losses.exponential).gradient)
        return y - 2 * step_size * g / jnp.sqrt(jnp.sum(sizes) * jnp.sum(sizes * g**2))

    def leg(y: Float[Array, " d"], ends: tuple[Array, Array]) -> tuple[Any, Any]:
        y = jax.lax.fori_loop(*ends, step, y)
        return y, balance(scale, decay, until, ends[1]) / 2 * jnp.sinh(y)

    ends = jnp.array(steps)
    return jax.lax.scan(leg, jnp.zeros(problem.d), (jnp.r_[0, ends[:-1]], ends))[1]


def gap(weights: Factored, problem: Problem) -> Float[Array, ""]:
    """Return how far W is from minimizing the linearized risk over the nuclear ball that it lies on, 0..2.

    With G the gradient of the risk, the largest `<-G, V>` over `||V||_* <= ||W||_*` is the spectral norm of G times
    `||W||_*`. The gap is 1 - `<-G, W>` over that; it is zero if and only if W is a stationary point of the risk plus a
    multiple of the nuclear norm. If K and Q are diagonals, only diagonal V are compared.
    """
    W = in_full(weights.K) @ in_full(weights.Q).T
    G = descent.direction(W, problem, loss=losses.exponential).gradient
    G = G * jnp.eye(len(W)) if weights.K.shape[-1] == 1 else G
    return 1 + jnp.sum(G * W) / (jnp.linalg.norm(G, 2) * jnp.linalg.norm(W, "nuc"))
