"""The margin ratios of a run in every norm, and the norms that it obeys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.bias import NORMS as RANKED
from jaxattn.bias.verdict import weighed
from jaxattn.statistics import Estimate, proportion, variables
from jaxattn.study.claims import Datasets
from jaxattn.study.measuring.ranked import exponents_of, ranked, to_dataset

# The norms of the atlas.
NORMS = (*RANKED, "l_1.75", "l_3")
# What is kept from a ranking as a dataset: its arrays, and the outcomes of the seeds.
KEPT = ["margin_ratio", "probability", "size", "stalled", "confusion"]
_ATTRIBUTES = ("attempted", "kept", "diverged", "infeasible", "unsolved", "exponents")


def native(solver: svm.Solver | None) -> None:
    """Raise ValueError if a solver is given: each norm has its own."""
    if solver is not None:
        raise ValueError(f"svm: expected native, the solvers of each norm, found {solver!r}")


def counts(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return from a ranking's attributes the numbers of seeds by outcome, and the exponents that fit best."""
    return {name: attributes[name] for name in _ATTRIBUTES}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a `Training` with the max-margin problems of all norms of the atlas, always in double precision.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), `probability`, the smallest over inputs of the largest attention
        probability, and `size`, the norm of W, (seed, snapshot), `stalled`, whether each seed stalled, (seed,), and
        `confusion`, the mean margin ratio of a norm's solutions in another, (norm, rival). Attributes: counts, and the
        exponents that fit best.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    native(solver)
    exact = {str(name): array.astype(float) for name, array in record.data_vars.items() if array.dtype.kind == "f"}
    with jax.enable_x64(True):
        ranking = to_dataset(ranked(record.assign(exact), NORMS))
    run = ranking[KEPT]
    run.attrs = counts(ranking.attrs)
    return run


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the margin ratios of a run of `measure`, and the norms that it obeys.

    Returns:
        `ratio`, the mean margin ratio over the seeds at the last snapshot, and `limit`, the median of its limits, each
        with its interval, (norm,); `obey`, the share of seeds that obey the norm, with Wilson's interval; and `named`,
        whether the verdict names the norm.
        Attributes in addition to those of the run: `decided`, `reason`, and the `verdict` as one line.
    """
    names, steps = [str(name) for name in run["norm"].values], run["snapshot"].values
    ratio, probability, size, stalled, confusion = (run[name].values for name in KEPT)
    exponents = exponents_of(run)
    weighing = weighed(names, ratio, probability, size, stalled, steps, key, confusion, lambda best: exponents)
    estimates = {
        "ratio": (("norm",), Estimate(*(part[:, -1] for part in weighing.ratio))),
        "limit": (("norm",), weighing.limit or Estimate(*[np.full(len(names), np.nan)] * 4)),
        "obey": (("norm",), proportion(weighing.obeys == 1)),
    }
    verdict = weighing.verdict
    return xarray.Dataset(
        variables(estimates) | {"named": (("norm",), np.isin(names, verdict.norms))},
        {"norm": np.array(names, object), "snapshot": steps},
        {**run.attrs, "decided": verdict.decided, "reason": verdict.reason, "verdict": str(verdict)},
    )


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Return `estimate` of every run."""
    return {name: estimate(run, jax.random.fold_in(key, k)) for k, (name, run) in enumerate(datasets.items())}
