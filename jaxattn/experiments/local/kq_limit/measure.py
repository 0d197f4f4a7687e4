"""Compare a run on (K, Q) with its max-margin solutions, and measure how its factors turn."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

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
        The dataset of `limits.measure` with `turned`, 1 - cos of the factor that turned more, K or Q, from a hundredth
        of the steps to a tenth and from there to the last, (seed, decade). And two numbers per seed, both for the
        nuclear solution: `room`, 1 minus the
        largest singular value of `M = sum_k a_k A_k` that W does not use (those that it uses are 1); and
        `complementarity`, the minimum over the rows of the multiplier (relative to the largest) plus the margin in
        excess of 1. Both are zero where the solution is degenerate.
    """
    measured = limits.measure(record, solver)
    kept = np.isin(record["seed"].values, measured["seed"].values)
    arrays = {str(name): record[name].values[kept] for name in record.data_vars}
    measured["turned"] = (("seed", "decade"), _turned(arrays, measured["snapshot"].values))
    names = ("room", "complementarity")
    if not kept.any():
        return measured.assign({name: (("seed",), np.zeros(0)) for name in names})
    constraints = batch.over_seeds(svm.token_constraints, of_arrays(arrays), measured["selected"].values)
    solutions = svm.solve_batch(constraints, svm.nuclear, solver=solver)
    degeneracy = batch.over_seeds(_degeneracy, constraints, solutions.W, solutions.duals)
    return measured.assign({name: (("seed",), values) for name, values in zip(names, degeneracy, strict=True)})


def _turned(arrays: Mapping[str, np.ndarray], steps: Int[np.ndarray, " snapshots"]) -> Float[np.ndarray, "seeds 2"]:
    at = [int(np.argmin(np.abs(np.log(steps * share / steps[-1])))) for share in (100, 10, 1)]
    turned = []
    for name in ("K_snapshots", "Q_snapshots"):
        factor = arrays[name][:, at]
        factor = factor / np.linalg.norm(factor, axis=(-2, -1), keepdims=True)
        # 1 - cos, without the rounding of a difference of numbers near 1.
        turned.append(((factor[:, 1:] - factor[:, :-1]) ** 2).sum(axis=(-2, -1)) / 2)
    return np.max(turned, axis=0)


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
