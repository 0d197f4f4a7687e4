"""The part of the gradient on tokens that are no support vectors, against their slack (2308.16898)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import Claim, Verdict, counts_of, too_little
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.statistics import bootstrap, variables

# A token of less slack (margin - 1) is a support vector.
_SUPPORT = 1e-6
# What the shares are drawn over, slack times ||W|| / ||W_mm||; and the fewest tokens that are drawn in a bin.
EDGES, LEAST = np.linspace(0, 60, 16), 20
# Steps near which the shares are drawn.
_DRAWN = (100, 1000, 10_000)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Share out the gradient at every snapshot among the tokens, and read their slack.

    The gradient with respect to W is `sum_it a_it x_it z_i^T`; a token's share is `|a_it| / sum |a|`.

    Args:
        record: of a `Training` of W with a linear head and the logistic loss.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `log_share`, (snapshot, input, other), natural logarithms, of the tokens that are not
        selected; their `slack`, (input, other), the margin of the Frobenius solution less 1; and `growth`,
        `||W||_F / ||W_mm||_F`, of every snapshot.
    """
    compared = compare(record, (svm.frobenius,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    problems = of_arrays({str(name): record[name].values[kept] for name in record.data_vars})
    W, W_mm = record["W_snapshots"].values[kept], compared["W_svm"].values[:, 0]
    if not kept.any():
        raise ValueError(f"gradient-share: expected a kept seed, found counts {compared.attrs}")
    log_share, slack, growth = batch.over_seeds(_shares, W, W_mm, problems, compared["selected"].values)
    return xarray.Dataset(
        {
            "log_share": (("seed", "snapshot", "input", "other"), log_share),
            "slack": (("seed", "input", "other"), slack),
            "growth": (("seed", "snapshot"), growth),
        },
        {name: compared[name].values for name in ("seed", "snapshot")},
        compared.attrs,
    )


def _shares(
    W: Float[Array, "snapshot d d"], W_mm: Float[Array, "d d"], problem: Problem, selected: Int[Array, " n"]
) -> tuple[Array, Array, Array]:
    others = jnp.arange(problem.T - 1)[None, :]
    others = others + (others >= selected[:, None])
    slack = svm.margins(svm.token_constraints(problem, selected), W_mm) - 1
    logs = jax.vmap(log_shares, in_axes=(0, None))(W, problem)
    of_others = jax.vmap(lambda one: jnp.take_along_axis(one, others, axis=1))(logs)
    return of_others, slack, jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)


def log_shares(W: Float[Array, "d d"], problem: Problem) -> Float[Array, "n T"]:
    """Return the logarithm of every token's share of the gradient's mass, `log(|a_it| / sum |a|)`, (n, T).

    Of the logistic loss and a linear head. The coefficients are those of `gradients.direction`, factor by factor, so
    that a share far below the smallest number has its logarithm.
    """
    logits = attention.logits(W, problem)
    predictions, worth = gradients.reading(problem, heads.linear)(lanes.before(), jax.nn.softmax(logits, axis=1))
    slope = losses.log_slope(losses.logistic)
    assert slope is not None
    top = jnp.argmax(logits, axis=1, keepdims=True)
    apart = worth - jnp.take_along_axis(worth, top, axis=1)
    # Of the selected tokens the sum of all others', as the coefficients of an input add up to zero.
    relative = apart - jnp.sum(jax.nn.softmax(logits, axis=1) * apart, axis=1, keepdims=True)
    is_top = jnp.arange(problem.T)[None, :] == top
    logs = slope(problem.Y * predictions)[:, None] + jax.nn.log_softmax(logits, axis=1)
    logs = logs + jnp.log(jnp.abs(jnp.where(is_top, 1.0, relative)))
    sizes = jnp.where(is_top, 0.0, jnp.exp(logs - _largest(logs, is_top)) * jnp.sign(relative))
    of_top = jnp.log(jnp.abs(jnp.sum(sizes, axis=1, keepdims=True))) + _largest(logs, is_top)
    logs = jnp.where(is_top, of_top, logs)
    return logs - jax.scipy.special.logsumexp(logs)


def _largest(logs: Float[Array, "n T"], is_top: Array) -> Float[Array, "n 1"]:
    return jnp.max(jnp.where(is_top, -jnp.inf, logs), axis=1, keepdims=True)


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate how the shares fall with slack and with the steps, and judge the claim.

    Args:
        datasets: of `measure`, of one run.
        key: of the bootstrap.

    Returns:
        One dataset over the snapshots: the tokens' share together, and the slope of their logarithm in slack times
        `||W|| / ||W_mm||`; and over bins of the latter, at a few snapshots; the claim.
    """
    ((run, one),) = datasets.items()
    log_share, growth = one["log_share"].values, one["growth"].values
    slack = one["slack"].values[:, None]
    outside = np.broadcast_to(slack > _SUPPORT, log_share.shape)
    x = slack * growth[:, :, None, None]
    keys = jax.random.split(key)
    together = np.log10(np.maximum(np.sum(np.where(outside, np.exp(log_share), 0.0), axis=(2, 3)), 1e-300))
    estimates = {
        "log_together": bootstrap(together, keys[0]),
        "slope": bootstrap(_slopes(x, log_share, outside), keys[1]),
    }
    arrays: dict[str, Any] = dict(variables({name: (("snapshot",), one) for name, one in estimates.items()}))
    steps = one["snapshot"].values
    drawn = sorted({int(np.argmin(np.abs(np.log(steps / step)))) for step in _DRAWN})
    binned = [_binned(x[:, k], log_share[:, k], outside[:, k]) for k in drawn]
    arrays |= {name: (("drawn", "bin"), np.stack([each[name] for each in binned])) for name in binned[0]}
    arrays["support"] = ((), np.mean(~outside[:, 0]))
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    summary = xarray.Dataset(arrays, {"snapshot": steps, "drawn": steps[drawn], "bin": middles}, one.attrs)
    return {run: summary}, [_claim(summary)]


def _slopes(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the slope of the least squares line of every seed and snapshot, over the chosen tokens, 0 of one."""
    count = np.maximum(chosen.sum(axis=(2, 3), keepdims=True), 1)
    x, y = (np.where(chosen, a - np.sum(a * chosen, axis=(2, 3), keepdims=True) / count, 0.0) for a in (x, y))
    square = np.sum(x * x, axis=(2, 3))
    return np.where(square > 0, np.sum(x * y, axis=(2, 3)) / np.where(square > 0, square, 1.0), 0.0)


def _binned(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Return quantiles of y over the tokens in each bin of x, and how many there are; zeros of none."""
    place = np.digitize(x[chosen], EDGES) - 1
    parts = [y[chosen][place == k] for k in range(len(EDGES) - 1)]
    found = {"tokens": np.array([len(part) for part in parts])}
    for q in (10, 50, 90):
        found[f"share_{q}"] = np.array([np.quantile(part, q / 100) if len(part) else 0.0 for part in parts])
    return found


def _claim(summary: xarray.Dataset) -> Claim:
    steps = summary["snapshot"].values
    measured, interval, undecided = {}, {}, too_little(summary)
    shown = [int(step) for step in summary["drawn"].values] + [int(steps[-1])]
    for step in sorted(set(shown)):
        at = summary.sel(snapshot=step)
        label = f"slope of log share in slack ||W|| / ||W_mm|| at step {step}"
        measured[label], interval[label] = float(at["slope"]), (float(at["slope_low"]), float(at["slope_high"]))
        label = f"share of all non-support tokens at step {step}"
        measured[label] = 10 ** float(at["log_together"])
        interval[label] = (10 ** float(at["log_together_low"]), 10 ** float(at["log_together_high"]))
    last = summary.isel(snapshot=-1)
    holds = float(last["slope_low"]) > -1.05 and float(last["slope_high"]) < -0.95
    falls = float(last["log_together_high"]) < float(summary["log_together_low"].isel(snapshot=0))
    return Claim(
        id="gradient-share:slack",
        source="arXiv 2308.16898, proofs of local convergence",
        statement="A non-support token's share of the gradient falls exponentially with its slack times the norm of W.",
        expected={label: -1.0 for label in measured if label.startswith("slope")},
        measured=measured,
        interval=interval,
        counts=counts_of({"W": summary}),
        verdict=Verdict.OPEN if undecided else Verdict.HOLDS if holds and falls else Verdict.FAILS,
        note=undecided
        or "Slopes of every seed's own line over its non-support tokens, and geometric means of shares. Holds if the "
        "slope at the last step is within 0.05 of -1, and all these tokens together have less than at the first.",
    )
