"""Trajectories in the plane (2308.16898, figure 1): each path turns parallel to its own ray."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.local.trajectories import examples
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)
from jaxattn.study.claims.criteria import Outcome
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.statistics import bootstrap, variables

# The max-margin problem that each parameterization is claimed to solve.
OWN_NORM = {"W": "frobenius", "KQ": "nuclear"}
_PATHS = {"W": "W", "KQ": "K Q^T"}
# Fixed beforehand: the correlation from which on a direction counts as that of the ray.
_PARALLEL = 0.99
# Made from the key of the bootstrap, for what the remarks say beside the correlation.
_GROWTH = 1


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Choose the instance to draw, and estimate the final direction over all kept seeds.

    The figure shows the first seed that was kept in both runs; the claims are over all of them.

    Args:
        datasets: of `measure`, of the runs "W" and "KQ".
        key: of the bootstrap.

    Returns:
        For each run the measured dataset of that seed, which the figure draws, and with it, over all kept seeds,
        `final`, the mean correlation at the last step with its interval, (norm,); `parallel`, the share of seeds above
        0.99; and what `growth.growth` returns.

    Raises:
        ValueError: other runs, or no seed was kept in both.
    """
    if set(datasets) != set(OWN_NORM):
        raise ValueError(f"trajectories: expected the runs {sorted(OWN_NORM)}, found {sorted(datasets)}")
    shared = np.intersect1d(datasets["W"]["seed"].values, datasets["KQ"]["seed"].values)
    if shared.size == 0:
        raise ValueError(f"trajectories: no seed was kept in both runs, counts {counts_of(datasets)}")
    keys = zip(datasets.items(), jax.random.split(key, len(datasets)), strict=True)
    return {run: _summary(one, OWN_NORM[run], shared[0], of_run) for (run, one), of_run in keys}


def _summary(one: xarray.Dataset, own: str, drawn: int, key: PRNGKeyArray) -> xarray.Dataset:
    final = one["correlation"].isel(snapshot=-1)
    estimates = variables({"final": (("norm",), bootstrap(final.values, key))})
    share = {"parallel": ((), (final.sel(norm=own).values > _PARALLEL).mean())}
    grows = growth(lengths(one), jax.random.fold_in(key, _GROWTH))
    return one.sel(seed=drawn).assign(estimates | share).assign(dict(grows.data_vars))


def _judge(run: str, summaries: Datasets) -> Judgement:
    """The mean correlation with the own solution has to end near 1: the statement is about directions alone."""
    one = summaries[run]
    last, own = int(one["snapshot"].values[-1]), OWN_NORM[run]
    finals = {f"{norm} at step {last}": number(one.sel(norm=norm), "final") for norm in one["norm"].values}
    label = f"{own} at step {last}"
    return Judgement(
        measured={name: final.mean for name, final in finals.items()}
        | {"share of seeds above 0.99": float(one["parallel"])},
        interval={name: (final.low, final.high) for name, final in finals.items()},
        expected={label: 1.0},
        counts=counts_of({run: one}),
        stated=(above(f"mean correlation, {label},", finals[label], _PARALLEL),),
        undecided=too_little(one),
        remark=_motion(one, _PATHS[run]),
    )


def _motion(one: xarray.Dataset, W: str) -> str:
    """Say whether the paths still move outwards at the end."""
    since, until, grows = int(one["since"]), int(one["until"]), number(one, "growth")
    found = below("growth", grows, AT_REST).outcome
    said = {
        Outcome.MET: "the paths no longer grow, so their direction is that of the points where they end; see "
        "kq-penalty and rate for longer runs and for runs without a penalty",
        Outcome.BROKEN: "the paths still move outwards",
        Outcome.UNCLEAR: "it is not clear whether the paths still move outwards",
    }[found]
    return f"From step {since} to {until} ||{W} Z|| grows like k^{grows.mean:.2g}: {said}."


def _claims(tokens: int) -> tuple[Claim, ...]:
    """Return the claims on the instances of so many tokens an input."""
    return tuple(
        Claim(
            f"trajectories-{tokens}:{run}",
            Source("arXiv 2308.16898", "trajectories figure", Setting.EXACT),
            f"The paths of {_PATHS[run]} z_i turn parallel to the rays of the {own} Att-SVM solution.",
            partial(_judge, run),
            partial(examples.of_run, run, tokens),
        )
        for run, own in OWN_NORM.items()
    )


CLAIMS = (*_claims(3), *_claims(5))
