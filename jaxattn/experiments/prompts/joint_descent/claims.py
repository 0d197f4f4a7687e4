"""Attention and head trained together: which max-margin problem each obeys (2306.13596)."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_descent import examples
from jaxattn.experiments.prompts.judging import judgement
from jaxattn.statistics import Estimate, bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    between,
    counts_of,
    number,
    too_few,
    too_little,
)

# Fixed beforehand: the direction error below which two directions count as equal; the share of seeds that counts as
# nearly all; the same for the problem with offsets, at tau = 1 and at other tau, where the last steps are slow; and the
# largest mean direction error of a limit.
PARALLEL, _ALL, _OFFSET, _SLOW, _NEAR = 0.01, 0.95, 0.9, 0.8, 0.01
_SOURCE = Source("arXiv 2306.13596", "section on training p and v together, as recalled", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how close W and v of every run are to the solutions.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset. Over its `mixed` seeds, for which some inputs are not support vectors of v: `off_10`,
        `off_50`, `off_90`, quantiles of the direction error from the solution of each problem, (problem, snapshot), the
        mean `off` and the share `parallel` at the end, (problem,), and the mean `ratio` of margins in the unrelaxed
        problem. Over the others, `whole`: `off_whole`, the mean direction error at the end. Over all: `head`, the share
        of seeds whose v is parallel to its solution, and `off_v`, quantiles of its direction error. Attributes `mixed`
        and `whole` count the seeds. If there are no seeds of a kind, the estimates are 0 and decide nothing.

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


def _runs(summaries: Datasets, trained: str) -> dict[float, xarray.Dataset]:
    """Return the runs of p or of W by temperature."""
    return {float(one.attrs["tau"]): one for one in summaries.values() if one.attrs["trained"] == trained}


def _of_relaxed(trained: str, summaries: Datasets) -> Judgement:
    """Nearly all mixed seeds must end at the relaxed solution; as corrected, at the one with offsets, for every tau."""
    runs = _runs(summaries, trained)
    if 1.0 not in runs:
        return Judgement.withheld("This run is not made at this size.")
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
    return judgement(
        {run.attrs["run"]: run for run in runs.values()},
        numbers,
        stated,
        next(filter(None, few), ""),
        f"At tau = 1, {one.attrs['mixed']} seeds have inputs that are not support vectors of v. Over these the median "
        f"1 - cos is {medians}, and the mean margin ratio in the unrelaxed problem is {float(one['ratio']):.3f}.",
        corrected=corrected,
        correction="if the norms grow in a fixed ratio, the constraints of input i have the target max(0, 1 - kappa "
        "(m_i - m)), where m_i is its label margin, m the smallest one, and kappa is ||v|| / ||W|| times "
        "the norm of the solution. This is between the unrelaxed problem, for a small ratio, and the "
        "relaxed one, for a large ratio.",
    )


def _of_support(summaries: Datasets) -> Judgement:
    """If all inputs are support vectors of v, the mean direction error must be small."""
    runs = {
        one.attrs["run"]: one for one in summaries.values() if one.attrs["tau"] == 1 and one.attrs["trained"] == "p"
    }
    if not runs:
        return Judgement.withheld("This run is not made at this size.")
    (one,) = runs.values()
    numbers = {"1 - cos": number(one, "off_whole")}
    stated = (between("mean 1 - cos of p with its plain token SVM", numbers["1 - cos"], 0.0, _NEAR),)
    undecided = too_few(one.attrs["whole"], 8) or too_little(one)
    remark = (
        f"Over the {one.attrs['whole']} of {one.attrs['kept']} seeds for which all inputs are support vectors of v."
    )
    return judgement(runs, numbers, stated, undecided, remark)


def _of_head(summaries: Datasets) -> Judgement:
    """For p and for W, nearly all seeds must end with v along its max-margin classifier."""
    runs = {one.attrs["run"]: one for one in summaries.values() if one.attrs["tau"] == 1}
    if {one.attrs["trained"] for one in runs.values()} != {"p", "W"}:
        return Judgement.withheld("Not all of these runs are made at this size.")
    numbers = {
        f"share of seeds with 1 - cos of v below {PARALLEL}, {run}": number(one, "head") for run, one in runs.items()
    }
    medians = ", ".join(f"{float(one['off_v_50'][-1]):.2g} ({run})" for run, one in runs.items())
    stated = tuple(above(name, one, _ALL) for name, one in numbers.items())
    undecided = next(filter(None, map(too_little, runs.values())), "")
    return judgement(runs, numbers, stated, undecided, f"Median 1 - cos of v: {medians}.")


def _of_prompt(summaries: Datasets) -> Judgement:
    return _of_relaxed("p", summaries)


def _of_weights(summaries: Datasets) -> Judgement:
    return _of_relaxed("W", summaries)


_RELAXED = (
    "converges in direction to the token SVM in which the constraints of inputs that are not support vectors of the "
    "max-margin v are relaxed from >= 1 to >= 0."
)

CLAIMS = (
    Claim(
        "joint-descent:head",
        _SOURCE,
        "With the logistic loss, v trained together with the attention converges in direction to the max-margin "
        "classifier of the selected tokens.",
        _of_head,
        examples.of_head,
    ),
    Claim(
        "joint-descent:support",
        _SOURCE,
        "If all inputs are support vectors of the max-margin v, the prompt p trained together with v converges in "
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
        Source("arXiv 2306.13596", "the same for W, which it remarks is equivalent to p", Setting.OURS),
        f"W trained together with v {_RELAXED}",
        _of_weights,
        examples.of_weights,
    ),
)
