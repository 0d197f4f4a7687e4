"""How fast descent reaches the direction of its max-margin solution: as published, and on the exact direction."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import numpy as np
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
    number,
    too_few,
)

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, continued", Setting.OURS)
_OWN = {"W": "frobenius", "KQ": "nuclear"}
# Fixed beforehand: how far an exponent may be from -2, and the distance from the solution, 1 - cos, to go below; and
# the exponent of a distance that goes on falling (as in kq-limit, where a step like k^-1/2 makes W longer like k).
_EXPONENT, _NEAR, _GOES_ON = 0.2, 1e-6, -0.12
# The last step of the published runs; and where an independent run of the published rule stood, by about that step.
_PUBLISHED_STEPS, _STALLED = 2000, 1e-2
_MISSING = Judgement.withheld("The run as published or a run on the exact direction is missing.")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distance from the solution along the steps, and its rate.

    Args:
        datasets: of `measure`, of W and of (K, Q), by the published rule and on the exact direction; of (K, Q) there
            also with a step that falls.
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
    forms = _forms(summaries, "W")
    if not {"as published", "exact direction"} <= set(forms):
        return _MISSING
    published, exact = forms["as published"], forms["exact direction"]
    at = published.sel(snapshot=_PUBLISHED_STEPS, method="nearest")
    label = f"1 - correlation at step {int(at['snapshot'])}, as published"
    nearest = published.isel(snapshot=int(np.argmin(published["off"].values)))
    return _judgement(
        forms,
        {"exponent, exact direction": -2.0, label: _STALLED},
        stated=(*_fast("as published", published), _ends_near("as published", published)),
        corrected=(*_fast("exact direction", exact), _ends_near("exact direction", exact)),
        correction=f"on the exact direction of the gradient, where {float(exact['near']):.0%} of the seeds are below "
        f"1e-6 at the last step. The published rule, which adds 2.2e-16 to the gradient's norm, is nearest at step "
        f"{int(nearest['snapshot'])}, at {float(nearest['off']):.2g}. From then on what is left of its gradient is "
        f"rounding error, and W drifts away on it, to {float(published['off'][-1]):.2g}.",
        more={label: _off(at)},
    )


def _judge_KQ(summaries: Datasets) -> Judgement:
    """The published run has to go on falling; failing that, the one without a penalty whose step falls."""
    forms = _forms(summaries, "KQ")
    if set(forms) != {"as published", "exact direction", "step k^-1/2"}:
        return _MISSING
    published, constant, falling = forms["as published"], forms["exact direction"], forms["step k^-1/2"]
    last = int(falling["snapshot"][-1])
    return _judgement(
        forms,
        {},
        stated=(_goes_on("as published", published),),
        corrected=(_goes_on("step k^-1/2", falling),),
        correction="without a penalty, on the exact direction of the gradient, and with a step that falls like k^-1/2, "
        f"1 - cos goes like k^{_exponent(falling).mean:.2f}, to {float(falling['off'][-1]):.2g} at step {last}. The "
        f"published run ends at {float(published['off'][-1]):.2g}, where its penalty holds it, and one without the "
        f"penalty but with the published constant step at {float(constant['off'][-1]):.2g}. See kq-penalty, kq-limit.",
        remark="The paper draws no rates; that of W is about k^-2.",
    )


def _forms(summaries: Datasets, weights: str) -> dict[str, xarray.Dataset]:
    """Return the runs of W or of (K, Q): as published, with its penalty; without, and with a step that falls."""
    return {form(one): one for one in summaries.values() if one.attrs["weights"] == weights}


def form(one: xarray.Dataset) -> str:
    """Return which form of descent a run follows."""
    if one.attrs["step"] != "constant":
        return "step k^-1/2"
    return "as published" if one.attrs["penalty"] > 0 else "exact direction"


def _goes_on(name: str, one: xarray.Dataset) -> Criterion:
    return below(f"exponent, {name},", _exponent(one), _GOES_ON)


def _fast(name: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (between(f"exponent, {name},", _exponent(one), -2 - _EXPONENT, -2 + _EXPONENT),)


def _ends_near(name: str, one: xarray.Dataset) -> Criterion:
    return below(f"1 - cos at the last step, {name},", _off(one.isel(snapshot=-1)), _NEAR)


def _exponent(one: xarray.Dataset) -> Number:
    """Return the exponent of a run; of one that is too short for any, NaN."""
    names = (f"exponent_{part}" for part in ("mean", "low", "high"))
    return Number(*(float(one[name]) if name in one else math.nan for name in names))


def _off(at: xarray.Dataset) -> Number:
    return number(at, "off")


def _judgement(
    runs: Mapping[str, xarray.Dataset],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
    more: Mapping[str, Number] | None = None,
) -> Judgement:
    undecided = too_few(min(int(one.attrs["kept"]) for one in runs.values()))
    last = min(int(one["snapshot"][-1]) for one in runs.values())
    if last < LONG:
        undecided = f"A run of {last} steps is too short for a rate; the published size is 200000."
    numbers: dict[str, Number] = dict(more or {})
    for name, one in runs.items():
        numbers[f"1 - correlation at step {last}, {name}"] = _off(one.isel(snapshot=-1))
        if not undecided:
            numbers[f"exponent, {name}"] = _exponent(one)
    return Judgement(
        measured={label: value.mean for label, value in numbers.items()},
        interval={label: (value.low, value.high) for label, value in numbers.items()},
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
        "Normalized descent on (K, Q) approaches the direction of the nuclear solution without end.",
        _judge_KQ,
        examples.of_KQ,
    ),
)
