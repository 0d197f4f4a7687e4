"""A solver of the Frobenius norm for many rows, or nearly dependent ones: a growing set of rows, solved on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from jaxattn.norms import Norm, frobenius
from jaxattn.problem import is_concrete
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate

__all__ = ["WorkingSet"]

# Added to the diagonal of Gram matrices of unit rows, so that dependent rows have a Cholesky factor; repeating a
# solution from the one before (a proximal point method) removes its effect.
_PROXIMAL = 1e-9
# The largest shortfall of a unit row, relative to the largest target: of a solution, and of one to be corrected.
# `1 - bias <b, u>` below which rows may be infeasible, or the bias is too large by this factor.
_SHORT, _NEARLY, _LEFT = 1e-13, 1e-6, 1e-6
# How often at most a solution on known active rows is corrected by its residuals, and a set of active rows is changed.
_CORRECTIONS, _PIVOTINGS = 20, 1000


@dataclass(frozen=True)
class WorkingSet:
    """Minimize `||W||_F` over the rows that are violated most, and add rows until none is violated.

    A round solves the rows of the set by block pivoting (Kim and Park, 2011) on their Gram matrix, with LAPACK's
    Cholesky factors. It costs the cube of the number of active rows, which is at most the number of coordinates of W,
    however many rows there are. Problems are solved one after another.

    Attributes:
        most: the largest number of rounds.
        least: the smallest number of rows that are added.
    """

    most: int = 100
    least: int = 64

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or a proof of infeasibility.

        Raises:
            TypeError: called under `jit` or `vmap`.
            ValueError: another norm than `norms.frobenius`, or soft rows.
        """
        if not is_concrete(constraints.differences):
            raise TypeError("WorkingSet: expected arrays of numbers, found tracers; jit and vmap cannot run it")
        if norm.plain != frobenius or constraints.penalty is not None:
            raise ValueError(f"WorkingSet: expected hard rows and norm 'frobenius', found {norm.name!r} or soft rows")
        rows = _rows(constraints)
        u, W, rounds = self._solved(rows)
        duals = np.zeros(constraints.differences.shape[:2])
        duals.ravel()[rows.places] = u / rows.lengths
        dtype = constraints.differences.dtype
        return Candidate(jnp.asarray(W * rows.scale, dtype), jnp.asarray(duals, dtype), jnp.asarray(rounds))

    def _solved(self, rows: _Rows) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "d e"], int]:
        """Return the multipliers of unit rows, the solution in units of `scale`, and the number of rounds."""
        k = rows.targets.size
        u, W, bias, number = np.zeros(k), rows.combination(np.ones(k)), 1.0, 0
        kept, short = rows.equal.copy(), rows.targets - rows.margins(W)
        while number < self.most:
            number += 1
            candidates = np.where(kept, -np.inf, short)
            more = np.argsort(-candidates)[: max(self.least, int((u != 0).sum()) // 2)]
            kept[more[candidates[more] > 0]] = True
            own = rows.picked(np.flatnonzero(kept))
            G = own.gram()
            u[kept], rest = _pivoted(G, own, bias, u[kept])
            if rest < _LEFT:
                if (proof := _proof(G, own, u[kept])) is not None:
                    u[kept] = proof
                    return u, np.zeros_like(W), number
                bias *= _LEFT
                continue
            W = rows.combination(u) / (rest * bias)
            short = rows.targets - rows.margins(W)
            if (short[~rows.equal] <= _NEARLY).all():
                active = own.equal | (u[kept] > 0)
                multipliers, W = _corrected(G[np.ix_(active, active)], own.picked(np.flatnonzero(active)))
                short = rows.targets - rows.margins(W)
                # Margins are rounded relative to the length of W.
                if (short[~rows.equal] <= _SHORT * max(1.0, float(np.linalg.norm(W)))).all():
                    u[:] = 0.0
                    u[np.flatnonzero(kept)[active]] = multipliers
                    break
            bias = 1.0 / max(1.0, float(np.linalg.norm(W)))
        return u, W, number


class _Rows(NamedTuple):
    """The rows that are present and not zero, scaled to length 1.

    Attributes:
        differences: (k, d), of length 1.
        queries: (k, e), of length 1.
        targets: (k), the largest 1.
        equal: which rows are equations, (k).
        lengths: of the rows before, (k).
        places: among all rows, (k).
        scale: by which W is multiplied to solve the problem itself.
    """

    differences: Float[np.ndarray, "k d"]
    queries: Float[np.ndarray, "k e"]
    targets: Float[np.ndarray, " k"]
    equal: Bool[np.ndarray, " k"]
    lengths: Float[np.ndarray, " k"]
    places: Int[np.ndarray, " k"]
    scale: float

    def picked(self, chosen: Int[np.ndarray, " c"]) -> _Rows:
        """Return some of the rows."""
        arrays = {name: leaf[chosen] for name, leaf in self._asdict().items() if name != "scale"}
        return self._replace(**arrays)

    def margins(self, W: Float[np.ndarray, "d e"]) -> Float[np.ndarray, " k"]:
        """Return `<A_k, W>`."""
        return np.einsum("kd,kd->k", self.differences, self.queries @ W.T)

    def combination(self, u: Float[np.ndarray, " k"]) -> Float[np.ndarray, "d e"]:
        """Return `sum_k u_k A_k`."""
        return (self.differences * u[:, None]).T @ self.queries

    def gram(self) -> Float[np.ndarray, "k k"]:
        """Return `<A_k, A_l>`."""
        return (self.differences @ self.differences.T) * (self.queries @ self.queries.T)


def _rows(constraints: Constraints) -> _Rows:
    """Return the rows that are present and not zero; a zero row with a target that is not met stays, of length 1."""
    differences, queries = (np.asarray(array, dtype=float) for array in constraints[:2])
    of = cons.rows(constraints)
    targets, equal, present = (np.asarray(leaf).ravel() for leaf in (of.targets, of.equal, of.present))
    n, m, d = differences.shape
    flat, queries = differences.reshape(n * m, d), np.repeat(queries, m, axis=0)
    ends = [np.linalg.norm(flat, axis=1), np.linalg.norm(queries, axis=1)]
    zero = (ends[0] == 0) | (ends[1] == 0)
    unmet = np.where(equal, targets != 0, targets > 0)
    places = np.flatnonzero(present & (~zero | unmet))
    ends = [np.where(zero, 1.0, end)[places] for end in ends]
    lengths = ends[0] * ends[1]
    targets = targets[places] / lengths
    scale = float(np.abs(targets).max(initial=0.0)) or 1.0
    flat, queries = (array[places] / end[:, None] for array, end in zip((flat, queries), ends, strict=True))
    return _Rows(flat, queries, targets / scale, equal[places], lengths, places, scale)


def _pivoted(
    G: Float[np.ndarray, "k k"], rows: _Rows, bias: float, start: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " k"], float]:
    """Minimize `||sum_k u_k A_k||^2 + (1 - bias <b, u>)^2` over `u >= 0` (any u at equalities).

    Rows whose multipliers or margins have the wrong sign change sides all at once, as long as this reduces their number
    at least every fourth time; otherwise only the last of them does (Kim and Park, 2011).

    Args:
        G: the Gram matrix of the rows.
        rows: unit rows.
        bias: by which the targets are multiplied.
        start: multipliers, the center of the proximal term.

    Returns:
        The multipliers, and `1 - bias <b, u>`: with `w = bias W`, it is `1 / (1 + ||w||^2)`, and 0 if the rows are
        infeasible.
    """
    b = bias * rows.targets
    H = _proximal(G, b)
    c = b + _PROXIMAL * start
    u, passive = start, rows.equal | (start > 0)
    fewest, patience = b.size + 1, 3
    for _ in range(_PIVOTINGS):
        u = np.zeros(b.size)
        if passive.any():
            factor = scipy.linalg.cho_factor(H[np.ix_(passive, passive)], check_finite=False)
            u[passive] = scipy.linalg.cho_solve(factor, c[passive], check_finite=False)
        slack = H @ u - c
        wrong = np.flatnonzero(np.where(passive, ~rows.equal & (u < 0), slack < -_SHORT))
        if wrong.size == 0:
            break
        if wrong.size < fewest:
            fewest, patience = wrong.size, 3
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        passive[wrong] = ~passive[wrong]
    return u, 1.0 - float(b @ u)


def _proximal(G: Float[np.ndarray, "k k"], b: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k k"]:
    """Return the Gram matrix of rows with b as one more coordinate, made positive definite."""
    return G + np.outer(b, b) + _PROXIMAL * np.eye(b.size)


def _corrected(G: Float[np.ndarray, "k k"], rows: _Rows) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "d e"]]:
    """Return the shortest W with `<A_k, W> = b_k` for all rows, and its multipliers.

    Residuals are computed from W itself: the Gram matrix alone would lose accuracy by the square of its condition.
    """
    u, W = np.zeros(rows.targets.size), rows.combination(np.zeros(rows.targets.size))
    if not u.size:
        return u, W
    factor = scipy.linalg.cho_factor(_proximal(G, 0 * u), check_finite=False)
    for _ in range(_CORRECTIONS):
        residual = rows.targets - rows.margins(W)
        if np.abs(residual).max() <= _SHORT / 10:
            break
        correction = scipy.linalg.cho_solve(factor, residual, check_finite=False)
        u, W = u + correction, W + rows.combination(correction)
    return u, W


def _proof(G: Float[np.ndarray, "k k"], rows: _Rows, u: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"] | None:
    """Return multipliers that combine rows to zero, to rounding, and their targets to 1; None if there are none.

    Args:
        G: the Gram matrix of the rows.
        rows: unit rows.
        u: multipliers that nearly do; those that are 0 stay so.
    """
    active = np.flatnonzero(u)
    own, found = rows.picked(active), u[active] / max(float(rows.targets @ u), 1e-300)
    b = own.targets
    factor = scipy.linalg.cho_factor(_proximal(G[np.ix_(active, active)], b))
    for _ in range(_CORRECTIONS):
        residual = b * (1.0 - b @ found) - own.margins(own.combination(found))
        found = found + scipy.linalg.cho_solve(factor, residual)
    left = np.linalg.norm(own.combination(found)) * np.abs(found * b).sum()
    if not (b @ found > 0.5 and left <= _SHORT * np.abs(found).sum()):
        return None
    multipliers = np.zeros(u.size)
    multipliers[active] = np.where(own.equal, found, np.maximum(found, 0.0))
    return multipliers
