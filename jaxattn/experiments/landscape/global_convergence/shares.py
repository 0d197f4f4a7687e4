"""Shares of seeds that select their optimal tokens, for one run or several, and by the quality of their first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.statistics import bootstrap, proportion

# Bins of the correlation of the first step with W_mm (the outer bins are open), and of its smallest margin, which is 1
# for W_mm itself.
CORRELATIONS = (0.2, 0.4, 0.5, 0.6, 0.8)
MARGINS = (-np.inf, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 1.0)
# Inputs with a smaller share of the gradient no longer affect W.
SETTLED = 1e-6


def estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the shares for one run, for its seeds with and without a separating first step, and in bins.

    Args:
        one: of `measure`.
        key: of the bootstrap.

    Raises:
        ValueError: an impossible share of the gradient.
    """
    hits, correlation, margin, lost = (one[name].values for name in ("optimal", "correlation", "margin", "lost"))
    if not np.all((lost >= 0) & (lost <= 1)):
        raise ValueError(f"lost: expected shares of the gradient, 0..1, found {lost.min():.3g}..{lost.max():.3g}")
    upper = correlation > np.median(correlation)
    # How much more often the half of the seeds with the better first step is right. Centred at the mean of all, so that
    # resampling the sizes of the halves adds no spread.
    weights = np.where(upper, 1 / max(upper.mean(), 1e-9), -1 / max(1 - upper.mean(), 1e-9))
    gain = bootstrap(weights * (hits - hits.mean()), key)
    variables = _share("optimal", hits) | _binned("by_correlation", hits, correlation, CORRELATIONS)
    for name, part in (("separated", margin > 0), ("unseparated", margin <= 0)):
        variables |= _share(name, hits[part])
    variables |= {f"gain_{part}": ((), value) for part, value in gain._asdict().items()}
    variables |= {
        "wrong": ((), int((~hits).sum())),
        "settled": ((), int((lost[~hits] < SETTLED).sum())),
        "separated_wrong": ((), int((~hits[margin > 0]).sum())),
    }
    names = ("run", "n", "T", "d", "spread")
    middles = (np.asarray(CORRELATIONS)[1:] + CORRELATIONS[:-1]) / 2
    return xarray.Dataset(variables, {"correlation_bin": middles, **{name: one.attrs[name] for name in names}})


def pooled(runs: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """Return the shares by the margin of the first step, over the seeds of all runs."""
    hits, margin = (np.concatenate([one[name].values for one in runs]) for name in ("optimal", "margin"))
    return xarray.Dataset(_binned("by_margin", hits, margin, MARGINS), {"margin_edge": list(MARGINS)})


def _binned(
    name: str, hits: Bool[np.ndarray, " seeds"], values: Float[np.ndarray, " seeds"], edges: Sequence[float]
) -> dict[str, Any]:
    """Return the shares of hits among the seeds whose value is in each bin; an empty bin has the interval 0..1."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    parts = [_share(name, hits[place == k]) for k in range(len(edges) - 1)]
    axis = "correlation_bin" if name == "by_correlation" else "margin_bin"
    return {part: ((axis,), np.array([one[part][1] for one in parts])) for part in parts[0]}


def _share(name: str, hits: Bool[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Return a share with its interval and its number of seeds; without seeds, a half with the interval 0..1."""
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
