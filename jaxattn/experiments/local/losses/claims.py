"""Losses other than the logistic one (2308.16898, theorem I): training W tends to the same direction under each."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.local.losses import examples
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Setting,
    Source,
    above,
    counts_of,
    number,
    too_little,
)
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.statistics import bootstrap, proportion, variables

# What the losses are called, and how they are written.
LOSSES = {"logistic": "log(1 + exp(-x))", "exponential": "exp(-x)", "correlation": "-x"}
# Fixed beforehand: the correlation from which on a direction counts as that of the solution; which share of the seeds
# is nearly all of them; and what the solvers' accuracy leaves of the difference of the same distances.
PARALLEL, _ALL, _SAME = 0.99, 0.95, 1e-6
_SOURCE = Source("arXiv 2308.16898", "theorem I of the poster, with its assumption 1 on the loss", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distances from both solutions under each loss.

    Args:
        datasets: of `measure`, of each of LOSSES.
        key: of the bootstrap.

    Returns:
        For each loss a dataset: `off_10`, `off_50`, `off_90`, quantiles of 1 - correlation over the seeds, (norm,
        snapshot); at the end `mean`, its mean, (norm,), `parallel`, the share of the seeds nearer to the Frobenius
        solution than 1 - 0.99, and `lead`, how much farther the nuclear one is; and what `growth.growth` returns.

    Raises:
        ValueError: other losses, or one of which no seed was kept.
    """
    if set(datasets) != set(LOSSES):
        raise ValueError(f"losses: expected the runs {sorted(LOSSES)}, found {sorted(datasets)}")
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"losses: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(LOSSES))
    return {loss: _summary(datasets[loss], own) for loss, own in zip(LOSSES, keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    off = one["off"].sel(norm=["frobenius", "nuclear"]).values
    keys = jax.random.split(key, 3)
    estimates = {
        "mean": (("norm",), bootstrap(off[..., -1], keys[0])),
        "parallel": ((), proportion(off[:, 0, -1] < 1 - PARALLEL)),
        "lead": ((), bootstrap(off[:, 1, -1] - off[:, 0, -1], keys[1])),
    }
    quantiles = {f"off_{q}": (("norm", "snapshot"), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    coordinates = {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": one["snapshot"].values}
    summary = xarray.Dataset(variables(estimates) | quantiles, coordinates, one.attrs)
    return summary.assign(dict(growth(lengths(one), keys[2]).data_vars))


def _judge(loss: str, summaries: Datasets) -> Judgement:
    """The norm has to grow, and nearly all seeds to end parallel to the Frobenius solution, which has to be ahead."""
    one = summaries[loss]
    last = int(one["snapshot"].values[-1])
    numbers = {
        f"1 - cos, {norm}, at step {last}": number(one.sel(norm=norm), "mean") for norm in one["norm"].values.tolist()
    }
    share, lead, grows = (number(one, name) for name in ("parallel", "lead", "growth"))
    numbers |= {"share of seeds above 0.99": share}
    others = ", ".join(
        f"{float(summaries[other].sel(norm='frobenius')['off_50'][-1]):.2g} ({other})" for other in LOSSES
    )
    return Judgement(
        measured={name: one.mean for name, one in numbers.items()},
        interval={name: (one.low, one.high) for name, one in numbers.items()},
        expected={f"1 - cos, frobenius, at step {last}": 0.0},
        counts=counts_of({loss: one}),
        stated=(
            above(f"p in ||W Z|| ~ k^p from step {int(one['since'])} to {int(one['until'])}", grows, AT_REST),
            above("share of seeds whose correlation with the Frobenius solution is above 0.99", share, _ALL),
            above("1 - cos, nuclear less Frobenius", lead, _SAME),
        ),
        undecided=too_little(one),
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {others}. The solution is that of the "
        "tokens which the run selects.",
    )


CLAIMS = tuple(
    Claim(
        f"losses:{loss}",
        _SOURCE,
        "Under any strictly decreasing loss whose derivative is bounded and Lipschitz on bounded intervals, the norm "
        f"of W diverges and its direction tends to that of the Frobenius Att-SVM solution (here {written}).",
        partial(_judge, loss),
        partial(examples.of_loss, loss),
    )
    for loss, written in LOSSES.items()
    if loss != "logistic"
)
