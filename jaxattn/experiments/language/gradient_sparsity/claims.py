"""Which pairs of a prefix and a word carry the gradient of a text in training, and how few: estimates and judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.gradient_sparsity import examples
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Outcome,
    Setting,
    Source,
    below,
    counts_of,
    number,
    too_few,
)

# Kinds of texts: some W separates all next words, or none does.
KINDS = ("feasible", "infeasible")
# Kinds with fewer texts are drawn but not judged; shorter training is not judged either.
_TEXTS, STEPS = 8, 5000
# Fixed beforehand: "few" means at most half of all, the largest share the word allows; a share falls if its last value
# over its first is below 1 by more than rounding.
FEW, _FALL = 0.5, 0.999
# The largest share of the gradient off the support vectors, and the largest difference from the share predicted by the
# multipliers.
_BESIDE, _MISSED = 0.01, 0.02

# A run, a kind of texts, and the summary of the run.
_Case = tuple[str, str, xarray.Dataset]


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the shares along the steps, separately for feasible texts and others.

    Args:
        datasets: of `measure`, by candidates and d.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots, whose variables have the kind of text as a prefix, if it has such
        texts.

    Raises:
        ValueError: a share is not between 0 and 1.
    """
    for run, one in datasets.items():
        for name in ("share", "beside"):
            values = one[name].values
            if not ((values >= 0) & (values <= 1)).all():
                found = f"{values.min():.4g} to {values.max():.4g}"
                raise ValueError(f"gradient-sparsity: expected {name} between 0 and 1 in {run}, found {found}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def is_judged(one: xarray.Dataset, kind: str) -> bool:
    """Return whether a run, of `summarize`, has enough texts of a kind to judge by them."""
    return int(one[f"{kind}_texts"]) >= _TEXTS


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    dropped = one["dropped"].values.mean() / one.attrs["prefixes"]
    arrays: dict[str, Any] = {"dropped": ((), dropped), "pairs": ((), one["pairs"].values.mean())}
    kinds = one["feasible"].values, ~one["feasible"].values
    for kind, of_kind, k in zip(KINDS, kinds, jax.random.split(key), strict=True):
        arrays[f"{kind}_texts"] = ((), int(of_kind.sum()))
        if not of_kind.any():
            continue
        part = one.isel(seed=of_kind)
        share, beside, limit = (part[name].values for name in ("share", "beside", "limit"))
        keys = iter(jax.random.split(k, 6))
        estimates = {
            "share": (("snapshot",), bootstrap(share, next(keys))),
            "beside": (("snapshot",), bootstrap(beside, next(keys))),
            "ratio": ((), bootstrap(share[:, -1] / share[:, 0], next(keys))),
            "limit": ((), bootstrap(limit, next(keys))),
            "missed": ((), bootstrap(np.abs(share[:, -1] - limit), next(keys))),
            "core": ((), bootstrap(part["core"].values, next(keys))),
        }
        arrays |= {f"{kind}_{name}": estimate for name, estimate in variables(estimates).items()}
        arrays[f"{kind}_rise"] = ((), max(0.0, float(np.diff(share.mean(axis=0)).max(initial=0.0))))
    return xarray.Dataset(arrays, {"snapshot": one["snapshot"].values}, one.attrs)


def _judge_few(summaries: Datasets) -> Judgement:
    """At the end few pairs may carry the gradient in every case; as corrected, in one where more did before."""
    cases = _decided(summaries)
    if not cases:
        return _without_texts(summaries)
    measured: dict[str, Number] = {}
    for run, kind, one in cases:
        for place in (0, -1):
            at = one.isel(snapshot=place)
            label = f"share of pairs with 99 % of the gradient at step {int(at['snapshot'])}, {run}, {kind}"
            measured[label] = number(at, f"{kind}_share")
        measured[f"last share over first share, {run}, {kind}"] = number(one, f"{kind}_ratio")
        measured[f"largest increase of the mean share, {run}, {kind}"] = Number.exact(float(one[f"{kind}_rise"]))
    stated = tuple(_few(case) for case in cases)
    few = [case for case, criterion in zip(cases, stated, strict=True) if criterion.outcome is Outcome.MET]
    fewest = min(cases, key=lambda case: _end(case).high)
    falling = [case for case in cases if _fall(case).outcome is Outcome.MET]
    return _judgement(
        summaries,
        measured,
        {},
        stated=stated,
        corrected=(_few(fewest), _fall(fewest)),
        correction=f"only in {len(few)} of {len(cases)} kinds of texts do few pairs carry the gradient, and become "
        f"few during training: {'; '.join(map(_told, few)) or 'none'}. In the others most pairs continue "
        f"to carry it: {'; '.join(_told(case) for case in cases if case not in few) or 'none'}.",
        remark="The shares are of all pairs of a prefix and a candidate word, including the next word; few means at "
        f"most half of them, at the last step. The share falls during training in {len(falling)} of "
        f"{len(cases)} kinds of texts. Kinds (feasible or not) with fewer than {_TEXTS} texts in a run are "
        "drawn but not judged.",
    )


def _judge_support(summaries: Datasets) -> Judgement:
    """Little of the gradient may be off the support vectors; their share must be the one the multipliers predict."""
    cases = _decided(summaries)
    if not any(kind == KINDS[0] for _, kind, _ in cases):
        return _without_texts(summaries, "feasible ")
    measured, expected, stated = {}, {}, []
    for run, kind, one in cases:
        end = one.isel(snapshot=-1)
        of = "support vectors" if kind == "feasible" else "contested words"
        label = f"gradient not on {of} at the end, {run}"
        measured[label], expected[label] = number(end, f"{kind}_beside"), 0.0
        measured[f"share of pairs that are {of}, {run}"] = number(one, f"{kind}_core")
        stated.append(below(f"{label},", measured[label], _BESIDE))
        if kind == "feasible":
            measured[f"share with 99 % of the gradient at the end, {run}"] = number(end, "feasible_share")
            expected[f"share with 99 % of the gradient at the end, {run}"] = float(one["feasible_limit"])
            measured[f"difference of this share from that of the multipliers, {run}"] = missed = number(
                one, "feasible_missed"
            )
            stated.append(below(f"difference of the last share from that of the multipliers, {run},", missed, _MISSED))
    return _judgement(
        summaries,
        measured,
        expected,
        stated=tuple(stated),
        remark="For feasible texts we measure the gradient that is not on next words or support vectors, and compare "
        "with the share that the multipliers of the max-margin solution give. Infeasible texts have no such "
        "solution; for them we measure the gradient that is not on contested words, different words that "
        "follow the same word. Their contributions cancel in W but not in a single prefix.",
    )


def _decided(summaries: Datasets) -> list[_Case]:
    return [(run, kind, one) for run, one in summaries.items() for kind in KINDS if is_judged(one, kind)]


def _end(case: _Case) -> Number:
    _, kind, one = case
    return number(one.isel(snapshot=-1), f"{kind}_share")


def _few(case: _Case) -> Criterion:
    run, kind, _ = case
    return below(f"share of pairs with 99 % of the gradient at the end, {run}, {kind},", _end(case), FEW)


def _fall(case: _Case) -> Criterion:
    run, kind, one = case
    return below(f"last share over first share, {run}, {kind},", number(one, f"{kind}_ratio"), _FALL)


def _told(case: _Case) -> str:
    run, kind, one = case
    of, core = "support vectors" if kind == "feasible" else "contested words", float(one[f"{kind}_core"])
    return f"{run}, {kind} texts ({_end(case).mean:.0%}; {core:.0%} of the pairs are {of})"


def _undecided(summaries: Datasets) -> str:
    if (steps := min(int(one["snapshot"][-1]) for one in summaries.values())) < STEPS:
        return f"A run of {steps} steps is too short to decide; the published size is 10000."
    return too_few(min(int(one.attrs["kept"]) for one in summaries.values()))


def _without_texts(summaries: Datasets, kind: str = "") -> Judgement:
    reason = _undecided(summaries) or f"No run has {_TEXTS} {kind}texts; fewer are too few to decide."
    return dataclasses.replace(Judgement.withheld(reason), counts=counts_of(summaries))


def _judgement(
    summaries: Datasets,
    measured: Mapping[str, Number],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
) -> Judgement:
    return Judgement(
        numbers=measured,
        expected=expected,
        counts=counts_of(summaries),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=_undecided(summaries),
        remark=remark,
    )


CLAIMS = (
    Claim(
        "gradient-sparsity:few",
        Source(PAPER, "section 1 (contributions) and section 3.2, after Theorem 3.15", Setting.OURS),
        "Only a few tokens contribute to the gradient.",
        _judge_few,
        examples.of_few,
    ),
    Claim(
        "gradient-sparsity:support",
        Source(PAPER, "section 1 (contributions) and section 3.2; the measure is ours", Setting.OURS),
        "Tokens that are not support vectors have practically no gradient; support vectors have it in proportion to "
        "their multipliers.",
        _judge_support,
        examples.of_support,
    ),
)
