"""The finite part (2308.16898, eq. 9): ratios of the descended attention inside the sets, against a prediction.

W_fin is defined by the ratios that descent ends with, and has them by construction. What predicts them without the run
is the best distribution on the selected tokens (`stationary`), where there is one only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions as multi_token
from jaxattn.experiments.several_tokens import stationary
from jaxattn.experiments.several_tokens.multi_token_lambda.claims import penalty_of
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import WITHOUT, labels_of_one_kind
from jaxattn.study.claims import EXCLUDED, Claim, Verdict
from jaxattn.study.statistics import proportion

_SOURCE = "arXiv 2308.16898, finite part of the multi-token limit (eq. 9)"
# What the best distribution on a set of several tokens is: the only one, of all its tokens or of fewer; or one of many.
KINDS = ("mixes the set", "mixes fewer", "not unique")
HEADS, PARTS = ("quadratic", "ReLU"), ("published", "every")
# A ratio has settled if its logarithm changes by less in the second half of the run. A line agrees within the other.
_SETTLED, _AGREES = 0.01, 0.05
_SAMPLES, _ENDS = 2000, ("", "_low", "_high")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold the ratios inside every set of several tokens against those of the best distribution on the set.

    Args:
        record: of a `Screening` with the head `mlp`, or `Quadratic` on orthonormal tokens.
        solver: of W_mm and W_fin; those of the Frobenius norm if None.

    Returns:
        Three axes. `mixed`: the inputs that select several tokens, with `kind`, a place in KINDS, and `drift`, the
        largest change of the logarithm of a ratio in the second half of the run. `pair`: of an input of the first kind
        every other token of its set beside the first, with the logarithms `predicted` and `descended`. `whole`: the
        runs all of whose sets are of the first kind, with 1 - correlation with W_SVMeq, its finite part `fitted` to the
        run or `foretold`. `seed` on each axis, with the prefix `pair_` or `whole_`, is the run; likewise `published`
        and `every`, whether it is in that part of `multi_token.attempts`. The counts of these are attributes, the
        second with a prefix.
    """
    runs = multi_token.runs_of(record)
    quadratic = "penalty" in json.loads(record.attrs["config"])["head"]
    further = {} if quadratic else {"labels": labels_of_one_kind(runs)}
    parts = dict(zip(PARTS, multi_token.attempts(runs, **further), strict=True))
    seeds = np.union1d(*(np.flatnonzero(reason < 0) for reason in parts.values()))
    selected, runs = multi_token.selected_sets(runs)[seeds], _taken(runs, seeds)
    if quadratic:
        best, unique = stationary.quadratic(runs.problems, penalty_of(record), selected)
        run = {"head": "quadratic", "run": f"lambda = {penalty_of(record):g}"}
    else:
        best, unique = stationary.relu(runs.problems, selected)
        run = {"head": "ReLU", "run": f"d = {runs.problems.d}"}

    several = selected.sum(axis=2) > 1
    kind = np.where(~unique, 2, np.where(((best > 0) == selected).all(axis=2), 0, 1))
    reference = selected.argmax(axis=2)[..., None]
    half, last = (_beside(runs.logits[:, place], reference) for place in ((len(runs.steps) - 1) // 2, -1))
    drift = np.where(selected, np.abs(last - half), 0).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = _beside(np.log(best), reference)
    pairs = selected & (several & (kind == 0))[..., None] & (np.arange(selected.shape[2]) != reference)

    whole = np.flatnonzero(several.any(axis=1) & ((kind == 0) | ~several).all(axis=1))
    fitted, foretold, failed = _distances(_taken(runs, whole), best[whole], selected[whole], solver)
    for reason in parts.values():
        lost = seeds[whole[failed >= 0]]
        reason[lost[lost < len(reason)]] = failed[failed >= 0][lost < len(reason)]

    where = {"mixed": np.nonzero(several)[0], "pair": np.nonzero(pairs)[0], "whole": whole}
    variables = {"mixed": {"kind": kind[several], "drift": drift[several]}}
    variables["pair"] = {"predicted": predicted[pairs], "descended": last[pairs]}
    variables["whole"] = {"fitted": fitted, "foretold": foretold}
    for axis, of in where.items():
        prefix = "" if axis == "mixed" else f"{axis}_"
        variables[axis][f"{prefix}seed"] = seeds[of]
        variables[axis] |= {prefix + part: multi_token.kept_of(seeds[of], reason) for part, reason in parts.items()}
    counts = multi_token.counts(parts["published"], EXCLUDED)
    of_every = {f"every_{name}": count for name, count in multi_token.counts(parts["every"]).items()}
    return xarray.Dataset(
        {name: ((axis,), values) for axis, named in variables.items() for name, values in named.items()},
        {"snapshot": runs.steps},
        {**run, **counts, **of_every},
    )


def _taken(runs: multi_token.Runs, seeds: np.ndarray) -> multi_token.Runs:
    problems = jax.tree.map(lambda leaf: leaf[seeds], runs.problems)
    return multi_token.Runs(problems, runs.W[seeds], runs.logits[seeds], runs.size[seeds], runs.steps)


def _beside(numbers: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the numbers of all tokens of an input less that of its reference."""
    return numbers - np.take_along_axis(numbers, reference, axis=2)


def _distances(
    runs: multi_token.Runs, best: np.ndarray, selected: np.ndarray, solver: svm.Solver | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 1 - correlation with W_SVMeq, its finite part fitted and foretold, and why a run has none."""
    with np.errstate(divide="ignore"):
        logits = np.where(selected, np.log(best), 0.0)
    found = [multi_token.describe(runs.problems, runs.W, selected, solver, of) for of in (None, logits)]
    fitted, foretold = (multi_token.distances(runs.problems, runs.logits, runs.size, one.W)[:, 0, -1] for one in found)
    return fitted, foretold, multi_token.failures(np.concatenate([one.status for one in found], axis=1))


def summarize(
    measured: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Fit a line to the ratios under each head, with the published selection and without, and judge it.

    Args:
        measured: of every lambda and dimension, as `measure` returns it.
        key: of the bootstrap.

    Returns:
        For each head two datasets, of the published selection under its name and of every run with `, no selection`
        behind it: kinds and pairs, the line, and shares of the inputs, with their intervals; the claims.
    """
    summaries, claims = {}, []
    for head, own in zip(HEADS, jax.random.split(key), strict=True):
        runs = {run: one for run, one in measured.items() if one.attrs["head"] == head}
        of_head, counts = {}, {}
        for part, suffix in zip(PARTS, ("", WITHOUT), strict=True):
            of_head[head + suffix] = _summary(list(runs.values()), part, own)
            counts |= {run + suffix: _counts(one, part) for run, one in runs.items()}
        summaries |= of_head
        claims.append(_claim(head, of_head, counts))
    return summaries, claims


def _counts(one: xarray.Dataset, part: str) -> dict[str, int]:
    prefix = "every_" if part == "every" else ""
    names = (name for name in ("attempted", "kept", *EXCLUDED) if prefix + name in one.attrs)
    return {name: int(one.attrs[prefix + name]) for name in names}


def _summary(runs: list[xarray.Dataset], part: str, key: PRNGKeyArray) -> xarray.Dataset:
    """Join the runs of one part under one head."""
    here = [
        one.isel(mixed=one[part].values, pair=one[f"pair_{part}"].values, whole=one[f"whole_{part}"].values)
        for one in runs
    ]
    names = ("kind", "drift", "predicted", "descended", "fitted", "foretold", "pair_seed")
    joined = {name: np.concatenate([one[name].values for one in here]) for name in names}
    # A seed is another instance in every run.
    run = np.concatenate([np.full(one.sizes["pair"], place) for place, one in enumerate(here)])
    summary = xarray.Dataset({"kind": (("mixed",), joined["kind"])}, {"snapshot": here[0]["snapshot"].values})
    for name in ("predicted", "descended"):
        summary[name] = (("pair",), joined[name])
    estimates: dict[str, Sequence[Any]] = {}
    if len(joined["kind"]):
        shares = {"determined": joined["kind"] == 0, "not unique": joined["kind"] == 2}
        shares["settled"] = joined["drift"] < _SETTLED
        estimates = {name: proportion(holds)[:3] for name, holds in shares.items()}
        summary["drift"] = float(np.median(joined["drift"]))
    _, of = np.unique(np.stack([run, joined["pair_seed"]]), axis=1, return_inverse=True)
    if len(np.unique(of)) > 2:
        estimates |= _line(joined["predicted"], joined["descended"], of, key)
    for name, values in estimates.items():
        summary = summary.assign({name + end: float(value) for end, value in zip(_ENDS, values, strict=True)})
    for name in ("fitted", "foretold") if len(joined["fitted"]) else ():
        summary[name] = joined[name].mean()
    counts = [_counts(one, part) for one in runs]
    return summary.assign_attrs({name: sum(one[name] for one in counts) for name in counts[0]})


def _line(predicted: np.ndarray, descended: np.ndarray, of: np.ndarray, key: PRNGKeyArray) -> dict[str, Sequence[Any]]:
    """Fit `descended = slope predicted + intercept`; return these and the rms difference, with intervals over runs."""
    one, square = np.ones_like(predicted), (descended - predicted) ** 2
    terms = (one, predicted, descended, predicted**2, predicted * descended, square)
    sums = np.stack([np.bincount(of, weights=term) for term in terms], axis=1)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=_SAMPLES)
    n, x, y, xx, xy, square = np.concatenate([sums.sum(axis=0)[None], drawn @ sums]).T
    slope = (n * xy - x * y) / np.maximum(n * xx - x * x, np.finfo(float).tiny)
    found = {"slope": slope, "intercept": (y - slope * x) / n, "rms": np.sqrt(square / n)}
    return {name: (values[0], *np.quantile(values[1:], [0.025, 0.975])) for name, values in found.items()}


def _claim(head: str, own: Mapping[str, xarray.Dataset], counts: Mapping[str, Mapping[str, int]]) -> Claim:
    measured, interval = {}, {}
    for run, summary in own.items():
        for name in ("slope", "intercept", "rms", "determined", "not unique", "settled"):
            if name in summary:
                measured[f"{run}, {name}"] = float(summary[name])
                interval[f"{run}, {name}"] = (float(summary[f"{name}_low"]), float(summary[f"{name}_high"]))
        for name in ("drift", "fitted", "foretold"):
            if name in summary:
                measured[f"{run}, {name}"] = float(summary[name])
    verdict, note = Verdict.OPEN, multi_token.undecided(own)
    if not note and not all("slope" in summary for summary in own.values()):
        note = "Ratios of fewer than three runs are predicted, too few to decide."
    if not note:
        determined = all(float(summary["determined_low"]) > 0.5 for summary in own.values())
        agrees = all(_agrees(summary) for summary in own.values())
        verdict = Verdict.HOLDS if determined and agrees else Verdict.FAILS
        note = (
            "Holds if of most inputs that select several tokens one distribution alone is best and mixes the whole set "
            "(determined), and the logarithms of the descended ratios lie on its line: intervals of the slope within "
            f"{_AGREES} of 1 and of the intercept within {_AGREES} of 0, with the published selection and without. "
            + _words(own, determined)
            + f"Settled: no ratio of an input changes by more than {_SETTLED} in the logarithm in the second half of "
            "the run; drift: the median change. Fitted and foretold: mean 1 - correlation of W with W_SVMeq, its "
            "finite part from the run and from the prediction, of the runs whose sets are all determined."
        )
    return Claim(
        id=f"finite-part:{head}",
        source=_SOURCE,
        statement="Inside the selected sets descent tends to finite ratios of the attention, which the problem "
        f"determines ({'h(x) = v . x - lambda ||x||^2' if head == 'quadratic' else 'a head of ReLUs'}).",
        expected={f"{run}, {name}": value for run in own for name, value in (("slope", 1.0), ("intercept", 0.0))},
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=verdict,
        note=note,
    )


def _words(own: Mapping[str, xarray.Dataset], determined: bool) -> str:
    if determined:
        return ""
    many = " and ".join(f"{float(summary['not unique']):.0%}" for summary in own.values())
    return (
        f"Of {many} of the inputs, with the published selection and without, many distributions are equally good, as "
        "where all units of the head are off: then the input has no gradient, and its ratios are left to the start and "
        "to what the other inputs make of W. "
    )


def _agrees(summary: xarray.Dataset) -> bool:
    ends = ((name, value, end) for name, value in (("slope", 1), ("intercept", 0)) for end in _ENDS)
    return all(abs(float(summary[name + end]) - value) <= _AGREES for name, value, end in ends)
