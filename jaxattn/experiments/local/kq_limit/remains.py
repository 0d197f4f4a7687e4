"""What remains of a distance in the limit: the fit of a power law with a constant, whose interval is over seeds."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jaxattn.statistics import Estimate

# The exponents that are tried, and how often seeds are resampled.
_EXPONENTS, _SAMPLES = np.linspace(0.05, 2.0, 79), 400


def remaining(
    size: Float[np.ndarray, "seeds snapshots"], off: Float[np.ndarray, "seeds snapshots"], key: PRNGKeyArray
) -> Estimate:
    """Return the share a / off(end) of a distance that remains as the norm goes to infinity, if off = a + b size^-q.

    The fit is to the geometric means over the seeds, with a and b at least 0 and least squares of the relative error.
    Its interval of 95 % is from fits to resampled seeds. `size` is the norm of the weights, which grows; `off` is
    positive.

    Example:
        >>> size = np.geomspace(1, 1e3, 30)[None]
        >>> round(float(remaining(size, 0.2 + 1 / size, key).mean), 2)
        1.0
    """
    seeds = len(off)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    times = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=_SAMPLES)
    # The first row is the mean over all seeds.
    weights = np.concatenate([np.ones((1, seeds)), times]) / seeds
    share = _share(np.exp(weights @ np.log(size)), np.exp(weights @ np.log(off)))
    low, high = np.quantile(share[1:], [0.025, 0.975])
    return Estimate(share[0], np.minimum(low, share[0]), np.maximum(high, share[0]), share[1:].std(ddof=1))


def _share(
    x: Float[np.ndarray, "curves points"], y: Float[np.ndarray, "curves points"]
) -> Float[np.ndarray, " curves"]:
    """Return a / y(end) of the best fit y = a + b x^-q to each curve."""
    best, share = np.full(len(y), np.inf), np.zeros(len(y))
    one = 1 / y
    for q in _EXPONENTS:
        power = (x / x[:, -1:]) ** -q / y
        # Least squares of a / y + b power = 1; where one of both would be negative the other is fitted alone.
        aa, ab, bb = ((left * right).sum(axis=1) for left, right in ((one, one), (one, power), (power, power)))
        a1, b1 = one.sum(axis=1), power.sum(axis=1)
        a, b = (bb * a1 - ab * b1) / (aa * bb - ab**2), (aa * b1 - ab * a1) / (aa * bb - ab**2)
        a, b = np.where(b < 0, a1 / aa, np.where(a < 0, 0.0, a)), np.where(a < 0, b1 / bb, np.where(b < 0, 0.0, b))
        error = ((a[:, None] * one + b[:, None] * power - 1) ** 2).sum(axis=1)
        better = error < best
        best, share = np.where(better, error, best), np.where(better, a / (a + b), share)
    return share
