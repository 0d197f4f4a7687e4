"""From the record of training W and v together: the risk, and the distance of both from their limits."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import attention, losses, metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.settings.parameters import weights_of

# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16
# Above this margin the logistic loss equals exp(-margin) in floating point.
_LARGE = 40.0


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compute the risk at every snapshot, and compare W with W_mm and v with mu.

    Args:
        record: of a `Training` of W and v, with the logistic loss, on `law.near_orthogonal`.
        solver: of the max-margin problems; the default of the Frobenius norm if None.

    Returns:
        For every kept seed and snapshot `fallen`, minus the natural logarithm of the risk, which does not underflow;
        `size`, `||v||`; `off_W`, 1 - cos of W and the Frobenius solution of the relevant tokens, and `off_v`, the same
        for v and mu, the max-margin decoder of these tokens. The attribute `run` is the name of the steps.
    """
    found = optimum(record, solver)
    arrays = {str(name): found.of(record[name]) for name in record.data_vars}
    snapshots = weights_of(arrays, "_snapshots")
    read = batch.over_seeds(_along, snapshots.attention, snapshots.readout, found.W, found.problems)
    return xarray.Dataset(
        {
            name: (("seed", "snapshot"), one)
            for name, one in zip(("fallen", "size", "off_W", "off_v"), read, strict=True)
        },
        {"seed": found.of(record["seed"]), "snapshot": record["snapshot"].values},
        {**found.counts, "run": _run(json.loads(record.attrs["config"])["optimizer"])},
    )


def _run(optimizer: dict[str, Any]) -> str:
    """Return the name of an optimizer's steps, from its configuration."""
    if "power" in optimizer:
        return "falling"
    return {"gd": "plain", "normalized_gd": "normalized"}[str(optimizer["_target_"]).rpartition(".")[2]]


def _along(
    W: Float[Array, "k d d"], v: Float[Array, "k d"], W_mm: Float[Array, "d d"], problem: Problem
) -> tuple[Array, ...]:
    def one(W: Array, v: Array) -> tuple[Array, ...]:
        outputs = attention.attended(attention.probabilities(W, problem), problem)
        off_W, off_v = 1 - metrics.correlation(W, W_mm), 1 - metrics.correlation(v[None], problem.v[None])
        fallen = -log_risk(problem.Y * (outputs @ v))
        return fallen, jnp.linalg.norm(v), jnp.maximum(off_W, _ROUNDING), jnp.maximum(off_v, _ROUNDING)

    return jax.vmap(one)(W, v)


def log_risk(margins: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the logarithm of the mean logistic loss, also if the loss itself underflows."""
    near = jnp.log(losses.logistic(jnp.minimum(margins, _LARGE)))
    each = jnp.where(margins < _LARGE, near, -margins)
    return jax.nn.logsumexp(each) - np.log(margins.shape[0])
