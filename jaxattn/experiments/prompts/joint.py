"""The max-margin problems of attention and head trained together: unrelaxed, relaxed, and in between, with offsets.

With v of norm r along the max-margin classifier of the selected tokens, input i has the label margin `r m_i`, and W of
norm R the token margins `R a_it`. Row (i, t) contributes about `exp(-r m_i - R a_it)` to the risk, so for `r / R =
ratio` the direction of W maximizes the smallest `a_it + ratio m_i`. This is the SVM of smallest norm with targets
`max(0, 1 - kappa (m_i - m))`, where m is the smallest `m_i` and `kappa = ratio ||W||` for its solution W. At ratio 0
all targets are 1. At ratio infinity those of inputs that are not support vectors of v are 0: the relaxed problem of
2306.13596. (An input with a target below 0 would select another token and lose its label margin.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.style import palette

# The problems, in the order of their axis, and how their curves look.
PROBLEMS = ("unrelaxed", "relaxed", "offset")
PROBLEM_LOOKS: dict[str, dict[str, Any]] = {
    "unrelaxed": {"color": palette.TEAL, "linestyle": "-", "label": "unrelaxed, $\\geq 1$"},
    "relaxed": {"color": palette.WINE, "linestyle": "--", "label": "relaxed, $\\geq 0$"},
    "offset": {"color": palette.INK, "linestyle": ":", "label": "offset by label margin"},
}
# Multipliers above this share of the largest make a support vector; a smaller excess margin counts as zero.
_SUPPORT = 1e-7
# The maximal number of rounds of regula falsi for kappa, and the relative error to reach.
_ROUNDS, _EXACT = 40, 1e-6


class Solutions(NamedTuple):
    """The max-margin classifier v of the selected tokens, and W of the three problems.

    An input that is no support vector of v has an `excess`, its label margin minus the smallest one, for v of norm 1.
    """

    v: Float[np.ndarray, "seed d"]
    W: Float[np.ndarray, "seed problem d d"]
    support: Bool[np.ndarray, "seed input"]
    excess: Float[np.ndarray, "seed input"]
    solved: Bool[np.ndarray, " seed"]
    infeasible: Bool[np.ndarray, " seed"]


def label_constraints(problem: Problem, alpha: Int[Array, " n"]) -> svm.Constraints:
    """Return the constraints `Y_i v.x_i,alpha_i >= 1` on a (d, 1) matrix v."""
    chosen = jnp.take_along_axis(problem.X, alpha[:, None, None], axis=1)
    return svm.Constraints(problem.Y[:, None, None] * chosen, jnp.ones((problem.n, 1), problem.X.dtype))


def solve(
    problems: Problem, alpha: Int[np.ndarray, "seed n"], ratio: Float[np.ndarray, " seed"], solver: svm.Solver | None
) -> Solutions:
    """Solve and certify the problems of v and W for the tokens alpha, and for a positive ratio `||v|| / ||W||`."""
    head = svm.solve_batch(batch.over_seeds(label_constraints, problems, alpha), solver=solver)
    v, duals = np.asarray(head.W)[:, :, 0], np.asarray(head.duals)[:, :, 0]
    margins = batch.over_seeds(_margins, problems, alpha, v)
    excess = margins - margins.min(axis=1, keepdims=True)
    support = (duals > _SUPPORT * duals.max(axis=1, keepdims=True)) | (excess <= _SUPPORT)
    excess = np.where(support, 0.0, excess)
    rows = batch.over_seeds(svm.token_constraints, problems, alpha)
    shape = np.shape(rows.differences)[:3]

    def of(targets: Float[np.ndarray, "seed input"]) -> svm.Solution:
        return svm.solve_batch(rows._replace(targets=np.broadcast_to(targets[:, :, None], shape).copy()), solver=solver)

    plain, relaxed = of(np.ones_like(excess)), of(support.astype(float))
    offset, exact = _with_offsets(of, excess, ratio, _length(plain), _length(relaxed))
    status = np.stack([head.status, plain.status, relaxed.status, offset.status], axis=1)
    return Solutions(
        v=v,
        W=np.stack([np.asarray(one.W) for one in (plain, relaxed, offset)], axis=1),
        support=support,
        excess=excess,
        solved=(status == svm.Status.OPTIMAL).all(axis=1) & exact,
        infeasible=(status[:, :2] == svm.Status.INFEASIBLE).any(axis=1),
    )


def _with_offsets(
    of: Callable[[np.ndarray], svm.Solution],
    excess: Float[np.ndarray, "seed input"],
    ratio: Float[np.ndarray, " seed"],
    longest: Float[np.ndarray, " seed"],
    shortest: Float[np.ndarray, " seed"],
) -> tuple[svm.Solution, Bool[np.ndarray, " seed"]]:
    """Find kappa with `kappa = ratio ||W(kappa)||`; the norm decreases with kappa, from that for all targets 1."""

    def solution(kappa: Float[np.ndarray, " seed"]) -> svm.Solution:
        return of(np.maximum(0.0, 1 - kappa[:, None] * excess))

    def error(kappa: Float[np.ndarray, " seed"], found: svm.Solution) -> Float[np.ndarray, " seed"]:
        return kappa - ratio * _length(found)

    low, high = ratio * shortest, ratio * longest
    at_low, at_high = error(low, solution(low)), error(high, found := solution(high))
    kappa, exact = high, np.zeros(len(ratio), bool)
    for _ in range(_ROUNDS):
        span = at_high - at_low
        share = np.where(span > 0, -at_low / np.where(span > 0, span, 1.0), 1.0)
        kappa = low + np.clip(share, 0.0, 1.0) * (high - low)
        found = solution(kappa)
        here = error(kappa, found)
        exact = np.abs(here) <= _EXACT * np.maximum(kappa, np.finfo(float).tiny)
        if exact.all():
            break
        # The value at the retained end is halved, so that both ends move (Illinois method).
        left = here < 0
        at_low, at_high = np.where(left, here, at_low / 2), np.where(left, at_high / 2, here)
        low, high = np.where(left, kappa, low), np.where(left, high, kappa)
    return found, exact


def _margins(problem: Problem, alpha: Int[Array, " n"], v: Float[Array, " d"]) -> Float[Array, " n"]:
    """Return the label margins of the selected tokens, for v scaled to norm 1; zeros for v = 0."""
    length = jnp.linalg.norm(v)
    return svm.margins(label_constraints(problem, alpha), v[:, None])[:, 0] / jnp.where(length > 0, length, 1.0)


def _length(found: svm.Solution) -> Float[np.ndarray, " seed"]:
    return np.linalg.norm(np.asarray(found.W), axis=(1, 2))


def direction_errors(
    snapshots: Float[Array, "snapshot d d"], heads: Float[Array, "snapshot d"], W: Float[Array, "problem d d"], v: Array
) -> tuple[Float[Array, "problem snapshot"], Float[Array, " snapshot"]]:
    """Return 1 - cos of W and every solution, and of v and its own, at every snapshot."""
    along = jax.vmap(metrics.correlation, in_axes=(0, None))
    return 1 - jax.vmap(along, in_axes=(None, 0))(snapshots, W), 1 - along(heads[:, :, None], v[:, None])


def of_support(run: xarray.Dataset) -> tuple[xarray.Dataset, xarray.Dataset, dict[str, int]]:
    """Return the `mixed` seeds, some of whose inputs are no support vectors of v, the others, `whole`, and both counts.

    For a kind without seeds it is one seed of zeros, whose estimates are 0 and decide nothing.
    """
    whole = run["support"].values.all(axis=1)
    kinds = [run.isel(seed=k) if k.any() else xarray.zeros_like(run.isel(seed=[0])) for k in (~whole, whole)]
    return kinds[0], kinds[1], {"mixed": int((~whole).sum()), "whole": int(whole.sum())}


def is_parallel(off: xarray.DataArray, threshold: float) -> xarray.DataArray:
    """Whether a direction error, which is positive when measured, is below a threshold."""
    return (off > 0) & (off < threshold)


def medians_of(run: xarray.Dataset, name: str) -> str:
    """Return in words the medians of the direction errors at the end, from all problems."""
    return ", ".join(f"{float(run[name].sel(problem=problem)[-1]):.2g} ({problem})" for problem in PROBLEMS)
