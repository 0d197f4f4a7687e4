"""Shares of seeds that select their optimal tokens, by the quality of their first step; and where far starts end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.experiments.landscape.global_convergence.basins import MARGIN
from jaxattn.experiments.landscape.outcomes import SETTLED
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Datasets, family, total
from jaxattn.study.estimates import estimated, exact, mean, share

# The starts of descent, in words, and the settings of their runs.
STARTS = {
    "from W = 0": {"weights": "free_zero", "optimizer": "scale_free_gd"},
    "from a long first step": {"weights": "free_zero", "optimizer": "long_first_gd"},
    "from random weights": {"weights": "free"},
}
FAR = {"weights": "far"}
# Bins of the correlation of the first step with W_mm (the outer bins are open), and of its smallest margin, which is 1
# for W_mm itself.
CORRELATIONS = (0.2, 0.4, 0.5, 0.6, 0.8)
MARGINS = (-np.inf, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 1.0)
# Fixed beforehand: a start has converged to a solution if 1 - cos with it is at most this.
_NEAR = 0.05


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the shares of each run; and for each of `STARTS`, by name, the shares by margin over all its runs.

    Raises:
        ValueError: an impossible share of the gradient.
    """
    summaries: dict[str, xarray.Dataset] = {}
    for k, (name, run) in enumerate(family(runs, FAR).items()):
        summaries[name] = _from_far(run, derive_key(key, k))
    for (start, settings), start_key in zip(STARTS.items(), jax.random.split(key, len(STARTS)), strict=True):
        of_start = family(runs, settings)
        for (name, run), run_key in zip(of_start.items(), jax.random.split(start_key, len(of_start)), strict=True):
            summaries[name] = _from_start(run, run_key)
        hits, margin = (np.concatenate([run[name] for run in of_start.values()]) for name in ("optimal", "margin"))
        by_margin = _binned("by_margin", "margin_bin", hits, margin, MARGINS)
        summaries[start] = xarray.Dataset(by_margin, attrs=total(of_start))
    return summaries


def _from_start(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the shares of all seeds, of those with and without a separating first step, and by its correlation."""
    hits, correlation, margin, lost = (run[name].values for name in ("optimal", "correlation", "margin", "lost"))
    if not np.all((lost >= 0) & (lost <= 1)):
        raise ValueError(f"lost: expected shares of the gradient, 0..1, found {lost.min():.3g}..{lost.max():.3g}")
    upper = correlation > np.median(correlation)
    # How much more often the half of the seeds with the better first step is right. Centred at the mean of all, so that
    # resampling the sizes of the halves adds no spread.
    weights = np.where(upper, 1 / max(upper.mean(), 1e-9), -1 / max(1 - upper.mean(), 1e-9))
    arrays: dict[str, Any] = {
        **variables({"gain": ((), bootstrap(weights * (hits - hits.mean()), key))}),
        **_share("optimal", hits),
        **_share("separated", hits[margin > 0]),
        **_share("unseparated", hits[margin <= 0]),
        **_binned("by_correlation", "correlation_bin", hits, correlation, CORRELATIONS),
        "wrong": ((), int((~hits).sum())),
        "settled": ((), int((lost[~hits] < SETTLED).sum())),
        "separated_wrong": ((), int((~hits[margin > 0]).sum())),
    }
    middles = (np.asarray(CORRELATIONS)[1:] + CORRELATIONS[:-1]) / 2
    return xarray.Dataset(arrays, {"correlation_bin": middles}, run.attrs)


def _binned(
    name: str, axis: str, hits: Bool[np.ndarray, " seeds"], values: Float[np.ndarray, " seeds"], edges: Sequence[float]
) -> dict[str, Any]:
    """Return the shares of hits among the seeds whose value is in each bin; the outer bins are open."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    parts = [_share(name, hits[place == k]) for k in range(len(edges) - 1)]
    return {part: ((axis,), np.array([of_bin[part][1] for of_bin in parts])) for part in parts[0]}


def _share(name: str, hits: Bool[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Return a share with its interval, NaN without seeds, and the number of seeds."""
    mean, low, high = proportion(hits)[:3] if len(hits) else (np.nan,) * 3
    parts = {"": float(mean), "_low": float(low), "_high": float(high), "_seeds": len(hits)}
    return {f"{name}{suffix}": ((), part) for suffix, part in parts.items()}


def _from_far(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return where the starts of one run have ended, and the balanced accuracies of both predictions.

    `left` counts the starts near the solution of the served inputs, with another input behind by more than the margin;
    `explained` is the share of these and of those that select the optimal tokens.
    """
    optimal = run["optimal"]
    left = (run["unserved"] > 0) & (run["behind"] > MARGIN) & (run["off_served"] <= _NEAR)
    return estimated(
        run,
        key,
        optimal=share(optimal),
        stays=share(run["stays"]),
        elsewhere=share(run["elsewhere"]),
        explained=share(optimal | left),
        off_served=mean(run["off_served"]),
        balanced=mean(_balanced(optimal, run["elsewhere"])),
        balanced_support=mean(_balanced(optimal, run["apart"])),
        starts=exact(run.sizes["seed"]),
        staying=exact(run["stays"].sum()),
        left=exact(left.sum()),
        moving=exact((~optimal & ~left).sum()),
    )


def _balanced(optimal: xarray.DataArray, elsewhere: xarray.DataArray) -> xarray.DataArray:
    """Return one number per seed whose mean is the balanced accuracy of a prediction: 1/2 if one outcome is missing.

    That is the mean of the shares of correct predictions among the starts that end elsewhere and among the rest. The
    numbers are centred at it, so that resampling the sizes of the two outcomes adds no spread.
    """
    right, hit = optimal.values, (optimal != elsewhere).values
    parts = [float(hit[outcome].mean()) if outcome.any() else 0.5 for outcome in (right, ~right)]
    own = np.where(right, parts[0], parts[1])
    size = np.where(right, max(right.mean(), 1e-9), max(1 - right.mean(), 1e-9))
    return optimal.copy(data=np.mean(parts) + (hit - own) / (2 * size))
