"""Models with positions: added to the keys, added to the tokens, or as rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import checks
from jaxattn.models.input_transforms import TransformedInputs, replaced
from jaxattn.problem import Problem

__all__ = ["additive", "key_only", "rotary", "sinusoidal"]


@dataclass(frozen=True)
class _Shifted:
    positions: tuple[tuple[float, ...], ...]
    query: tuple[float, ...] | None

    def __call__(self, problem: Problem) -> Problem:
        P = jnp.asarray(self.positions, problem.X.dtype)
        if P.shape != (problem.T, problem.d):
            raise ValueError(
                f"P: expected positions (T, d) = ({problem.T}, {problem.d}) as the tokens have, found {P.shape}"
            )
        Z = problem.Z if self.query is None else problem.Z + jnp.asarray([self.query], problem.Z.dtype)
        return replaced(problem, X=problem.X + P[None], Z=Z)


def key_only(P: Any) -> TransformedInputs:
    """Return the model with keys `x_it + p_t`. Queries, and the tokens that the head reads, have no positions.

    Args:
        P: one position vector per place, (T, d).

    Raises:
        ValueError: P is not (T, d) or not finite; in training, the problem has another T or d.

    Example:
        >>> run = descent.train(start, problem, model=models.key_only(np.eye(4, 5)), steps=10)
    """
    return TransformedInputs(_Shifted(_rows(P), None))


def additive(P: Any, query: int | None = None) -> TransformedInputs:
    """Return the model whose attention and head use tokens `x_it + p_t`, with positions added.

    Args:
        P: one position vector per place, (T, d).
        query: the place of each input's query; its position vector is added to the query. Default: none is added.

    Raises:
        ValueError: as in `key_only`; a query outside 0..T-1.

    Example:
        >>> run = descent.train(start, problem, model=models.additive(np.eye(4, 5), query=0), steps=10)
    """
    rows = _rows(P)
    if query is not None and query not in range(len(rows)):
        raise ValueError(f"query: expected a place in 0..{len(rows) - 1} or None, found {query!r}")
    return TransformedInputs(_Shifted(rows, None if query is None else rows[query]), _Shifted(rows, None))


def _rows(P: Any) -> tuple[tuple[float, ...], ...]:
    rows = np.asarray(P, float)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"P: expected finite positions of shape (T, d), found {rows.shape}")
    return tuple(map(tuple, rows.tolist()))


def sinusoidal(T: int, d: int, scale: float = 1.0, base: float = 10_000.0) -> Float[np.ndarray, "T d"]:
    """Return sinusoidal position vectors, (T, d), divided by their length sqrt(d / 2), times a scale.

    Raises:
        ValueError: T or d < 1; a scale or base that is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.key_only(models.sinusoidal(4, 5)), steps=10)
    """
    checks.count("T", T)
    checks.count("d", d)
    checks.positive("scale", scale)
    angles = np.arange(T)[:, None] * checks.positive("base", base) ** (-(np.arange(d) // 2 * 2) / d)
    P = np.where(np.arange(d) % 2, np.cos(angles), np.sin(angles))
    return scale * P / np.sqrt(d / 2)


@dataclass(frozen=True)
class _Rotated:
    base: float
    query: int

    def __call__(self, problem: Problem) -> Problem:
        places = jnp.arange(problem.T, dtype=problem.X.dtype)[None, :, None]
        X = _turned(problem.X, places, self.base)
        return replaced(problem, X=X, Z=_turned(problem.Z, jnp.full((1, 1), self.query, X.dtype), self.base))


def _turned(x: Float[Array, "*axes d"], places: Float[Array, "*places 1"], base: float) -> Float[Array, "*axes d"]:
    """Rotate coordinates 2j and 2j + 1 by `place * base^(-2j/d)`; for odd d the last coordinate is unchanged."""
    d = x.shape[-1]
    speeds = jnp.asarray(base, x.dtype) ** (-jnp.arange(0, d - 1, 2, dtype=x.dtype) / d)
    return rotated(x, places * speeds.reshape((1,) * (x.ndim - 1) + (-1,)))


def rotated(x: Float[Array, "*axes d"], angles: Float[Array, "*places planes"]) -> Float[Array, "*axes d"]:
    """Rotate coordinates 2j and 2j + 1 by the angle of plane j; for odd d the last coordinate is unchanged.

    Example:
        >>> from jaxattn.models.positions import rotated
        >>> rotated(jnp.array([1.0, 0.0, 5.0]), jnp.array([jnp.pi])).round(6).tolist()
        [-1.0, 0.0, 5.0]
    """
    d = x.shape[-1]
    even, odd = x[..., 0 : d - 1 : 2], x[..., 1::2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return jnp.concatenate([pairs.reshape(*x.shape[:-1], -1), x[..., 2 * (d // 2) :]], axis=-1)


def rotary(query: Any = 0, base: float = 10_000.0) -> TransformedInputs:
    """Return the model with rotary positions: logits `(R_t x_it)^T W R_q z_i`, R_t the rotation of place t.

    The rotations act on tokens and queries, before W; the usual ones act on `K^T x` and `Q^T z`. So the logits stay
    linear in W, and W obeys a max-margin problem. Both definitions agree if K and Q commute with the rotations.

    Args:
        query: the place q of each input's query.
        base: the base of the angles `t base^(-2j/d)`.

    Raises:
        ValueError: a place that is not an integer, a base that is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.rotary(), steps=10)
    """
    if isinstance(query, bool) or not hasattr(query, "__index__"):
        raise ValueError(f"query: expected a place, a whole number, found {query!r}")
    return TransformedInputs(_Rotated(checks.positive("base", base), int(query)))
