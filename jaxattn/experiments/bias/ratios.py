"""Shared in this topic: the margin ratios of a run in every norm, and the norms that it obeys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.bias.verdict import weighed
from jaxattn.experiments.bias.rules import NORMS, described
from jaxattn.statistics import Estimate, variables
from jaxattn.study.claims import Datasets
from jaxattn.study.measuring.ranked import ranked, to_dataset

# What is kept from a ranking as a dataset: its arrays, and the outcomes of the seeds.
KEPT = ["margin_ratio", "probability"]
_COUNTS = ("attempted", "kept", "diverged", "infeasible", "unsolved")


def native(solver: svm.Solver | None) -> None:
    """Raise ValueError if a solver is given: each norm has its own."""
    if solver is not None:
        raise ValueError(f"svm: expected native, the solvers of each norm, found {solver!r}")


def counts(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of seeds attempted, kept and excluded by reason, from a ranking's attributes."""
    return {name: attributes[name] for name in _COUNTS}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the max-margin problems of all norms of the atlas, always in double precision.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), and `probability`, the mean over inputs of the largest attention
        probability, (seed, snapshot). Attributes: counts, and what `rules.described` returns for the run.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    native(solver)
    exact = {str(name): one.astype(float) for name, one in record.data_vars.items() if one.dtype.kind == "f"}
    with jax.enable_x64(True):
        one = to_dataset(ranked(record.assign(exact), NORMS))
    measured = one[KEPT]
    measured.attrs = counts(one.attrs) | described(json.loads(record.attrs["config"]), "KQ" if "K" in record else "W")
    return measured


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the margin ratios of every run, and the norms that it obeys.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset: `ratio`, the mean margin ratio over the seeds at the last snapshot, (norm,), and
        `trend`, its change per decade of steps if the snapshots allow it, each with its interval; and `named`, whether
        the verdict names the norm. Attributes in addition to those of `measure`: `decided`, `reason`, and the `verdict`
        as one line.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"atlas: expected a kept seed in each run, found none in {empty}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    names, steps = [str(name) for name in one["norm"].values], one["snapshot"].values
    found = weighed(names, one["margin_ratio"].values, one["probability"].values, steps, key)
    estimates = {"ratio": (("norm",), Estimate(*(part[:, -1] for part in found.ratio)))}
    if found.trend is not None:
        estimates["trend"] = (("norm",), found.trend)
    named = np.isin(names, found.verdict.norms)
    coordinates = {"norm": np.array(names, object), "snapshot": steps}
    summary = xarray.Dataset(variables(estimates) | {"named": (("norm",), named)}, coordinates, one.attrs)
    said = {"decided": found.verdict.decided, "reason": found.verdict.reason, "verdict": str(found.verdict)}
    return summary.assign_attrs(said)


def run_of(summaries: Mapping[str, xarray.Dataset], **wanted: str) -> xarray.Dataset | None:
    """Return the run with these attributes, if it was made."""
    found = [one for one in summaries.values() if all(one.attrs[name] == value for name, value in wanted.items())]
    return cast("xarray.Dataset | None", next(iter(found), None))
