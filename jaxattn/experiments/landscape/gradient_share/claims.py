"""The part of the gradient on tokens that are not support vectors, against their slack (2308.16898)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn.experiments.landscape.gradient_share import examples
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Kind,
    Number,
    Setting,
    Source,
    above,
    between,
    counts_of,
    number,
    too_little,
)

# In the paper this is a step in proofs; it has no figure of it.
_SOURCE = Source("arXiv 2308.16898", "proofs of local convergence", Setting.OURS)
# A token with less slack (margin - 1) than this is a support vector.
_SUPPORT = 1e-6
# Bins of slack times ||W|| / ||W_mm||, over which the shares are drawn, and the smallest number of tokens drawn per
# bin.
EDGES, LEAST = np.linspace(0, 60, 16), 20
# Steps near which the shares are drawn.
_DRAWN = (100, 1000, 10_000)
# The smallest total share of these tokens whose logarithm is taken.
_SMALLEST = 1e-300
# Fixed beforehand: the slope in the statement, and how far the measured one may be from it; a share is smaller than
# another if its logarithm is smaller by more than rounding.
_SLOPE, _NEAR, _MORE = -1.0, 0.05, 1e-9


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how the shares fall with slack and with the steps.

    Args:
        datasets: of `measure`, of one run.
        key: of the bootstrap.

    Returns:
        One dataset over the snapshots: the decimal logarithm of the tokens' total share, and the slope of the natural
        logarithm of each share in slack times `||W|| / ||W_mm||`; and quantiles over bins of the latter, at a few
        snapshots.

    Raises:
        ValueError: there is not one run.
    """
    if len(datasets) != 1:
        raise ValueError(f"gradient-share: expected one run, found {list(datasets)}")
    ((run, one),) = datasets.items()
    log_share, growth = one["log_share"].values, one["growth"].values
    slack = one["slack"].values[:, None]
    outside = np.broadcast_to(slack > _SUPPORT, log_share.shape)
    x = slack * growth[:, :, None, None]
    keys = jax.random.split(key)
    together = np.log10(np.maximum(np.sum(np.where(outside, np.exp(log_share), 0.0), axis=(2, 3)), _SMALLEST))
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
    return {run: summary}


def _slopes(
    x: Float[np.ndarray, "seed snapshot n others"],
    y: Float[np.ndarray, "seed snapshot n others"],
    chosen: Bool[np.ndarray, "seed snapshot n others"],
) -> Float[np.ndarray, "seed snapshot"]:
    """Return the least squares slope for every seed and snapshot, over the chosen tokens; 0 for a single token."""
    count = np.maximum(chosen.sum(axis=(2, 3), keepdims=True), 1)
    x, y = (np.where(chosen, a - np.sum(a * chosen, axis=(2, 3), keepdims=True) / count, 0.0) for a in (x, y))
    square = np.sum(x * x, axis=(2, 3))
    return np.where(square > 0, np.sum(x * y, axis=(2, 3)) / np.where(square > 0, square, 1.0), 0.0)


def _binned(
    x: Float[np.ndarray, "seed n others"],
    y: Float[np.ndarray, "seed n others"],
    chosen: Bool[np.ndarray, "seed n others"],
) -> dict[str, Float[np.ndarray, " bin"] | Int[np.ndarray, " bin"]]:
    """Return quantiles of y over the tokens in each bin of x, and their number; zeros for empty bins."""
    place = np.digitize(x[chosen], EDGES) - 1
    parts = [y[chosen][place == k] for k in range(len(EDGES) - 1)]
    found = {"tokens": np.array([len(part) for part in parts])}
    for q in (10, 50, 90):
        found[f"share_{q}"] = np.array([np.quantile(part, q / 100) if len(part) else 0.0 for part in parts])
    return found


def _judge(summaries: Datasets) -> Judgement:
    """At the last step the slope must be close to -1, and the total share must be smaller than at the first."""
    (summary,) = summaries.values()
    steps = summary["snapshot"].values
    numbers: dict[str, Number] = {}
    for step in sorted({*(int(step) for step in summary["drawn"].values), int(steps[-1])}):
        at = summary.sel(snapshot=step)
        numbers[f"slope of log share in slack ||W|| / ||W_mm|| at step {step}"] = number(at, "slope")
        together = number(at, "log_together")
        numbers[f"share of all non-support tokens at step {step}"] = Number(*(10**end for end in together))
    slope = number(summary.isel(snapshot=-1), "slope")
    first, last = (number(summary.isel(snapshot=k), "log_together") for k in (0, -1))
    fall = Number(first.mean - last.mean, first.low - last.high, first.high - last.low)
    return Judgement(
        numbers=numbers,
        expected={label: _SLOPE for label in numbers if label.startswith("slope")},
        counts=counts_of({"W": summary}),
        stated=(
            between(f"slope of log share at step {steps[-1]}", slope, _SLOPE - _NEAR, _SLOPE + _NEAR),
            above(f"decades by which the total share falls from step {steps[0]} to {steps[-1]}", fall, _MORE),
        ),
        undecided=too_little(summary),
        remark="This follows from the algebra of the softmax if W has the direction of W_mm; it can fail only "
        "through the distance of W from that direction. Slopes are fitted for each seed over its non-support "
        f"tokens; shares are geometric means. The slope is {slope.mean:.4g} at step {steps[-1]}. From step "
        f"{steps[0]} on the total share of these tokens {'falls' if fall.mean > 0 else 'does not fall'}, from "
        f"{10**first.mean:.2g} to {10**last.mean:.2g}.",
    )


CLAIMS = (
    Claim(
        "gradient-share:slack",
        _SOURCE,
        "The share of the gradient on a non-support token falls exponentially in its slack times the norm of W.",
        _judge,
        examples.of_slack,
        Kind.CHECK,
    ),
)
