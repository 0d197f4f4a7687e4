"""Mean curves of a comparison over the kept seeds, with intervals, and functions to read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import Number


def curves(comparison: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the mean cosines and the mean largest probability at a run's snapshots, with 95 % intervals.

    Of the `correlation` (seed, norm, snapshot) and `probability` (seed, step) of a comparison with at least one seed;
    the result has `correlation` (norm, snapshot) and `probability` (snapshot), each with `_low`, `_high` and `_error`.
    """
    correlation_key, probability_key = jax.random.split(key)
    # The series is read before each update: step k of the figure is that of k - 1, or the last before it that was kept.
    steps = comparison["snapshot"].values
    entries = np.searchsorted(comparison["step"].values, steps - 1, side="right") - 1
    probability = comparison["probability"].values[:, entries]
    estimates = {
        "correlation": (("norm", "snapshot"), bootstrap(comparison["correlation"].values, correlation_key)),
        "probability": (("snapshot",), bootstrap(probability, probability_key)),
    }
    coordinates = {"snapshot": steps, "norm": comparison["norm"].values}
    return xarray.Dataset(variables(estimates), coordinates, attrs=comparison.attrs)


def at_steps(summary: xarray.Dataset, name: str, steps: tuple[int, ...], **where: Any) -> dict[str, np.ndarray]:
    """Read an estimate of `curves` at those of the given steps that have a snapshot, and at other coordinates.

    The steps found stand under "steps", and the parts of the estimate at these under "" (the mean), "_low", "_high" and
    "_error", each (step,).
    """
    there = [step for step in steps if step in summary["snapshot"].values]
    read = {
        part: summary[f"{name}{part}"].sel({"snapshot": there, **where}).values
        for part in ("", "_low", "_high", "_error")
    }
    return {"steps": np.asarray(there), **read}


def named(reads: Mapping[str, dict[str, np.ndarray]]) -> dict[str, Number]:
    """Return the numbers read by `at_steps`, each under its label and step."""
    return {
        f"{label} at step {step}": Number(*(float(read[part][k]) for part in ("", "_low", "_high")))
        for label, read in reads.items()
        for k, step in enumerate(read["steps"])
    }
