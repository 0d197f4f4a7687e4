"""The distance of long runs from a max-margin solution, along their steps, and its rate."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray, Real

from jaxattn.statistics import bootstrap

# Rates are fitted from the first of these steps on, to runs with at least as many steps as the second.
FROM, LONG = 1000, 30_000
_NEAR = 1e-6


def along(one: xarray.Dataset, norm: str, key: PRNGKeyArray, since: int = FROM) -> xarray.Dataset:
    """Return the distance of a run from one solution along its snapshots: its geometric mean, its spread and its rate.

    Args:
        one: of `limits.measure`.
        norm: whose solution.
        key: of the bootstrap.
        since: the step that rates are fitted from.

    Returns:
        Over the snapshots the geometric mean `off` with its interval and some quantiles; `near`, the share of seeds
        that end below 1e-6; and for long runs `exponent_mean`, `exponent_low` and `exponent_high`, in the number of
        steps.
    """
    steps, off = one["snapshot"].values, one["off"].sel(norm=norm).values
    keys = jax.random.split(key)
    mean = bootstrap(np.log10(off), keys[0])
    variables = {
        "off": (("snapshot",), 10**mean.mean),
        "off_low": (("snapshot",), 10**mean.low),
        "off_high": (("snapshot",), 10**mean.high),
        **{f"off_{q}": (("snapshot",), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)},
        "near": ((), np.mean(off[:, -1] < _NEAR)),
    }
    if steps[-1] >= LONG:
        late = steps >= since
        exponent = bootstrap(exponents(steps[None, late], off[:, late]), keys[1])
        variables |= {f"exponent_{part}": ((), value) for part, value in exponent._asdict().items()}
    return xarray.Dataset(variables, {"snapshot": steps, "norm": norm}, attrs=one.attrs)


def exponents(
    x: Real[np.ndarray, "#seeds snapshots"], y: Float[np.ndarray, "seeds snapshots"]
) -> Float[np.ndarray, " seeds"]:
    """Return the exponent p in y ~ x^p for each seed, by least squares on the logarithms."""
    x, y = np.broadcast_to(np.log(x), y.shape), np.log(y)
    x = x - x.mean(axis=1, keepdims=True)
    return np.sum(x * y, axis=1) / np.sum(x * x, axis=1)
