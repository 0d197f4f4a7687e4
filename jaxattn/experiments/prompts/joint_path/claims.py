"""Where the joint regularization paths of p and v go (2306.13596), by how their radii grow."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_path import examples
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
    below,
    between,
    counts_of,
    number,
    too_few,
)

# Fixed before any number of the experiment's key: the direction error below which two directions count as one; which
# share of the seeds is nearly all of them; that of the correction, which the other problems must not reach; the mean
# direction error that a limit may have left; the largest radius that decides; and the share of seeds to be solved.
PARALLEL, _ALL, _MOST, _NEAR, _FAR, _SOLVED = 0.001, 0.95, 0.8, 0.001, 900.0, 0.9
# The exponents of R in r, and the problem that p obeys under each; v outgrows p, p outgrows v, or neither.
OBEYED = {0.5: "unrelaxed", 1.0: "offset", 2.0: "relaxed"}
_OTHERS = {0.5: ("relaxed",), 1.0: ("unrelaxed", "relaxed"), 2.0: ("unrelaxed",)}
_SHARE = f"share of seeds with 1 - cos below {PARALLEL}"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how near p and v of every law of the radii are to their problems.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each law a dataset. Over its `mixed` seeds, some of whose inputs are no support vectors of v: `off_10`,
        `off_50`, `off_90`, quantiles of the direction error from the solution of each problem, (problem, radius), and
        the share `parallel` at the end, (problem,). Over the others, `whole`: `off_whole`, the mean direction error at
        the end, and its quantiles along the radii. Over all: `head`, the share of seeds whose v is parallel to its
        solution, the quantiles of `off_v`, the share `lowest` of seeds whose path is the lowest found, (radius,), the
        share `largest` that choose the tokens of largest label margin, and the largest `residual`. Attributes count
        `mixed` and `whole` seeds, and `points` and `unsolved_points`. Where there are no seeds of a kind the estimates
        are 0, and decide nothing.

    Raises:
        ValueError: a law of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"joint-path: expected a kept seed of each law, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    mixed = ~one["support"].values.all(axis=1)
    off, of_v = one["off"].values, one["off_v"].values
    of_mixed = _or_zero(off[mixed])
    of_whole = _or_zero(off[~mixed][:, PROBLEMS.index("unrelaxed")])
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {
        "parallel": (("problem",), proportion(_parallel(of_mixed[..., -1]))),
        "off_whole": ((), bootstrap(of_whole[:, -1], key)),
        "head": ((), proportion(_parallel(of_v[:, -1]))),
        "lowest": (("radius",), proportion(one["lowest"].values)),
        "largest": ((), proportion(one["largest"].values)),
    }
    curves = {"off": (("problem", "radius"), of_mixed), "whole": (("radius",), of_whole), "off_v": (("radius",), of_v)}
    arrays = {
        f"{name}_{q}": (dims, np.quantile(values, q / 100, axis=0))
        for name, (dims, values) in curves.items()
        for q in (10, 50, 90)
    }
    arrays["residual"] = ((), one["residual"].values.max())
    solved = one["solved"].values
    attrs = one.attrs | {
        "mixed": int(mixed.sum()),
        "whole": int((~mixed).sum()),
        "points": solved.size,
        "unsolved_points": int((~solved).sum()),
    }
    coordinates = {"problem": one["problem"].values, "radius": one["radius"].values}
    return xarray.Dataset(variables(estimates) | arrays, coordinates, attrs)


def _or_zero(values: Float[np.ndarray, "seeds ..."]) -> Float[np.ndarray, "some ..."]:
    return values if len(values) else np.zeros((1, *values.shape[1:]))


def _parallel(off: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    # A direction error is never below zero.
    return (off > 0) & (off < PARALLEL)


def _undecided(summaries: Datasets, of_kind: str) -> str:
    """Say why the laws cannot decide, for the first that cannot; empty if all can."""
    return next(filter(None, (_open(one, of_kind) for one in summaries.values())), "")


def _open(one: xarray.Dataset, of_kind: str) -> str:
    attempted, unsolved, last = one.attrs["attempted"], one.attrs["unsolved"], float(one["radius"][-1])
    if last < _FAR:
        return f"Radii up to {last:g} are too small to decide; at least {_FAR:g} are needed."
    if unsolved > (1 - _SOLVED) * attempted:
        return f"{unsolved} of {attempted} paths are unsolved: too many to decide."
    return too_few(one.attrs[of_kind])


def _laws(summaries: Datasets) -> dict[float, xarray.Dataset]:
    """Return the summaries by the exponent of R in r, or nothing if they are not all there."""
    laws = {float(one.attrs["growth"]): one for one in summaries.values()}
    return laws if set(laws) == set(OBEYED) else {}


def _of_head(summaries: Datasets) -> Judgement:
    """Nearly all seeds have to end with v along its max-margin classifier, under all laws."""
    if not _laws(summaries):
        return Judgement.withheld("Not all of its runs are made at this size.")
    numbers = {f"{_SHARE}, v, {run}": number(one, "head") for run, one in summaries.items()}
    stated = tuple(above(name, one, _ALL) for name, one in numbers.items())
    medians = ", ".join(f"{float(one['off_v_50'][-1]):.2g} ({run})" for run, one in summaries.items())
    largest = ", ".join(f"{float(one['largest']):.0%} ({run})" for run, one in summaries.items())
    lowest = ", ".join(f"{float(one['lowest'][0]):.0%} ({run})" for run, one in summaries.items())
    remark = (
        f"Median 1 - cos of v: {medians}. The path of lower risk at the largest radii is that of the tokens of largest "
        f"label margin in {largest}; at the smallest it is the lower one in {lowest}."
    )
    return judgement(summaries, numbers, stated, _undecided(summaries, "kept"), remark)


def _of_support(summaries: Datasets) -> Judgement:
    """Where all inputs are support vectors of v, the mean direction error has to be small, under all laws."""
    if not _laws(summaries):
        return Judgement.withheld("Not all of its runs are made at this size.")
    numbers = {
        f"mean 1 - cos of p and its token SVM, {run}": number(one, "off_whole") for run, one in summaries.items()
    }
    stated = tuple(between(name, one, 0.0, _NEAR) for name, one in numbers.items())
    seeds = ", ".join(f"{one.attrs['whole']} of {one.attrs['kept']} ({run})" for run, one in summaries.items())
    remark = f"Over the seeds all of whose inputs are support vectors of v: {seeds}."
    return judgement(summaries, numbers, stated, _undecided(summaries, "whole"), remark)


def _of_relaxed(summaries: Datasets) -> Judgement:
    """Nearly all mixed seeds have to end at the relaxed solution; corrected: at one that depends on the law."""
    laws = _laws(summaries)
    if not laws:
        return Judgement.withheld("Not all of its runs are made at this size.")

    def share(growth: float, problem: str) -> tuple[str, Number]:
        one = laws[growth]
        return f"{_SHARE}, {problem}, {one.attrs['run']}", number(one.sel(problem=problem), "parallel")

    corrected = (
        *(above(*share(growth, problem), _MOST) for growth, problem in OBEYED.items()),
        *(below(*share(growth, other), _MOST) for growth, others in _OTHERS.items() for other in others),
    )
    medians = "; ".join(
        f"{one.attrs['run']}: "
        + ", ".join(f"{float(one['off_50'].sel(problem=problem)[-1]):.2g} ({problem})" for problem in PROBLEMS)
        for one in laws.values()
    )
    seeds = ", ".join(f"{one.attrs['mixed']} of {one.attrs['kept']} ({run})" for run, one in summaries.items())
    return judgement(
        summaries,
        dict(share(growth, problem) for growth in laws for problem in PROBLEMS),
        tuple(above(*share(growth, "relaxed"), _ALL) for growth in laws),
        _undecided(summaries, "mixed"),
        f"Over the seeds some of whose inputs are no support vectors of v: {seeds}. Median 1 - cos: {medians}.",
        corrected=corrected,
        correction="the problem depends on how r grows with R: p tends to the unrelaxed problem if r / R falls to 0, "
        "to the relaxed one if it grows without bound, and for a fixed ratio to that in which input i has the target "
        "max(0, 1 - kappa (m_i - m)), with m_i its label margin, m the smallest and kappa = r / R times the "
        "solution's norm.",
    )


CLAIMS = (
    Claim(
        "joint-path:head",
        Source("arXiv 2306.13596", "theorem on joint regularization paths, as recalled", Setting.OURS),
        "Under logistic loss, as the radii r of v and R of p grow, v tends in direction to the max-margin classifier "
        "of the selected tokens.",
        _of_head,
        examples.of_head,
    ),
    Claim(
        "joint-path:support",
        Source("arXiv 2306.13596", "theorem on joint regularization paths, as recalled", Setting.OURS),
        "Where all inputs are support vectors of the max-margin v, p tends in direction to the max-margin solution "
        "p_mm of the selected tokens.",
        _of_support,
        examples.of_support,
    ),
    Claim(
        "joint-path:relaxed",
        Source("arXiv 2306.13596", "theorem on joint regularization paths, relaxed, as recalled", Setting.OURS),
        "As the radii r of v and R of p grow, p tends in direction to the token SVM in which the constraints of the "
        "inputs that are no support vectors of the max-margin v are relaxed from >= 1 to >= 0.",
        _of_relaxed,
        examples.of_relaxed,
    ),
)
