"""The rule that turns margin ratios into a verdict on norms.

Its first form was fixed before any run was ranked. Since then a norm must also be told from all others: from those that
are compared by their confusion with it, from its neighbours by the exponent that fits best, and seed by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn.bias.exponents import Exponent, families_named
from jaxattn.statistics import LEAST_SEEDS, Estimate, bootstrap, derive_key, proportion
from jaxattn.tokens import SATURATED

__all__ = ["CLOSE", "FLAT", "Verdict"]

# W obeys a norm only if the whole interval of the norm's mean margin ratio exceeds this.
CLOSE = 0.97
# A mean counts as constant if it changes by less than this per decade of steps.
FLAT = 0.01
# Certified gaps limit the accuracy of a ratio: intervals closer than this count as overlapping.
ROUNDING = 1e-6
# Seeds disagree if more than this share of them obeys a norm, and more than this share stays below CLOSE for good.
FEW = 0.05
# Snapshots must span at least half a decade of steps (a factor of 3.16) to show that a mean is constant.
LEAST_DECADES = 0.5


class Verdict(NamedTuple):
    """The norms that a run obeys.

    Attributes:
        norms: their names, best first; empty if the run obeys none, or is not decided. A norm that cannot be told from
            its neighbours is named, but not decided.
        decided: whether the run decides.
        reason: why it does not decide; empty if it does.
    """

    norms: tuple[str, ...]
    decided: bool
    reason: str = ""

    def __str__(self) -> str:
        """The verdict in one line."""
        if not self.decided:
            return self.reason if self.norms else f"not decided: {self.reason}"
        return " and ".join(self.norms) if self.norms else "none of these"


class Weighed(NamedTuple):
    """Estimates from the margin ratios of several seeds, and the verdict.

    Attributes:
        ratio: the mean margin ratio, (norms, snapshots); its interval, and that of the trend, is infinite for one seed.
        trend: its change per decade of steps over the last decade, (norms,); None if the snapshots do not suffice.
        decades: the number of decades of steps used for the trend.
        verdict: the norms that are obeyed.
    """

    ratio: Estimate
    trend: Estimate | None
    decades: float
    verdict: Verdict


def weighed(
    names: Sequence[str],
    margin_ratio: Float[np.ndarray, "seeds norms snapshots"],
    probability: Float[np.ndarray, "seeds snapshots"],
    steps: Int[np.ndarray, " snapshots"],
    key: PRNGKeyArray,
    confusion: Float[np.ndarray, "norms norms"],
    exponents: Sequence[Exponent] = (),
    stalled: int = 0,
) -> Weighed:
    """Estimate the mean margin ratios over seeds and their trends, and return the verdict.

    Args:
        names: the names of the norms.
        margin_ratio: the ratio for each seed, norm and snapshot.
        probability: the mean over inputs of the largest attention probability.
        steps: the steps of the snapshots.
        key: the random key of the bootstrap over seeds.
        confusion: for each norm (row) the mean margin ratio of its solutions in each norm (column).
        exponents: those that fit best in the families of the best norm.
        stalled: the number of seeds that stalled before the last snapshot.
    """
    ratio, (slopes, decades) = bootstrap(margin_ratio, key), trends(margin_ratio, steps)
    change = None if slopes is None else bootstrap(slopes, derive_key(key))
    at_rest = np.zeros(margin_ratio.shape[:2], bool) if slopes is None else slopes < FLAT
    if len(margin_ratio) == 1:
        ratio, change = _without_interval(ratio), change and _without_interval(change)
    at_end = Estimate(*(part[:, -1] for part in ratio))
    evidence = Evidence(
        probability=float(probability[:, -1].mean()),
        seeds=len(margin_ratio),
        close=(margin_ratio[:, :, -1] > CLOSE).sum(axis=0),
        behind=((margin_ratio[:, :, -1] <= CLOSE) & at_rest).sum(axis=0),
        decades=decades,
        confusion=confusion,
        exponents=tuple(exponents),
        stalled=stalled,
    )
    verdict = of(names, at_end, change, evidence)
    return Weighed(ratio, change, decades, verdict)


def _without_interval(estimate: Estimate) -> Estimate:
    """Return the mean of one seed, which says nothing about other seeds."""
    unknown = np.full_like(estimate.mean, np.inf)
    return estimate._replace(low=-unknown, high=unknown)


def trends(
    ratio: Float[np.ndarray, "seeds norms snapshots"], steps: Int[np.ndarray, " snapshots"]
) -> tuple[Float[np.ndarray, "seeds norms"] | None, float]:
    """Return each seed's change of the ratios per decade of steps, and of how many decades (at most one) it is."""
    recent, reach = last_decade(steps)
    if reach == 0:
        return None, reach
    decades = np.log10(steps[recent])
    centred = decades - decades.mean()
    return ratio[:, :, recent] @ centred / (centred @ centred), reach


def last_decade(steps: Int[np.ndarray, " snapshots"]) -> tuple[Bool[np.ndarray, " snapshots"], float]:
    """Return which snapshots lie in the last decade of steps, and the number of decades that they span.

    Example:
        >>> from jaxattn.bias import verdict
        >>> verdict.last_decade(np.array([1, 100, 1000]))
        (array([False,  True,  True]), 1.0)
    """
    recent = (steps > 0) & (steps * 10 >= steps[-1])
    decades = np.log10(steps[recent])
    return recent, float(decades[-1] - decades[0]) if decades.size else 0.0


class Evidence(NamedTuple):
    """What a verdict rests on besides the mean ratios.

    Attributes:
        probability: the mean over inputs and seeds of the largest attention probability at the last snapshot.
        seeds: the number of seeds.
        close: for each norm, in how many seeds the ratio at the last snapshot exceeds CLOSE, (norms,).
        behind: for each norm, in how many seeds it does not, and rises by less than FLAT per decade of steps, (norms,).
        decades: the number of decades of steps used for the trend.
        confusion: for each norm (row) the mean margin ratio of its solutions in each norm (column), (norms, norms).
        exponents: those that fit best in the families of the best norm.
        stalled: the number of seeds that stalled before that snapshot; such seeds say nothing about limits.
    """

    probability: float
    seeds: int
    close: Int[np.ndarray, " norms"]
    behind: Int[np.ndarray, " norms"]
    decades: float
    confusion: Float[np.ndarray, "norms norms"]
    exponents: tuple[Exponent, ...] = ()
    stalled: int = 0


def of(names: Sequence[str], ratio: Estimate, trend: Estimate | None, evidence: Evidence) -> Verdict:
    """Return the verdict on a run.

    A norm is named if its interval lies above `CLOSE` and above the intervals of all other norms, its mean does not
    fall, and none rises so fast that it may overtake it within a decade of steps; if the rest to 1 is less than half of
    what it would be for a solution of any other norm, unless both are of a family whose exponent is read; if seeds
    agree; and if the exponent that fits best is its own.
    Norms above `CLOSE` whose intervals overlap are named together. The verdict is "none" if all intervals lie below
    `CLOSE`, no mean moves by `FLAT` or more per decade of steps, and seeds agree. All other cases are not decided.

    Args:
        names: the names of the norms.
        ratio: the mean margin ratios at the last snapshot, (norms,).
        trend: their change per decade of steps over the last decade, (norms,); None if unknown.
        evidence: what else is known.
    """
    seeds, decades, all_norms = evidence.seeds, evidence.decades, range(len(names))
    if seeds < LEAST_SEEDS:
        return _open(f"expected at least {LEAST_SEEDS} seeds, found {seeds}")
    if evidence.probability < SATURATED:
        return _open(f"not saturated: the mean largest probability is {evidence.probability:.3g}, below {SATURATED:g}")
    if evidence.stalled:
        return _open(
            f"{evidence.stalled} of {seeds} seeds stalled, where rounding, floor or penalty outweigh the gradient"
        )
    if trend is None or decades < LEAST_DECADES:
        return _open(f"the snapshots reach back over {decades:.2g} decades of steps, less than {LEAST_DECADES:g}")
    best = int(np.argmax(ratio.mean))
    if ratio.low[best] <= CLOSE:
        if _differ(evidence, best):
            return _mixed(names[best], evidence, best)
        unsure = [names[k] for k in all_norms if ratio.high[k] >= CLOSE]
        if unsure:
            return _open(f"the interval of {', '.join(unsure)} contains {CLOSE:g}")
        moving = [names[k] for k in all_norms if trend.high[k] >= FLAT or trend.low[k] <= -FLAT]
        if moving:
            return _open(f"still moving: {', '.join(moving)} may change by {FLAT:g} or more per decade of steps")
        return Verdict((), decided=True)
    level = [k for k in all_norms if ratio.high[k] >= ratio.low[best] - ROUNDING]
    others = [k for k in all_norms if k not in level]
    if unsure := [names[k] for k in level if ratio.low[k] <= CLOSE]:
        return _open(f"{', '.join(unsure)} cannot be told from {names[best]}, and may lie below {CLOSE:g}")
    if falling := [names[k] for k in level if trend.low[k] <= -FLAT]:
        return _open(f"still moving: {', '.join(falling)} may fall by {FLAT:g} or more per decade of steps")
    rising = [
        names[k] for k in others if trend.low[k] > trend.high[best] and ratio.high[k] + trend.high[k] > ratio.low[best]
    ]
    if rising:
        return _open(f"still moving: {', '.join(rising)} may overtake {names[best]} within a decade of steps")
    read = {one.family for one in evidence.exponents}
    for k in others:
        if read & set(families_named(names[best])) & set(families_named(names[k])):
            continue  # The exponent tells them apart better.
        if (needed := (1 + float(evidence.confusion[k, best])) / 2) >= ratio.low[best]:
            return _open(
                f"{names[best]} cannot be told from {names[k]}, whose solutions have a ratio of "
                f"{evidence.confusion[k, best]:.4f} in it: this takes an interval above {needed:.4f}"
            )
    if _differ(evidence, best):
        return _mixed(names[best], evidence, best)
    # A run that has not arrived may miss its exponent by as much as its ratio misses 1.
    if elsewhere := [str(one) for one in evidence.exponents if one.gap > 1 - ratio.mean[best]]:
        return _open(f"{names[best]} comes nearest of these, but {' and '.join(elsewhere)} fits better")
    if wide := [str(one) for one in evidence.exponents if not one.tells]:
        return Verdict((names[best],), False, f"{names[best]}, or a norm near it: {'; '.join(wide)}")
    return Verdict(tuple(names[k] for k in sorted(level, key=lambda k: -ratio.mean[k])), decided=True)


def _differ(evidence: Evidence, norm: int) -> bool:
    """Return whether some seeds obey a norm and others stay behind."""
    shares = (proportion(np.arange(evidence.seeds) < part[norm]) for part in (evidence.close, evidence.behind))
    return all(share.low > FEW for share in shares)


def _mixed(name: str, evidence: Evidence, norm: int) -> Verdict:
    return _open(
        f"mixed: of {evidence.seeds} seeds, the ratio in {name} exceeds {CLOSE:g} in {evidence.close[norm]}, and rests "
        f"below it in {evidence.behind[norm]}"
    )


def _open(reason: str) -> Verdict:
    return Verdict((), decided=False, reason=reason)
