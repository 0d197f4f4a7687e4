"""From the record of training (K, Q): its margin ratios in the norms that norms of K and Q induce."""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.bias.verdict import last_decade
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.rules import described
from jaxattn.study.measuring.ranked import ranked, to_dataset

# In the order of the columns: those of the atlas without l_1, and two more induced ones.
NORMS = ("frobenius", "nuclear", "spectral", "max", "gamma2", "sign")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the last decade of a run with the max-margin problems of all norms.

    Args:
        record: of a `Training` of factors, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), and `probability`, the mean over inputs of the largest attention
        probability, (seed, snapshot). Attributes: counts, what `rules.described` returns for the run, and `m`, the
        width of K and Q.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    # The norm of sign matrices takes about a second per matrix.
    late = np.flatnonzero(last_decade(record["snapshot"].values)[0])
    one = to_dataset(ranked(record.isel(snapshot=late), NORMS))
    measured = one[ratios.KEPT]
    words = described(json.loads(record.attrs["config"]), "KQ")
    m = str(record.sizes["width"])
    measured.attrs = ratios.counts(one.attrs) | words | {"run": f"{words['run']}, m = {m}", "m": m}
    return measured
