"""Which Att-SVM the gradient flow on K and Q obeys, from aligned and from other starts (2403.08699)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.bias.verdict import FLAT
from jaxattn.experiments.bias import judging, ratios
from jaxattn.experiments.bias.flow import examples
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.statistics import LEAST_SEEDS, Estimate, bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Setting,
    Source,
    between,
    number,
    too_few,
)

_FLOW = "arXiv 2403.08699"
# Fixed beforehand, in addition to the rule of `bias.verdict`: the largest difference of the mean margin ratios for
# steps h and 2 h for which the steps count as a flow.
ERROR = FLAT

PREDICTIONS = (
    Prediction(
        "diagonal",
        {"start": "diagonal", "steps": "short"},
        "nuclear",
        Source(_FLOW, "theorem on diagonal weights, as recalled", Setting.PROXY),
        "With diagonal K and Q, gradient flow that reaches the minimal loss minimizes the nuclear norm of K Q^T under "
        "the constraints of the Att-SVM.",
    ),
    Prediction(
        "aligned",
        {"start": "aligned", "steps": "short"},
        "nuclear",
        Source(_FLOW, "theorem on aligned starts, as recalled", Setting.PROXY),
        "If the singular spaces of K and Q are aligned with the data at the start, gradient flow minimizes the "
        "nuclear norm of K Q^T under the constraints of the Att-SVM.",
    ),
    Prediction(
        "one-matrix",
        {"start": "one matrix", "steps": "short"},
        "frobenius",
        Source(_FLOW, "abstract, on earlier results", Setting.PROXY),
        "If K and Q are combined into one trained matrix W, the implicit regularization is on its Frobenius norm.",
    ),
    Prediction(
        "random",
        {"start": "random", "steps": "short"},
        "nuclear",
        Source(_FLOW, "without the assumption of an aligned start: our question", Setting.OURS),
        "From random K and Q, without any alignment, gradient flow minimizes the nuclear norm of K Q^T under the "
        "constraints of the Att-SVM: alignment is not needed.",
    ),
    Prediction(
        "unbalanced",
        {"start": "unbalanced", "steps": "short"},
        "nuclear",
        Source(_FLOW, "without the assumption of an aligned start: our question", Setting.OURS),
        "From random K and Q with ||K|| = 16 ||Q||, gradient flow minimizes the nuclear norm of K Q^T under the "
        "constraints of the Att-SVM: neither alignment nor balance is needed.",
    ),
)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the margin ratios of every flow, the norms that it obeys, and the error of its discretization.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        What `ratios.summarize` returns for each run, over the seeds that select every optimal token at the end, as the
        minimal loss requires; over all seeds if there are fewer than `LEAST_SEEDS` such seeds. In addition: `reached`,
        their share of all seeds, and the attribute `minimal`, their number; `path`, the mean margin ratio, (norm,
        snapshot), with its interval; `off`, medians of 1 - cos over the seeds whose solution is unique, (norm,
        snapshot), 1 if there are none; `size`, the median of ||W||_F, (snapshot,); the attribute `steps`, "short" for
        the run of a start with the smaller h, else "long"; `error`, if there is another run with twice this h: the mean
        difference of their margin ratios at the end, (norm,).

    Raises:
        ValueError: a run of which no seed was kept.
    """
    own_key, path_key = jax.random.split(key)
    least = {
        start: min(one.attrs["step"] for one in datasets.values() if one.attrs["start"] == start)
        for start in {one.attrs["start"] for one in datasets.values()}
    }
    keys = jax.random.split(path_key, (len(datasets), 2))
    minimal = {run: _of_minimal_loss(one) for run, one in datasets.items()}
    found = {}
    for (run, summary), own in zip(ratios.summarize(minimal, own_key).items(), keys, strict=True):
        one = minimal[run]
        estimates = {
            "path": (("norm", "snapshot"), bootstrap(one["margin_ratio"].values, own[0])),
            "reached": ((), proportion(datasets[run]["optimal"].values > 0)),
        }
        coarse = [other for other in minimal.values() if _doubles(other, one)]
        if coarse:
            estimates["error"] = (("norm",), _error(one, coarse[0], own[1]))
        unique = (one["cosine"].values != 0).any(axis=2)
        off = [1 - one["cosine"].values[unique[:, k], k] for k in range(one.sizes["norm"])]
        medians = [np.median(rows, axis=0) if len(rows) else np.ones(one.sizes["snapshot"]) for rows in off]
        short = one.attrs["step"] == least[one.attrs["start"]]
        found[run] = summary.assign(
            variables(estimates)
            | {
                "off": (("norm", "snapshot"), np.array(medians)),
                "size": (("snapshot",), np.median(one["size"].values, axis=0)),
            }
        ).assign_attrs(steps="short" if short else "long", minimal=int((datasets[run]["optimal"].values > 0).sum()))
    return found


def _of_minimal_loss(one: xarray.Dataset) -> xarray.Dataset:
    """Return the seeds that reach the minimal loss, or all if these are too few to decide anything."""
    reached = one["optimal"].values > 0
    return one.isel(seed=reached) if reached.sum() >= LEAST_SEEDS else one


def _doubles(other: xarray.Dataset, one: xarray.Dataset) -> bool:
    return other.attrs["start"] == one.attrs["start"] and other.attrs["step"] == 2 * one.attrs["step"]


def _error(one: xarray.Dataset, coarse: xarray.Dataset, key: PRNGKeyArray) -> Estimate:
    """Return the mean paired difference of the margin ratios at the ends of two paths of equal length."""
    shared = np.intersect1d(one["seed"].values, coarse["seed"].values)
    fine, rough = (each["margin_ratio"].sel(seed=shared).values[:, :, -1] for each in (one, coarse))
    return bootstrap(fine - rough, key)


def _judge(prediction: Prediction, summaries: Datasets) -> Judgement:
    """The verdict must name the norm, and steps twice as long must end at the same ratio."""
    found = judging.judge(prediction, summaries)
    one = ratios.run_of(summaries, **prediction.row)
    if one is None or "error" not in one:
        return Judgement.withheld("This run, or the one with steps twice as long, is not made at this size.")
    error, reached = number(one.sel(norm=prediction.norm), "error"), number(one, "reached")
    label, share = (
        "mean margin ratio for steps h minus that for steps 2 h",
        "share of seeds that select every optimal token",
    )
    few = too_few(one.attrs["minimal"], LEAST_SEEDS)
    return dataclasses.replace(
        found,
        undecided=found.undecided or (few and f"For the seeds that reach the minimal loss: {few}"),
        numbers={**found.numbers, label: error, share: reached},
        stated=(*found.stated, between(label, error, -ERROR, ERROR)),
        remark=f"{found.remark} Median ||W||_F at the end: {float(one['size'][-1]):.3g}. Judged over the "
        f"{one.attrs['minimal']} seeds that reach the minimal loss.",
    )


def _claim(prediction: Prediction) -> Claim:
    judge: Callable[[Datasets], Judgement] = partial(_judge, prediction)
    made = partial(examples.of_prediction, prediction)
    return Claim(f"flow:{prediction.name}", prediction.source, prediction.statement, judge, made)


CLAIMS = tuple(map(_claim, PREDICTIONS))
