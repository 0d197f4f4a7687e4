"""Means over seeds with bootstrap intervals."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray


class Estimate(NamedTuple):
    """A mean over seeds with an interval and its standard error, each of the shape of one seed's value."""

    mean: Float[np.ndarray, "..."]
    low: Float[np.ndarray, "..."]
    high: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


def bootstrap(
    values: Float[np.ndarray, "seeds ..."],
    key: PRNGKeyArray,
    level: float = 0.95,
    samples: int = 2000,
) -> Estimate:
    """Estimate the mean over seeds with a percentile bootstrap interval.

    Args:
        values: one value, or array of values, a seed; the seed axis first.
        key: of the resampling.
        level: share of resampled means that the interval holds.
        samples: number of resamples.

    Raises:
        ValueError: no seeds, a non-finite value, or a level outside (0, 1).
    """
    values = np.asarray(values, dtype=float)
    if values.ndim < 1 or values.shape[0] == 0:
        raise ValueError("bootstrap: expected at least one seed, found none")
    if not np.isfinite(values).all():
        raise ValueError(f"bootstrap: expected finite values, found {int((~np.isfinite(values)).sum())} others")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a share between 0 and 1, found {level}")
    seeds = values.shape[0]
    # NumPy draws how often each seed is taken: compiling it would take longer than all the rest.
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    share = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=samples) / seeds
    means = (share @ values.reshape(seeds, -1)).reshape(samples, *values.shape[1:])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(values.shape[1:], np.inf)
    return Estimate(values.mean(axis=0), low, high, error)
