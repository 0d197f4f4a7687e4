"""How fast descent reaches the direction of its max-margin solution: as published, and on the exact direction."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.local.distance import LONG, along
from jaxattn.experiments.local.rate import examples
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    between,
    counts_of,
    too_few,
)

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, continued", Setting.OURS)
_OWN = {"W": "frobenius", "KQ": "nuclear"}
# Fixed beforehand: how far an exponent may be from -2, and the distance from the solution, 1 - cos, to go below.
_EXPONENT, _NEAR = 0.2, 1e-6
_MISSING = Judgement.withheld("The run as published or the run on the exact direction is missing.")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distance from the solution along the steps, and its rate.

    Args:
        datasets: of `measure`, of W and of (K, Q), by the published rule and on the exact direction.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots, of the norm whose solution it is said to reach.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"rate: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {
        run: along(one, _OWN[one.attrs["weights"]], k) for (run, one), k in zip(datasets.items(), keys, strict=True)
    }


def _judge_W(summaries: Datasets) -> Judgement:
    """The published run has to fall like k^-2 and come near; failing that, the one on the exact direction."""
    if (forms := _forms(summaries, "W")) is None:
        return _MISSING
    published, exact = forms
    last = int(exact["snapshot"][-1])
    expected = {"exponent, exact direction": -2.0, f"1 - correlation at step {last}, as published": 1e-2}
    end = float(published["off"][-1])
    return _judgement(
        {"as published": published, "exact direction": exact},
        expected,
        stated=(*_fast("as published", published), _ends_near("as published", published)),
        corrected=(*_fast("exact direction", exact), _ends_near("exact direction", exact)),
        correction=f"on the exact direction of the gradient, where {float(exact['near']):.0%} of the seeds are below "
        f"1e-6 at the last step. The published rule, which adds 2.2e-16 to the gradient's norm, ends at {end:.2g}.",
    )


def _judge_KQ(summaries: Datasets) -> Judgement:
    """The rate has to be that of W, k^-2, on the exact direction, where nothing is lost to rounding."""
    if (forms := _forms(summaries, "KQ")) is None:
        return _MISSING
    published, exact = forms
    last = int(exact["snapshot"][-1])
    return _judgement(
        {"as published": published, "exact direction": exact},
        {f"1 - correlation at step {last}, as published": 5e-3},
        stated=_fast("exact direction", exact),
        remark=f"The published run ends at {float(published['off'][-1]):.2g}, the exact one, without a penalty, at "
        f"{float(exact['off'][-1]):.2g}. See kq-penalty.",
    )


def _forms(summaries: Datasets, weights: str) -> tuple[xarray.Dataset, xarray.Dataset] | None:
    """Return the run with the published penalty and the one without; nothing if one of them is missing."""
    by_penalty = {one.attrs["penalty"] == 0: one for one in summaries.values() if one.attrs["weights"] == weights}
    return (by_penalty[False], by_penalty[True]) if len(by_penalty) == 2 else None


def _fast(form: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    value = _exponent(one) if "exponent_mean" in one else Number.exact(float("nan"))
    return (between(f"exponent, {form},", value, -2 - _EXPONENT, -2 + _EXPONENT),)


def _ends_near(form: str, one: xarray.Dataset) -> Criterion:
    return below(f"1 - cos at the last step, {form},", _end(one), _NEAR)


def _exponent(one: xarray.Dataset) -> Number:
    return Number(*(float(one[f"exponent_{part}"]) for part in ("mean", "low", "high")))


def _end(one: xarray.Dataset) -> Number:
    return Number(*(float(one[name][-1]) for name in ("off", "off_low", "off_high")))


def _judgement(
    runs: Mapping[str, xarray.Dataset],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
) -> Judgement:
    undecided = too_few(min(int(one.attrs["kept"]) for one in runs.values()))
    last = min(int(one["snapshot"][-1]) for one in runs.values())
    if last < LONG:
        undecided = f"A run of {last} steps is too short for a rate; the published size is 200000."
    numbers: dict[str, Number] = {}
    for name, one in runs.items():
        numbers[f"1 - correlation at step {last}, {name}"] = _end(one)
        if not undecided:
            numbers[f"exponent, {name}"] = _exponent(one)
    return Judgement(
        measured={label: number.mean for label, number in numbers.items()},
        interval={label: (number.low, number.high) for label, number in numbers.items()},
        expected=expected,
        counts=counts_of({one.attrs["run"]: one for one in runs.values()}),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "rate:W",
        _SOURCE,
        "Normalized descent on W reaches the direction of the Frobenius solution like k^-2.",
        _judge_W,
        examples.of_W,
    ),
    Claim(
        "rate:KQ",
        _SOURCE,
        "Normalized descent on (K, Q) reaches the direction of the nuclear solution, at a rate like that of W.",
        _judge_KQ,
        examples.of_KQ,
    ),
)
