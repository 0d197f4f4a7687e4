"""The tokens that finished runs of several sizes have selected: reading their records, and estimates along sizes."""

from __future__ import annotations

import jax.numpy as jnp
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import attention, heads, losses, tokens
from jaxattn.attention import Weights
from jaxattn.descent import gradients
from jaxattn.parallel import lanes
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import Datasets, family, total
from jaxattn.study.estimates import Estimator, share, undefined
from jaxattn.study.settings.parameters import weights_of

# What is trained, by its choice of weights in the YAML.
WEIGHTS = {"W": "free", "KQ": "factored"}
# Inputs with a smaller share of the gradient no longer affect W: a seed stays at the tokens that it has selected.
SETTLED = 1e-6


def read(record: xarray.Dataset) -> tuple[Weights, Problem]:
    """Return the final weights and the problems of a record, both with a leading axis over seeds."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    return weights_of(arrays), of_arrays(arrays)


def lost_on(
    W: Float[Array, "d d"], problem: Problem, alpha: Int[Array, " n"]
) -> tuple[Bool[Array, ""], Float[Array, ""]]:
    """Return whether W selects the tokens alpha, and the gradient's share on the inputs where it does not."""
    right = tokens.selected(W, problem) == alpha
    step, read = lanes.before(), gradients.reading(problem, heads.linear)
    slope = gradients.direction(step, attention.logits(W, problem), problem.Y, read, losses.logistic)
    of_inputs = jnp.sum(jnp.abs(slope.coefficients), axis=1)
    return jnp.all(right), jnp.sum(jnp.where(right, 0.0, of_inputs)) / jnp.sum(of_inputs)


def share_among(chosen: xarray.DataArray, hits: xarray.DataArray) -> Estimator:
    """Return the share of hits among the chosen seeds, with Wilson's interval; NaN if none is chosen."""
    return share(hits[chosen.values]) if chosen.any() else undefined()


def by_weights(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the estimates of training W and of training (K, Q), each along `run`, ordered by n, T and d.

    These are coordinates; the attributes are the sums of the counts.
    """
    summaries = {}
    for trained, weights in WEIGHTS.items():
        of_weights = family(runs, {"weights": weights})
        parts = []
        for run, summary in of_weights.items():
            sizes = {size: summary.attrs[f"data.{size}"] for size in "nTd"}
            parts.append(summary.assign_coords({"run": run} | sizes).drop_attrs(deep=False))
        summary = xarray.concat(parts, "run", data_vars="all", coords="all").sortby(["n", "T", "d"])
        summaries[trained] = summary.assign_attrs(total(of_weights))
    return summaries
