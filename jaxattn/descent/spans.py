"""Internal: engines for weights that stay in a span: of their start, and of the problem's tokens and queries.

A free W that moves along its gradient stays in `W0 + span{x_it z_i^T}`: `Queries` keeps the images `W z_i`, (n, d), and
`Gram` the logits alone, (n, T), so that a step costs the same whatever d is. Factors stay in
`K0 + span{x_it} x R^m` and `Q0 + span{z_i} x R^m`: `Keys` keeps keys `K^T x_it` and queries `Q^T z_i`.

Arrays may carry lanes behind their named axes (see `lanes`). All satisfy `engines.Engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxattn.attention import Factored, Spanned, Weights
from jaxattn.descent.optimizers import Along, along, size_of
from jaxattn.descent.pacing import Paced, plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

Update = Callable[..., Any]
# What is kept after a step, and what computes the length of the gradient: only few steps are asked for it.
Moved = tuple[Any, Callable[[], Array]]


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

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move the images by the gradient's, `sum_j (z_i . z_j) y_j` with `y_j = sum_t a_jt x_jt`."""
        del formed, log_scale
        start, M, B, G, state = kept
        coefficients, size = _sized(coefficients)
        y = lanes.einsum(step, "nt,ntd->nd", coefficients, problem.X)
        images = lanes.einsum(step, "ij,jd->id", G, y)
        length, rate = _length_and_rate(self.update, state, jnp.sum(y * images, axis=(0, 1)), size)
        rate = lanes.spread(rate, M)
        return (start, M - rate * images, B - rate * y, G, state), lambda: length

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

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move the logits by the Gram matrix times the coefficients."""
        del formed, log_scale, problem
        start, logits, C, H, state = kept
        # The first token's is minus the sum of the others'.
        coefficients, size = _sized(coefficients)
        a = coefficients[:, 1:]
        moved = lanes.einsum(step, "pq,q->p", H, a.reshape(-1, *a.shape[2:])).reshape(a.shape)
        length, rate = _length_and_rate(self.update, state, jnp.sum(a * moved, axis=(0, 1)), size)
        rate = lanes.spread(rate, a)
        return (start, logits - rate * moved, C - rate * a, H, state), lambda: length

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return `W0 + sum_it C_it (x_it - x_i0) z_i^T`."""
        start, _, C, _, _ = kept
        B = lanes.einsum(lanes.before(), "nt,ntd->nd", C, differences(problem))
        return _moved(start, B, problem)


class Held(NamedTuple):
    """What `Keys` keeps: `K = share_K K0 + sum_it (x_it - x_i0) A_it^T` and `Q = share_Q Q0 + sum_i z_i B_i^T`.

    Attributes:
        start: K0 and Q0.
        keys: `K^T (x_it - x_i0)`, (n, T - 1, m).
        queries: `Q^T z_i`, (n, m).
        A: (n, T - 1, m).
        B: (n, m).
        shares: what the penalty has left of K0 and of Q0.
        squares: of the Frobenius norms of K and Q.
        tokens: inner products of all `x_it - x_i0`, (n (T - 1), n, T - 1).
        G: those of the queries `z_i`, (n, n).
        state: of the optimizer.
    """

    start: Factored
    keys: Array
    queries: Array
    A: Array
    B: Array
    shares: tuple[Array, Array]
    squares: tuple[Array, Array]
    tokens: Array
    G: Array
    state: Any


@dataclass(frozen=True)
class Keys:
    """Keep the keys of all tokens and the queries, each relative to its input's first: no step forms K or Q.

    Attributes:
        update: of an optimizer that moves K and Q along their gradients.
    """

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Held:
        """Read keys and queries of the start, and form the Gram matrices of tokens and queries."""
        assert isinstance(weights, Factored)
        D, step = differences(problem), lanes.before()
        n, others, d, *rest = D.shape
        flat = D.reshape(n * others, d, *rest)
        keys = lanes.einsum(step, "pd,dm->pm", flat, weights.K).reshape(n, others, -1, *rest)
        queries = lanes.einsum(step, "nd,dm->nm", problem.Z, weights.Q)
        one = jnp.ones(tuple(rest), D.dtype)
        return Held(
            start=weights,
            keys=keys,
            queries=queries,
            A=jnp.zeros_like(keys),
            B=jnp.zeros_like(queries),
            shares=(one, one),
            squares=(jnp.sum(weights.K**2, axis=(0, 1)), jnp.sum(weights.Q**2, axis=(0, 1))),
            tokens=_gram(step, flat).reshape(n * others, n, others, *rest),
            G=_gram(step, problem.Z),
            state=state,
        )

    def logits(self, step: Int[Array, ""], kept: Held, problem: Problem) -> tuple[Array, Array]:
        """Return the logits relative to those of the first tokens, and once more without the zeros of these."""
        del problem
        logits = lanes.einsum(step, "ntm,nm->nt", kept.keys, kept.queries)
        return jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1), logits

    def move(
        self, step: Int[Array, ""], kept: Held, formed: Array, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move keys and queries by the gradients' images, and the coefficients of K and Q by the gradients'."""
        del log_scale, problem
        paced = self.update if isinstance(self.update, Paced) else None
        rule, state = _rule(plain(self.update)), kept.state.rule if paced else kept.state
        penalty = 2 * rule.penalty(state)
        size = jnp.maximum(size_of(coefficients, coefficients.ndim - 2), penalty)
        penalty = penalty / size
        a = coefficients[:, 1:] * lanes.spread(1 / size, coefficients)

        # With y_i = sum_t a_it x_it the gradients are sum_i y_i (Q^T z_i)^T and sum_i z_i (K^T y_i)^T.
        of_tokens = lanes.einsum(step, "pju,ju->pj", kept.tokens, a)
        of_keys = lanes.einsum(step, "pj,jm->pm", of_tokens, kept.queries).reshape(kept.keys.shape)
        read = lanes.einsum(step, "nt,ntm->nm", a, kept.keys)
        of_queries = lanes.einsum(step, "ij,jm->im", kept.G, read)

        # <gradient, K> = <gradient, Q> is the sum of coefficients times logits.
        along_weights = jnp.sum(a * formed, axis=(0, 1))
        along_keys = lanes.einsum(step, "ntm,nm->nt", of_keys, kept.queries)
        risk = jnp.sum(a * along_keys, axis=(0, 1)), jnp.sum(read * of_queries, axis=(0, 1))
        # A sum of squares that is zero can come out below it by rounding.
        risk = [jnp.maximum(square, 0.0) for square in risk]
        whole = [
            jnp.maximum(square + 2 * penalty * along_weights + penalty**2 * weights, 0.0)
            for square, weights in zip(risk, kept.squares, strict=True)
        ]
        lengths = rule.lengths(*map(jnp.sqrt, whole))
        rates = [rule.rate(state, length, size) for length in lengths]
        after = kept.state
        if paced:
            factors = paced.factors(kept.state, [*map(jnp.sqrt, kept.squares)])
            rates = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
            after = paced.after(kept.state, state)
        left = [1 - rate * penalty for rate in rates]
        squares = [
            square - 2 * rate * (along_weights + penalty * square) + rate**2 * slope
            for square, rate, slope in zip(kept.squares, rates, whole, strict=True)
        ]
        moved = kept._replace(
            keys=_after(left[0], kept.keys) - _after(rates[0], of_keys),
            queries=_after(left[1], kept.queries) - _after(rates[1], of_queries),
            A=_after(left[0], kept.A) - _after(rates[0], a[:, :, None] * kept.queries[:, None]),
            B=_after(left[1], kept.B) - _after(rates[1], read),
            shares=(left[0] * kept.shares[0], left[1] * kept.shares[1]),
            squares=(squares[0], squares[1]),
            state=after,
        )
        return moved, lambda: size * jnp.sqrt(risk[0] + risk[1])

    def weights(self, kept: Held, problem: Problem) -> Factored:
        """Return K and Q from their coefficients."""
        D, step = differences(problem), lanes.before()
        n, others, _, *rest = D.shape
        flat = (array.reshape(n * others, -1, *rest) for array in (D, kept.A))
        share_K, share_Q = (lanes.spread(share, kept.start.K) for share in kept.shares)
        return Factored(
            share_K * kept.start.K + lanes.einsum(step, "pd,pm->dm", *flat),
            share_Q * kept.start.Q + lanes.einsum(step, "nd,nm->dm", problem.Z, kept.B),
        )


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
    # A sum of squares that is zero can come out below it by rounding.
    length = jnp.sqrt(jnp.maximum(square, 0.0))
    return size * length, _rule(update).rate(state, length, size)


def _after(number: Array, A: Array) -> Array:
    """Return an array times a number of each lane."""
    return lanes.spread(number, A) * A


def _rule(update: Update) -> Along:
    rule = along(update)
    assert rule is not None
    return rule
