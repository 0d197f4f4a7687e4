"""One decoder's heads along the training: attention, support vectors, and the margin ratios of untrained matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import svm
from jaxattn.bias import nulls
from jaxattn.experiments.beyond.hierarchy.decoder import visible

# The null matrices: the quantiles of directions drawn from the cone, by name, and the rows' mean.
QUANTILES = {"low": 0.05, "high": 0.95}
NULLS = (*QUANTILES, "mean")
# A row carries the optimum if its multiplier is more than this share of their sum; the others are rounding.
_CARRIES = 1e-6
# Random directions for each snapshot.
_DRAWS = 100


class Problems(NamedTuple):
    """What one head of one seed reads at k snapshots, and the `rows` of the tokens that it selects at the end."""

    read: Float[np.ndarray, "k n T d"]
    W: Float[np.ndarray, "k d d"]
    constraints: svm.Constraints
    solution: svm.Solution
    selected: Int[np.ndarray, "n queries"]


def heads(record: xarray.Dataset) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield each head of a record of decoders: its layer, its number there, and the positions of its queries.

    In the last layer these are the positions that count for the task, and in those before it all that see a choice.

    Raises:
        ValueError: the record has no seed.
    """
    if not record.sizes["seed"]:
        raise ValueError(
            "decoders: expected one to measure, found none: each diverged, did not learn its task, or has an optimum "
            "without a certificate"
        )
    layers, T = record.sizes["layer"], record.sizes["token"]
    last = tuple(map(int, np.flatnonzero(record["counts"].values[0])))
    for layer, head in itertools.product(range(layers), range(record.sizes["head"])):
        yield layer, head, last if layer == layers - 1 else tuple(range(1, T))


def logits(
    read: Float[Array, "k n T d"], W: Float[Array, "k d d"], positions: Sequence[int]
) -> Float[Array, "k n queries T"]:
    """Return the attention's logits of the queries at these positions; -inf for tokens that they do not see."""
    T, at = read.shape[2], jnp.asarray(positions)
    return jnp.where(visible(T)[None, None, at], jnp.einsum("kntd,kde,knue->knut", read, W, read[:, :, at]), -jnp.inf)


def others(positions: Sequence[int], selected: Int[Array, "n queries"]) -> tuple[Any, Int[Array, "n rows"]]:
    """Return for each row of a sequence the number of its query, (rows,), and the token that is not selected.

    The query at position u sees u tokens besides the selected one: each gives a row.
    """
    queries, places = np.array([(query, j) for query, u in enumerate(positions) for j in range(u)]).T
    return queries, places[None] + (places[None] >= selected[:, queries])


def rows(read: Float[Array, "n T d"], selected: Int[Array, "n queries"], positions: tuple[int, ...]) -> svm.Constraints:
    """Return the rows in which the selected token of each query leads every other that the query sees."""
    queries, beaten = others(positions, selected)
    best, other = (jnp.take_along_axis(read, tokens[..., None], axis=1) for tokens in (selected[:, queries], beaten))
    d = read.shape[-1]
    return svm.Constraints((best - other).reshape(-1, 1, d), read[:, jnp.asarray(positions)[queries]].reshape(-1, d))


def followed(problems: Problems, positions: tuple[int, ...], norm: str, key: PRNGKeyArray) -> dict[str, np.ndarray]:
    """Return what a picture of one head shows.

    Returns:
        `null`, margin ratios of matrices that training did not choose, (k, kind) with the names of `NULLS`;
        `attention`, the probabilities, (k, n, T, T) by query and token; `support`, whether the row of a query and a
        token carries the optimum, alike; and `selected`, whether the query selects the token at the end, (n, T, T).
    """
    read, W, constraints, solution, selected = problems
    drawn = nulls.ratios(constraints, W, norm, solution, key, draws=_DRAWS)
    null = [*np.quantile(np.minimum(drawn.cone, 1.0), [*QUANTILES.values()], axis=1), drawn.mean]
    k, n, T = read.shape[:3]
    attention = jax.nn.softmax(logits(jnp.asarray(read), jnp.asarray(W), range(T)), axis=-1)
    sequences, at = np.arange(n)[:, None], np.array(positions)
    marked, support = np.zeros((n, T, T), bool), np.zeros((k, n, T, T), bool)
    marked[sequences, at, selected] = True
    queries, beaten = others(positions, jnp.asarray(selected))
    duals = np.asarray(solution.duals)[..., 0]
    carries = duals > _CARRIES * duals.sum(axis=1, keepdims=True)
    support[:, sequences, at[queries], np.asarray(beaten)] = carries.reshape(k, n, -1)
    return {
        "null": np.stack(null, axis=1),
        "attention": np.asarray(attention),
        "support": support,
        "selected": marked,
    }
