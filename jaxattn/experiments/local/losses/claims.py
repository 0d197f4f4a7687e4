"""Losses other than the logistic one (2308.16898, theorem I): does W tend to the same direction, v fixed or trained?"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.local.losses import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Outcome,
    Setting,
    Source,
    above,
    counts_of,
    number,
    too_little,
)
from jaxattn.study.measuring.growth import AT_REST, growth, lengths

# The names and formulas of the losses.
LOSSES = {"logistic": "log(1 + exp(-x))", "exponential": "exp(-x)", "correlation": "-x", "heavy-tail": "1 / (1 + x)"}
# The runs in which v is trained too, and those whose loss falls exponentially with the margin.
JOINT = tuple(f"joint {loss}" for loss in LOSSES)
_EXPONENTIAL = ("joint logistic", "joint exponential")
# Fixed beforehand: the correlation above which a direction counts as that of the solution; the share of seeds that
# counts as nearly all; and the difference of equal distances that the solvers' accuracy can produce.
PARALLEL, _ALL, _SAME = 0.99, 0.95, 1e-6
# Fixed before the joint runs: a run has not converged if its median distance still falls by this factor in the last
# three quarters of its steps.
_MOVING = 2.0
_JOINT_SOURCE = Source("arXiv 2308.16898", "assumption 1 on the loss, where v is trained with W", Setting.OURS)
_SOURCE = Source("arXiv 2308.16898", "theorem I of the poster, with its assumption 1 on the loss", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distances from both solutions under each loss.

    Args:
        datasets: of `measure`, for each of LOSSES, and optionally for some of JOINT.
        key: of the bootstrap.

    Returns:
        For each loss a dataset: `off_10`, `off_50`, `off_90`, quantiles of 1 - cos over the seeds, (norm, snapshot); at
        the last step `mean`, its mean, (norm,), `parallel`, the share of seeds with 1 - cos to the Frobenius solution
        below 1 - 0.99, `lead`, 1 - cos to the nuclear solution minus that to the Frobenius one, and `fall`, the median
        at a quarter of the steps over that at the end, (norm,); and what `growth.growth` returns.

    Raises:
        ValueError: other losses, or one of which no seed was kept.
    """
    if not set(LOSSES) <= set(datasets) <= {*LOSSES, *JOINT}:
        raise ValueError(f"losses: expected the runs {sorted(LOSSES)} and some of {JOINT}, found {sorted(datasets)}")
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"losses: expected a kept seed in each run, found counts {counts_of(datasets)}")
    names = [name for name in (*LOSSES, *JOINT) if name in datasets]
    keys = jax.random.split(key, len(names))
    return {name: _summary(datasets[name], own) for name, own in zip(names, keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    off = one["off"].sel(norm=["frobenius", "nuclear"]).values
    keys = jax.random.split(key, 3)
    estimates = {
        "mean": (("norm",), bootstrap(off[..., -1], keys[0])),
        "parallel": ((), proportion(off[:, 0, -1] < 1 - PARALLEL)),
        "lead": ((), bootstrap(off[:, 1, -1] - off[:, 0, -1], keys[1])),
    }
    quantiles = {f"off_{q}": (("norm", "snapshot"), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    quarter = int(np.argmin(np.abs(one["snapshot"].values - one["snapshot"].values[-1] / 4)))
    fall = quantiles["off_50"][1][:, quarter] / quantiles["off_50"][1][:, -1]
    coordinates = {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": one["snapshot"].values}
    found = variables(estimates) | quantiles | {"fall": (("norm",), fall)}
    summary = xarray.Dataset(found, coordinates, one.attrs)
    return summary.assign(dict(growth(lengths(one), keys[2]).data_vars))


def _judge(loss: str, summaries: Datasets) -> Judgement:
    """The norm must grow, and nearly all seeds end parallel to the Frobenius solution, not to the nuclear one."""
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
        numbers=numbers,
        expected={f"1 - cos, frobenius, at step {last}": 0.0},
        counts=counts_of({loss: one}),
        stated=(
            above(f"p in ||W Z|| ~ k^p from step {int(one['since'])} to {int(one['until'])}", grows, AT_REST),
            above("share of seeds whose correlation with the Frobenius solution is above 0.99", share, _ALL),
            above("1 - cos, nuclear minus Frobenius", lead, _SAME),
        ),
        undecided=too_little(one),
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {others}. The solution is the one for the "
        "tokens selected by training.",
    )


def _judge_joint(summaries: Datasets) -> Judgement:
    """Under every loss nearly all seeds must end parallel to the Frobenius solution, as with a fixed v."""
    if not set(JOINT) <= set(summaries):
        return Judgement.withheld("These runs are not made at this size.")
    runs = {name: summaries[name] for name in JOINT}
    last = min(int(one["snapshot"].values[-1]) for one in runs.values())
    shares = {name: number(one, "parallel") for name, one in runs.items()}
    means = {name: number(one.sel(norm="frobenius"), "mean") for name, one in runs.items()}
    numbers = {f"share of seeds above 0.99, {name}": share for name, share in shares.items()}
    numbers |= {f"1 - cos, frobenius, at step {last}, {name}": mean for name, mean in means.items()}
    broken = [name for name in JOINT if _parallel(name, runs[name]).outcome is Outcome.BROKEN]
    moving = [name for name in broken if not float(runs[name]["fall"].sel(norm="frobenius")) < _MOVING]
    medians = ", ".join(f"{float(one['off_50'].sel(norm='frobenius')[-1]):.2g} ({name})" for name, one in runs.items())
    slow = [name for name in JOINT if name not in _EXPONENTIAL]
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of(runs),
        stated=tuple(criterion for name in JOINT for criterion in _converges(name, runs[name])),
        corrected=tuple(criterion for name in slow for criterion in _converges(name, runs[name])),
        correction="only for losses whose slope does not decay exponentially in the margin: "
        f"{', '.join(f'{shares[name].mean:.0%} of the seeds end parallel ({name})' for name in slow)}. As "
        "v grows, the slopes of the logistic and the exponential loss decay as fast as the attention "
        "saturates, and W takes another direction.",
        undecided=next(filter(None, map(too_little, runs.values())), "")
        or (f"Not yet converged to the solution: {', '.join(moving)}." if moving else ""),
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {medians}.",
    )


def _converges(name: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    grows = above(f"p in ||W Z|| ~ k^p at the end, {name}", number(one, "growth"), AT_REST)
    return grows, _parallel(name, one), above(f"1 - cos, nuclear minus Frobenius, {name}", number(one, "lead"), _SAME)


def _parallel(name: str, one: xarray.Dataset) -> Criterion:
    words = f"share of seeds whose correlation with the Frobenius solution is above 0.99, {name}"
    return above(words, number(one, "parallel"), _ALL)


CLAIMS = (
    *(
        Claim(
            f"losses:{loss}",
            _SOURCE,
            "Under any strictly decreasing loss whose derivative is bounded and Lipschitz on bounded intervals, the "
            f"norm of W diverges and its direction converges to the Frobenius Att-SVM solution (here {written}).",
            partial(_judge, loss),
            partial(examples.of_loss, loss),
        )
        for loss, written in LOSSES.items()
        if loss != "logistic"
    ),
    Claim(
        "losses:joint",
        _JOINT_SOURCE,
        "When v is trained together with W, the norm of W also diverges and its direction converges to the Frobenius "
        "Att-SVM solution under every such loss (here logistic, exponential, correlation, and one with a heavy tail). "
        "This is a conjecture: the theorem has a fixed v.",
        _judge_joint,
        examples.of_joint,
    ),
)
