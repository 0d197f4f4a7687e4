"""Compare runs with weight decay with max-margin problems, and with what theory says of K and Q."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import svm
from jaxattn.attention import Factored
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.shaped import decay
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.settings.parameters import weights_of

# The norm of each model that is small for few nonzero entries or singular values.
SPARSE = {"diagonal": "l1", "matrices": "nuclear"}
# Mirror flow is followed for so many steps.
_FOLLOWED = 4000


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run of `decay.decaying` with two max-margin problems, and one of K and Q also with the theory.

    Returns:
        What `ratios.compared` does for the Frobenius norm and the nuclear norm, or the l1 norm of diagonals. For K and
        Q also `nuclear`, `||W||_*`, and `imbalance`, both (seed, snapshot); `balance`, the b of the flow, (snapshot,);
        at the end `gap`, and `filled`, `||W||_*` over what steps and decay in balance give, 0 without decay, both
        (seed,); for diagonals `off_mirror`, the largest `||w - w'|| / ||w'||` at early snapshots, w' that of
        `decay.mirrored`, (seed,).
    """
    is_diagonal = "K" in record and record["K"].shape[-1] == 1
    run = ratios.compared(record, solver, ("frobenius", SPARSE["diagonal" if is_diagonal else "matrices"]))
    return run if "W" in record else run.assign(_of_theory(record.sel(seed=run["seed"], snapshot=run["snapshot"])))


def _of_theory(kept: xarray.Dataset) -> dict[str, Any]:
    """Return how far the ranked seeds and snapshots of a record of K and Q are from what theory says of them."""
    config = json.loads(kept.attrs["config"])
    rule, scale = config["optimizer"], config["weights"]["scale"]
    step_size, lost, until = (float(rule[name]) for name in ("step_size", "decay", "until"))
    arrays = {str(name): kept[name].values for name in kept.data_vars}
    problems, snapshots, steps = of_arrays(arrays), weights_of(arrays, "_snapshots"), kept["snapshot"].values
    balance = decay.balance(scale, lost, until, jnp.asarray(steps))

    def along(weights: Factored) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        return jax.vmap(decay.nuclear)(weights), jax.vmap(decay.imbalance)(weights, balance)

    nuclear, imbalance = batch.over_seeds(along, snapshots)
    found = {
        "nuclear": (("seed", "snapshot"), nuclear),
        "imbalance": (("seed", "snapshot"), imbalance),
        "balance": (("snapshot",), np.asarray(balance)),
        "gap": (("seed",), batch.over_seeds(decay.gap, weights_of(arrays), problems)),
        "filled": (("seed",), nuclear[:, -1] * 2 * lost / step_size),
    }
    if snapshots.K.shape[-1] > 1:
        return found
    early = steps <= _FOLLOWED
    reached = tuple(steps[early].tolist())

    def followed(problem: Problem) -> Float[Array, "k d"]:
        return decay.mirrored(problem, scale, step_size, lost, until, reached)

    w, expected = (snapshots.K * snapshots.Q)[..., 0][:, early], batch.over_seeds(followed, problems)
    off = np.linalg.norm(w - expected, axis=2) / np.linalg.norm(expected, axis=2)
    return found | {"off_mirror": (("seed",), off.max(axis=1))}
