"""The tokens that finished runs of several sizes have selected: reading their records, and their counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xarray

from jaxattn.attention import Weights
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import EXCLUDED
from jaxattn.study.settings.parameters import weights_of

# The weights for which runs are compared.
WEIGHTS = ("W", "KQ")


def read(record: xarray.Dataset) -> tuple[Weights, Problem]:
    """Return the final weights and the problems of a record, both with a leading axis over seeds."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    return weights_of(arrays), of_arrays(arrays)


def described(record: xarray.Dataset) -> dict[str, Any]:
    """Return the description of a training: its weights, sizes and steps, and a name for these."""
    sizes = {"n": record.sizes["input"], "T": record.sizes["token"], "d": record.sizes["feature"]}
    weights = "W" if "W" in record else "KQ"
    steps = int(json.loads(record.attrs["config"])["steps"])
    return {"run": named(weights, sizes), "weights": weights, **sizes, "steps": steps}


def named(weights: str, sizes: Mapping[str, int]) -> str:
    """Return the name of a run of these weights and sizes, such as `W n=5 T=5 d=10`."""
    return " ".join([weights, *(f"{letter}={size}" for letter, size in sizes.items())])


def by_weights(datasets: Mapping[str, xarray.Dataset], expected: str) -> dict[str, dict[str, xarray.Dataset]]:
    """Return measured datasets by their weights, and then by the name of their run.

    Args:
        datasets: of W and of (K, Q), with axis `seed`.
        expected: what each must have, for the error message: such as `a finite seed`.

    Raises:
        ValueError: a run has no seed, or there is no run of W, or none of (K, Q).
    """
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"runs: expected {expected} in each, found none in {empty}")
    found = {
        weights: {run: one for run, one in datasets.items() if one.attrs["weights"] == weights} for weights in WEIGHTS
    }
    if missing := [weights for weights, own in found.items() if not own]:
        raise ValueError(f"runs: expected some of W and some of KQ, found none of {' and '.join(missing)}")
    return found


def counts_by_run(summaries: Mapping[str, xarray.Dataset]) -> dict[str, dict[str, int]]:
    """Return attempted, kept and excluded seeds of every run, from variables of these names along `run`."""
    counted = ("attempted", "kept", *EXCLUDED)
    return {
        str(run): {name: int(one[name].values[k]) for name in counted if name in one}
        for one in summaries.values()
        for k, run in enumerate(one["run"].values)
    }
