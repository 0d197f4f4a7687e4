"""The rate of mirror descent: the paper's bound, and exponents of the step and of its logarithm."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

# Rates are fitted over the last decade of runs with at least this many steps.
SINCE, LONG = 10_000, 100_000


def bound(steps: Int[np.ndarray, " snapshots"], p: float) -> Float[np.ndarray, " snapshots"]:
    """Return the order of the paper's upper bound on the divergence after these steps, all above e."""
    log = np.log(steps.astype(float))
    if p > 2:
        return np.log(log) / log
    return np.log(log) ** 2 / log if p == 2 else log ** (1 - p)


def over_bound(
    steps: Int[np.ndarray, " snapshots"], divergence: Float[np.ndarray, "seeds snapshots"], p: float
) -> Float[np.ndarray, " seeds"]:
    """Return for each seed the exponent of log k in the divergence divided by the bound; 0 is the rate of the bound.

    Args:
        steps: of the snapshots; those before SINCE are not used.
        divergence: at these.
        p: of the potential.
    """
    late = steps >= SINCE
    return _exponents(np.log(steps[late].astype(float)), divergence[:, late] / bound(steps[late], p))


def of_steps(
    steps: Int[np.ndarray, " snapshots"], divergence: Float[np.ndarray, "seeds snapshots"]
) -> Float[np.ndarray, " seeds"]:
    """Return for each seed the exponent of k in the divergence over the last decade of steps."""
    late = steps * 10 >= steps[-1]
    return _exponents(steps[late].astype(float), divergence[:, late])


def _exponents(
    x: Float[np.ndarray, " snapshots"], y: Float[np.ndarray, "seeds snapshots"]
) -> Float[np.ndarray, " seeds"]:
    """Return the exponent p in y ~ x^p for each seed, by least squares on the logarithms."""
    centred = np.log(x) - np.log(x).mean()
    return np.log(y) @ centred / (centred @ centred)
