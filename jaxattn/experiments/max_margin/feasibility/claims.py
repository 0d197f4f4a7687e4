"""Share of feasible Att-SVMs that select random tokens, against d (2308.16898)."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.max_margin.feasibility import examples
from jaxattn.experiments.max_margin.separation import check, tallied, tally
from jaxattn.statistics import Estimate, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    number,
    too_few,
    total,
)
from jaxattn.svm import Status
from jaxattn.svm.certificate import tolerance_of

_SOURCE = Source("arXiv 2308.16898", "theorem on the feasibility of Att-SVM", Setting.OURS)
_COVERED = "d >= max(T - 1, n)"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the shares of feasible problems.

    Args:
        datasets: of every (n, T), as `measure` returns them.
        key: not used; the intervals of shares are not resampled.

    Returns:
        One dataset with axes `run` and `d`: the share of `feasible` problems with its interval; how many are certified
        `infeasible` and how many are `undecided`; the largest `violation` of a constraint by a certified solution. With
        axis `run` alone: the dimension `enough` of the theorem; `promised`, the share of feasible problems at or above
        it, NaN if none were drawn; `always`, the smallest d from which all are feasible, NaN if there is none; and the
        counts of every run, `tally`.

    Raises:
        ValueError: a violation below 0.
    """
    del key
    check(datasets)
    summary = xarray.concat([_shares(one) for one in datasets.values()], "run", coords="all")
    summary["tally"] = tally(datasets)
    return {"random tokens": summary.assign_attrs(total(datasets))}


def _shares(one: xarray.Dataset) -> xarray.Dataset:
    d, here = one["d"].values, one.sel(norm="frobenius")
    status, n, T = here["status"].values, one.attrs["n"], one.attrs["T"]
    feasible, enough = status == Status.OPTIMAL, max(T - 1, n)
    promised = np.ravel(feasible[:, d >= enough])
    always = [each for each in d if feasible[:, d >= each].all()]
    nothing = Estimate(*(np.full((), np.nan) for _ in Estimate._fields))
    arrays = variables({"feasible": (("d",), proportion(feasible))})
    arrays |= variables({"promised": ((), proportion(promised) if promised.size else nothing)})
    arrays |= {
        "undecided": (("d",), (status == Status.NOT_CONVERGED).sum(axis=0)),
        "infeasible": (("d",), (status == Status.INFEASIBLE).sum(axis=0)),
        "violation": (("d",), np.where(feasible, here["violation"].values, 0).max(axis=0)),
        "always": ((), float(always[0]) if always else np.nan),
    }
    sizes = {"run": one.attrs["run"], "n": n, "T": T, "enough": enough, "seeds": one.sizes["seed"]}
    return xarray.Dataset(arrays, {"d": d, **sizes})


def _judge(summaries: Datasets) -> Judgement:
    """Every problem that the theorem covers must have a certified solution; one infeasible problem refutes it."""
    summary = summaries["random tokens"]
    numbers, expected = {}, {}
    for run in summary["run"].values:
        one = summary.sel(run=run)
        if np.isfinite(one["promised"]):
            label = f"{run}, share at d >= {int(one['enough'])}"
            expected[label], numbers[label] = 1.0, number(one, "promised")
        if np.isfinite(one["always"]):
            numbers[f"{run}, smallest d from which all are feasible"] = float(one["always"])
    covered = summary.where(summary["d"] >= summary["enough"])
    infeasible, open_ones = (int(covered[name].sum()) for name in ("infeasible", "undecided"))
    problems = int(((summary["d"] >= summary["enough"]) * summary["seeds"]).sum())
    undecided = too_few(int(summary["seeds"].min()))
    if not problems:
        undecided = "No problem was drawn at d >= max(T - 1, n)."
    elif open_ones:
        undecided = f"{open_ones} of {problems} problems at {_COVERED} could not be decided."
    if infeasible:
        # One counterexample is enough, however few problems there are.
        undecided, remark = "", f"{infeasible} of {problems} problems at {_COVERED} are certified infeasible."
    else:
        earlier = int((summary["always"] < summary["enough"]).sum())
        remark = (
            f"All {problems} problems at {_COVERED} have a certified solution. The condition is only sufficient: in "
            f"{earlier} of {summary.sizes['run']} sizes (n, T) all random tokens can be selected from a smaller d."
        )
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=tallied(summary["tally"]),
        stated=(
            above(f"share of feasible problems at {_COVERED}", _certified(problems, infeasible, open_ones), 1.0),
            below(
                "largest constraint violation of their solutions",
                Number.exact(float(covered["violation"].max())),
                tolerance_of(summary["violation"].dtype).violation,
            ),
        ),
        undecided=undecided,
        remark=remark,
    )


def _certified(problems: int, infeasible: int, undecided: int) -> Number:
    """Return the share of feasible problems, with undecided ones counted as infeasible and as feasible."""
    if not problems:
        return Number.exact(np.nan)
    least, most = (problems - infeasible - undecided) / problems, (problems - infeasible) / problems
    return Number(least, least, most)


CLAIMS = (
    Claim(
        "feasibility:theorem",
        _SOURCE,
        "Any choice of tokens can be selected in problems in general position if d >= max(T - 1, n).",
        _judge,
        examples.theorem,
    ),
)
