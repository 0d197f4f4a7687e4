"""Internal: a gradient with its singular values replaced, such as its polar factor, for one seed or many lanes at once.

The gradient of an attention weight is `A^T B` with one row of A and B per input. One-sided Jacobi rotations make the
columns of a matrix with as few columns as inputs orthogonal. In lanes this takes a fifth of the time of LAPACK's
singular value decompositions, and programs without LAPACK run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxattn.descent.factored_engine import coordinates
from jaxattn.parallel import lanes

# The most sweeps through all pairs of columns; five to seven are usual.
_SWEEPS = 30


class Product(NamedTuple):
    """A gradient `A^T B`, not multiplied out."""

    A: Float[Array, "n a"]
    B: Float[Array, "n b"]


def reweighted(gradients: Sequence[Array | Product], weights: Callable[[Array], Array]) -> list[Array]:
    """Return `sum_j w_j u_j v_j^T` for the singular values s and vectors of each gradient, with `w = weights(s)`.

    `weights` gets at least as many singular values as are not 0, in any order, relative to an unknown scale. Those of
    rounding errors count as 0, and so do their weights: a zero gradient gives zero.
    """

    @jax.custom_batching.custom_vmap
    def every(given: Sequence[Array | Product]) -> list[Array]:
        return _reweighted(given, weights)

    @every.def_vmap
    def _(axis_size: int, in_batched: Any, given: Sequence[Array | Product]) -> tuple[list[Array], list[bool]]:
        def in_lanes(factor: Array, batched: bool) -> Array:
            return jnp.moveaxis(factor, 0, -1) if batched else jnp.stack([factor] * axis_size, axis=-1)

        found = _reweighted(jax.tree.map(in_lanes, given, *in_batched), weights)
        return [jnp.moveaxis(one, -1, 0) for one in found], [True] * len(found)

    return every(list(gradients))


def _reweighted(gradients: Sequence[Array | Product], weights: Callable[[Array], Array]) -> list[Array]:
    """Do the same for gradients with or without lanes as trailing axes."""
    # K and Q have gradients of one shape: rotating both at once takes half as many operations.
    first, *others = gradients
    if any(jax.tree.map(jnp.shape, other) != jax.tree.map(jnp.shape, first) for other in others):
        found: list[Array] = []
        for one in gradients:
            # Independent batched LAPACK calls can deadlock on a CPU: make each depend on the one before.
            found.append(_of_stack(jax.tree.map(partial(_after, found[-1:]), one), weights))
        return found
    stack = jax.tree.map(lambda *factors: jnp.stack(factors, axis=2), *gradients)
    found_stack = _of_stack(stack, weights)
    return [found_stack[:, :, number] for number in range(len(gradients))]


def _after(first: list[Array], then: Array) -> Array:
    return then + 0 * jnp.sum(first[0]) if first else then


def _of_stack(G: Array | Product, weights: Callable[[Array], Array]) -> Array:
    basis = None
    if isinstance(G, Product):
        A, B = map(_unit, G)
        n, a, b = *A.shape[:2], B.shape[1]
        if n < min(a, b):
            L, basis = coordinates(B)
            M = lanes.einsum(lanes.before(), "na,nj->aj", A, L)
        else:
            M = lanes.einsum(lanes.before(), "na,nb->ab", A, B)
    else:
        M = _unit(G)
    wide = M.shape[0] < M.shape[1]
    U, s, V, step = _decomposed(jnp.swapaxes(M, 0, 1) if wide else M)
    s = jnp.where(s >= max(M.shape[:2]) * jnp.finfo(s.dtype).eps * jnp.max(s, axis=0, keepdims=True), s, 0)
    for _ in s.shape[1:]:
        weights = jax.vmap(weights, -1, -1)
    w = jnp.where(s > 0, weights(s), 0)
    D = lanes.einsum(step, "aj,bj->ab", U * w[None], V)
    D = jnp.swapaxes(D, 0, 1) if wide else D
    return D if basis is None else lanes.einsum(step, "aj,jb->ab", D, basis)


def _unit(A: Array) -> Array:
    """Divide each matrix by its largest absolute entry, so that squares do not underflow; 0 stays 0."""
    size = lanes.largest(jnp.abs(A), 2)
    return A / lanes.spread(jnp.where(size > 0, size, 1), A)


def _decomposed(M: Array) -> tuple[Array, Array, Array, Array]:
    """Return U, s and V with `M = U diag(s) V^T` for a matrix with at most as many columns as rows, and a step number.

    V is square, and U has zero columns for zeros of s. The step number is one that `lanes.einsum` takes.
    """
    a, k, *rest = M.shape
    if k > lanes.TERMS:
        axes = range(-2, 0), range(2)
        U, s, Vt = jnp.linalg.svd(jnp.moveaxis(M, *axes[::-1]), full_matrices=False)
        return jnp.moveaxis(U, *axes), jnp.moveaxis(s, -1, 0), jnp.moveaxis(Vt.mT, *axes), lanes.before()
    eye = jnp.eye(k, dtype=M.dtype).reshape(k, k, *[1] * len(rest))
    both = jnp.concatenate([M, jnp.broadcast_to(eye, (k, k, *rest))])
    # Columns first: they are exchanged as whole blocks of memory.
    columns, step = _orthogonalized(jnp.swapaxes(both, 0, 1), a)
    turned = jnp.swapaxes(columns, 0, 1)
    s = jnp.sqrt(lanes.total(turned[:a] ** 2, 2, 0))
    return turned[:a] / jnp.where(s > 0, s, 1)[None], s, turned[a:], step


def _orthogonalized(columns: Array, a: int) -> tuple[Array, Int[Array, ""]]:
    """Rotate pairs of columns until their first `a` entries are orthogonal; return them and the number of sweeps.

    Columns are the leading axis. In each round of a sweep all columns are paired, and a sweep pairs each with each
    (one-sided Jacobi, Golub and Van Loan, Matrix Computations, section 8.6). A lane whose columns are orthogonal stays
    as it is, so that no lane depends on the others.
    """
    k, lane = columns.shape[0], columns.shape[2:]
    # With an odd number of columns one of them pauses: it is paired with zeros.
    columns = jnp.pad(columns, [(0, k % 2)] + [(0, 0)] * (columns.ndim - 1))
    half = columns.shape[0] // 2
    source, partner = _next_pairs(2 * half)
    near = jnp.finfo(columns.dtype).eps / 2

    def one_round(step: Int[Array, ""], now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        columns, unfinished, worst = now
        first, second = columns[:half, :a], columns[half:, :a]
        pairs = (first, first), (second, second), (first, second)
        alpha, beta, gamma = (lanes.stored(step, partial(_inner, *pair)) for pair in pairs)

        def tangent() -> Array:
            difference = beta - alpha
            size = jnp.abs(difference) + jnp.hypot(difference, 2 * gamma)
            turns = unfinished[None] & (gamma != 0)
            return jnp.where(turns, jnp.where(difference < 0, -2, 2) * gamma / jnp.where(turns, size, 1), 0)

        t = lanes.stored(step, tangent)
        c = lanes.stored(step, lambda: jax.lax.rsqrt(1 + t * t))
        own = lanes.stored(step, lambda: jnp.concatenate([c, c])[source])
        other = lanes.stored(step, lambda: jnp.concatenate([-c * t, c * t])[source])
        rotated = own[:, None] * columns[source] + other[:, None] * columns[partner]
        product = alpha * beta
        cosines = jnp.where(product > 0, gamma**2 / jnp.where(product > 0, product, 1), 0)
        return rotated, unfinished, jnp.maximum(worst, lanes.largest(cosines, 1))

    def sweep(now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        columns, unfinished, number = now
        begin = columns, unfinished, jnp.zeros(lane, columns.dtype)
        columns, _, worst = jax.lax.fori_loop(0, 2 * half - 1, one_round, begin)
        return columns, unfinished & (worst > near), number + 1

    def goes_on(now: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        return jnp.any(now[1]) & (now[2] < _SWEEPS)

    begin = columns, jnp.ones(lane, bool), jnp.zeros((), int)
    columns, _, number = jax.lax.while_loop(goes_on, sweep, begin)
    return columns[:k], number


def _inner(one: Array, other: Array) -> Array:
    """Return the inner product of each column of one array with that of another."""
    return lanes.total(one * other, 2, 1)


def _next_pairs(columns: int) -> tuple[Int[np.ndarray, " columns"], Int[np.ndarray, " columns"]]:
    """Return which column, once rotated, comes to each place, and the column that it was rotated with.

    The i-th of the first half is paired with the i-th of the second. One column stays, the others go round in a circle
    (the schedule of a round-robin tournament), so that after `columns - 1` rounds each has met each.
    """
    half = columns // 2
    circle = [*range(1, half), *range(columns - 1, half - 1, -1)]
    circle = circle[-1:] + circle[:-1]
    source = np.asarray([0, *circle[: half - 1], *circle[half - 1 :][::-1]])
    return source, (source + half) % columns
