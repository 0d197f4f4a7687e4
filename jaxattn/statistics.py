"""Means and medians over seeds with bootstrap intervals, and proportions of seeds."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

__all__ = ["LEAST_SEEDS", "Estimate", "bootstrap", "derive_key", "median", "pooled", "proportion", "variables"]

# Fewer seeds decide nothing.
LEAST_SEEDS = 8


class Estimate(NamedTuple):
    """A mean (or median) over seeds with its interval and standard error, each with the shape of one seed's value."""

    mean: Float[np.ndarray, "..."]
    low: Float[np.ndarray, "..."]
    high: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


def variables(
    estimates: Mapping[str, tuple[tuple[str, ...], Estimate]],
) -> dict[str, tuple[tuple[str, ...], Float[np.ndarray, "..."]]]:
    """Return the parts of estimates, each with its dims, as the variables of a dataset.

    The mean has the estimate's own name, the others `name_low`, `name_high` and `name_error`.

    Example:
        >>> from jaxattn.statistics import proportion, variables
        >>> sorted(variables({"share": ((), proportion(np.ones(20, bool)))}))
        ['share', 'share_error', 'share_high', 'share_low']
    """
    return {
        name if part == "mean" else f"{name}_{part}": (dims, getattr(estimate, part))
        for name, (dims, estimate) in estimates.items()
        for part in Estimate._fields
    }


def derive_key(key: PRNGKeyArray, number: int = 0) -> PRNGKeyArray:
    """Return a further key, different from all keys that splitting `key` into a few gives.

    Args:
        key: a key that others have been split from.
        number: the index among several such keys.

    Example:
        >>> from jaxattn.statistics import derive_key, bootstrap
        >>> estimate = bootstrap(np.arange(20.0), derive_key(key))
    """
    # `fold_in(key, i)` can be entry i of `split(key)`, hence the offset.
    return jax.random.fold_in(key, 2**20 + number)


def bootstrap(
    values: Float[np.ndarray, "seeds ..."],
    key: PRNGKeyArray,
    level: float = 0.95,
    samples: int = 2000,
) -> Estimate:
    """Estimate the mean over seeds with a percentile bootstrap interval.

    `scipy.stats.bootstrap` gives the same interval up to resampling. Here all entries share one multinomial draw per
    resample, so that resampling is one matrix product, and its random numbers come from a JAX key.

    Args:
        values: one value, or array of values, per seed; the seed axis first.
        key: the random key of the resampling.
        level: the confidence level.
        samples: the number of resamples.

    Raises:
        ValueError: no seeds, a value that is not finite, or a level outside (0, 1).

    Example:
        >>> from jaxattn.statistics import bootstrap
        >>> estimate = bootstrap(np.arange(20.0), key)
        >>> bool(estimate.low < estimate.mean < estimate.high)
        True
    """
    values = np.asarray(values, dtype=float)
    if values.ndim < 1 or values.shape[0] == 0:
        raise ValueError("bootstrap: expected at least one seed, found none")
    if not np.isfinite(values).all():
        raise ValueError(f"bootstrap: expected finite values, found {int((~np.isfinite(values)).sum())} others")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a share between 0 and 1, found {level}")
    seeds = values.shape[0]
    means = (_resampled(seeds, key, samples) / seeds @ values.reshape(seeds, -1)).reshape(samples, *values.shape[1:])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(values.shape[1:], np.inf)
    return Estimate(values.mean(axis=0), low, high, error)


def median(
    values: Float[np.ndarray, "seeds ..."],
    low: Float[np.ndarray, "seeds ..."],
    high: Float[np.ndarray, "seeds ..."],
    key: PRNGKeyArray,
    level: float = 0.95,
    samples: int = 2000,
) -> Estimate:
    """Estimate the median over seeds of values that are known within ranges, which may be unbounded.

    The interval reaches from the lower end of a percentile bootstrap of the medians of `low` to the upper end of that
    of `high`. The field `mean` is the median.

    Args:
        values: one value, or array of values, per seed; the seed axis first.
        low: the lower ends of their ranges.
        high: the upper ends.
        key: the random key of the resampling.
        level: the confidence level.
        samples: the number of resamples.

    Raises:
        ValueError: no seeds, ranges of another shape, NaN, or a level outside (0, 1).

    Example:
        >>> from jaxattn.statistics import median
        >>> values = np.arange(21.0)
        >>> float(median(values, values - 1, values + 1, key).mean)
        10.0
    """
    values, low, high = (np.asarray(each, dtype=float) for each in (values, low, high))
    if values.ndim < 1 or values.shape[0] == 0:
        raise ValueError("median: expected at least one seed, found none")
    if not values.shape == low.shape == high.shape:
        shapes = [each.shape for each in (values, low, high)]
        raise ValueError(f"median: expected values and their ranges of one shape, found {shapes}")
    if wrong := int(np.isnan([values, low, high]).any(axis=0).sum()):
        raise ValueError(f"median: expected numbers, found NaN in {wrong} of {values.size}")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a share between 0 and 1, found {level}")
    chosen = _generator(key).integers(0, len(values), size=(samples, len(values)))
    of_values, of_low, of_high = (np.median(each[chosen], axis=1) for each in (values, low, high))
    ends = ((1 - level) / 2, (1 + level) / 2)
    # Quantiles of resamples, not between them: some may be unbounded.
    least = np.quantile(of_low, ends[0], axis=0, method="lower")
    most = np.quantile(of_high, ends[1], axis=0, method="higher")
    return Estimate(np.median(values, axis=0), least, most, of_values.std(axis=0, ddof=1))


def pooled(
    hits: Bool[np.ndarray, "cases ..."],
    seed: Int[np.ndarray, " cases"],
    key: PRNGKeyArray,
    level: float = 0.95,
    samples: int = 2000,
) -> Estimate:
    """Estimate the proportion of cases that are hits, where cases of the same seed depend on each other.

    Whole seeds are resampled. If all cases are hits, or none, resampling gives no spread; the interval is then that of
    as many independent cases as there are seeds, from `proportion`.

    Args:
        hits: the axis of cases first.
        seed: the seed of each case.
        key: the random key of the resampling.
        level: the confidence level.
        samples: the number of resamples.

    Raises:
        ValueError: no cases, a number of seeds other than that of cases, or a level outside (0, 1).

    Example:
        >>> from jaxattn.statistics import pooled
        >>> float(pooled(np.array([True, False, True, True]), np.array([0, 0, 1, 1]), key).mean)
        0.75
    """
    hits, seed = np.asarray(hits, dtype=bool), np.asarray(seed)
    if hits.ndim < 1 or hits.shape[:1] != seed.shape:
        raise ValueError(f"pooled: expected hits with a seed each, found shapes {hits.shape} and {seed.shape}")
    of_seed, of_case = np.unique(seed, return_inverse=True)
    # This also checks the level and the number of cases.
    certain = proportion(np.broadcast_to(hits[:1], (len(of_seed), *hits.shape[1:])), level)
    cases = np.bincount(of_case).astype(float)
    counted = np.zeros((len(of_seed), *hits.shape[1:]))
    np.add.at(counted, of_case, hits)
    times = _resampled(len(of_seed), key, samples)
    number = (times @ cases).reshape(samples, *[1] * (hits.ndim - 1))
    shares = (times @ counted.reshape(len(of_seed), -1)).reshape(samples, *hits.shape[1:]) / number
    low, high = np.quantile(shares, [(1 - level) / 2, (1 + level) / 2], axis=0)
    share = hits.mean(axis=0)
    same = (share == 0) | (share == 1)
    return Estimate(
        share, np.where(same, certain.low, low), np.where(same, certain.high, high), shares.std(axis=0, ddof=1)
    )


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return NumPy's generator for a key: compiling draws of JAX would take longer than everything else."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _resampled(seeds: int, key: PRNGKeyArray, samples: int) -> Int[np.ndarray, "samples seeds"]:
    """Draw how often each seed is taken."""
    return _generator(key).multinomial(seeds, np.full(seeds, 1 / seeds), size=samples)


def proportion(hits: Bool[np.ndarray, "seeds ..."], level: float = 0.95) -> Estimate:
    """Estimate the proportion of seeds that are hits, with Wilson's score interval.

    `scipy.stats.binomtest` gives the same interval, but for one proportion at a time. If all seeds are hits, or none,
    resampling would give no spread; this interval still reflects the number of seeds.

    Args:
        hits: the seed axis first.
        level: the confidence level.

    Raises:
        ValueError: no seeds, or a level outside (0, 1).

    Example:
        >>> from jaxattn.statistics import proportion
        >>> bool(proportion(np.ones(20, bool)).low > 0.8)
        True
    """
    hits = np.asarray(hits, dtype=bool)
    if hits.ndim < 1 or hits.shape[0] == 0:
        raise ValueError("proportion: expected at least one seed, found none")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a share between 0 and 1, found {level}")
    seeds, share = hits.shape[0], hits.mean(axis=0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z**2 / (2 * seeds)) / (1 + z**2 / seeds)
    half = z * np.sqrt(share * (1 - share) / seeds + z**2 / (4 * seeds**2)) / (1 + z**2 / seeds)
    # If all or none are hits one bound equals the proportion itself, up to rounding.
    low, high = np.minimum(centre - half, share), np.maximum(centre + half, share)
    return Estimate(share, np.clip(low, 0, 1), np.clip(high, 0, 1), np.sqrt(share * (1 - share) / seeds))
