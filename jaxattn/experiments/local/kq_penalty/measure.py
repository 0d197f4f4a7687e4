"""Measure the distance of a long run from the max-margin solutions, and the stationarity of its end."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.attention import Factored
from jaxattn.descent import gradients
from jaxattn.experiments.local import limits
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.settings.parameters import weights_of


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run of factors with its max-margin solutions; for penalized ones, measure stationarity at the end.

    Args:
        record: of a `Training` of factors, with logistic loss and linear head.
        solver: for all norms; each norm's default if None.

    Returns:
        The dataset of `limits.measure`; for a run with a penalty p also `residual`, (seed,), at the end: `||g + 2 p (K,
        Q)|| / (||g|| + ||2 p (K, Q)||)`, with g the exact gradient of the risk: 0 where the penalized risk is
        stationary, 1 where the two terms do not cancel at all.
    """
    one = limits.measure(record, solver)
    if one.attrs["penalty"] == 0:
        return one
    kept = np.isin(record["seed"].values, one["seed"].values)
    if not kept.any():
        return one.assign(residual=(("seed",), np.zeros(0)))
    arrays = {str(name): record[name].values[kept] for name in record.data_vars}
    penalty = np.full(kept.sum(), one.attrs["penalty"])
    found = batch.over_seeds(residual, weights_of(arrays), of_arrays(arrays), penalty)
    return one.assign(residual=(("seed",), found))


def residual(weights: Factored, problem: Problem, penalty: Float[Array, ""]) -> Float[Array, ""]:
    """Return the residual of stationarity of the penalized risk at factors, (), as defined in `measure`."""
    logits = attention.masked(attention.logits(weights, problem), problem)
    read = gradients.reading(problem, heads.linear)
    slope = gradients.direction(jnp.zeros((), int), logits, problem.Y, read, losses.logistic)
    # In units of the penalty, which may be too small for its square.
    coefficients = slope.coefficients * jnp.exp(slope.log_scale - jnp.log(2 * penalty))
    y = jnp.einsum("nt,ntd->nd", coefficients, problem.X)
    of_K, of_Q = y.T @ (problem.Z @ weights.Q), problem.Z.T @ (y @ weights.K)
    of_risk, of_penalty = (jnp.concatenate([one.ravel() for one in pair]) for pair in ((of_K, of_Q), weights))
    return metrics.norm(of_risk + of_penalty) / (metrics.norm(of_risk) + metrics.norm(of_penalty))
