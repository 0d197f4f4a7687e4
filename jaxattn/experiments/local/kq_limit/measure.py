"""Compare a run on (K, Q) with its max-margin solutions, and measure how its factors turn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import metrics, svm
from jaxattn.experiments.local import limits
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with its max-margin solutions, and measure how close the nuclear one is to degenerate.

    The factors of the record's `Training` are as wide as the tokens.

    Returns:
        The dataset of `limits.measure` with `turned`, 1 - cos of the factor that turned more, K or Q, from a hundredth
        of the steps to a tenth and from there to the last, (seed, decade). And two numbers per seed, both for the
        nuclear solution and zero where that is degenerate: `room`, 1 minus the largest singular value of `M = sum_k a_k
        A_k` that W does not use (those that it uses are 1); and `complementarity`, the minimum over the rows of the
        multiplier (relative to the largest) plus the margin in excess of 1.
    """
    measured = limits.measure(record, solver)
    kept = record.sel(seed=measured["seed"].values)
    arrays = {str(name): kept[name].values for name in kept.data_vars}
    steps = measured["snapshot"].values
    at = [int(np.argmin(np.abs(np.log(steps * share / steps[-1])))) for share in (100, 10, 1)]
    turned = []
    for name in ("K_snapshots", "Q_snapshots"):
        factor = arrays[name][:, at]
        factor = factor / np.linalg.norm(factor, axis=(-2, -1), keepdims=True)
        # 1 - cos, without the rounding of a difference of numbers near 1.
        turned.append(((factor[:, 1:] - factor[:, :-1]) ** 2).sum(axis=(-2, -1)) / 2)
    room = complementarity = np.zeros(0)
    if kept.sizes["seed"]:
        constraints = batch.over_seeds(svm.token_constraints, of_arrays(arrays), measured["selected"].values)
        solutions = svm.solve_batch(constraints, svm.nuclear, solver=solver)
        room, complementarity = batch.over_seeds(_degeneracy, constraints, solutions.W, solutions.duals)
    return measured.assign(
        turned=(("seed", "decade"), np.max(turned, axis=0)),
        room=("seed", room),
        complementarity=("seed", complementarity),
    )


def _degeneracy(
    constraints: svm.Constraints, W: Float[Array, "d d"], duals: Float[Array, "n m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = jnp.linalg.svd(svm.combination(constraints, duals), compute_uv=False)
    unused = jnp.arange(len(values)) >= metrics.rank(W)
    room = 1 - jnp.max(jnp.where(unused, values, 0.0)) / values[0]
    rows = duals / jnp.max(duals) + svm.margins(constraints, W) - 1
    present = jnp.ones(rows.shape, bool) if constraints.present is None else constraints.present
    least = jnp.min(jnp.where(present, rows, jnp.inf))
    return jax.tree.map(lambda value: jnp.maximum(value, 0.0), (room, least))
