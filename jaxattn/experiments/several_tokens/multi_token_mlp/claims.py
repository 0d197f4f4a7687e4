"""Several selected tokens under a ReLU head (2308.16898): W against W_SVMeq, W_mm and W_1token, selected and all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens.evidence import ROUNDING, WITHOUT, counts_of_part, estimate, undecided
from jaxattn.experiments.several_tokens.multi_token_mlp import examples
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.study.claims import (
    Agreement,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Outcome,
    Setting,
    Source,
    above,
    counts_of,
)
from jaxattn.study.statistics import beside, bootstrap, variables

_PAPER, _FIGURE = "arXiv 2308.16898", "multi-token figure (ReLU head)"
# All published means are compared at once (Bonferroni): how often chance alone may make one of them differ.
_CHANCE = 0.05
# How far apart, by the interval, two correlations may be at most to be called equal.
_EQUAL = 0.05
# Of neighbours in PUBLISHED: each description less the one that the paper ranks above it.
_STEPS = ("W_mm less W_SVMeq", "W_1token less W_mm")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the curves of both parts.

    Args:
        datasets: of every dimension, as `measure` returns it.
        key: of the bootstrap.

    Returns:
        For each run two datasets, of the published selection under the run's name and of every run with
        `, no selection` behind it: at the snapshots `off`; at the end `worse`, how much farther from W each of
        PUBLISHED is than the one before, and `worst`, the last than the first; and the points of the scatter.

    Raises:
        ValueError: no run.
    """
    if not datasets:
        raise ValueError("multi-token-mlp: expected at least one run, found none")
    summaries: dict[str, xarray.Dataset] = {}
    for (run, one), own in zip(datasets.items(), jax.random.split(key, len(datasets)), strict=True):
        summaries[run] = _summary(one, "published", own)
        summaries[run + WITHOUT] = _summary(one, "every", own)
    return summaries


def _summary(measured: xarray.Dataset, part: str, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the means of one part; where nothing is kept there are none."""
    one = measured.isel(seed=measured[part].values)
    last = one["off"].values[..., -1]
    arrays = {
        "masked": one["masked"].variable,
        "last": (("seed", "solution"), last),
        "size": one["size"].variable,
        "published": one["published"].variable,
    }
    if one.sizes["seed"]:
        # Of the differences at the end, of each description to the next worse one and of the worst to the best; seeds
        # are resampled in pairs.
        ranked = one["off"].sel(solution=list(PUBLISHED)).values[..., -1]
        arrays |= variables(
            {
                "off": (("solution", "snapshot"), bootstrap(one["off"].values, key)),
                "worse": (("pair",), bootstrap(np.diff(ranked, axis=1), key)),
                "worst": ((), bootstrap(ranked[:, -1] - ranked[:, 0], beside(key))),
            }
        )
    coordinates = {name: one[name].values for name in ("seed", "solution", "snapshot")}
    return xarray.Dataset(arrays, coordinates, {**counts_of_part(measured, part), "d": measured.attrs["d"]})


def _judge_selected(summaries: Datasets) -> Judgement:
    """In every dimension W_SVMeq has to be nearest and W_1token farthest, and all means have to be the published ones.

    If the order is as stated and a mean is not the published one, that is the correction.
    """
    selected = {run: one for run, one in summaries.items() if not run.endswith(WITHOUT)}
    measured, interval = _ends(selected)
    expected = {
        f"{run}, {solution}": by_d[int(summary.attrs["d"])]
        for run, summary in selected.items()
        for solution, by_d in PUBLISHED.items()
        if int(summary.attrs["d"]) in by_d and "off" in summary
    }
    order = (*_step(selected, 0), *_step(selected, 1))
    agreement = _as_published(selected, expected)
    away = [label for label, one in zip(expected, agreement, strict=True) if one.outcome is Outcome.BROKEN]
    found = _listed(f"{label} is {measured[label]:.3g}, published {expected[label]:.3g}" for label in away)
    return Judgement(
        measured=measured,
        interval=interval,
        expected=expected,
        counts=counts_of(selected),
        stated=(*order, *agreement),
        corrected=order,
        correction=f"the order is the stated one, but {len(away)} of {len(expected)} means differ from those of the "
        f"authors' figure{found}.",
        undecided=undecided(selected),
        remark="1 - correlation at the end. The published means are taken as means over as many runs as ours. A mean "
        f"differs from the published one if the two are more than {_bound(len(expected)):.2f} standard errors of the "
        f"difference apart, as {len(expected)} are compared at once (Bonferroni). W_SVMeq is the projection of W "
        "on W_fin and W_mm, and so never farther from W than W_mm; finite-part compares the run with a prediction.",
    )


def _judge_every(summaries: Datasets) -> Judgement:
    """In every dimension W_SVMeq has to be nearest and W_1token farthest; failing that, W_SVMeq nearest of all."""
    every = {run: one for run, one in summaries.items() if run.endswith(WITHOUT)}
    measured, interval = _ends(every)
    second = _step(every, 1)
    reversed_ = [run for run, one in zip(every, second, strict=True) if one.outcome is Outcome.BROKEN]
    found = (
        f"{run.removesuffix(WITHOUT)}: {measured[f'{run}, W_1token']:.3g} against {measured[f'{run}, W_mm']:.3g}"
        for run in reversed_
    )
    reason = undecided(every)
    return Judgement(
        measured=measured,
        interval=interval,
        expected={},
        counts=counts_of(every),
        stated=(*_step(every, 0), *second),
        corrected=(
            *_step(every, 0),
            *(above(f"{run}: W_1token less W_SVMeq", estimate(one, "worst"), ROUNDING) for run, one in every.items()),
        ),
        correction=f"W_SVMeq is the nearest of the three, but W_1token is nearer than W_mm in {len(reversed_)} of "
        f"{len(every)} dimensions{_listed(found)}.",
        undecided=reason,
        remark="" if reason else _of_every(every),
    )


def _of_every(every: Datasets) -> str:
    """Say which runs these are, and how far W has grown in them."""
    shares = [summary.attrs["finite"] / summary.attrs["attempted"] for summary in every.values()]
    said = (
        "Of the first 500 runs, whatever their labels and probabilities; the selected tokens are those before the "
        "first gap of a factor of 1e-3, which are the published ones where those are defined. "
        f"{min(shares):.0%} to {max(shares):.0%} of the runs mask no token, and nothing is predicted for them. "
    )
    excluded, kept = (
        [np.median(own) for summary in every.values() if len(own := _sizes(summary, selected))]
        for selected in (False, True)
    )
    if excluded and kept:
        said += (
            f"The median norm of W at the end is {min(excluded):.0f} to {max(excluded):.0f} in the runs that the "
            f"published selection excludes, and {min(kept):.0f} to {max(kept):.0f} in those that it keeps: where W is "
            "small, the finite part is a larger part of it."
        )
    return said.strip()


def _sizes(summary: xarray.Dataset, selected: bool) -> np.ndarray:
    return summary["size"].values[summary["published"].values == selected]


def _ends(summaries: Datasets) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Return the final means and their intervals, by run and description."""
    measured, interval = {}, {}
    for run, summary in summaries.items():
        for solution in PUBLISHED if "off" in summary else ():
            mean, low, high = estimate(summary.sel(solution=solution), "off", snapshot=-1)
            measured[f"{run}, {solution}"] = mean
            interval[f"{run}, {solution}"] = (low, high)
    return measured, interval


def _step(summaries: Datasets, pair: int) -> tuple[Criterion, ...]:
    """Ask of every run that the worse description of a pair is farther from W."""
    return tuple(
        above(f"{run}: {_STEPS[pair]}", estimate(summary, "worse", pair=pair), ROUNDING)
        for run, summary in summaries.items()
    )


def _as_published(summaries: Datasets, expected: Mapping[str, float]) -> tuple[Agreement, ...]:
    """Ask for the published means; those have the standard errors of ours, and all are compared at once."""
    criteria = []
    for label, published in expected.items():
        run, _, solution = label.rpartition(", ")
        end = summaries[run].sel(solution=solution).isel(snapshot=-1)
        difference = float(end["off"]) - published
        half = _bound(len(expected)) * math.sqrt(2) * float(end["off_error"])
        value = Number(difference, difference - half, difference + half)
        criteria.append(Agreement(f"{label}, less the published {published:.4g},", value, -_EQUAL, _EQUAL))
    return tuple(criteria)


def _bound(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - _CHANCE / (2 * max(comparisons, 1)))


def _listed(parts: Iterable[str]) -> str:
    text = "; ".join(parts)
    return f" ({text})" if text else ""


CLAIMS = (
    Claim(
        "multi-token-mlp:selected",
        Source(_PAPER, _FIGURE, Setting.EXACT),
        "Where descent selects several tokens, W is aligned with W_SVMeq = W_fin + C W_mm, less with W_mm, "
        "and far less with the SVM solution of the single likeliest tokens.",
        _judge_selected,
        examples.of_selected,
    ),
    Claim(
        "multi-token-mlp:every",
        Source(_PAPER, f"{_FIGURE}, without its selection of instances", Setting.OURS),
        "Without a selection of instances too, W is aligned best with W_SVMeq, then with W_mm, then with W_1token.",
        _judge_every,
        examples.of_every,
    ),
)
