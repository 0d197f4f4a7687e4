"""The margin ratios of a run in every norm, and the norms that it obeys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
# What is kept from a ranking as a dataset: its arrays, the outcomes of the seeds, and the exponents that fit best.
KEPT = ["margin_ratio", "probability", "size", "stalled", "confusion"]
_ATTRIBUTES = ("attempted", "kept", "diverged", "infeasible", "unsolved", "exponents")


def native(solver: svm.Solver | None) -> None:
    """Raise ValueError if a solver is given: each norm has its own."""
    if solver is not None:
        raise ValueError(f"svm: expected native, the solvers of each norm, found {solver!r}")


def compared(record: xarray.Dataset, solver: svm.Solver | None, norms: Sequence[str], *more: str) -> xarray.Dataset:
    """Compare a `Training` with the max-margin problems of some norms.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), `probability`, the smallest over inputs of the largest attention
        probability, and `size`, the norm of W, (seed, snapshot), `stalled`, whether each seed stalled, (seed,),
        `confusion`, the mean margin ratio of a norm's solutions in another, (norm, rival), and `more` variables of the
        ranking. Attributes: counts, and the exponents that fit best.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    native(solver)
    ranking = to_dataset(ranked(record, norms))
    run = ranking[[*KEPT, *more]]
    run.attrs = {name: ranking.attrs[name] for name in _ATTRIBUTES}
    return run


def restricted(run: xarray.Dataset, seeds: Iterable[int]) -> xarray.Dataset:
    """Return a run on some of its seeds; the others count as unsolved, as another problem of theirs is."""
    kept = run.sel(seed=[*seeds])
    lost = run.sizes["seed"] - kept.sizes["seed"]
    return kept.assign_attrs(kept=kept.sizes["seed"], unsolved=run.attrs["unsolved"] + lost)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return what `compared` does for all norms of the atlas, always in double precision."""
    exact = {str(name): array.astype(float) for name, array in record.data_vars.items() if array.dtype.kind == "f"}
    with jax.enable_x64(True):
        return compared(record.assign(exact), solver, NORMS)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the margin ratios of a run of `measure`, and the norms that it obeys.

    Returns:
        `ratio`, the mean margin ratio over the seeds at the last snapshot, `limit`, the median of its limits, `obey`,
        the share of seeds that obey the norm, and `named`, whether the verdict names it, (norm,). Attributes besides
        those of the run: `decided`, `reason`, and the `verdict` as one line.
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
