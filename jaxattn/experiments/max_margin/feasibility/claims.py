"""Share of feasible Att-SVMs that select random tokens, against d (2308.16898)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.max_margin.separation import separate
from jaxattn.study.claims import Claim, Verdict, counts_of, too_few, total
from jaxattn.study.statistics import proportion


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve every problem in the Frobenius norm; what is feasible does not depend on the norm."""
    return separate(record, norms=(svm.frobenius,), solver=solver)


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate the shares and judge the theorem's condition `d >= max(T - 1, n)`.

    Args:
        datasets: of every (n, T), as `measure` returns them.
        key: not used; the intervals of shares are not resampled.

    Returns:
        One dataset with axes `run` and `d`: the share of feasible problems with its interval, and how
        many could not be decided; the claim.
    """
    del key
    parts = [_shares(one) for one in datasets.values()]
    summary = xarray.concat(parts, "run", coords="all").assign_attrs(total(datasets))
    return {"random tokens": summary}, [_claim(summary, datasets)]


def _shares(one: xarray.Dataset) -> xarray.Dataset:
    status = one["status"].sel(norm="frobenius").values
    estimate = proportion(status == svm.Status.OPTIMAL)
    variables = {
        "feasible": (("d",), estimate.mean),
        "feasible_low": (("d",), estimate.low),
        "feasible_high": (("d",), estimate.high),
        "undecided": (("d",), (status == svm.Status.NOT_CONVERGED).sum(axis=0)),
        "infeasible": (("d",), (status == svm.Status.INFEASIBLE).sum(axis=0)),
    }
    n, T = one.attrs["n"], one.attrs["T"]
    sizes = {"run": one.attrs["run"], "n": n, "T": T, "enough": max(T - 1, n), "seeds": one.sizes["seed"]}
    return xarray.Dataset(variables, {"d": one["d"].values, **sizes})


def _claim(summary: xarray.Dataset, datasets: Mapping[str, xarray.Dataset]) -> Claim:
    measured, interval, expected = {}, {}, {}
    for run, one in datasets.items():
        d, shares = one["d"].values, summary.sel(run=run)
        enough = int(shares["enough"])
        status = one["status"].values[:, d >= enough, 0]
        if status.size:
            label = f"{run}, share at d >= {enough}"
            estimate = proportion(np.ravel(status == svm.Status.OPTIMAL))
            expected[label], measured[label] = 1.0, float(estimate.mean)
            interval[label] = (float(estimate.low), float(estimate.high))
        always = [int(each) for each in d if (shares["feasible"].sel(d=slice(each, None)) == 1).all()]
        if always:
            measured[f"{run}, smallest d from which all are feasible"] = float(always[0])
    covered = summary.where(summary["d"] >= summary["enough"])
    infeasible, undecided = (int(covered[name].sum()) for name in ("infeasible", "undecided"))
    open_because = too_few(int(summary["seeds"].min()))
    if not measured or not expected:
        open_because = "No problem was drawn at d >= max(T - 1, n)."
    elif undecided:
        open_because = f"{undecided} problems at d >= max(T - 1, n) could not be decided."
    if infeasible:
        verdict, note = Verdict.FAILS, f"{infeasible} problems at d >= max(T - 1, n) are certified infeasible."
    else:
        verdict = Verdict.OPEN if open_because else Verdict.HOLDS
        note = open_because or (
            "Every problem at d >= max(T - 1, n) has a certified solution. The condition is sufficient only: "
            "random tokens can be selected from smaller d on."
        )
    return Claim(
        id="feasibility:theorem",
        source="arXiv 2308.16898, theorem on the feasibility of Att-SVM",
        statement="Any tokens of problems in general position can be selected if d >= max(T - 1, n).",
        expected=expected,
        measured=measured,
        interval=interval,
        counts=counts_of(datasets),
        verdict=verdict,
        note=note,
    )
