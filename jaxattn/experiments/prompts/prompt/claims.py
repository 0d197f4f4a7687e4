"""Training a prompt: its direction is that of the token SVM, and training W instead is equivalent (2306.13596)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.prompts.prompt import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Kind,
    Number,
    Setting,
    Source,
    above,
    below,
    between,
    counts_of,
    number,
    too_little,
)
from jaxattn.study.measuring.growth import AT_REST, growth

# Fixed beforehand: the direction error below which two directions count as equal; the share of seeds that counts as
# nearly all; the smallest mean margin ratio of a limit and of a run of the published length; the largest mean direction
# error of the latter; and the rounding error between two forms of the same descent.
PARALLEL, _ALL, _LIMIT, _PUBLISHED, _NEAR, _SAME = 0.01, 0.95, 0.99, 0.9, 0.01, 1e-6
# The number of steps in the paper.
STEPS = 1000


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how close the prompts of every run are to their solutions.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots: `off_10`, `off_50`, `off_90`, quantiles of the direction error over
        the seeds; the means `off` and `ratio` of direction error and margin ratio; at the end `parallel`, `locally` and
        `globally`, shares of the seeds, and what `growth.growth` returns; the largest `beside` and `posed`; and
        `apart`, the largest relative distance of the prompts from those of training p itself, inf if there are none.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"prompt: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    (itself,) = [one for one in datasets.values() if one.attrs["trained"] == "p"] or [None]
    return {run: _summary(one, itself, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, itself: xarray.Dataset | None, key: PRNGKeyArray) -> xarray.Dataset:
    off, keys = one["off"].values, jax.random.split(key, 3)
    estimates = {
        "off": (("snapshot",), bootstrap(off, keys[0])),
        "ratio": (("snapshot",), bootstrap(one["margin_ratio"].values, keys[1])),
        "parallel": ((), proportion(off[:, -1] < PARALLEL)),
        **{name: ((), proportion(one[name].values)) for name in ("locally", "globally")},
    }
    quantiles = {f"off_{q}": (("snapshot",), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    largest = {name: float(one[name].max()) for name in ("beside", "posed")} | {"apart": _apart(one, itself)}
    summary = xarray.Dataset(
        variables(estimates) | quantiles | largest, {"snapshot": one["snapshot"].values}, one.attrs
    )
    squares = (one["p"] ** 2).sum("feature", skipna=False)
    lengths = squares.copy(data=np.sqrt(squares.values))
    return summary.assign(dict(growth(lengths, keys[2]).data_vars))


def _apart(one: xarray.Dataset, itself: xarray.Dataset | None) -> float:
    """Return the largest ||p - q|| / ||q|| over seeds and snapshots, where q is the prompt trained itself."""
    if itself is None or any(one.attrs[name] != itself.attrs[name] for name in ("keys", "rule")):
        return float("inf")
    p, q = xarray.align(one["p"], itself["p"], join="inner")
    lengths = np.linalg.norm(q.values, axis=-1)
    distances = np.linalg.norm(p.values - q.values, axis=-1)
    return float(np.max(distances / np.where(lengths > 0, lengths, 1.0)))


def _judgement(
    runs: Datasets, numbers: dict[str, Number], criteria: Sequence[Criterion], remark: str, lacking: bool
) -> Judgement:
    if lacking:
        return Judgement.withheld("Not all of these runs are made at this size.")
    return Judgement(
        numbers=numbers,
        expected={name: 0.0 for name in numbers if name.startswith("1 - cos")},
        counts=counts_of(runs),
        stated=tuple(criteria),
        undecided=next(filter(None, map(too_little, runs.values())), ""),
        remark=remark,
    )


def _of_limit(summaries: Datasets) -> Judgement:
    """Nearly all seeds must end parallel to the solution of locally optimal tokens, and the norm must grow."""
    runs = {run: one for run, one in summaries.items() if one.attrs["rule"] == "exact direction"}
    numbers: dict[str, Number] = {}
    criteria: list[Criterion] = []
    for run, one in runs.items():
        last = one.isel(snapshot=-1)
        numbers |= {
            f"1 - cos, {run}": number(last, "off"),
            f"margin ratio, {run}": number(last, "ratio"),
            f"share of seeds with 1 - cos below {PARALLEL}, {run}": number(one, "parallel"),
            f"share of seeds at locally optimal tokens, {run}": number(one, "locally"),
        }
        criteria += [
            above(f"share of seeds with 1 - cos below {PARALLEL}, {run}", number(one, "parallel"), _ALL),
            above(f"margin ratio, {run}", number(last, "ratio"), _LIMIT),
            above(f"share of seeds at locally optimal tokens, {run}", number(one, "locally"), _ALL),
            above(f"p in ||p|| ~ k^p, {run}", number(one, "growth"), AT_REST),
        ]
    best = [f"{float(one['globally']):.0%}" for one in runs.values()]
    remark = f"The selected tokens are those of highest score in {', '.join(best)} of the seeds ({', '.join(runs)})."
    return _judgement(runs, numbers, criteria, remark, lacking=len(runs) < 3)


def _of_published(summaries: Datasets) -> Judgement:
    """After 1,000 published steps the prompts must be near the solution."""
    runs = {run: one for run, one in summaries.items() if one.attrs["rule"] == "published rule"}
    if len(runs) < 2 or any(STEPS not in one["snapshot"].values for one in runs.values()):
        return _judgement(runs, {}, (), "", lacking=True)
    numbers: dict[str, Number] = {}
    criteria: list[Criterion] = []
    for run, one in runs.items():
        then = one.sel(snapshot=STEPS)
        off, ratio = f"1 - cos at step {STEPS}, {run}", f"margin ratio at step {STEPS}, {run}"
        numbers |= {off: number(then, "off"), ratio: number(then, "ratio")}
        criteria += [below(off, numbers[off], _NEAR), above(ratio, numbers[ratio], _PUBLISHED)]
    ends = ", ".join(f"{float(one['off'][-1]):.2g} at step {int(one['snapshot'][-1])}" for one in runs.values())
    return _judgement(runs, numbers, criteria, f"Mean 1 - cos later: {ends}, after it stalled by rounding.", False)


def _of_equivalence(summaries: Datasets) -> Judgement:
    """Both descents, and both max-margin problems, must agree up to rounding."""
    runs = {run: one for run, one in summaries.items() if np.isfinite(float(one["apart"]))}
    itself = [one for one in runs.values() if one.attrs["trained"] == "p"]
    if len(runs) < 2 or not itself:
        return _judgement(runs, {}, (), "", lacking=True)
    (W,) = [one for one in runs.values() if one.attrs["trained"] == "W"]
    numbers = {
        "largest ||W z - p|| / ||p|| of the two descents": Number.exact(float(W["apart"])),
        "largest ||W - p z^T|| / ||W||": Number.exact(float(W["beside"])),
        "largest ||W_mm - p_mm z^T|| / ||W_mm||": Number.exact(float(W["posed"])),
    }
    criteria = [between(name, one, 0.0, _SAME) for name, one in numbers.items()]
    remark = f"Over all seeds and snapshots up to step {int(W['snapshot'][-1])}; z is the unit query of all inputs."
    return _judgement(runs, numbers, criteria, remark, lacking=False)


CLAIMS = (
    Claim(
        "prompt:limit",
        Source("arXiv 2306.13596", "theorem on local convergence of gradient descent on p", Setting.PROXY),
        "With W fixed, gradient descent on the prompt p converges in direction to the max-margin solution p_mm that "
        "separates locally optimal tokens from the others, and the norm of p diverges.",
        _of_limit,
        examples.of_limit,
    ),
    Claim(
        "prompt:published",
        Source("arXiv 2306.13596", "experiments, normalized steps of .1, as recalled", Setting.PROXY),
        "After 1,000 normalized steps of length .1 the prompt has the direction of p_mm.",
        _of_published,
        examples.of_published,
    ),
    Claim(
        "prompt:equivalent",
        Source("arXiv 2306.13596", "remark on training W with p fixed", Setting.EXACT),
        "Training W with p fixed is equivalent to training p with W fixed.",
        _of_equivalence,
        examples.of_equivalence,
        Kind.CHECK,
    ),
)
