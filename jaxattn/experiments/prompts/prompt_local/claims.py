"""Which directions attract a prompt: only those of locally optimal tokens, and sometimes several (2306.13596)."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Bool, PRNGKeyArray

from jaxattn.experiments.prompts.prompt_local import examples
from jaxattn.statistics import Estimate, pooled, variables
from jaxattn.study.claims import (
    Claim,
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

# Fixed beforehand: the direction error above which an end is not at its solution; the smallest share of its norm by
# which a growing prompt moves in the second half of training; the share of starts that counts as all; and the share of
# the growing ones, some of which have not converged yet.
PARALLEL, MOVES, _ALL, _GROWING = 0.01, 0.2, 0.98, 0.95
_SOURCE = Source("arXiv 2306.13596", "theorems on locally optimal directions, and its pictures", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate where the starts end, over the problems.

    Args:
        datasets: of `measure`, of several problems, or of one for the figure only.
        key: of the bootstrap over problems.

    Returns:
        For each run a dataset. Shares of all starts: `arrived` at the solution of a locally optimal choice; `resting`,
        whose prompt stays at a point; and `elsewhere`, the others. `growing`, the share that arrived among the starts
        that do not rest; `several`, the number of problems with starts that end at two or more locally optimal choices,
        and `optima`, the number of problems that have two or more. For the first problem, which the figure draws: `X`,
        `score`, `p_initial`; `end`, the number of the choice at which a start ends, -1 if resting and -2 if elsewhere;
        and for every choice `alpha`, its `ray` and whether it is `locally` optimal.

    Raises:
        ValueError: a run of which no problem was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"prompt-local: expected a kept problem in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, own) for (run, one), own in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    choice, locally = one["choice"].values, one["locally"].values
    rests, off = one["moved"].values < MOVES, one["off"].values
    arrived = np.take_along_axis(locally, choice, axis=1) & (off > 0) & (off < PARALLEL) & ~rests
    keys = jax.random.split(key, 4)
    estimates = {
        "arrived": ((), _share(arrived, np.ones_like(arrived), keys[0])),
        "resting": ((), _share(rests, np.ones_like(arrived), keys[1])),
        "elsewhere": ((), _share(~arrived & ~rests, np.ones_like(arrived), keys[2])),
        "growing": ((), _share(arrived, ~rests, keys[3])),
    }
    reached = [np.unique(c[a]).size for c, a in zip(choice, arrived, strict=True)]
    end = np.where(arrived[0], choice[0], np.where(rests[0], -1, -2))
    drawn = {
        "end": (("start",), end),
        "ray": (("choice_number", "feature"), one["solution"].values[0]),
        "locally": (("choice_number",), locally[0]),
        "alpha": (("choice_number", "input"), one["alpha"].values),
        "X": (("input", "token", "feature"), one["X"].values[0]),
        "score": (("input", "token"), one["score"].values[0]),
        "p_initial": (("start", "feature"), one["p_initial"].values[0]),
    }
    counted = {"several": int(np.sum(np.array(reached) > 1)), "optima": int((locally.sum(axis=1) > 1).sum())}
    return xarray.Dataset(variables(estimates) | drawn | counted, attrs=one.attrs)


def _share(hits: Bool[np.ndarray, "seed start"], among: Bool[np.ndarray, "seed start"], key: PRNGKeyArray) -> Estimate:
    """Estimate the share of hits among some starts, resampling whole problems; 0 if there are no such starts."""
    seed = np.broadcast_to(np.arange(len(hits))[:, None], hits.shape)
    # If none grows, none has arrived.
    among = among if among.any() else np.ones_like(among)
    return pooled(hits[among], seed[among], key)


def _runs(summaries: Datasets) -> tuple[dict[str, xarray.Dataset], str]:
    """Return the runs with several problems, and the reason if they cannot decide a claim."""
    runs = {run: one for run, one in summaries.items() if one.attrs["attempted"] > 1}
    reasons = [too_short(one.attrs["steps"]) or too_few(one.attrs["kept"]) for one in runs.values()]
    lacking = "" if {one.attrs["inputs"] for one in runs.values()} == {1, 2} else "Not all of its runs are made."
    return runs, next(filter(None, reasons), lacking)


def _of_attracting(summaries: Datasets) -> Judgement:
    """All starts must end at a locally optimal solution; as corrected, all whose prompt grows."""
    runs, undecided = _runs(summaries)
    if not runs:
        return Judgement.withheld("No run of several problems is made.")
    numbers: dict[str, Number] = {}
    for run, one in runs.items():
        numbers |= {f"share of starts that end at a locally optimal solution, {run}": number(one, "arrived")}
        numbers |= {f"share of starts whose prompt stays at a finite point, {run}": number(one, "resting")}
    stated, corrected = [], []
    for run, one in runs.items():
        stated.append(
            above(f"share of starts that end at a locally optimal solution, {run}", number(one, "arrived"), _ALL)
        )
        words = f"share that ends at a locally optimal solution, among starts whose prompt grows, {run}"
        corrected.append(above(words, number(one, "growing"), _GROWING))
        numbers[words] = number(one, "growing")
    others = ", ".join(f"{float(one['elsewhere']):.2%} ({run})" for run, one in runs.items())
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of(runs),
        stated=tuple(stated),
        corrected=tuple(corrected),
        correction="from every start the prompt either stays at a finite point or grows, and all growing prompts "
        "converge in direction to the solution of a locally optimal choice.",
        undecided=undecided,
        remark=f"Share of starts that grow but end elsewhere or have not converged yet: {others}.",
    )


def _of_several(summaries: Datasets) -> Judgement:
    """In some problem starts must end at two choices; each end is a certified solution of a locally optimal one."""
    runs, undecided = _runs(summaries)
    if not runs:
        return Judgement.withheld("No run of several problems is made.")
    numbers = {
        f"problems in which starts end at two or more locally optimal solutions, {run}": Number.exact(
            float(one["several"]) if float(one["arrived"]) > 0 else 0.0
        )
        for run, one in runs.items()
    }
    having = ", ".join(f"{int(one['optima'])} of {one.attrs['kept']} ({run})" for run, one in runs.items())
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of(runs),
        stated=tuple(above(name, one, 1.0) for name, one in numbers.items()),
        undecided=undecided,
        remark=f"Problems with two or more locally optimal choices: {having}.",
    )


CLAIMS = (
    Claim(
        "prompt-local:attract",
        _SOURCE,
        "Only the max-margin directions of locally optimal tokens attract gradient descent on the prompt: from every "
        "start it ends at one of them.",
        _of_attracting,
        examples.of_attracting,
    ),
    Claim(
        "prompt-local:several",
        _SOURCE,
        "A problem may have several locally optimal directions, each of which attracts some starts.",
        _of_several,
        examples.of_several,
    ),
)
