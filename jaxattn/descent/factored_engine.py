"""Internal: the engine for factors that move along their gradients; it keeps keys and queries.

K and Q stay in `K0 + span{x_it} x R^m` and `Q0 + span{z_i} x R^m`. The keys `K^T x_it` and queries `Q^T z_i`, in R^m,
change by combinations of one another, so n (T - 1) + n coordinates hold them, for factors of any width.

Arrays may have lanes as trailing axes (see `lanes`). `Keys` satisfies `engines.Engine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxattn.attention import Factored, Weights
from jaxattn.descent.gram_engine import Moved, Update, differences, gram, rule_of
from jaxattn.descent.optimizers import size_of
from jaxattn.descent.step_schedules import Scheduled, plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem


class Held(NamedTuple):
    """The state of `Keys`: `K = share_K K0 + sum_it (x_it - x_i0) A_it^T` and `Q = share_Q Q0 + sum_i z_i B_i^T`.

    Attributes:
        start: K0 and Q0.
        columns: an orthonormal basis as rows of length m, some possibly zero; keys, queries, A and B are in its r
            coordinates. None if r = m: they are then in the columns of K and Q themselves.
        keys: `K^T (x_it - x_i0)`, (n, T - 1, r).
        queries: `Q^T z_i`, (n, r).
        A: (n, T - 1, r).
        B: (n, r).
        shares: the remaining fractions of K0 and Q0 under the penalty.
        squares: the squared Frobenius norms of K and Q.
        tokens: inner products of all `x_it - x_i0`, (n (T - 1), n, T - 1).
        G: inner products of the queries `z_i`, (n, n).
        state: the optimizer's state.
    """

    start: Factored
    columns: Array | None
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
    """Keep the keys of all tokens, relative to their input's first token, and the queries; no step forms K or Q."""

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Held:
        """Compute keys and queries at the start, and the Gram matrices of tokens and queries."""
        assert isinstance(weights, Factored)
        D, step = differences(problem), lanes.before()
        n, others, d, *rest = D.shape
        flat = D.reshape(n * others, d, *rest)
        keys = lanes.einsum(step, "pd,dm->pm", flat, weights.K)
        queries = lanes.einsum(step, "nd,dm->nm", problem.Z, weights.Q)
        columns = None
        if n * others + n < keys.shape[1]:
            both, columns = coordinates(jnp.concatenate([keys, queries]))
            keys, queries = both[: n * others], both[n * others :]
        keys = keys.reshape(n, others, -1, *rest)
        one = jnp.ones(tuple(rest), D.dtype)
        return Held(
            start=weights,
            columns=columns,
            keys=keys,
            queries=queries,
            A=jnp.zeros_like(keys),
            B=jnp.zeros_like(queries),
            shares=(one, one),
            squares=(jnp.sum(weights.K**2, axis=(0, 1)), jnp.sum(weights.Q**2, axis=(0, 1))),
            tokens=gram(step, flat).reshape(n * others, n, others, *rest),
            G=gram(step, problem.Z),
            state=state,
        )

    def logits(self, step: Int[Array, ""], kept: Held, problem: Problem) -> tuple[Array, Array]:
        """Return the logits relative to those of the first tokens, and the same without the first tokens' zeros."""
        del problem
        logits = lanes.einsum(step, "ntm,nm->nt", kept.keys, kept.queries)
        return jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1), logits

    def move(
        self, step: Int[Array, ""], kept: Held, formed: Array, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Move keys and queries by the images of the gradients, and A and B by the gradients' coefficients."""
        del log_scale, problem
        scheduled = self.update if isinstance(self.update, Scheduled) else None
        rule, state = rule_of(plain(self.update)), kept.state.rule if scheduled else kept.state
        penalty = 2 * rule.penalty(state)
        size = jnp.maximum(size_of(coefficients, coefficients.ndim - 2), penalty)
        penalty = penalty / size
        a = coefficients[:, 1:] * lanes.spread(1 / size, coefficients)

        # With y_i = sum_t a_it x_it the gradients are sum_i y_i (Q^T z_i)^T and sum_i z_i (K^T y_i)^T.
        of_tokens = lanes.einsum(step, "pju,ju->pj", kept.tokens, a)
        read = lanes.einsum(step, "nt,ntm->nm", a, kept.keys)
        of_queries = lanes.einsum(step, "ij,jm->im", kept.G, read)

        # <gradient, K> = <gradient, Q> is the sum of coefficients times logits.
        along_weights = lanes.total(a * formed, 2)
        # The square of K's gradient is sum_ij (y_i . y_j) (Q^T z_i . Q^T z_j).
        products = lanes.einsum(step, "itj,it->ij", of_tokens.reshape(*a.shape[:2], *of_tokens.shape[1:]), a)
        of_products = lanes.einsum(step, "ij,jm->im", products, kept.queries)
        risk = lanes.total(of_products * kept.queries, 2), lanes.total(read * of_queries, 2)
        # Rounding can make a zero sum of squares negative.
        risk = [jnp.maximum(square, 0.0) for square in risk]
        whole = [
            jnp.maximum(square + 2 * penalty * along_weights + penalty**2 * weights, 0.0)
            for square, weights in zip(risk, kept.squares, strict=True)
        ]
        lengths = rule.lengths(*map(jnp.sqrt, whole))
        rates = [rule.rate(state, length, size) for length in lengths]
        after = kept.state
        if scheduled:
            factors = scheduled.factors(kept.state, [*map(jnp.sqrt, kept.squares)])
            rates = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
            after = scheduled.after(kept.state, state)
        left = [1 - rate * penalty for rate in rates]
        squares = [
            square - 2 * rate * (along_weights + penalty * square) + rate**2 * slope
            for square, rate, slope in zip(kept.squares, rates, whole, strict=True)
        ]
        of_keys = lanes.fused(step, "pj,jm->pm", _times(rates[0], of_tokens), kept.queries)
        moved = kept._replace(
            keys=_times(left[0], kept.keys) - of_keys.reshape(kept.keys.shape),
            queries=_times(left[1], kept.queries) - _times(rates[1], of_queries),
            A=_times(left[0], kept.A) - _times(rates[0], a[:, :, None] * kept.queries[:, None]),
            B=_times(left[1], kept.B) - _times(rates[1], read),
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
        moves = lanes.einsum(step, "pd,pm->dm", *flat), lanes.einsum(step, "nd,nm->dm", problem.Z, kept.B)
        if kept.columns is not None:
            moves = (lanes.einsum(step, "dr,rm->dm", move, kept.columns) for move in moves)
        return Factored(
            *(
                lanes.spread(share, matrix) * matrix + move
                for share, matrix, move in zip(kept.shares, kept.start, moves, strict=True)
            )
        )


def coordinates(rows: Array) -> tuple[Array, Array]:
    """Return rows in the coordinates of an orthonormal basis of their span, and that basis.

    Gram-Schmidt with two passes per row makes the basis orthonormal to rounding, even if rows are nearly dependent.
    LAPACK is avoided because its calls would keep programs from running side by side (see `batch`).

    Returns:
        For rows (r, m) with r < m the coordinates, (r, r), and the basis, (r, m), with a zero row for each row that
        depends on earlier ones.
    """

    def add(k: Int[Array, ""], basis: Array) -> Array:
        row = jax.lax.dynamic_index_in_dim(rows, k, 0, keepdims=False)
        once = _without(k, row, basis)
        twice = _without(k, once, basis)
        before, after = (jnp.sqrt(lanes.total(one**2, 1)) for one in (once, twice))
        # A row that loses its length in the second pass consisted of rounding errors of the first.
        inverse = jnp.where(2 * after > before, 1 / jnp.where(after > 0, after, 1), 0)
        return jax.lax.dynamic_update_index_in_dim(basis, lanes.spread(inverse, twice) * twice, k, 0)

    basis = jax.lax.fori_loop(0, rows.shape[0], add, jnp.zeros_like(rows))
    return lanes.einsum(lanes.before(), "im,jm->ij", rows, basis), basis


def _times(number: Array, A: Array) -> Array:
    """Return an array times one number per lane."""
    return lanes.spread(number, A) * A


def _without(step: Int[Array, ""], row: Array, basis: Array) -> Array:
    """Return a row minus its projection onto the rows of a basis."""
    along = lanes.einsum(step, "jm,m->j", basis, row)
    return row - lanes.einsum(step, "jm,j->m", basis, along)
