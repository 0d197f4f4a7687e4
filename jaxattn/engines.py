"""Engines of descent: what is kept of the weights between steps. All give the same trajectory.

A step needs the logits, and moves them. `Direct` keeps the weights themselves, whatever they and the optimizer are. A
free W that moves along its gradient stays in `W0 + span{x_it z_i^T}`: `Queries` keeps the images `W z_i`, (n, d), and
`Gram` the logits alone, (n, T), so that a step costs the same whatever d is. `cheapest` chooses by
the multiply-adds of a step.

Arrays may carry lanes behind their named axes (see `lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxattn import lanes
from jaxattn.attention import Factored, Spanned, Weights
from jaxattn.optimizers import length_of, rate_of, size_of
from jaxattn.problem import Problem

Update = Callable[..., Any]
Moved = tuple[Any, Array]


@runtime_checkable
class Engine(Protocol):
    """How a run is carried from step to step."""

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Return what is kept at the beginning."""
        ...

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return the logits of all tokens, (n, T), and what was formed on the way that `move` needs."""
        ...

    def move(self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, problem: Problem) -> Moved:
        """Take one step of the optimizer, and return the gradient's length beside what is kept.

        The gradient with respect to the logits, (n, T), is given, up to a factor that the length shares. It is zero for
        a token that its input does not see.
        """
        ...

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return the weights."""
        ...


@dataclass(frozen=True)
class Direct:
    """Keep the weights, W or K and Q, and the optimizer's state: for every optimizer.

    Attributes:
        update: of the optimizer.
    """

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Keep all."""
        del problem
        return weights, state

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return `X_i W z_i`, and the queries `Q^T z_i` of factored weights."""
        weights, _ = kept
        if isinstance(weights, Factored):
            queries = lanes.einsum(step, "nd,dm->nm", problem.Z, weights.Q)
            keys = lanes.einsum(step, "dm,nm->nd", weights.K, queries)
        else:
            queries, keys = None, lanes.einsum(step, "de,ne->nd", weights, problem.Z)
        return lanes.einsum(step, "ntd,nd->nt", problem.X, keys), queries

    def move(self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, problem: Problem) -> Moved:
        """Form the gradient of every matrix and hand it to the optimizer."""
        weights, state = kept
        y = lanes.einsum(step, "nt,ntd->nd", coefficients, problem.X)
        if isinstance(weights, Factored):
            keys = lanes.einsum(step, "nd,dm->nm", y, weights.K)
            of_Q = lanes.einsum(step, "nd,nm->dm", problem.Z, keys)
            slope = Factored(lanes.einsum(step, "nd,nm->dm", y, formed), of_Q)
        else:
            slope = lanes.einsum(step, "nd,ne->de", y, problem.Z)
        number, update = coefficients.ndim - 2, self.update
        if rate_of(update) is None:
            for _ in range(number):
                update = jax.vmap(update, in_axes=-1, out_axes=-1)
        updates, state = update(slope, state, weights)
        return (jax.tree.map(jnp.add, weights, updates), state), length_of(slope, number)

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return what is kept."""
        del problem
        return kept[0]


@dataclass(frozen=True)
class Queries:
    """Keep the images `M_i = W z_i`, (n, d), and the sum of all moves, `W = W0 + sum_i B_i z_i^T`.

    Attributes:
        update: of an optimizer that moves along the gradient.
    """

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Read the images of the start, and the Gram matrix of the queries."""
        G = _gram(lanes.before(), problem.Z)
        M = _images(weights, G, problem)
        return weights, M, jnp.zeros_like(M), G, state

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return `X_i M_i`."""
        return lanes.einsum(step, "ntd,nd->nt", problem.X, kept[1]), None

    def move(self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, problem: Problem) -> Moved:
        """Move the images by the gradient's, `sum_j (z_i . z_j) y_j` with `y_j = sum_t a_jt x_jt`."""
        del formed
        start, M, B, G, state = kept
        coefficients, size = _sized(coefficients)
        y = lanes.einsum(step, "nt,ntd->nd", coefficients, problem.X)
        images = lanes.einsum(step, "ij,jd->id", G, y)
        length, rate = _length_and_rate(self.update, state, jnp.sum(y * images, axis=(0, 1)), size)
        rate = lanes.spread(rate, M)
        return (start, M - rate * images, B - rate * y, G, state), length

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return `W0 + sum_i B_i z_i^T`."""
        start, _, B, _, _ = kept
        return _moved(start, B, problem)


@dataclass(frozen=True)
class Gram:
    """Keep the logits, (n, T), and the sum of all moves in the tokens' coefficients: a step does not know d.

    Logits are kept up to a number for each input, which no softmax sees: relative to that of its first token (of the
    first that the input sees, which stands in for all that it does not).

    Attributes:
        update: of an optimizer that moves along the gradient.
    """

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Form the Gram matrix of all `(x_it - x_i0) z_i^T`, (n (T - 1), n (T - 1))."""
        D = differences(problem)
        n, others, *rest = D.shape
        tokens = D.reshape(n * others, *rest)
        G = _gram(lanes.before(), problem.Z)
        logits = lanes.einsum(lanes.before(), "ntd,nd->nt", D, _images(weights, G, problem))
        G = jnp.repeat(jnp.repeat(G, others, axis=0), others, axis=1)
        return weights, logits, jnp.zeros_like(logits), G * _gram(lanes.before(), tokens), state

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return the logits relative to those of the first tokens."""
        del step, problem
        logits = kept[1]
        return jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1), None

    def move(self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, problem: Problem) -> Moved:
        """Move the logits by the Gram matrix times the coefficients."""
        del formed, problem
        start, logits, C, H, state = kept
        # The first token's is minus the sum of the others'.
        coefficients, size = _sized(coefficients)
        a = coefficients[:, 1:]
        moved = lanes.einsum(step, "pq,q->p", H, a.reshape(-1, *a.shape[2:])).reshape(a.shape)
        length, rate = _length_and_rate(self.update, state, jnp.sum(a * moved, axis=(0, 1)), size)
        rate = lanes.spread(rate, a)
        return (start, logits - rate * moved, C - rate * a, H, state), length

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return `W0 + sum_it C_it (x_it - x_i0) z_i^T`."""
        start, _, C, _, _ = kept
        B = lanes.einsum(lanes.before(), "nt,ntd->nd", C, differences(problem))
        return _moved(start, B, problem)


def cheapest(update: Update, weights: Weights, problem: Problem) -> Engine:
    """Return the engine of fewest multiply-adds a step for weights, an optimizer's update and a problem, one seed's.

    Raises:
        ValueError: `Spanned` weights, and an optimizer that leaves the span.
    """
    if isinstance(weights, Spanned) and rate_of(update) is None:
        raise ValueError(
            "optimizer: expected one that moves Spanned weights along their gradient, gd or normalized_gd, "
            f"found {getattr(update, '__qualname__', update)}"
        )
    if isinstance(weights, Factored) or rate_of(update) is None:
        return Direct(update)
    n, T, d = problem.X.shape[:3]
    of_queries, of_gram = 2 * n * T * d + n * n * d, (n * (T - 1)) ** 2
    return Gram(update) if of_gram < of_queries else Queries(update)


def differences(problem: Problem) -> Array:
    """Return `x_it - x_i0` of all later tokens, (n, T - 1, d): their logits differ by `(x_it - x_i0)^T W z_i`.

    The first token that an input sees stands in for all that it does not.
    """
    X, present = problem.X, problem.present
    if present is not None:
        # Otherwise numbers of tokens that no input sees would round those that it does.
        first = jnp.argmax(present, axis=1)[:, None, None]
        X = jnp.where(present[:, :, None], X, jnp.take_along_axis(X, first, axis=1))
    return X[:, 1:] - X[:, :1]


def _images(weights: Weights, G: Array, problem: Problem) -> Array:
    """Return `W z_i`, (n, d), with G the Gram matrix of the queries."""
    if isinstance(weights, Spanned):
        return lanes.einsum(lanes.before(), "ij,jd->id", G, weights.B)
    return lanes.einsum(lanes.before(), "de,ne->nd", jnp.asarray(weights), problem.Z)


def _moved(start: Weights, B: Array, problem: Problem) -> Weights:
    """Return the start with `sum_i B_i z_i^T` added."""
    if isinstance(start, Spanned):
        return start._replace(B=start.B + B)
    return jnp.asarray(start) + lanes.einsum(lanes.before(), "nd,ne->de", B, problem.Z)


def _gram(step: Int[Array, ""], A: Array) -> Array:
    """Return the inner products of all rows of A, (rows, d)."""
    return lanes.einsum(step, "id,jd->ij", A, A)


def _sized(coefficients: Array) -> tuple[Array, Array]:
    """Return coefficients divided by the largest, so that their squares do not underflow, and that."""
    size = size_of(coefficients, coefficients.ndim - 2)
    return coefficients * lanes.spread(1 / size, coefficients), size


def _length_and_rate(update: Update, state: Any, square: Array, size: Array) -> tuple[Array, Array]:
    """Return the gradient's length, and what it is multiplied by now that it was divided by its size."""
    rate = rate_of(update)
    assert rate is not None
    # A sum of squares that is zero can come out below it by rounding.
    length = jnp.sqrt(jnp.maximum(square, 0.0))
    return size * length, rate(state, length, size)
