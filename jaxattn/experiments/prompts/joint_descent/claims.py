"""Attention and head trained together: which max-margin problem each obeys (2306.13596)."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_descent import examples
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
    too_few,
    too_little,
)
from jaxattn.study.statistics import Estimate, bootstrap, proportion, variables

# Fixed beforehand: the direction error below which two directions count as one; which share of the seeds is nearly all
# of them; the same for the problem with offsets, at tau = 1 and at others, where the last steps are slow; and the mean
# direction error that a limit may have left.
PARALLEL, _ALL, _OFFSET, _SLOW, _NEAR = 0.01, 0.95, 0.9, 0.8, 0.01
_SOURCE = Source("arXiv 2306.13596", "section on training p and v together, as recalled", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how near W and v of every run are to their problems.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset. Over its `mixed` seeds, some of whose inputs are no support vectors of v: `off_10`,
        `off_50`, `off_90`, quantiles of the direction error from the solution of each problem, (problem, snapshot), the
        mean `off` and the share `parallel` at the end, (problem,), and the mean `ratio` of margins in the unrelaxed
        problem. Over the others, `whole`: `off_whole`, the mean direction error at the end. Over all: `head`, the share
        of seeds whose v is parallel to its solution, and `off_v`, quantiles of its direction error. Attributes `mixed`
        and `whole` count the seeds. Where there are none of a kind the estimates are 0, and decide nothing.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"joint-descent: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    mixed = ~one["support"].values.all(axis=1)
    off, whole = one["off"].values[mixed], one["off"].values[~mixed]
    keys = jax.random.split(key, 3)
    off = off if mixed.any() else np.zeros((1, *off.shape[1:]))
    parallel = proportion((off[..., -1] > 0) & (off[..., -1] < PARALLEL))
    of_v = one["off_v"].values
    estimates = {
        "off": (("problem",), bootstrap(off[..., -1], keys[0])),
        "parallel": (("problem",), parallel),
        "off_whole": ((), _mean(whole[:, PROBLEMS.index("unrelaxed"), -1], keys[1])),
        "ratio": ((), _mean(one["margin_ratio"].values[mixed, -1], keys[2])),
        "head": ((), proportion((of_v[:, -1] > 0) & (of_v[:, -1] < PARALLEL))),
    }
    quantiles = {f"off_{q}": (("problem", "snapshot"), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    quantiles |= {f"off_v_{q}": (("snapshot",), np.quantile(of_v, q / 100, axis=0)) for q in (10, 50, 90)}
    coordinates = {"problem": one["problem"].values, "snapshot": one["snapshot"].values}
    kinds = {"mixed": int(mixed.sum()), "whole": int((~mixed).sum())}
    return xarray.Dataset(variables(estimates) | quantiles, coordinates, one.attrs | kinds)


def _mean(values: Float[np.ndarray, " seeds"], key: PRNGKeyArray) -> Estimate:
    return bootstrap(values if values.size else np.zeros(1), key)


def _judgement(
    runs: Datasets,
    numbers: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    undecided: str,
    remark: str,
    **more: object,
) -> Judgement:
    return Judgement(
        measured={name: one.mean for name, one in numbers.items()},
        interval={name: (one.low, one.high) for name, one in numbers.items() if one.low < one.high},
        expected={},
        counts=counts_of(runs),
        stated=stated,
        undecided=undecided,
        remark=remark,
        **more,  # pyright: ignore[reportArgumentType]
    )


def _runs(summaries: Datasets, trained: str) -> dict[float, xarray.Dataset]:
    """Return the runs of p or of W by their temperature."""
    return {float(one.attrs["tau"]): one for one in summaries.values() if one.attrs["trained"] == trained}


def _of_relaxed(trained: str, summaries: Datasets) -> Judgement:
    """Nearly all mixed seeds have to end at the relaxed solution; corrected: at the one with offsets, at every tau."""
    runs = _runs(summaries, trained)
    if 1.0 not in runs:
        return Judgement.withheld("Its run is not made at this size.")
    one = runs[1.0]
    few = [too_few(run.attrs["mixed"], 8) or too_little(run) for run in runs.values()]
    numbers: dict[str, Number] = {}
    for tau, run in runs.items():
        for problem in PROBLEMS:
            at = run.sel(problem=problem)
            numbers |= {
                f"1 - cos, {problem}, tau = {tau:g}": number(at, "off"),
                f"share of seeds with 1 - cos below {PARALLEL}, {problem}, tau = {tau:g}": number(at, "parallel"),
            }
    share = f"share of seeds with 1 - cos below {PARALLEL}"
    stated = (above(f"{share}, relaxed", number(one.sel(problem="relaxed"), "parallel"), _ALL),)
    corrected = tuple(
        above(
            f"{share}, offset, tau = {tau:g}",
            number(run.sel(problem="offset"), "parallel"),
            _OFFSET if tau == 1 else _SLOW,
        )
        for tau, run in runs.items()
    )
    medians = ", ".join(f"{float(one['off_50'].sel(problem=problem)[-1]):.2g} ({problem})" for problem in PROBLEMS)
    return _judgement(
        {run.attrs["run"]: run for run in runs.values()},
        numbers,
        stated,
        next(filter(None, few), ""),
        f"Over the {one.attrs['mixed']} seeds at tau = 1 some of whose inputs are no support vectors of v; there the "
        f"median 1 - cos is {medians}, and the mean margin ratio in the unrelaxed problem {float(one['ratio']):.3f}.",
        corrected=corrected,
        correction="with norms that grow in a fixed ratio, the constraints of input i have the target max(0, 1 - kappa "
        "(m_i - m)) with m_i its label margin, m the smallest and kappa = ||v|| / ||W|| times the solution's norm: "
        "between the unrelaxed problem, for a small ratio, and the relaxed one, for a large one.",
    )


def _of_support(summaries: Datasets) -> Judgement:
    """Where all inputs are support vectors of v, the mean direction error has to be small."""
    runs = {
        one.attrs["run"]: one for one in summaries.values() if one.attrs["tau"] == 1 and one.attrs["trained"] == "p"
    }
    if not runs:
        return Judgement.withheld("Its run is not made at this size.")
    (one,) = runs.values()
    numbers = {"1 - cos": number(one, "off_whole")}
    stated = (
        below("mean 1 - cos of p and its plain token SVM", numbers["1 - cos"], _NEAR),
        above("seeds all of whose inputs are support vectors", Number.exact(one.attrs["whole"]), 8),
        # A direction error is never below zero.
        above("mean 1 - cos", numbers["1 - cos"], 0.0),
    )
    undecided = too_few(one.attrs["whole"], 8) or too_little(one)
    remark = f"Over the {one.attrs['whole']} seeds of {one.attrs['kept']} all of whose inputs are support vectors of v."
    return _judgement(runs, numbers, stated, undecided, remark)


def _of_head(summaries: Datasets) -> Judgement:
    """Nearly all seeds of p and of W have to end with v along its max-margin classifier."""
    runs = {one.attrs["run"]: one for one in summaries.values() if one.attrs["tau"] == 1}
    if {one.attrs["trained"] for one in runs.values()} != {"p", "W"}:
        return Judgement.withheld("Not all of its runs are made at this size.")
    numbers = {
        f"share of seeds with 1 - cos of v below {PARALLEL}, {run}": number(one, "head") for run, one in runs.items()
    }
    medians = ", ".join(f"{float(one['off_v_50'][-1]):.2g} ({run})" for run, one in runs.items())
    stated = tuple(above(name, one, _ALL) for name, one in numbers.items())
    undecided = next(filter(None, map(too_little, runs.values())), "")
    return _judgement(runs, numbers, stated, undecided, f"Median 1 - cos of v: {medians}.")


def _of_prompt(summaries: Datasets) -> Judgement:
    return _of_relaxed("p", summaries)


def _of_weights(summaries: Datasets) -> Judgement:
    return _of_relaxed("W", summaries)


_RELAXED = (
    "converges in direction to the token SVM in which the constraints of the inputs that are no support vectors of the "
    "max-margin v are relaxed from >= 1 to >= 0."
)

CLAIMS = (
    Claim(
        "joint-descent:head",
        _SOURCE,
        "Under logistic loss, v trained together with the attention converges in direction to the max-margin "
        "classifier of the selected tokens.",
        _of_head,
        examples.of_head,
    ),
    Claim(
        "joint-descent:support",
        _SOURCE,
        "Where all inputs are support vectors of the max-margin v, the prompt p trained together with v converges in "
        "direction to the max-margin solution p_mm of the selected tokens.",
        _of_support,
        examples.of_support,
    ),
    Claim(
        "joint-descent:prompt",
        _SOURCE,
        f"The prompt p trained together with v {_RELAXED}",
        _of_prompt,
        examples.of_prompt,
    ),
    Claim(
        "joint-descent:weights",
        Source("arXiv 2306.13596", "the same of W, whose equivalence to p it remarks", Setting.OURS),
        f"W trained together with v {_RELAXED}",
        _of_weights,
        examples.of_weights,
    ),
)
