"""The trace of positive semidefinite matrices: what tied keys and queries are expected to minimize.

With `W = K K^T` and K of d columns or more, W is any positive semidefinite matrix, and `||K||_F^2 = tr W`. Descent on K
is therefore compared with `min tr W  s.t. <A_k, W> >= b_k`, W positive semidefinite. Without this condition the optimum
would be that of the nuclear norm, which is lower in general. The trace is no norm, but has what a certificate needs: a
value, inf for other matrices, and its dual, the largest eigenvalue of the symmetric part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import svm
from jaxattn.norms import Norm, frobenius
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import certify_lanes, tolerance_of
from jaxattn.svm.packing import picked
from jaxattn.svm.pivoting import positive

__all__ = ["solve_batch", "trace"]

# How many roundings a product K K^T may be away from a positive semidefinite matrix.
_ROUNDINGS = 1000.0
# The share of the way to the boundary that a step takes; the relative gap, number of steps (usually 15 to 25) and size
# of the multipliers to stop at.
_INSIDE, _GAP, _MOST, _ENDLESS = 0.95, 1e-9, 60, 1e12


def _value(W: Float[Array, "d d"]) -> Float[Array, ""]:
    values = jnp.linalg.eigvalsh((W + W.T) / 2)
    size = jnp.sum(jnp.abs(values))
    apart = jnp.maximum(-values[0], jnp.max(jnp.abs(W - W.T)))
    return jnp.where(apart <= _ROUNDINGS * jnp.finfo(W.dtype).eps * size, size, jnp.inf)


def _dual(M: Float[Array, "d d"]) -> Float[Array, ""]:
    return jnp.maximum(jnp.linalg.eigvalsh((M + M.T) / 2)[-1], 0.0)


trace = Norm("trace", _value, _dual)


def solve_batch(constraints: svm.Constraints) -> svm.Solution:
    """Solve `min tr W  s.t. <A_k, W> >= b_k`, W positive semidefinite, for each lane, and certify the answers.

    A problem that no positive semidefinite W satisfies is reported as not converged, and as infeasible if no W does.

    Raises:
        ValueError: rows that are equalities or soft, or matrices that are not square.

    Example:
        >>> from jaxattn.bias import semidefinite
        >>> one = svm.token_constraints(problem, jnp.zeros(3, int))
        >>> found = semidefinite.solve_batch(jax.tree.map(lambda leaf: np.asarray(leaf)[None], one))
        >>> found.W.shape, bool(np.linalg.eigvalsh(found.W[0]).min() > 0)
        ((1, 5, 5), True)
    """
    constraints = jax.tree.map(np.asarray, constraints)
    is_square = constraints.differences.shape[-1] == constraints.queries.shape[-1]
    if not is_square or constraints.equal is not None or constraints.penalty is not None:
        raise ValueError("trace: expected hard inequalities on square matrices, found others")
    of, lengths = cons.rows(constraints), cons.unit_lengths(constraints)
    A = np.einsum("snmd,sne->snmde", constraints.differences / lengths[..., None], constraints.queries)
    rows, targets = (A + A.mT) / 2, of.targets / lengths
    scale = positive(np.abs(np.where(of.present, targets, 0.0)).max(axis=(1, 2)))
    found = [
        _followed(rows[lane, present], targets[lane, present] / scale[lane]) for lane, present in enumerate(of.present)
    ]
    duals = np.zeros(targets.shape)
    duals[of.present] = np.concatenate([at.a for at, _ in found])
    dtype = constraints.differences.dtype
    W: Any = (scale[:, None, None] * np.stack([at.W for at, _ in found])).astype(dtype)
    steps: Any = np.array([steps for _, steps in found])
    candidates = svm.Candidate(W, (duals / lengths).astype(dtype), steps)
    solution = certify_lanes(constraints, trace, candidates, tolerance_of(dtype))
    open_lanes = np.flatnonzero(solution.status != svm.Status.OPTIMAL)
    if open_lanes.size:
        # Rows that no matrix satisfies are proven to be so by the multipliers of any norm.
        rest = picked(constraints, open_lanes)
        first = svm.solve_batch(rest, frobenius)
        nothing: Any = np.zeros_like(first.W)
        proofs = svm.Candidate(nothing, first.duals, first.iterations)
        for kept, new in zip(solution, certify_lanes(rest, trace, proofs, tolerance_of(dtype)), strict=True):
            kept[open_lanes] = new
    return solution


class _Iterate(NamedTuple):
    """W and the slacks s of the rows, the multipliers a with `Z = I - sum_k a_k S_k`, and their changes in a step."""

    W: Float[np.ndarray, "d d"]
    s: Float[np.ndarray, " k"]
    Z: Float[np.ndarray, "d d"]
    a: Float[np.ndarray, " k"]

    @property
    def products(self) -> float:
        return float(np.sum(self.W * self.Z) + self.s @ self.a)

    def moved(self, way: _Iterate) -> _Iterate:
        """Go along a step until shortly before a matrix is singular or a number 0."""
        near, far = _reach(self.W, way.W, self.s, way.s), _reach(self.Z, way.Z, self.a, way.a)
        return _Iterate(self.W + near * way.W, self.s + near * way.s, self.Z + far * way.Z, self.a + far * way.a)


def _followed(S: Float[np.ndarray, "k d d"], b: Float[np.ndarray, " k"]) -> tuple[_Iterate, int]:
    """Follow the path `W Z = mu I`, `a_k s_k = mu` as far as rounding allows; return its end and the number of steps.

    The steps are those of Helmberg, Kojima and Monteiro with Mehrotra's correction; the multipliers stay feasible. Rows
    have length 1, and targets up to 1.
    """
    k, d = S.shape[:2]
    a = np.full(k, 0.5 / max(k, 1))
    at = _Iterate(10.0 * np.eye(d), np.full(k, 10.0), np.eye(d) - np.einsum("k,kde->de", a, S), a)
    still = _Iterate(*(np.zeros_like(part) for part in at))
    for steps in range(_MOST):
        short = b - np.einsum("kde,de->k", S, at.W) + at.s
        solved = at.products <= _GAP * np.trace(at.W) and np.abs(short).max(initial=0.0) <= _GAP
        # Without a solution the multipliers grow without bound.
        if solved or at.a.max(initial=0.0) > _ENDLESS:
            return at, steps
        try:
            first = _step(S, at, short, 0.0, still)
            share = at.moved(first).products / at.products
            at = at.moved(_step(S, at, short, share**3 * at.products / (d + k), first))
        except np.linalg.LinAlgError:
            return at, steps
    return at, _MOST


def _step(
    S: Float[np.ndarray, "k d d"], at: _Iterate, short: Float[np.ndarray, " k"], aim: float, first: _Iterate
) -> _Iterate:
    """Return the step to products `aim`, given the first estimate of it."""
    inverse = _symmetric(np.linalg.inv(at.Z))
    of_W = aim * inverse - at.W - _symmetric(first.W @ first.Z @ inverse)
    of_s = (aim - first.s * first.a) / at.a - at.s
    newton = np.einsum("kde,jde->kj", S, at.W @ S @ inverse) + np.diag(at.s / at.a)
    a = np.linalg.solve(newton, short - np.einsum("kde,de->k", S, of_W) + of_s)
    Z = -np.einsum("k,kde->de", a, S)
    return _Iterate(of_W - _symmetric(at.W @ Z @ inverse), of_s - at.s / at.a * a, Z, a)


def _symmetric(M: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    return (M + M.T) / 2


def _reach(
    X: Float[np.ndarray, "d d"], dX: Float[np.ndarray, "d d"], x: Float[np.ndarray, " k"], dx: Float[np.ndarray, " k"]
) -> float:
    """Return the step, at most 1, that keeps a matrix positive definite and numbers positive."""
    root = np.linalg.inv(np.linalg.cholesky(X))
    falls = max(-np.linalg.eigvalsh(root @ dX @ root.T)[0], (-dx / x).max(initial=0.0))
    return min(1.0, _INSIDE / falls) if falls > 0 else 1.0
