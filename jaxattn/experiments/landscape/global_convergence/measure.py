"""When descent selects the optimal tokens: by its first gradient, and by how far the other scores are apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import attention, heads, losses, metrics, svm, tokens
from jaxattn.descent import gradients
from jaxattn.experiments.landscape.global_convergence.claims import judged
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem
from jaxattn.study.claims import Claim, counts_of, total
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.statistics import bootstrap, proportion

# Of the correlation of the first step with W_mm (the outer bins hold what is beyond), and of its worst margin, which is
# 1 for W_mm itself.
CORRELATIONS = (0.2, 0.4, 0.5, 0.6, 0.8)
MARGINS = (-np.inf, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 1.0)
# Inputs to which so little of the gradient is left no longer turn W.
_SETTLED = 1e-6
STARTS = {"zero": "from W = 0", "long": "from a long first step", "random": "from random weights"}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Say of every seed whether its optimal tokens are selected, and how good its first step was.

    Args:
        record: of a `Training` of W that keeps the weights after its first step.
        solver: of the max-margin problems.

    Returns:
        For every kept seed whether it is `optimal` in the end; of its first step the `correlation` with W_mm and
        the worst `margin` over the constraints, relative to the best there is, so that it is positive where the step
        separates the optimal tokens and at most 1; `lost`, the share of the last gradient that is left to the inputs
        that do not select their optimal token (0 if there are none). The attributes tell the runs apart.
    """
    found = optimum(record, solver)
    first = found.of(record["W_snapshots"].sel(snapshot=1)) - found.of(record["W_initial"])
    arrays = batch.over_seeds(_judged, first, found.of(record["W"]), found.W, found.problems, found.alpha)
    config = json.loads(record.attrs["config"])
    names = ("optimal", "correlation", "margin", "lost")
    start = "zero" if not np.any(record["W_initial"].values) else "random"
    described = {
        "start": "long" if "first" in config["optimizer"] else start,
        "n": found.problems.n,
        "T": found.problems.T,
        "d": found.problems.d,
        "spread": float(config["data"].get("spread", 1.0)),
        "steps": int(config["steps"]),
    }
    run = ", ".join([STARTS[described["start"]], *(f"{name} = {described[name]:g}" for name in ("n", "d", "spread"))])
    return xarray.Dataset(
        {name: (("seed",), array) for name, array in zip(names, arrays, strict=True)},
        {"seed": found.of(record["seed"])},
        {**found.counts, "run": run, **described},
    )


def _judged(
    first: Float[Array, "d d"],
    final: Float[Array, "d d"],
    W_mm: Float[Array, "d d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> tuple[Array, ...]:
    margins = svm.margins(svm.token_constraints(problem, alpha), first / metrics.norm(first))
    right = tokens.selected(final, problem) == alpha
    step, read = lanes.before(), gradients.reading(problem, heads.linear)
    slope = gradients.direction(step, attention.logits(final, problem), problem.Y, read, losses.logistic)
    of_inputs = jnp.sum(jnp.abs(slope.coefficients), axis=1)
    lost = jnp.sum(jnp.where(right, 0.0, of_inputs)) / jnp.sum(of_inputs)
    return jnp.all(right), metrics.correlation(first, W_mm), jnp.min(margins) * metrics.norm(W_mm), lost


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate the shares of seeds that select their optimal tokens, and judge the claims.

    Args:
        datasets: of `measure`, from W = 0, from a long first step, and from random weights.
        key: of the bootstrap.

    Returns:
        For each start a dataset with an axis `run`, and bins of the first step where it starts from W = 0; the claims.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"global-convergence: expected a kept seed in each run, found counts {counts_of(datasets)}")
    summaries = {}
    for start, k in zip(STARTS, jax.random.split(key, len(STARTS)), strict=True):
        runs = {run: one for run, one in datasets.items() if one.attrs["start"] == start}
        if runs:
            parts = [
                _estimated(one, each) for one, each in zip(runs.values(), jax.random.split(k, len(runs)), strict=True)
            ]
            steps = min(one.attrs["steps"] for one in runs.values())
            summary = xarray.concat(parts, "run", coords="all").assign_attrs(total(runs) | {"steps": steps})
            summaries[start] = summary if start == "random" else summary.merge(_pooled(list(runs.values())))
    return summaries, judged(summaries, counts_of(datasets))


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the share of one run, of its seeds with a separating first step and of the others, and binned."""
    hits, correlation, margin = (one[name].values for name in ("optimal", "correlation", "margin"))
    upper = correlation > np.median(correlation)
    # How much more often the half of the seeds with the better first step is right. Taken about the mean of all, so
    # that resampling the halves' sizes adds no spread.
    weights = np.where(upper, 1 / max(upper.mean(), 1e-9), -1 / max(1 - upper.mean(), 1e-9))
    gain = bootstrap(weights * (hits - hits.mean()), key)
    wrong = one["lost"].values[~hits]
    variables = _share("optimal", hits) | _binned("by_correlation", hits, correlation, CORRELATIONS)
    for name, part in (("separated", margin > 0), ("unseparated", margin <= 0)):
        variables |= _share(name, hits[part])
    variables |= {f"gain_{part}": ((), value) for part, value in gain._asdict().items()}
    variables |= {
        "wrong": ((), len(wrong)),
        "settled": ((), int((wrong < _SETTLED).sum())),
    }
    names = ("run", "n", "T", "d", "spread")
    middles = (np.asarray(CORRELATIONS)[1:] + CORRELATIONS[:-1]) / 2
    return xarray.Dataset(variables, {"correlation_bin": middles, **{name: one.attrs[name] for name in names}})


def _pooled(runs: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """Return the shares by the margin of the first step, over the seeds of all runs."""
    hits, margin = (np.concatenate([one[name].values for one in runs]) for name in ("optimal", "margin"))
    return xarray.Dataset(_binned("by_margin", hits, margin, MARGINS), {"margin_edge": list(MARGINS)})


def _binned(name: str, hits: np.ndarray, values: np.ndarray, edges: Sequence[float]) -> dict[str, Any]:
    """Return the shares of hits among the seeds whose value is in each bin; an empty bin says nothing, 0..1."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    parts = [_share(name, hits[place == k]) for k in range(len(edges) - 1)]
    axis = "correlation_bin" if name == "by_correlation" else "margin_bin"
    return {part: ((axis,), np.array([one[part][1] for one in parts])) for part in parts[0]}


def _share(name: str, hits: np.ndarray) -> dict[str, Any]:
    """Return a share with its interval and how many seeds it is of; of none, 0..1 around a half."""
    if len(hits) == 0:
        mean, low, high = 0.5, 0.0, 1.0
    else:
        mean, low, high, _ = proportion(hits)
    return {
        name: ((), float(mean)),
        f"{name}_low": ((), float(low)),
        f"{name}_high": ((), float(high)),
        f"{name}_seeds": ((), len(hits)),
    }
