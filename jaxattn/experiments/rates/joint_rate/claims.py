"""How fast the risk falls when v is trained together with W, and the limits of both (2402.05738)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn.experiments.rates.joint_rate import examples
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
    counts_of,
    number,
    too_few,
    too_short,
)

# The steps of W and of v, by the names of the runs.
STEPS = {"plain": "plain", "normalized": "normalized", "falling": "normalized, falling like k^-2/3"}
# Fixed beforehand: the exponent of t in the paper's bound on -log risk; the largest 1 - cos of a direction that has
# converged; and the share of seeds that counts as nearly all.
PAPER, NEAR, ALL = 1 / 3, 0.01, 0.95
_SOURCE = Source("arXiv 2402.05738", "theorem on joint training of decoder and attention (as recalled)", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how fast the risk falls and how close W and v come to their limits.

    Args:
        datasets: of `measure`, of each of STEPS.
        key: of the bootstrap.

    Returns:
        For each run medians and quantiles of `fallen`, `off_W` and `off_v` over the seeds, (snapshot,), with `_10` and
        `_90`; estimates of `exponent`, of t in -log risk over the last decade of steps, of `growth`, the same for
        `||v||`, and of `W_arrived` and `v_arrived`, the shares of seeds that end within 0.01 of the limit.

    Raises:
        ValueError: other runs, or one of which no seed was kept.
    """
    if set(datasets) != set(STEPS):
        raise ValueError(f"joint-rate: expected the runs {sorted(STEPS)}, found {sorted(datasets)}")
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"joint-rate: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(STEPS))
    return {run: _summary(datasets[run], own) for run, own in zip(STEPS, keys, strict=True)}


def _summary(one: xarray.Dataset, key: Array) -> xarray.Dataset:
    steps, keys = one["snapshot"].values, jax.random.split(key)
    estimates = {
        "exponent": bootstrap(_exponents(steps, one["fallen"].values), keys[0]),
        "growth": bootstrap(_exponents(steps, one["size"].values), keys[1]),
        "W_arrived": proportion(one["off_W"].values[:, -1] <= NEAR),
        "v_arrived": proportion(one["off_v"].values[:, -1] <= NEAR),
    }
    arrays: dict[str, Any] = dict(variables({name: ((), estimate) for name, estimate in estimates.items()}))
    for name in ("fallen", "off_W", "off_v"):
        for suffix, q in (("", 50), ("_10", 10), ("_90", 90)):
            arrays[name + suffix] = (("snapshot",), np.quantile(one[name].values, q / 100, axis=0))
    return xarray.Dataset(arrays, {"snapshot": steps}, one.attrs)


def _exponents(steps: np.ndarray, values: Float[np.ndarray, "seeds k"]) -> Float[np.ndarray, " seeds"]:
    """Return the exponent of the step in each row over the last decade of steps; 0 for one snapshot."""
    last = steps >= steps[-1] / 10
    x, y = np.log(steps[last]), np.log(values[:, last])
    apart = x - x.mean()
    return y @ apart / max(float(apart @ apart), np.finfo(float).tiny)


def _judge_risk(summaries: Datasets) -> Judgement:
    """The exponent of t in -log risk must be at least that of the bound: a risk that falls faster agrees with it."""
    exponents = {run: number(summaries[run], "exponent") for run in STEPS}
    growth = {run: number(summaries[run], "growth") for run in STEPS}
    labels = {run: f"exponent of t in -log risk, {steps} steps" for run, steps in STEPS.items()}
    numbers = {labels[run]: one for run, one in exponents.items()}
    numbers |= {f"exponent of t in ||v||, {STEPS[run]} steps": one for run, one in growth.items()}
    return _judgement(
        summaries,
        numbers,
        (above(labels["normalized"], exponents["normalized"], PAPER),),
        expected={labels["normalized"]: PAPER},
        remark="-log risk grows like ||v||, so its exponent is determined by the steps of v: "
        f"{exponents['normalized'].mean:.3g} for constant normalized steps, {exponents['falling'].mean:.3g} "
        f"for steps that fall like k^-2/3, where ||v|| grows like k^1/3, and {exponents['plain'].mean:.3g} for "
        "plain steps.",
    )


def _judge_directions(summaries: Datasets) -> Judgement:
    """Nearly all seeds must end near both limits."""
    one = summaries["normalized"]
    shares = {name: number(one, f"{name}_arrived") for name in ("W", "v")}
    labels = {"W": f"share of seeds with 1 - cos of W and W_mm <= {NEAR}", "v": f"share with 1 - cos of v <= {NEAR}"}
    last = int(one["snapshot"][-1])
    ends = ", ".join(f"{float(one[f'off_{name}'][-1]):.2g} ({name})" for name in ("W", "v"))
    return _judgement(
        summaries,
        {labels[name]: share for name, share in shares.items()},
        tuple(above(labels[name], share, ALL) for name, share in shares.items()),
        remark=f"Median 1 - cos at step {last}: {ends}. Steps are constant and normalized, from random W and v. The "
        "max-margin decoder of the relevant tokens is mu itself.",
    )


def _judgement(
    summaries: Datasets,
    numbers: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    expected: Mapping[str, float] | None = None,
    remark: str = "",
) -> Judgement:
    few = too_few(min(int(one.attrs["kept"]) for one in summaries.values()))
    return Judgement(
        numbers=numbers,
        expected=expected or {},
        counts=counts_of(summaries),
        stated=stated,
        undecided=few or too_short(min(int(one["snapshot"][-1]) for one in summaries.values())),
        remark=remark,
    )


CLAIMS = (
    Claim(
        "joint-rate:risk",
        _SOURCE,
        "If the decoder v and the attention W are trained together with normalized steps, the risk falls at least "
        "like exp(-t^(1/3)).",
        _judge_risk,
        examples.of_risk,
    ),
    Claim(
        "joint-rate:directions",
        _SOURCE,
        "When trained together, W converges in direction to W_mm, and v to the max-margin decoder of the relevant "
        "tokens.",
        _judge_directions,
        examples.of_directions,
    ),
)
