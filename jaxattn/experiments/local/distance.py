"""How far long runs are from a max-margin solution, along their steps, and at what rate they approach it."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.statistics import bootstrap

# A rate is fitted from the first of these steps on, to runs of at least as many steps as the second.
FROM, LONG = 1000, 30_000
_NEAR = 1e-6


def along(one: xarray.Dataset, norm: str, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the distance of a run from one solution along its snapshots: its geometric mean, its spread and its rate.

    Args:
        one: of `limits.measure`.
        norm: whose solution.
        key: of the bootstrap.
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
    late = steps >= FROM
    if steps[-1] >= LONG:
        # Least squares on both logarithms, seed by seed.
        x = np.log10(steps[late]) - np.log10(steps[late]).mean()
        exponent = bootstrap(np.log10(off[:, late]) @ x / (x @ x), keys[1])
        variables |= {f"exponent_{part}": ((), value) for part, value in exponent._asdict().items()}
    return xarray.Dataset(variables, {"snapshot": steps, "norm": norm}, attrs=one.attrs)
