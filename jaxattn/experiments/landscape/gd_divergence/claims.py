"""Plain gradient descent with equal scores of non-optimal tokens: growth and direction of W (2308.16898)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.landscape.gd_divergence import examples
from jaxattn.statistics import bootstrap, proportion, variables
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
    between,
    counts_of,
    number,
    too_few,
)

_PAPER, _LOCATOR = "arXiv 2308.16898", "theorem on the global convergence of gradient descent"
# The run within 1 / L ends early; a run with a much larger step stands in for its continuation.
_LIMIT = Source(_PAPER, f"{_LOCATOR} (theorem I of the poster)", Setting.PROXY)
_SMOOTHNESS = Source(_PAPER, _LOCATOR, Setting.EXACT)
# The logarithm is fitted to the last decade of a run with at least this many steps.
_LONG = 30_000
# Fixed beforehand: how far the slope of ||W|| / ||W_mm|| in log k may be from 1; the largest exponent of ||W|| in 1 -
# cos; the share of seeds whose 1 - cos must fall over the last decade of steps; and the smallest change that counts as
# an increase of the risk, above rounding.
_GROWTH, _POWER, _NEARLY_ALL, _RISE = 0.1, -1.0, 0.99, 1e-12


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate growth and direction over time.

    Args:
        datasets: of `measure`, of runs with different steps.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots.

    Raises:
        ValueError: a run of which no seed was kept, or norms and distances that are not positive.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"gd-divergence: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _estimated(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    steps, growth, off = (one[name].values for name in ("snapshot", "growth", "off"))
    if not np.all((growth > 0) & (off > 0)):
        raise ValueError(f"growth, off: expected positive numbers, found at least {growth.min():.3g}, {off.min():.3g}")
    keys = jax.random.split(key, 4)
    log_off = bootstrap(np.log10(off), keys[1])
    geometric = log_off._replace(**{part: 10 ** getattr(log_off, part) for part in ("mean", "low", "high")})
    late = steps * 10 >= steps[-1]
    estimates = {
        "growth": (("snapshot",), bootstrap(growth, keys[0])),
        "off": (("snapshot",), geometric),
        # Of each seed's own line through the last decade.
        "slope": ((), bootstrap(_slope(np.log(steps[late]), growth[:, late]), keys[2])),
        "exponent": ((), bootstrap(_slope(np.log(growth[:, late]), np.log(off[:, late])), keys[3])),
        "optimal": ((), proportion(one["optimal"].values)),
        # A seed heading elsewhere does not come nearer. Whether it has selected tokens depends on a norm that grows
        # slowly.
        "nearer": ((), proportion(off[:, -1] < off[:, np.argmax(late)])),
    }
    arrays = variables(estimates)
    bound = one["bound"].values
    arrays |= {
        "time": (("snapshot",), one.attrs["step_size"] * steps),
        "within": ((), one.attrs["step_size"] * bound.max()),
        "tightest": ((), (one["bend"].values.max(axis=1) / bound).max()),
        "sharpest": ((), one["bend"].values.max()),
        "rises": ((), int((np.diff(one["loss"].values, axis=1) > _RISE).sum())),
        "taken": ((), one.sizes["seed"] * (one.sizes["step"] - 1)),
        "elsewhere": ((), int((~one["optimal"].values).sum())),
    }
    return xarray.Dataset(arrays, {"snapshot": steps}, one.attrs)


def _slope(
    x: Float[np.ndarray, "*seeds snapshot"], y: Float[np.ndarray, "seeds snapshot"]
) -> Float[np.ndarray, " seeds"]:
    """Return the slope of the least squares line of every row; 0 where x does not change."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    return np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)


def _judge_norm(summaries: Datasets) -> Judgement:
    """The run with the largest step, which goes farthest, must grow like ||W_mm|| log k."""
    summaries = sparse(summaries)
    run, furthest = _by_step(summaries)[-1]
    slope = number(furthest, "slope")
    return _judgement(
        {f"slope of ||W|| / ||W_mm|| in log k, {run}": number(one, "slope") for run, one in summaries.items()},
        {f"slope of ||W|| / ||W_mm|| in log k, {run}": 1.0 for run in summaries},
        summaries,
        stated=(between(f"slope of ||W|| / ||W_mm|| in log k, {run},", slope, 1 - _GROWTH, 1 + _GROWTH),),
        remark="Slopes are over the last decade of steps. If the gradient falls like exp(-||W|| / ||W_mm||), ||W|| "
        f"grows like ||W_mm|| log k.{_at_equal_times(summaries)}",
    )


def _at_equal_times(summaries: Datasets) -> str:
    """Compare the runs of smallest and largest step at the end time of the shorter one."""
    if len(summaries) < 2:
        return ""
    (first, slow), *_, (last, fast) = _by_step(summaries)
    time = min(float(slow["time"][-1]), float(fast["time"][-1]))
    mine, others = (np.interp(np.log(time), np.log(one["time"]), one["growth"]) for one in (slow, fast))
    sizes = f"{mine:.3g} ({first}) and {others:.3g} ({last})"
    return f" At time {time:g} (step size times steps), ||W|| / ||W_mm|| is {sizes}."


def _judge_direction(summaries: Datasets) -> Judgement:
    """1 - cos must fall faster than 1 / ||W|| on average, and fall for nearly every seed of the farthest run."""
    summaries = sparse(summaries)
    numbers = {}
    for run, one in summaries.items():
        last = one.isel(snapshot=-1)
        numbers[f"1 - cos at step {int(last['snapshot'])}, {run}"] = number(last, "off")
        numbers[f"exponent of ||W|| in 1 - cos, {run}"] = number(one, "exponent")
        numbers[f"share of seeds that come nearer in the last decade, {run}"] = number(one, "nearer")
        numbers[f"share that selects the optimal tokens, {run}"] = number(one, "optimal")
    furthest, of_furthest = _by_step(summaries)[-1]
    on_their_way = ", ".join(f"{int(one['elsewhere'])} ({run})" for run, one in summaries.items())
    return _judgement(
        numbers,
        {name: 1.0 if name.startswith("share") else 0.0 for name in numbers if not name.startswith("exponent")},
        summaries,
        stated=(
            *(
                below(f"exponent of ||W|| in 1 - cos, {run},", number(one, "exponent"), _POWER)
                for run, one in summaries.items()
            ),
            above(
                f"share of seeds whose 1 - cos falls over the last decade of steps, {furthest},",
                number(of_furthest, "nearer"),
                _NEARLY_ALL,
            ),
        ),
        remark="Exponents are over the last decade of steps. Since the norm grows like the logarithm of the steps, "
        "the direction changes very slowly. Seeds that do not select their optimal tokens at the end: "
        f"{on_their_way}. For other starts see global-convergence.",
    )


def _judge_step(summaries: Datasets) -> Judgement:
    """No second derivative may exceed L, and no step within 1 / L may raise the risk."""
    everywhere = {run: one for run, one in summaries.items() if one.attrs["every"] == 1}
    if not everywhere:
        return dataclasses.replace(
            Judgement.withheld("No run recorded the risk at every step."), counts=counts_of(summaries)
        )
    run, first = _by_step(everywhere)[0]
    tightest = max(float(one["tightest"]) for one in summaries.values())
    within = float(first["within"])
    measured = {
        f"largest step size times L, {run}": within,
        f"number of steps of all seeds, {run}": float(first["taken"]),
        "largest second derivative found, over L": tightest,
        "largest second derivative found": max(float(one["sharpest"]) for one in summaries.values()),
        **{f"increases of the recorded risk, {run}": float(one["rises"]) for run, one in summaries.items()},
    }
    # A step beyond 1 / L says nothing about one within.
    rises = float(first["rises"]) if within <= 1 else math.nan
    larger = [
        f"A step of {float(one['within']):.3g} / L raises it {int(one['rises'])} times between recorded steps "
        f"({other})."
        for other, one in _by_step(summaries)
        if float(one["within"]) > 1
    ]
    looseness = f"L is {1 / max(tightest, 1e-300):.4g} times the largest second derivative found along the runs."
    beyond = "" if within <= 1 else f"No run has a step of at most 1 / L; the smallest is {within:.3g} / L."
    return _judgement(
        {name: Number.exact(value) for name, value in measured.items()},
        {f"increases of the recorded risk, {run}": 0.0},
        summaries,
        stated=(
            below("largest second derivative found, over L,", Number.exact(tightest), 1),
            below(f"steps of at most 1 / L that raise the risk, {run},", Number.exact(rises), 0),
        ),
        remark=" ".join(part for part in (beyond, looseness, *larger) if part),
    )


def sparse(summaries: Datasets) -> Datasets:
    """Return the long runs, whose risk is not recorded at every step; all runs if there are none."""
    return {run: one for run, one in summaries.items() if one.attrs["every"] > 1} or summaries


def _by_step(summaries: Datasets) -> list[tuple[str, xarray.Dataset]]:
    return sorted(summaries.items(), key=lambda run: run[1].attrs["step_size"])


def _judgement(
    numbers: Mapping[str, Number],
    expected: Mapping[str, float],
    summaries: Datasets,
    stated: tuple[Criterion, ...],
    remark: str,
) -> Judgement:
    """Return the judgement; it is not decided if a run kept too few seeds or was too short."""
    undecided = too_few(min(int(one.attrs["kept"]) for one in summaries.values()))
    if min(int(one["snapshot"][-1]) for one in sparse(summaries).values()) < _LONG:
        undecided = (
            f"Runs of fewer than {_LONG} steps are too short to identify a logarithm; the published size is 100000."
        )
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=stated,
        undecided=undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "gd-divergence:norm",
        _LIMIT,
        "The norm of W diverges, like the logarithm of the number of steps.",
        _judge_norm,
        examples.of_norm,
    ),
    Claim(
        "gd-divergence:direction",
        _LIMIT,
        "The direction of W converges to the Frobenius solution that selects the optimal tokens.",
        _judge_direction,
        examples.of_direction,
    ),
    Claim(
        "gd-divergence:step",
        _SMOOTHNESS,
        "The gradient is Lipschitz with the paper's constant L, so a step of at most 1 / L never raises the risk.",
        _judge_step,
        examples.of_step,
    ),
)
