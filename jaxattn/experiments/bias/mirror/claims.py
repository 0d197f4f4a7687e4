"""Mirror descent on W with the l_p potential (2410.14581): its limit, the nearest solution, and its rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.bias import judging, ratios
from jaxattn.experiments.bias.mirror import examples, rates
from jaxattn.experiments.bias.mirror.measure import PLAIN, norm_of
from jaxattn.experiments.bias.mirror.predictions import DIRECTIONS, PUBLISHED
from jaxattn.statistics import Estimate, bootstrap, derive_key, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)

# As recalled: experiments on synthetic data, and the theorem on the rate; its bound is in `rates.bound`.
_NEAREST = Source("arXiv 2410.14581", "experiments on synthetic data, p = 1.75, 2, 3", Setting.PROXY)
_RATE = Source("arXiv 2410.14581", "theorem on the convergence rate of l_p-AttGD", Setting.PROXY)
_BOUNDS = {
    1.75: "O(1 / (log k)^(p - 1)) for p < 2",
    2.0: "O((log log k)^2 / log k) for p = 2",
    3.0: "O(log log k / log k) for p > 2",
}


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how close each run comes to every solution, and the rate for its own.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run what `ratios.summarize` returns, and: `cosine`, the mean correlation with each solution at the last
        snapshot, and `ahead`, the correlation with its own minus this one, (norm,); `off`, the geometric mean of the
        divergence along the snapshots, with its interval; `attention`, the mean largest attention probability at the
        last one; and for runs of at least `rates.LONG` steps the exponents `power`, of k in the divergence, and
        `slack`, of log k in the divergence divided by the paper's bound.

    Raises:
        ValueError: a run of which no seed was kept; a divergence that is not positive.
    """
    found = ratios.summarize(datasets, key)
    return {
        run: _extended(dataset, found[run], derive_key(key, number))
        for number, (run, dataset) in enumerate(datasets.items())
    }


def _extended(one: xarray.Dataset, summary: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    steps, divergence, p = one["snapshot"].values, one["divergence"].values, float(one.attrs["p"])
    if (lowest := divergence.min()) <= 0:
        raise ValueError(f"divergence: expected positive numbers, found {lowest}")
    cosines = one["correlation"].values[:, :, -1]
    own = one["correlation"].sel(norm=one.attrs["norm"]).values[:, -1:]
    keys = jax.random.split(key, 5)
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {
        "cosine": (("norm",), bootstrap(cosines, keys[0])),
        "ahead": (("norm",), bootstrap(own - cosines, keys[1])),
    }
    if steps[-1] >= rates.LONG:
        estimates["power"] = ((), bootstrap(rates.of_steps(steps, divergence), keys[2]))
        estimates["slack"] = ((), bootstrap(rates.over_bound(steps, divergence, p), keys[3]))
    off = bootstrap(np.log(divergence), keys[4])
    curve = {"off": off.mean, "off_low": off.low, "off_high": off.high}
    along: dict[str, Any] = {name: (("snapshot",), np.exp(value)) for name, value in curve.items()}
    along["attention"] = ((), one["probability"].values[:, -1].mean())
    return summary.assign(variables(estimates) | along)


def plain(summaries: Mapping[str, xarray.Dataset], p: float) -> list[xarray.Dataset]:
    """Return the runs of l_p-AttGD with this p, shortest first."""
    found = [one for one in summaries.values() if one.attrs["rule"] == PLAIN and one.attrs["p"] == f"{p:g}"]
    return sorted(found, key=lambda one: one.attrs["steps"])


def _judge_nearest(p: float, summaries: Datasets) -> Judgement:
    """Its own solution must have the highest correlation after the paper's epochs; as corrected, later."""
    runs = plain(summaries, p)
    if not runs:
        return Judgement.withheld("This run is not made at this size.")
    first, last = runs[0], runs[-1]
    numbers: dict[str, Number] = {}
    for one in dict.fromkeys((first.attrs["run"], last.attrs["run"])):
        at = summaries[one]
        numbers |= {
            f"correlation with the l_{q:g} solution at step {at.attrs['steps']}": number(
                at.sel(norm=norm_of(q)), "cosine"
            )
            for q in PUBLISHED
        }
    means = [float(last.sel(norm=norm_of(q))["cosine"]) for q in PUBLISHED]
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of({one.attrs["run"]: one for one in (first, last)}),
        stated=_ahead(p, first),
        corrected=_ahead(p, last),
        correction=f"only after {last.attrs['steps']:,} steps, when the correlations with the solutions of p = 1.75, "
        f"2 and 3 are {', '.join(f'{mean:.3f}' for mean in means)}.",
        undecided=too_little(first),
        remark=f"At step {first.attrs['steps']} the mean largest attention probability is "
        f"{float(first['attention']):.2f}.",
    )


def _ahead(p: float, one: xarray.Dataset) -> tuple[Criterion, ...]:
    steps = one.attrs["steps"]
    return tuple(
        above(
            f"correlation with its own solution minus that with the l_{q:g} solution at step {steps}", _of(one, q), 0.0
        )
        for q in PUBLISHED
        if q != p
    )


def _of(one: xarray.Dataset, q: float) -> Number:
    return number(one.sel(norm=norm_of(q)), "ahead")


def _judge_rate(p: float, summaries: Datasets) -> Judgement:
    """The divergence must not fall more slowly than the bound over the last decade of steps."""
    runs = plain(summaries, p)
    if not runs:
        return Judgement.withheld("This run is not made at this size.")
    one = runs[-1]
    last = one.attrs["steps"]
    numbers = {f"divergence at step {last}": number(one.isel(snapshot=-1), "off")}
    slack = number(one, "slack") if "slack" in one else Number.exact(math.nan)
    short = "" if "slack" in one else f"A run of {last} steps is too short for a rate in log k."
    if not short:
        numbers |= {"exponent of k in the divergence": number(one, "power")}
        numbers |= {"exponent of log k in the divergence over the bound": slack}
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of({one.attrs["run"]: one}),
        stated=(
            below(f"exponent of log k in the divergence over the bound, {rates.SINCE} to {last} steps", slack, 0.0),
        ),
        undecided=too_little(one) or short,
        remark="The bound is an upper bound, so a faster decrease agrees with it. During these steps the attention "
        f"is still saturating (largest probability {float(one['attention']):.3f} at the end), so the exponent "
        "is not the asymptotic one.",
    )


CLAIMS = (
    *judging.claims("mirror", DIRECTIONS, examples.of_direction),
    *(
        Claim(
            f"mirror:nearest-{p:g}",
            _NEAREST,
            f"After 1,500 epochs of l_p-AttGD with p = {p:g}, W has a higher correlation with the l_p Att-SVM "
            "solution of its own p than with those of the other p among 1.75, 2 and 3.",
            partial(_judge_nearest, p),
            partial(examples.of_nearest, p),
        )
        for p in PUBLISHED
    ),
    *(
        Claim(
            f"mirror:rate-{p:g}",
            _RATE,
            "The Bregman divergence between the direction of l_p-AttGD after k steps and that of the l_p Att-SVM "
            f"solution is {_BOUNDS[p]} (here p = {p:g}).",
            partial(_judge_rate, p),
            partial(examples.of_rate, p),
        )
        for p in PUBLISHED
    ),
)
