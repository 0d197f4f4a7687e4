"""Measure the distance of a run of factors from the nuclear solution, and how degenerate that solution is."""

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

    Args:
        record: of a `Training` of factors as wide as the tokens.
        solver: for all norms; each norm's default if None.

    Returns:
        The dataset of `limits.measure` with two numbers per seed, both for the nuclear solution: `room`, 1 minus the
        largest singular value of `M = sum_k a_k A_k` that W does not use (those that it uses are 1); and
        `complementarity`, the minimum over the rows of the multiplier (relative to the largest) plus the margin in
        excess of 1. Both are zero where the solution is degenerate.
    """
    one = limits.measure(record, solver)
    kept = np.isin(record["seed"].values, one["seed"].values)
    arrays = {str(name): record[name].values[kept] for name in record.data_vars}
    names = ("room", "complementarity")
    if not kept.any():
        return one.assign({name: (("seed",), np.zeros(0)) for name in names})
    constraints = batch.over_seeds(svm.token_constraints, of_arrays(arrays), one["selected"].values)
    solutions = svm.solve_batch(constraints, svm.nuclear, solver=solver)
    found = batch.over_seeds(_degeneracy, constraints, solutions.W, solutions.duals)
    return one.assign({name: (("seed",), values) for name, values in zip(names, found, strict=True)})


def _degeneracy(
    constraints: svm.Constraints, W: Float[Array, "d d"], duals: Float[Array, "n m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    M = svm.combination(constraints, duals)
    values = jnp.linalg.svd(M, compute_uv=False)
    unused = jnp.arange(len(values)) >= metrics.rank(W)
    room = 1 - jnp.max(jnp.where(unused, values, 0.0)) / values[0]
    rows = duals / jnp.max(duals) + svm.margins(constraints, W) - 1
    present = jnp.ones(rows.shape, bool) if constraints.present is None else constraints.present
    least = jnp.min(jnp.where(present, rows, jnp.inf))
    return jax.tree.map(lambda number: jnp.maximum(number, 0.0), (room, least))
