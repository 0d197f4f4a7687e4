"""Global convergence of training W on nearly orthogonal tokens, and the rate of each rule (2402.05738)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn.experiments.rates.ngd_global import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_few,
    too_short,
)

# In the order in which they are drawn.
RULES = ("plain", "normalized", "Polyak")
# Fixed beforehand. A start has converged if the final 1 - cos with W_mm is at most NEAR, and nearly all have if a share
# of ALL has. 1 - cos falls like a power of the step if its exponent over the last decade of steps is at most POWER: 1 /
# log(k)^2 looks like k^-0.25 there. A rule is faster if its exponent is smaller by MORE. The probability of non-optimal
# tokens falls exponentially in the path length if the slope of its logarithm is at most FALLS and stays above a
# fraction STAYS of its earlier value in size; for a power of the path length this fraction is 0.32.
NEAR, ALL, POWER, MORE, FALLS, STAYS = 0.01, 0.95, -0.5, 0.1, -0.1, 0.8
# The starts of descent, in words.
STARTS = {"zero": "W = 0", "small": "small random W", "large": "large random W", "wrong": "wrong tokens"}
_SOURCE = Source(
    "arXiv 2402.05738", "abstract, and theorems on global convergence and rates (as recalled)", Setting.PROXY
)
_OURS = Source("arXiv 2402.05738", "abstract: that the known convergence is local", Setting.OURS)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate rates, shares of starts that converge, and how the attention sparsifies.

    Args:
        datasets: of `measure`, of each rule in one dimension, and of normalized steps in others.
        key: of the bootstrap.

    Returns:
        For each run `off_50`, `off_10`, `off_90`, quantiles of 1 - cos, and medians of `log_rest` and `path`, all
        (start, snapshot); estimates for each start: `exponent`, of 1 - cos over the last decade of steps; `arrived` and
        `selects`, shares of the seeds; `early` and `late`, slopes of `log_rest` along the path / ||W_mm||, in the two
        halves of these steps; `overflowed`, a share.

    Raises:
        ValueError: a rule is missing or runs in several dimensions without being the normalized one; a run of which no
            seed was kept.
    """
    found = [one.attrs["rule"] for one in datasets.values()]
    if set(found) != set(RULES) or len(found) - found.count("normalized") != len(RULES) - 1:
        raise ValueError(
            f"ngd-global: expected one run of {RULES[0]} and {RULES[2]} steps, and normalized ones, found {found}"
        )
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"ngd-global: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: Array) -> xarray.Dataset:
    off, rest, path = (one[name].values for name in ("off", "log_rest", "path"))
    steps, keys = one["snapshot"].values, jax.random.split(key, 3)
    since = int(np.argmax(steps >= steps[-1] / 10))
    middle = (since + len(steps) - 1) // 2
    estimates = {
        "exponent": bootstrap(_slopes(np.log(steps[since:]), np.log(off[..., since:])), keys[0]),
        "early": bootstrap(_chords(path, rest, since, middle), keys[1]),
        "late": bootstrap(_chords(path, rest, middle, -1), keys[2]),
        "arrived": proportion(off[..., -1] <= NEAR),
        "selects": proportion(one["selects"].values),
        "overflowed": proportion(one["overflowed"].values),
    }
    arrays: dict[str, Any] = dict(variables({name: (("start",), estimate) for name, estimate in estimates.items()}))
    quantiles = {f"off_{q}": np.quantile(off, q / 100, axis=0) for q in (10, 50, 90)}
    quantiles |= {"log_rest": np.median(rest, axis=0), "path": np.median(path, axis=0)}
    arrays |= {name: (("start", "snapshot"), values) for name, values in quantiles.items()}
    return xarray.Dataset(arrays, {"start": one["start"].values, "snapshot": steps}, one.attrs)


def _slopes(x: Float[np.ndarray, " k"], y: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Return the slope of the least squares line of each row of y; 0 for one point."""
    apart = x - x.mean()
    square = np.sum(apart**2)
    return np.sum(apart * y, axis=-1) / (square if square > 0 else 1.0)


def _chords(
    path: Float[np.ndarray, "seed start k"], rest: Float[np.ndarray, "seed start k"], first: int, last: int
) -> Float[np.ndarray, "seed start"]:
    """Return the slope of log_rest along the path between two snapshots; 0 if W does not move."""
    gone = path[..., last] - path[..., first]
    return np.where(gone > 0, (rest[..., last] - rest[..., first]) / np.where(gone > 0, gone, 1.0), 0.0)


def compared(summaries: Datasets) -> dict[str, xarray.Dataset]:
    """Return the run of each rule in the dimension that all have."""
    d = {one.attrs["rule"]: one.attrs["d"] for one in summaries.values()}[RULES[2]]
    return {one.attrs["rule"]: one for one in summaries.values() if one.attrs["d"] == d}


def _at(runs: Mapping[str, xarray.Dataset], rule: str, name: str, starts: Iterable[str] = STARTS) -> dict[str, Number]:
    """Return an estimate for a rule from each start, by the names of the starts."""
    return {STARTS[start]: number(runs[rule].sel(start=start), name) for start in starts}


def _judge_any_start(summaries: Datasets) -> Judgement:
    """Nearly all starts of each kind must converge, with normalized steps, which follow the path of plain ones."""
    runs = compared(summaries)
    arrived = _at(runs, "normalized", "arrived")
    plain, selects = _at(runs, "plain", "arrived"), _at(runs, "plain", "selects")
    shares = [f"{start}: {plain[start].mean:.0%} ({selects[start].mean:.0%})" for start in plain]
    return _judgement(
        runs,
        {f"share that converges from {start}": one for start, one in arrived.items()},
        tuple(above(f"share of seeds with 1 - cos <= {NEAR} from {start}", one, ALL) for start, one in arrived.items()),
        remark="These are normalized steps, which follow the path of plain ones without their logarithmic slowness. "
        "After the same number of plain steps these shares have converged (select all optimal tokens): "
        f"{', '.join(shares)}. This does not refute a limit.",
    )


def _judge_normalized(summaries: Datasets) -> Judgement:
    """From each start 1 - cos must fall like a power of the step."""
    runs = compared(summaries)
    exponents = _at(runs, "normalized", "exponent")
    return _judgement(
        runs,
        {f"exponent from {start}": one for start, one in exponents.items()},
        tuple(below(f"exponent of 1 - cos from {start}", one, POWER) for start, one in exponents.items()),
        remark="1 - cos is half the squared distance of the directions. A faster decrease agrees with an upper bound.",
    )


def _judge_polyak(summaries: Datasets) -> Judgement:
    """Nearly all starts must converge, with 1 - cos like a power of the step; as corrected, from W = 0 and small W."""
    runs = compared(summaries)
    exponents, arrived = (_at(runs, "Polyak", name) for name in ("exponent", "arrived"))
    overflowed = _at(runs, "Polyak", "overflowed")
    criteria = {
        start: (
            above(f"share of seeds with 1 - cos <= {NEAR} from {start}", arrived[start], ALL),
            below(f"exponent of 1 - cos from {start}", exponents[start], POWER),
        )
        for start in arrived
    }
    far = [f"{start}: {arrived[start].mean:.0%} ({overflowed[start].mean:.0%})" for start in list(arrived)[2:]]
    numbers = {f"exponent from {start}": one for start, one in exponents.items()}
    return _judgement(
        runs,
        numbers | {f"share that converges from {start}": one for start, one in arrived.items()},
        tuple(one for both in criteria.values() for one in both),
        tuple(one for both in list(criteria.values())[:2] for one in both),
        "only from W = 0 and from small weights. Where wrong tokens are selected with high probability, the gradient "
        "is tiny while L - L* is not, so the first steps overshoot, and later ones are too short to change the "
        "direction of W. Share of seeds that converge (that take a step too long for the number range): "
        f"{', '.join(far)}.",
        remark="The step is (L - L*) / ||gradient||^2 * gradient, without a cap. This does not refute a bound whose "
        "constant depends on the start, but such a bound says nothing for any feasible number of steps.",
    )


def _judge_faster(summaries: Datasets) -> Judgement:
    """From each start the exponent of plain steps must be larger than that of either other rule."""
    runs = compared(summaries)
    plain = _at(runs, "plain", "exponent")
    lead = {
        f"{rule} steps from {start}": plain[start].minus(one)
        for rule in RULES[1:]
        for start, one in _at(runs, rule, "exponent").items()
    }
    return _judgement(
        runs,
        {f"exponent of plain steps from {start}": one for start, one in plain.items()} | lead,
        tuple(above(f"exponent of plain steps minus that of {name}", one, MORE) for name, one in lead.items()),
        remark="Plain and normalized steps have step size 1. Starts that do not move count with exponent 0.",
    )


def _judge_sparsity(summaries: Datasets) -> Judgement:
    """The log probability of non-optimal tokens must fall along the path, without slowing down."""
    runs = compared(summaries)
    late, early = (_at(runs, "normalized", name) for name in ("late", "early"))
    slower = {start: late[start].minus(Number(*(STAYS * part for part in early[start]))) for start in late}
    slopes = {f"slope from {start}": one for start, one in late.items()}
    others = {f"slope of Polyak's steps from {start}": one for start, one in _at(runs, "Polyak", "late").items()}
    return _judgement(
        runs,
        slopes | others,
        (
            *(below(f"slope of log(1 - s) in the path / ||W_mm|| from {start}", late[start], FALLS) for start in late),
            *(
                below(f"late slope minus {STAYS} times the early slope from {start}", one, 0.0)
                for start, one in slower.items()
            ),
        ),
        expected=dict.fromkeys(slopes, -1.0),
        remark="s is the probability of the optimal token, for the input where it is smallest. Along W_mm the slope is "
        "-1.",
    )


def _judge_condition(summaries: Datasets) -> Judgement:
    """In the smallest dimension, starts far away must not nearly all converge."""
    runs = {f"d = {one.attrs['d']}": one for one in summaries.values() if one.attrs["rule"] == "normalized"}
    least = min(runs, key=lambda name: runs[name].attrs["d"])
    numbers = {
        f"share that converges from {STARTS[start]}, {name}": number(one.sel(start=start), "arrived")
        for name, one in runs.items()
        for start in ("zero", "large", "wrong")
    }
    far = {STARTS[start]: number(runs[least].sel(start=start), "arrived") for start in ("large", "wrong")}
    return _judgement(
        runs,
        numbers,
        tuple(below(f"share of seeds that converge from {start}, {least}", one, ALL) for start, one in far.items()),
        remark="Tokens are less orthogonal in smaller dimensions; n T = "
        f"{runs[least].attrs['n'] * runs[least].attrs['T']}. Steps are normalized.",
    )


def _judgement(
    runs: Mapping[str, xarray.Dataset],
    numbers: Mapping[str, Number],
    stated: tuple[Any, ...],
    corrected: tuple[Any, ...] = (),
    correction: str = "",
    expected: Mapping[str, float] | None = None,
    remark: str = "",
) -> Judgement:
    few = too_few(min(int(one.attrs["kept"]) for one in runs.values()))
    steps = min(int(one["snapshot"][-1]) for one in runs.values())
    return Judgement(
        numbers=numbers,
        expected=expected or {},
        counts=counts_of({one.attrs["run"]: one for one in runs.values()}),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=few or too_short(steps),
        remark=remark,
    )


CLAIMS = (
    Claim(
        "ngd-global:any-start",
        _SOURCE,
        "On data with nearly orthogonal tokens gradient descent on W converges in direction to W_mm from any start.",
        _judge_any_start,
        examples.of_any_start,
    ),
    Claim(
        "ngd-global:normalized-rate",
        _SOURCE,
        "Normalized steps reach the direction of W_mm at a finite-time rate, from any start.",
        _judge_normalized,
        examples.of_normalized,
    ),
    Claim(
        "ngd-global:polyak-rate",
        _SOURCE,
        "Polyak's steps reach the direction of W_mm at a finite-time rate, from any start.",
        _judge_polyak,
        examples.of_polyak,
    ),
    Claim(
        "ngd-global:faster",
        _SOURCE,
        "Normalized steps and Polyak's steps approach the direction of W_mm faster than plain gradient descent.",
        _judge_faster,
        examples.of_faster,
    ),
    Claim(
        "ngd-global:sparsity",
        _SOURCE,
        "The attention map sparsifies exponentially fast: the probability of non-optimal tokens falls exponentially "
        "in the length of the path.",
        _judge_sparsity,
        examples.of_sparsity,
    ),
    Claim(
        "ngd-global:condition",
        _OURS,
        "Without conditions on the data, convergence in direction to W_mm is local: it depends on the start.",
        _judge_condition,
        examples.of_condition,
    ),
)
