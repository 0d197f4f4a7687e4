"""From the record of a training of (K, Q) to its margin ratios in the norms that norms of K and Q induce."""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.bias.verdict import last_decade
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.rules import described
from jaxattn.study.measuring.ranked import ranked, to_dataset

# In the order of the columns: those of the atlas without l_1, and the two induced ones that it lacks.
NORMS = ("frobenius", "nuclear", "spectral", "max", "gamma2", "sign")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold the last decade of a run against the max-margin problems of all norms.

    Args:
        record: of a `Training` of factors, as `recording.run` writes it.
        solver: none but those of each norm.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), and `probability`, the mean over inputs of the largest attention
        probability, (seed, snapshot). Attributes: counts, what `rules.described` says of the run, and `m`, the width of
        K and Q.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    # The norm of sign matrices takes about a second a matrix.
    late = np.flatnonzero(last_decade(record["snapshot"].values)[0])
    one = to_dataset(ranked(record.isel(snapshot=late), NORMS))
    measured = one[ratios.KEPT]
    words = described(json.loads(record.attrs["config"]), "KQ")
    m = str(record.sizes["width"])
    measured.attrs = ratios.counts(one.attrs) | words | {"run": f"{words['run']}, m = {m}", "m": m}
    return measured
