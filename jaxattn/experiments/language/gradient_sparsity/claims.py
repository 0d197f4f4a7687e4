"""Which pairs of a prefix and a word carry the gradient of a text in training, and how few: estimates and claims."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.study.claims import Datasets, Judgement, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, below
from jaxattn.study.estimates import estimated, exact, mean, number

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
_NEEDS = Needs(steps=STEPS)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the shares along the steps, with the kind of text as a prefix for the kinds that there are."""
    summary = estimated(
        run, key, dropped=exact(run["dropped"].mean() / run.attrs["prefixes"]), pairs=exact(run["pairs"].mean())
    )
    for k, (kind, of_kind) in enumerate(zip(KINDS, (run["feasible"], ~run["feasible"]), strict=True)):
        summary[f"{kind}_texts"] = of_kind.sum()
        if of_kind.any():
            texts = run.isel(seed=of_kind.values)
            share = texts["share"]
            first, last = share.isel(snapshot=0, drop=True), share.isel(snapshot=-1, drop=True)
            estimates = {
                "share": mean(share),
                "beside": mean(texts["beside"]),
                "ratio": mean(last / first),
                "limit": mean(texts["limit"]),
                "missed": mean(abs(last - texts["limit"])),
                "core": mean(texts["core"]),
                "rise": exact(max(0.0, float(np.diff(share.values.mean(axis=0)).max(initial=0.0)))),
            }
            of_kind = {f"{kind}_{name}": estimator for name, estimator in estimates.items()}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **of_kind).data_vars)
    return summary


def is_judged(run: xarray.Dataset, kind: str) -> bool:
    """Return whether a run, of `estimate`, has enough texts of a kind to judge by them."""
    return int(run[f"{kind}_texts"]) >= _TEXTS


class _Case(NamedTuple):
    """The texts of one kind in a run."""

    name: str
    kind: str
    run: xarray.Dataset

    @property
    def end(self) -> Number:
        """The share of pairs that carry the gradient at the last step."""
        return number(self.run, f"{self.kind}_share", at=-1)

    @property
    def few(self) -> Criterion:
        """Few pairs carry the gradient at the end."""
        return below(f"share of pairs with 99 % of the gradient at the end, {self.name}, {self.kind},", self.end, FEW)

    @property
    def falls(self) -> Criterion:
        """More pairs did at the beginning."""
        ratio = number(self.run, f"{self.kind}_ratio")
        return below(f"last share over first share, {self.name}, {self.kind},", ratio, _FALL)

    def __str__(self) -> str:
        core = "support vectors" if self.kind == "feasible" else "contested words"
        share = float(self.run[f"{self.kind}_core"])
        return f"{self.name}, {self.kind} texts ({self.end.mean:.0%}; {share:.0%} of the pairs are {core})"


def _cases(runs: Datasets) -> list[_Case]:
    return [_Case(name, kind, run) for name, run in runs.items() for kind in KINDS if is_judged(run, kind)]


@claim(
    "gradient-sparsity:few",
    Source(PAPER, "section 1 (contributions) and section 3.2, after Theorem 3.15", Setting.OURS),
    "Only a few tokens contribute to the gradient.",
    needs=_NEEDS,
)
def _few(runs: Datasets) -> Judgement:
    """At the end few pairs may carry the gradient in every case; as corrected, in one where more did before."""
    cases = _cases(runs)
    if not cases:
        return Judgement.withheld(f"No run has {_TEXTS} texts; fewer are too few to decide.")
    numbers: dict[str, Number] = {}
    for name, kind, run in cases:
        for at in (0, -1):
            label = f"share of pairs with 99 % of the gradient at step {int(run['snapshot'][at])}, {name}, {kind}"
            numbers[label] = number(run, f"{kind}_share", at=at)
        numbers[f"last share over first share, {name}, {kind}"] = number(run, f"{kind}_ratio")
        numbers[f"largest increase of the mean share, {name}, {kind}"] = number(run, f"{kind}_rise")
    few = [case for case in cases if case.few.outcome is Outcome.MET]
    falling = sum(case.falls.outcome is Outcome.MET for case in cases)
    fewest = min(cases, key=lambda case: case.end.high)
    others = [str(case) for case in cases if case not in few]
    return Judgement(
        stated=[case.few for case in cases],
        corrected=[fewest.few, fewest.falls],
        correction=f"only in {len(few)} of {len(cases)} kinds of texts do few pairs carry the gradient, and become "
        f"few during training: {'; '.join(map(str, few)) or 'none'}. In the others most pairs continue "
        f"to carry it: {'; '.join(others) or 'none'}.",
        remark="The shares are of all pairs of a prefix and a candidate word, including the next word; few means at "
        f"most half of them, at the last step. The share falls during training in {falling} of "
        f"{len(cases)} kinds of texts. Kinds (feasible or not) with fewer than {_TEXTS} texts in a run are "
        "drawn but not judged.",
        numbers=numbers,
    )


@claim(
    "gradient-sparsity:support",
    Source(PAPER, "section 1 (contributions) and section 3.2; the measure is ours", Setting.OURS),
    "Tokens that are not support vectors have practically no gradient; support vectors have it in proportion to "
    "their multipliers.",
    needs=_NEEDS,
)
def _support(runs: Datasets) -> Judgement:
    """Little of the gradient may be off the support vectors; their share must be the one the multipliers predict."""
    cases = _cases(runs)
    if not any(case.kind == "feasible" for case in cases):
        return Judgement.withheld(f"No run has {_TEXTS} feasible texts; fewer are too few to decide.")
    numbers, expected, stated = {}, {}, []
    for name, kind, run in cases:
        core = "support vectors" if kind == "feasible" else "contested words"
        label = f"gradient not on {core} at the end, {name}"
        numbers[label], expected[label] = number(run, f"{kind}_beside", at=-1), 0.0
        numbers[f"share of pairs that are {core}, {name}"] = number(run, f"{kind}_core")
        stated.append(below(f"{label},", numbers[label], _BESIDE))
        if kind == "feasible":
            label, missed = f"share with 99 % of the gradient at the end, {name}", number(run, "feasible_missed")
            numbers[label], expected[label] = number(run, "feasible_share", at=-1), float(run["feasible_limit"])
            numbers[f"difference of this share from that of the multipliers, {name}"] = missed
            label = f"difference of the last share from that of the multipliers, {name},"
            stated.append(below(label, missed, _MISSED))
    return Judgement(
        stated=stated,
        remark="For feasible texts we measure the gradient that is not on next words or support vectors, and compare "
        "with the share that the multipliers of the max-margin solution give. Infeasible texts have no such "
        "solution; for them we measure the gradient that is not on contested words, different words that "
        "follow the same word. Their contributions cancel in W but not in a single prefix.",
        numbers=numbers,
        expected=expected,
    )


CLAIMS = (_few, _support)
