"""Matrix norms with their duals, for max-margin problems and certificates.

In training the factors of `W = K Q^T`, steepest descent in a norm of (K, Q) is expected to obey the norm that it
induces on W, `min max(||K||, ||Q||)^2  s.t. K Q^T = W`. This is a theory to test with `bias.rank`, not a result:

- Frobenius norms of K and Q induce "nuclear", and spectral norms induce "spectral".
- The largest row lengths of K and Q induce "gamma2", if K and Q are wide enough.
- The largest entries of K and Q are related to "sign": with entries up to 1, `K Q^T` is a sum of m matrices in the
  convex hull of the sign matrices `x y^T`, so W lies in m times the unit ball of "sign". At finite m this bound need
  not be attained (m = 1: rank one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import checks, factorization, lengths, signs

__all__ = [
    "Norm",
    "columns",
    "entrywise",
    "frobenius",
    "gamma2",
    "named",
    "nuclear",
    "nuclear_of_rank",
    "rows",
    "schatten",
    "sign",
    "spectral",
    "squared",
]


@dataclass(frozen=True)
class Norm:
    """A norm of (d, e) matrices with its dual norm. The objective of a problem is `||W||^power / power`.

    Attributes:
        name: the name in messages and records.
        value: returns the norm of a matrix, ().
        dual: returns the dual norm, (): the largest inner product with a matrix of norm at most 1.
        power: 1, or 2 for the objective `||W||^2 / 2` (see `squared`).

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
        """The same norm with power 1."""
        return self if self.power == 1 else replace(self, name=self.name.removeprefix(_SQUARED), power=1)


_SQUARED = "squared "


@dataclass(frozen=True)
class _With:
    """A function of a matrix and one argument, at this argument. Equal ones are equal, unlike those of `partial`."""

    function: Callable[[Array, Any], Array]
    argument: Any

    def __call__(self, W: Float[Array, "..."]) -> Float[Array, ""]:
        return self.function(W, self.argument)


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
# The minimum of `(largest row of K) (largest row of Q)` over `W = K Q^T`.
gamma2 = Norm("gamma2", factorization.value, factorization.dual)
# The unit ball is the convex hull of the sign matrices, which must have at most 16 rows or at most 16 columns.
sign = Norm("sign", signs.value, signs.dual)


@dataclass(frozen=True)
class Entrywise(Norm):
    """The l_p norm of all entries (2410.14581, l_p Att-SVM). Its dual has the exponent p / (p - 1).

    Attributes:
        p: the exponent, from 1 to inf.
    """

    p: float = 2.0


@checks.remembered
def entrywise(p: float) -> Entrywise:
    """Return the norm `(sum |W_ij|^p)^(1/p)`.

    Raises:
        ValueError: p is less than 1 or not a number.

    Example:
        >>> svm.solve(constraints, norm=norms.entrywise(1.5)).W.shape
        (5, 5)
    """
    dual = conjugate(p)
    name = {1.0: "l1", float("inf"): "max"}.get(p, f"l_{p:g}")
    return Entrywise(name, _With(_entrywise, p), _With(_entrywise, dual), p=p)


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
    """The l_p norm of the singular values, 1 < p < inf, p not 2. Its dual has the exponent p / (p - 1).

    Attributes:
        p: the exponent.
    """

    p: float = 2.0


@checks.remembered
def schatten(p: float) -> Norm:
    """Return the l_p norm of the singular values. p = 1, 2 and inf are the nuclear, Frobenius and spectral norms.

    Raises:
        ValueError: p is less than 1 or not a number.

    Example:
        >>> norms.schatten(1.0) is norms.nuclear, norms.schatten(1.5).name
        (True, 'schatten_1.5')
    """
    dual = conjugate(p)
    if (known := {1.0: nuclear, 2.0: frobenius, float("inf"): spectral}.get(p)) is not None:
        return known
    return Schatten(f"schatten_{p:g}", _With(_schatten, p), _With(_schatten, dual), p=p)


def _schatten(W: Float[Array, "a b"], p: float) -> Float[Array, ""]:
    return _entrywise(jnp.linalg.svd(W, compute_uv=False), p)


@dataclass(frozen=True)
class Lengths(Norm):
    """The largest Euclidean length of a row of W, or the sum of all row lengths (its dual); or the same for columns.

    Attributes:
        p: inf for the largest length, 1 for the sum.
        turned: whether columns are meant instead of rows.
    """

    p: float = float("inf")
    turned: bool = False


def rows(p: float) -> Lengths:
    """Return the norm `||W||_{2,inf}`, the largest row length (p = inf), or `||W||_{2,1}`, their sum (p = 1).

    In `x^T W z` the rows of W belong to the coordinates of the tokens x (the factor K of `W = K Q^T`), and its columns
    to those of the queries z. Steepest descent in `||W||_{2,inf}` moves all rows of W by steps of the same length.

    Raises:
        ValueError: p is neither 1 nor inf.

    Example:
        >>> norms.named("2,inf") is norms.rows(float("inf")), float(norms.rows(1.0).value(jnp.eye(3)))
        (True, 3.0)
    """
    return _lengths(p, False)


def columns(p: float) -> Lengths:
    """Return the norm that `rows(p)` takes of the transpose, which measures the columns of W.

    Raises:
        ValueError: p is neither 1 nor inf.

    Example:
        >>> norms.named("2,inf of columns") is norms.columns(float("inf"))
        True
    """
    return _lengths(p, True)


@lru_cache(maxsize=4)
def _lengths(p: float, turned: bool) -> Lengths:
    if p not in (1, float("inf")):
        raise ValueError(f"p: expected 1 or inf, found {p!r}")
    name = f"2,{p:g}" + " of columns" * turned
    largest, total = _With(_largest_length, turned), _With(_total_length, turned)
    return Lengths(name, *((total, largest) if p == 1 else (largest, total)), p=float(p), turned=turned)


def _lengths_of(W: Float[Array, "a b"], turned: bool) -> Float[Array, " k"]:
    return jax.vmap(lengths.norm)(W.T if turned else W)


def _largest_length(W: Float[Array, "a b"], turned: bool) -> Float[Array, ""]:
    return jnp.max(_lengths_of(W, turned))


def _total_length(W: Float[Array, "a b"], turned: bool) -> Float[Array, ""]:
    return jnp.sum(_lengths_of(W, turned))


@dataclass(frozen=True)
class OfRank(Norm):
    """A norm restricted to matrices of bounded rank. Value, dual and certified lower bound ignore the restriction.

    Attributes:
        rank: the largest rank allowed.
    """

    rank: int = 1


def nuclear_of_rank(m: Any) -> OfRank:
    """Return the nuclear norm of matrices of rank at most m (2308.16898, Att-SVM* under a rank constraint).

    It equals the minimum of `(||K||_F^2 + ||Q||_F^2) / 2` over `W = K Q^T` with K and Q of m columns, the objective
    related to descent on factors of that width. The problem is not convex if m is less than the rank of the nuclear
    solution.

    Raises:
        ValueError: m is not an integer, or less than 1.

    Example:
        >>> svm.solve(constraints, norm=norms.nuclear_of_rank(2)).W.shape
        (5, 5)
    """
    if isinstance(m, bool) or not hasattr(type(m), "__index__") or m < 1:
        raise ValueError(f"m: expected an integer rank of at least 1, found {m!r}")
    return OfRank(f"nuclear of rank {int(m)}", _nuclear, _spectral, rank=int(m))


def of_singular_values(norm: Norm) -> bool:
    """Return whether only a matrix's singular values count in the norm.

    Example:
        >>> norms.of_singular_values(norms.nuclear), norms.of_singular_values(norms.gamma2)
        (True, False)
    """
    return norm.plain in (frobenius, nuclear, spectral) or isinstance(norm, Schatten | OfRank)


@checks.remembered
def squared(norm: str | Norm) -> Norm:
    """Return the norm with objective `||W||^2 / 2`. It changes the soft-margin problem but not the hard-margin one.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> soft = svm.soft(constraints, C=10.0)
        >>> svm.solve(soft, norm=norms.squared(norms.frobenius)).W.shape
        (5, 5)
    """
    norm = named(norm)
    return norm if norm.power == 2 else replace(norm, name=_SQUARED + norm.name, power=2)


_OF_LENGTHS = (rows(float("inf")), rows(1.0), columns(float("inf")), columns(1.0))
KNOWN = {norm.name: norm for norm in (frobenius, nuclear, spectral, gamma2, sign, *_OF_LENGTHS)}
# Names of entrywise norms besides `l_p`, for example "l_1.5".
_ENTRYWISE = {"max": float("inf"), "l1": 1.0}
_FAMILIES = {"l_": entrywise, "schatten_": schatten}


def named(norm: str | Norm) -> Norm:
    """Return the norm of this name, or the argument itself if it is a Norm.

    Names: "frobenius", "nuclear", "spectral", "gamma2", "sign"; the entrywise norms "max", "l1" and "l_p" for any p,
    for example "l_1.5"; norms of the singular values "schatten_p", for example "schatten_1.5"; row lengths "2,inf" and
    "2,1"; column lengths "2,inf of columns" and "2,1 of columns".

    Raises:
        ValueError: an unknown name; the message lists the known ones.

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
    """Return the exponent p >= 1 in the name of a norm, or None."""
    try:
        p = float(text)
    except ValueError:
        return None
    return p if p >= 1 else None
