"""Internal: engines for a free W in the span of its start and of the problem's tokens and queries.

A W that moves along its gradient stays in `W0 + span{x_it z_i^T}`. `Queries` keeps the images `W z_i`, (n, d). `Gram`
keeps the logits, (n, T), so its step costs the same for any d. `factored_engine.Keys` is the engine for factors.

Arrays may have lanes as trailing axes (see `lanes`). All satisfy `engines.Engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxattn.attention import Spanned, Weights
from jaxattn.descent.optimizers import Along, along, size_of
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

Update = Callable[..., Any]
# What is kept after a step, and a function that computes the gradient's length, which few steps need.
Moved = tuple[Any, Callable[[], Array]]


@dataclass(frozen=True)
class Queries:
    """Keep the images `M_i = W z_i`, (n, d), and the sum of all moves, `W = W0 + sum_i B_i z_i^T`."""

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Compute the images at the start, and the Gram matrix of the queries."""
        G = gram(lanes.before(), problem.Z)
        M = _images(weights, G, problem)
        return weights, M, jnp.zeros_like(M), G, state

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return `X_i M_i`."""
        return lanes.einsum(step, "ntd,nd->nt", problem.X, kept[1]), None

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move the images by those of the gradient, `sum_j (z_i . z_j) y_j` with `y_j = sum_t a_jt x_jt`."""
        del formed, log_scale
        start, M, B, G, state = kept
        coefficients, size = _sized(step, coefficients)
        y = lanes.einsum(step, "nt,ntd->nd", coefficients, problem.X)
        images = lanes.einsum(step, "ij,jd->id", G, y)
        length, rate = _length_and_rate(self.update, state, lanes.total(y * images, 2), size)
        rate = lanes.spread(rate, M)
        return (start, M - rate * images, B - rate * y, G, state), lambda: length

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return `W0 + sum_i B_i z_i^T`."""
        start, _, B, _, _ = kept
        return _moved(start, B, problem)


@dataclass(frozen=True)
class Gram:
    """Keep the logits, (n, T), and the sum of all moves as coefficients of the tokens; the cost of a step has no d.

    Logits are kept relative to those of the input's first token, which the softmax allows. The first token is the first
    that the input sees; it also stands in for tokens that it does not see.
    """

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Form the Gram matrix of all `(x_it - x_i0) z_i^T`, (n (T - 1), n (T - 1))."""
        D = differences(problem)
        n, others, *rest = D.shape
        tokens = D.reshape(n * others, *rest)
        G = gram(lanes.before(), problem.Z)
        logits = lanes.einsum(lanes.before(), "ntd,nd->nt", D, _images(weights, G, problem))
        G = jnp.repeat(jnp.repeat(G, others, axis=0), others, axis=1)
        return weights, logits, jnp.zeros_like(logits), G * gram(lanes.before(), tokens), state

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return the logits relative to those of the first tokens."""
        del step, problem
        logits = kept[1]
        return jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1), None

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move the logits by the Gram matrix times the coefficients."""
        del formed, log_scale, problem
        start, logits, C, H, state = kept
        # The coefficient of the first token is minus the sum of the others.
        coefficients, size = _sized(step, coefficients)
        a = coefficients[:, 1:]
        moved = lanes.einsum(step, "pq,q->p", H, a.reshape(-1, *a.shape[2:])).reshape(a.shape)
        length, rate = _length_and_rate(self.update, state, lanes.total(a * moved, 2), size)
        rate = lanes.spread(rate, a)
        return (start, logits - rate * moved, C - rate * a, H, state), lambda: length

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return `W0 + sum_it C_it (x_it - x_i0) z_i^T`."""
        start, _, C, _, _ = kept
        B = lanes.einsum(lanes.before(), "nt,ntd->nd", C, differences(problem))
        return _moved(start, B, problem)


def differences(problem: Problem) -> Array:
    """Return `x_it - x_i0` for all later tokens, (n, T - 1, d): their logits differ by `(x_it - x_i0)^T W z_i`.

    The first token that an input sees stands in for the tokens that it does not see.
    """
    X, present = problem.X, problem.present
    if present is not None:
        # Otherwise tokens that no input sees would add rounding errors to those that it does see.
        first = jnp.argmax(present, axis=1)[:, None, None]
        X = jnp.where(present[:, :, None], X, jnp.take_along_axis(X, first, axis=1))
    return X[:, 1:] - X[:, :1]


def _images(weights: Weights, G: Array, problem: Problem) -> Array:
    """Return `W z_i`, (n, d); G is the Gram matrix of the queries."""
    if isinstance(weights, Spanned):
        return lanes.einsum(lanes.before(), "ij,jd->id", G, weights.B)
    return lanes.einsum(lanes.before(), "de,ne->nd", jnp.asarray(weights), problem.Z)


def _moved(start: Weights, B: Array, problem: Problem) -> Weights:
    """Return the start with `sum_i B_i z_i^T` added."""
    if isinstance(start, Spanned):
        return start._replace(B=start.B + B)
    return jnp.asarray(start) + lanes.einsum(lanes.before(), "nd,ne->de", B, problem.Z)


def gram(step: Int[Array, ""], A: Array) -> Array:
    """Return the inner products of all rows of A, (rows, d)."""
    return lanes.einsum(step, "id,jd->ij", A, A)


def _sized(step: Int[Array, ""], coefficients: Array) -> tuple[Array, Array]:
    """Return coefficients divided by the largest one, so that their squares do not underflow, and the largest."""
    # Stored, because a rule that needs no length would otherwise recompute the maximum for each entry it moves.
    size = lanes.stored(step, lambda: size_of(coefficients, coefficients.ndim - 2))
    return coefficients * lanes.spread(1 / size, coefficients), size


def _length_and_rate(update: Update, state: Any, square: Array, size: Array) -> tuple[Array, Array]:
    """Return the length of a gradient that was divided by `size`, and its rate."""
    # Rounding can make a zero sum of squares negative.
    length = jnp.sqrt(jnp.maximum(square, 0.0))
    return size * length, rule_of(update).rate(state, length, size)


def rule_of(update: Update) -> Along:
    """Return how an update moves weights along their gradient; the caller has checked that it does."""
    rule = along(update)
    assert rule is not None
    return rule
