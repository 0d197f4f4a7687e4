"""Several selected tokens under the head `v . x - lambda ||x||^2` (2308.16898): how many, and W, against lambda."""

from __future__ import annotations

import json
from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions as multi_token
from jaxattn.experiments.several_tokens import stationary
from jaxattn.study.claims import EXCLUDED, Claim, Verdict, counts_of
from jaxattn.study.statistics import bootstrap

_SOURCE = "arXiv 2308.16898, multi-token figure over lambda"
# From the best description to the worst, as the paper has it.
RANKED = ("W_SVMeq", "W_mm", "W_1token")
# Where no input mixes tokens, W_mm and W_SVMeq are one matrix up to rounding.
_ROUNDING = 1e-9


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Count the tokens that every run selects, and describe the runs that mask some.

    Args:
        record: of a `Screening` with a `Quadratic` head on orthonormal tokens.
        solver: of all problems; those of the Frobenius norm if None.

    Returns:
        With an axis `attempt`: `tokens`, selected in an input on average; `best`, those that the best attention of
        each input mixes; `diverged`. With an axis `seed`: `off` of `multi_token.compared`. The counts are attributes.

    Raises:
        ValueError: another head, or tokens that are not orthonormal.
    """
    runs, penalty = multi_token.runs_of(record), penalty_of(record)
    reason = multi_token.unselected(runs)
    seeds = np.flatnonzero(reason < 0)
    compared = multi_token.compared(runs, seeds, solver)
    reason[seeds] = compared["reason"].values
    best, _ = stationary.quadratic(runs.problems, penalty, np.ones(runs.logits[:, -1].shape, bool))
    kept = compared[["off"]].isel(seed=compared["reason"].values < 0)
    kept["tokens"] = (("attempt",), multi_token.selected_sets(runs).sum(axis=2).mean(axis=1))
    kept["best"] = (("attempt",), (best > 0).sum(axis=2).mean(axis=1))
    kept["diverged"] = (("attempt",), reason == EXCLUDED.index("diverged"))
    return kept.assign_attrs({"run": f"lambda = {penalty:g}", "penalty": penalty, **multi_token.counts(reason)})


def penalty_of(record: xarray.Dataset) -> float:
    """Return lambda, as the record's configuration has it.

    Raises:
        ValueError: another head.
    """
    head = json.loads(record.attrs["config"])["head"]
    if "penalty" not in head:
        raise ValueError(f"head: expected Quadratic, found {head['_target_']}")
    return float(head["penalty"])


def summarize(
    measured: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate both panels, and judge the trend and the order.

    Args:
        measured: of every lambda, as `measure` returns it; all of the same seeds.
        key: of the bootstrap.

    Returns:
        For each run its means with intervals: `tokens`, `best`, and `off` at the end; the claims.
    """
    ordered = dict(sorted(measured.items(), key=lambda item: item[1].attrs["penalty"]))
    first, *others = jax.random.split(key, len(ordered) + 1)
    summaries = {run: _summary(one, own) for (run, one), own in zip(ordered.items(), others, strict=True)}
    return summaries, [_tokens_claim(ordered, summaries, first), _order_claim(summaries)]


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    variables: dict[str, xarray.Variable] = {}
    here = ~one["diverged"].values
    for name in ("tokens", "best") if here.any() else ():
        variables |= multi_token.variables(name, (), bootstrap(one[name].values[here], key))
    if one.sizes["seed"]:
        final = one["off"].sel(solution=list(RANKED)).values[..., -1]
        variables |= multi_token.variables("off", ("solution",), bootstrap(final, key))
        variables |= multi_token.variables("worse", ("pair",), bootstrap(np.diff(final, axis=1), key))
    coordinates = {"solution": np.array(RANKED, dtype=object), "snapshot": one["snapshot"].values}
    return xarray.Dataset(variables, coordinates, one.attrs)


def _tokens_claim(
    measured: Mapping[str, xarray.Dataset], summaries: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> Claim:
    there = {run: summary for run, summary in summaries.items() if "tokens" in summary}
    verdict, note = Verdict.OPEN, multi_token.undecided(summaries)
    if not note:
        # The same seeds have the same problems and initial weights under every lambda.
        here = ~np.any([one["diverged"].values for one in measured.values()], axis=0)
        tokens = np.stack([one["tokens"].values for one in measured.values()], axis=1)[here]
        verdict = Verdict.HOLDS if (bootstrap(np.diff(tokens, axis=1), key).low > 0).all() else Verdict.FAILS
        note = (
            "Holds if the interval of the paired difference from each lambda to the next lies above 0. Selected are "
            "the tokens before the first gap of a factor of 1e-3 in the attention at the end. Expected is how many "
            "tokens the best attention of an input mixes, which follows from head and tokens alone."
        )
    return Claim(
        id="multi-token-lambda:tokens",
        source=_SOURCE,
        statement="The larger lambda is, the more tokens does descent select.",
        expected={run: float(summary["best"]) for run, summary in there.items()},
        measured={run: float(summary["tokens"]) for run, summary in there.items()},
        interval={run: (float(summary["tokens_low"]), float(summary["tokens_high"])) for run, summary in there.items()},
        counts=counts_of(summaries),
        verdict=verdict,
        note=note,
    )


def _order_claim(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured, interval = {}, {}
    there = {run: summary for run, summary in summaries.items() if "off" in summary}
    for run, summary in there.items():
        for solution in RANKED:
            one = summary.sel(solution=solution)
            measured[f"{run}, {solution}"] = float(one["off"])
            interval[f"{run}, {solution}"] = (float(one["off_low"]), float(one["off_high"]))
    verdict, note = Verdict.OPEN, multi_token.undecided(there) or multi_token.undecided(summaries)
    if not note:
        worse = np.stack([summary["worse_low"].values for summary in summaries.values()])
        first, last = (worse[:, 0] >= -_ROUNDING).all(), (worse[:, 1] >= -_ROUNDING).all()
        verdict = Verdict.HOLDS if first else Verdict.FAILS
        note = (
            "1 - correlation at the end. Holds if under every lambda the interval of the paired difference of W_mm to "
            "W_SVMeq does not reach below 0. W_SVMeq is fitted to the run inside the sets. "
            + (
                "W_mm is as good as W_1token, or better, under every lambda."
                if last
                else "W_mm is not always better than W_1token."
            )
        )
    return Claim(
        id="multi-token-lambda:order",
        source=_SOURCE,
        statement="W_SVMeq describes the direction of descent at least as well as W_mm.",
        expected={},
        measured=measured,
        interval=interval,
        counts=counts_of(summaries),
        verdict=verdict,
        note=note,
    )
