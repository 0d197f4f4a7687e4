"""Internal: engines of descent, which differ in what they keep between steps and all give the same trajectory.

A step needs the logits, and changes them. `Direct` keeps the weights themselves, for any weights and optimizer. The
engines of `gram_engine` and `factored_engine` keep less, for weights that move along their gradient. `cheapest` selects
the engine with the cheapest step.

Arrays may have lanes as trailing axes (see `lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxattn.attention import Factored, Spanned, Weights
from jaxattn.descent import factored_engine, gram_engine
from jaxattn.descent.gram_engine import Moved, Update
from jaxattn.descent.moment_rescaling import Rescaled
from jaxattn.descent.optimizers import along, length_of
from jaxattn.descent.singular_directions import Product
from jaxattn.descent.steepest import Steepest
from jaxattn.descent.step_schedules import plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem


@runtime_checkable
class Engine(Protocol):
    """The operations of a training loop that depend on what is kept between steps."""

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Return what is kept at the beginning."""
        ...

    def logits(self, step: Int[Array, ""], kept: Any, problem: Problem) -> tuple[Array, Any]:
        """Return the logits of all tokens, (n, T), and intermediate results that `move` needs."""
        ...

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Take one step of the optimizer; return what is kept, and a function that computes the gradient's length.

        `coefficients` is the gradient with respect to the logits, (n, T), divided by `exp(log_scale)`; the length lacks
        the same factor. It is zero for tokens that their input does not see.
        """
        ...

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return the weights."""
        ...


@dataclass(frozen=True)
class Direct:
    """Keep the weights, W or K and Q, and the optimizer's state; works with every optimizer."""

    update: Update

    def start(self, weights: Weights, problem: Problem, state: Any) -> Any:
        """Keep weights and state."""
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

    def move(
        self, step: Int[Array, ""], kept: Any, formed: Any, coefficients: Array, log_scale: Array, problem: Problem
    ) -> Moved:
        """Form the gradient of each matrix and pass it to the optimizer."""
        weights, state = kept
        y = lanes.einsum(step, "nt,ntd->nd", coefficients, problem.X)
        if isinstance(weights, Factored):
            keys = lanes.einsum(step, "nd,dm->nm", y, weights.K)
            slope: Any = Factored(cast(Any, Product(y, formed)), cast(Any, Product(problem.Z, keys)))
        else:
            slope = Product(y, problem.Z)
        number, update = coefficients.ndim - 2, self.update

        def multiplied_out() -> Any:
            return jax.tree.map(
                lambda leaf: lanes.einsum(step, "na,nb->ab", *leaf),
                slope,
                is_leaf=lambda leaf: isinstance(leaf, Product),
            )

        takes_products = isinstance(update, Steepest) and update.takes_products
        given = slope if takes_products else multiplied_out()
        if along(plain(update)) is None and not isinstance(update, Rescaled):
            for _ in range(number):
                update = jax.vmap(update, in_axes=-1, out_axes=-1)
        scale = (log_scale,) if isinstance(update, Rescaled) else ()
        updates, state = update(given, state, weights, *scale)
        moved = jax.tree.map(jnp.add, weights, updates)
        return (moved, state), lambda: length_of(multiplied_out() if takes_products else given, number)

    def weights(self, kept: Any, problem: Problem) -> Weights:
        """Return the weights that are kept."""
        del problem
        return kept[0]


# How many times as long a multiply-add takes in a wide step as in one with trailing lanes. Measured on W of (6, 8, 10).
_OF_WIDE = 1.6


class Cost(NamedTuple):
    """The cost of a step of an engine.

    Attributes:
        multiply_adds: about how many multiply-adds it takes.
        longest_sum: the number of terms in its longest sums.
    """

    multiply_adds: int
    longest_sum: int

    @property
    def is_wide(self) -> bool:
        """Whether a batch is faster with its lanes as leading axes, so that a step consists of matrix products.

        With trailing lanes, sums are written out and vectorized along the lanes. This suits short sums, and takes three
        times as long to compile. Measured on batches of (n, T, d) = (6, 8, 10) to (15, 5, 80): from 17 terms on, matrix
        products are as fast, or lose less in a million steps than the compilation takes; from 60 terms on, they take
        half the time for W, and three quarters for (K, Q).
        """
        return self.longest_sum > lanes.TERMS

    @property
    def weighed(self) -> float:
        """The multiply-adds in units of those of a step with trailing lanes."""
        return self.multiply_adds * (_OF_WIDE if self.is_wide else 1.0)


def cheapest(update: Update, weights: Weights, problem: Problem) -> Engine:
    """Return the engine with the cheapest step for one seed's weights and problem and an update.

    Raises:
        ValueError: `Spanned` weights with an optimizer that leaves the span.
    """
    if isinstance(weights, Spanned) and along(update) is None:
        raise ValueError(
            "optimizer: expected one that moves Spanned weights along their gradient, gd or normalized_gd, "
            f"found {getattr(update, 'name', update)}"
        )
    return chosen(update, weights, problem)[0](update)


def chosen(
    update: Update, weights: Any, problem: Problem, d: int | None = None
) -> tuple[Callable[[Update], Engine], Cost]:
    """Return the kind of engine with the cheapest step, and its cost.

    Only the shapes of one seed's weights and problem are read; d is the padded dimension of tokens and queries.
    """
    n, T, own = problem.X.shape[:3]
    found = _costs(update, n, T, own if d is None else d, weights.K.shape[1] if isinstance(weights, Factored) else None)
    kind = min(found, key=lambda kind: found[kind].weighed)
    return kind, found[kind]


def _costs(update: Update, n: int, T: int, d: int, m: int | None) -> dict[Callable[[Update], Engine], Cost]:
    """Return the step's cost for each engine that an update allows; m is the factors' width, None for a free W."""
    tokens = n * (T - 1)
    if m is None:
        if along(update) is None:
            return {Direct: Cost(2 * n * T * d + (2 * n + 8) * d * d, max(n, T, d))}
        return {
            gram_engine.Queries: Cost(2 * n * T * d + n * n * d, max(n, T, d)),
            gram_engine.Gram: Cost(tokens**2, tokens),
        }
    # The optimizer passes over all entries of K and Q about four times.
    of_weights = Cost((5 * n + 8) * d * m + 2 * n * T * d, max(n, T, d, m))
    # A scheduled rule may need the lengths of the weights, which only the engine of factors keeps.
    if along(plain(update)) is None:
        return {Direct: of_weights}
    r = min(m, tokens + n)
    of_keys = Cost((3 + n) * tokens * r + (2 * n + 2) * n * r + tokens**2, max(n, T - 1, r))
    return {Direct: of_weights, factored_engine.Keys: of_keys}
