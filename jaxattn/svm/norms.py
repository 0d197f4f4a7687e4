"""Matrix norms, each with its dual, as the max-margin problems and their certificate need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics


@dataclass(frozen=True)
class Norm:
    """A norm of (d, d) matrices and its dual norm.

    Attributes:
        name: how messages and records call it.
        value: the norm of a matrix, ().
        dual: the largest inner product with a matrix of norm at most 1, ().
    """

    name: str
    value: Callable[[Float[Array, "a b"]], Float[Array, ""]]
    dual: Callable[[Float[Array, "a b"]], Float[Array, ""]]


def _nuclear(W: Float[Array, "a b"]) -> Float[Array, ""]:
    return jnp.sum(jnp.linalg.svd(W, compute_uv=False))


def _spectral(W: Float[Array, "a b"]) -> Float[Array, ""]:
    return jnp.linalg.svd(W, compute_uv=False)[0]


frobenius = Norm("frobenius", metrics.norm, metrics.norm)
nuclear = Norm("nuclear", _nuclear, _spectral)

KNOWN = {norm.name: norm for norm in (frobenius, nuclear)}


def named(norm: str | Norm) -> Norm:
    """Return a norm by its name; a norm value is returned as it is.

    Raises:
        ValueError: a name that is not known; the message lists those that are.
    """
    if isinstance(norm, Norm):
        return norm
    if norm not in KNOWN:
        raise ValueError(f"norm: expected one of {sorted(KNOWN)} or a Norm, found {norm!r}")
    return KNOWN[norm]
