"""The tokens that finished runs of several sizes have selected: reading their records, and estimates along sizes."""

from __future__ import annotations

import xarray

from jaxattn.attention import Weights
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import Datasets, family, total
from jaxattn.study.settings.parameters import weights_of

# What is trained, by its choice of weights in the YAML.
WEIGHTS = {"W": "free", "KQ": "factored"}


def read(record: xarray.Dataset) -> tuple[Weights, Problem]:
    """Return the final weights and the problems of a record, both with a leading axis over seeds."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    return weights_of(arrays), of_arrays(arrays)


def by_weights(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the estimates of training W and of training (K, Q), each along `run`, ordered by n, T and d.

    These are coordinates; the attributes are the sums of the counts.
    """
    summaries = {}
    for trained, weights in WEIGHTS.items():
        own = family(runs, {"weights": weights})
        sizes = {run: {name: summary.attrs[f"data.{name}"] for name in "nTd"} for run, summary in own.items()}
        ordered = sorted(own, key=lambda run: tuple(sizes[run].values()))
        parts = [own[run].assign_coords({"run": run, **sizes[run]}).drop_attrs() for run in ordered]
        summaries[trained] = xarray.concat(parts, "run", data_vars="all", coords="all").assign_attrs(total(own))
    return summaries
