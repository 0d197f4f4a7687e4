"""Matrix norms, each with its dual, as the max-margin problems and their certificate need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import lengths

__all__ = ["Norm", "entrywise", "frobenius", "named", "nuclear", "nuclear_of_rank", "schatten", "spectral", "squared"]


@dataclass(frozen=True)
class Norm:
    """A norm of (d, e) matrices and its dual norm; the objective is `||W||^power / power`.

    Attributes:
        name: how messages and records call it.
        value: the norm of a matrix, ().
        dual: the largest inner product with a matrix of norm at most 1, ().
        power: 1, or 2 for `||W||^2 / 2` (see `squared`).

    Raises:
        ValueError: another power.
    """

    name: str
    value: Callable[[Float[Array, "a b"]], Float[Array, ""]]
    dual: Callable[[Float[Array, "a b"]], Float[Array, ""]]
    power: int = 1

    def __post_init__(self) -> None:
        if self.power not in (1, 2):
            raise ValueError(f"norm {self.name!r}: expected power 1 or 2, found {self.power}")

    @property
    def plain(self) -> Norm:
        """The same norm, not squared."""
        return self if self.power == 1 else replace(self, name=self.name.removeprefix(_SQUARED), power=1)


_SQUARED = "squared "


def _nuclear(W: Float[Array, "a b"]) -> Float[Array, ""]:
    return jnp.sum(jnp.linalg.svd(W, compute_uv=False))


def _spectral(W: Float[Array, "a b"]) -> Float[Array, ""]:
    return jnp.linalg.svd(W, compute_uv=False)[0]


def _entrywise(W: Float[Array, "*shape"], p: float) -> Float[Array, ""]:
    largest = jnp.max(jnp.abs(W))
    if p == float("inf"):
        return largest
    scale = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.sum((jnp.abs(W) / scale) ** p) ** (1 / p)


frobenius = Norm("frobenius", lengths.norm, lengths.norm)
nuclear = Norm("nuclear", _nuclear, _spectral)
spectral = Norm("spectral", _spectral, _nuclear)


@dataclass(frozen=True)
class Entrywise(Norm):
    """The l_p norm of all entries (2410.14581, l_p Att-SVM); its dual is that of p / (p - 1).

    Attributes:
        p: from 1 to inf.
    """

    p: float = 2.0


@lru_cache(maxsize=64)
def entrywise(p: float) -> Entrywise:
    """Return the norm `(sum |W_ij|^p)^(1/p)`.

    Raises:
        ValueError: p is less than 1 or not a number.

    Example:
        >>> svm.solve(constraints, norm=norms.entrywise(1.5)).W.shape
        (5, 5)
    """
    dual = conjugate(p)
    return Entrywise(f"entrywise l_{p:g}", partial(_entrywise, p=p), partial(_entrywise, p=dual), p=p)


def conjugate(p: Any) -> float:
    """Return `p / (p - 1)`, the exponent of the dual norm.

    Raises:
        ValueError: p is less than 1 or not a number.
    """
    if not hasattr(p, "__float__") or not p >= 1:
        raise ValueError(f"p: expected at least 1, found {p!r}")
    return float("inf") if p == 1 else 1.0 if p == float("inf") else p / (p - 1)


@dataclass(frozen=True)
class Schatten(Norm):
    """The l_p norm of the singular values, 1 < p < inf, p not 2; its dual is that of p / (p - 1).

    Attributes:
        p: the exponent.
    """

    p: float = 2.0


@lru_cache(maxsize=64)
def schatten(p: float) -> Norm:
    """Return the l_p norm of the singular values: of p = 1, 2 and inf the nuclear, Frobenius and spectral norm.

    Raises:
        ValueError: p is less than 1 or not a number.

    Example:
        >>> norms.schatten(1.0) is norms.nuclear, norms.schatten(1.5).name
        (True, 'schatten_1.5')
    """
    dual = conjugate(p)
    if (known := {1.0: nuclear, 2.0: frobenius, float("inf"): spectral}.get(p)) is not None:
        return known
    return Schatten(f"schatten_{p:g}", partial(_schatten, p=p), partial(_schatten, p=dual), p=p)


def _schatten(W: Float[Array, "a b"], p: float) -> Float[Array, ""]:
    return _entrywise(jnp.linalg.svd(W, compute_uv=False), p)


@dataclass(frozen=True)
class OfRank(Norm):
    """A norm of matrices of bounded rank. Value, dual and so the certificate's lower bound are those of all matrices.

    Attributes:
        rank: the largest rank.
    """

    rank: int = 1


def nuclear_of_rank(m: Any) -> OfRank:
    """Return the nuclear norm of matrices of rank at most m (2308.16898, Att-SVM* under a rank constraint).

    Least `(||K||_F^2 + ||Q||_F^2) / 2` over `W = K Q^T` with K and Q of m columns: what descent on factors of
    that width has to do with. Not convex where m is less than the rank of the nuclear solution.

    Raises:
        ValueError: m is not an integer, or less than 1.

    Example:
        >>> svm.solve(constraints, norm=norms.nuclear_of_rank(2)).W.shape
        (5, 5)
    """
    if isinstance(m, bool) or not hasattr(type(m), "__index__") or m < 1:
        raise ValueError(f"m: expected an integer rank of at least 1, found {m!r}")
    return OfRank(f"nuclear of rank {int(m)}", _nuclear, _spectral, rank=int(m))


@lru_cache(maxsize=64)
def squared(norm: str | Norm) -> Norm:
    """Return the objective `||W||^2 / 2`: another soft margin, the same hard one.

    Raises:
        ValueError: a name that is not known.

    Example:
        >>> soft = svm.soft(constraints, C=10.0)
        >>> svm.solve(soft, norm=norms.squared(norms.frobenius)).W.shape
        (5, 5)
    """
    norm = named(norm)
    return norm if norm.power == 2 else replace(norm, name=_SQUARED + norm.name, power=2)


KNOWN = {norm.name: norm for norm in (frobenius, nuclear, spectral)}
# Of entrywise norms these and `l_p` with any p, such as "l_1.5".
_ENTRYWISE = {"max": float("inf"), "l1": 1.0}
_FAMILIES = {"l_": entrywise, "schatten_": schatten}


def named(norm: str | Norm) -> Norm:
    """Return a norm by its name; a norm value is returned as it is.

    Names are "frobenius", "nuclear", "spectral"; of `entrywise` norms "max", "l1" and "l_1.5", for any p; of norms of
    singular values "schatten_1.5", likewise.

    Raises:
        ValueError: a name that is not known; the message lists those that are.

    Example:
        >>> norms.named("nuclear") is norms.nuclear, norms.named("l_1.5") is norms.entrywise(1.5)
        (True, True)
    """
    if isinstance(norm, Norm):
        return norm
    if isinstance(norm, str):
        if norm in KNOWN:
            return KNOWN[norm]
        if norm in _ENTRYWISE:
            return entrywise(_ENTRYWISE[norm])
        for prefix, family in _FAMILIES.items():
            if norm.startswith(prefix) and (p := _exponent(norm.removeprefix(prefix))) is not None:
                return family(p)
    known = sorted({*KNOWN, *_ENTRYWISE})
    raise ValueError(
        f"norm: expected one of {known}, l_p or schatten_p with p of at least 1, or a Norm, found {norm!r}"
    )


def _exponent(text: str) -> float | None:
    """Return the p of at least 1 that the name of a norm ends with, if it is one."""
    try:
        p = float(text)
    except ValueError:
        return None
    return p if p >= 1 else None
