"""Steepest descent in a norm: each matrix moves in the direction of norm 1 in which the risk falls fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxattn import checks, factorization, metrics, norms, signs
from jaxattn.checks import Number
from jaxattn.descent.optimizers import ScaleFree, pickled_as_made
from jaxattn.descent.singular_directions import Product, reweighted

__all__ = ["steepest"]


@pickled_as_made
def steepest(norm: str | norms.Norm, step: Number | Callable[[Any], Any]) -> ScaleFree:
    """Return the optimizer that moves W by `-step argmax <G, D>` over `||D|| <= 1`, G the gradient.

    K and Q move by the same rule, each with its own gradient, and a trained vector as a column. In the Frobenius norm
    this is normalized descent, in the largest entry ("max") sign descent, in the spectral norm Muon without momentum
    and with the exact polar factor. It uses only the gradient's direction, so it does not stall.

    If several D attain the maximum, the one of least Frobenius norm is taken, as for a gradient of low rank in the
    spectral norm. Among equal largest entries ("l1"), singular values ("nuclear") or rows ("2,1") their mean is taken;
    among sign matrices ("sign") the first.

    Args:
        norm: a name or a Norm, without a rank bound.
        step: the length of each step in that norm, or a schedule: `falling_step(0.1)` or one of optax.

    Raises:
        ValueError: an unknown name, a norm with a rank bound, or a step that is neither a positive number nor a
            schedule; in training with "sign", a matrix with more than 16 rows and columns.

    Example:
        >>> run = descent.train(start, problem, optimizer=descent.steepest("max", 0.01), steps=10)
    """
    norm = norms.named(norm).plain
    of_all = not isinstance(norm, norms.OfRank)
    if not of_all:
        raise ValueError(f"norm: expected a norm without a bound on the rank, found {norm.name!r}")
    checks.step_or_schedule("step", step)

    scaling = optax.scale_by_learning_rate(step)
    return ScaleFree(scaling.init, Steepest(norm, scaling.update))


@dataclass(frozen=True)
class Steepest:
    """The update of `steepest`: `scaling`, another update, multiplies the directions by the step."""

    norm: norms.Norm
    scaling: Callable[..., Any]

    def __call__(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        """Return the steps for gradients, each a matrix or a `Product`, and the next state."""
        leaves, structure = jax.tree.flatten(updates, is_leaf=lambda leaf: isinstance(leaf, Product))
        # Only norms of singular values get products.
        matrices: list[Any] = [leaf if isinstance(leaf, Product) else _as_matrix(leaf) for leaf in leaves]
        weights = _of_singular_values(self.norm)
        found = [direction(self.norm, G) for G in matrices] if weights is None else reweighted(matrices, weights)
        shaped = (
            D if isinstance(leaf, Product) else D.reshape(leaf.shape) for D, leaf in zip(found, leaves, strict=True)
        )
        return self.scaling(jax.tree.unflatten(structure, shaped), state, params)

    @property
    def takes_products(self) -> bool:
        """Whether it needs only the factors of a gradient `A^T B`."""
        return _of_singular_values(self.norm) is not None


def _as_matrix(G: Array) -> Float[Array, "a b"]:
    """Return the gradient of a matrix, or of a vector or a number as a column."""
    if G.ndim > 2:
        raise ValueError(f"steepest: expected matrices, vectors and numbers, found parameters of shape {G.shape}")
    return G.reshape(*G.shape, *[1] * (2 - G.ndim))


def direction(norm: norms.Norm, G: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return the maximizer of `<G, D>` over `||D|| <= 1`, of a norm not only of singular values; zero for G = 0."""
    size = jnp.max(jnp.abs(G))
    # Normalizing makes the result independent of the scale of G. A zero gradient gives a zero step.
    found = _maximizer(norm, G / jnp.where(size > 0, size, 1))
    return jnp.where(size > 0, found, 0)


def _of_singular_values(norm: norms.Norm) -> Callable[[Array], Array] | None:
    """Return the maximizer's singular values as a function of those of G, if only these count in the norm."""
    if norm == norms.spectral:
        return jnp.ones_like
    if norm == norms.nuclear:
        return partial(_of_entries, 1.0)
    return partial(_of_entries, norm.p) if isinstance(norm, norms.Schatten) else None


def _maximizer(norm: norms.Norm, G: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Return the maximizer of `<G, D>` over `||D|| <= 1`, for G with largest absolute entry 1."""
    if norm == norms.frobenius:
        return G / jnp.linalg.norm(G)
    if isinstance(norm, norms.Entrywise):
        return _of_entries(norm.p, G)
    if isinstance(norm, norms.Lengths):
        D = _of_rows(norm.p, G.T if norm.turned else G)
        return D.T if norm.turned else D
    if norm == norms.gamma2:
        return factorization.maximizer(G)
    if norm == norms.sign:
        return signs.maximizer(G)
    # The maximizer is the gradient of the dual norm.
    return jax.grad(norm.dual)(G)


def _of_entries(p: float, G: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    if p == float("inf"):
        return jnp.sign(G)
    sizes = jnp.abs(G)
    if p == 1:
        top = sizes == jnp.max(sizes)
        return jnp.sign(G) * top / jnp.sum(top)
    q = p / (p - 1)
    return jnp.sign(G) * sizes ** (q - 1) / jnp.sum(sizes**q) ** ((q - 1) / q)


def _of_rows(p: float, G: Float[Array, "a b"]) -> Float[Array, "a b"]:
    lengths = jax.vmap(metrics.norm)(G)[:, None]
    taken = lengths == jnp.max(lengths) if p == 1 else lengths > 0
    return jnp.where(taken, G / jnp.where(taken, lengths, 1), 0) / (jnp.sum(taken) if p == 1 else 1)
