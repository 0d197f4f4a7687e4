"""From the record of descent on texts read by a fixed head: where each start has ended."""

from __future__ import annotations

import xarray

from jaxattn import svm
from jaxattn.experiments.language import arrival


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every start of a run with the hard-margin solution of its text.

    Args:
        record: of a `StartedTraining` from normal weights, on texts that a fixed head reads.
        solver: of the max-margin problems.

    Returns:
        The dataset of `arrival.measure`, and the `text` of every start.
    """
    ends = arrival.measure(record, record.attrs["data.head.delta"], record.attrs["optimizer.step_size"], solver)
    return ends.assign(text=ends["seed"] // record.attrs["weights.starts"])
