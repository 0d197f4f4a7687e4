"""The rule that turns margin ratios into a verdict on norms.

Its first form was fixed before any run was ranked. Since then a norm must also be told from all others: from those that
are compared by their confusion with it, from its neighbours by the exponent that fits best, and seed by seed. What is
judged is the limit of each seed's ratio (`bias.limits`), no longer the ratio at the last snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn.bias import limits
from jaxattn.bias.exponents import Exponent, places
from jaxattn.statistics import LEAST_SEEDS, Estimate, bootstrap, derive_key, proportion
from jaxattn.tokens import SATURATED

__all__ = ["CLOSE", "Verdict"]

# A seed obeys a norm only if the whole range of the limit of its margin ratio exceeds this.
CLOSE = 0.97
# Certified gaps limit the accuracy of a ratio: intervals closer than this count as overlapping.
ROUNDING = 1e-6
# At least MOST of the seeds must say the same; they disagree if more than FEW obey a norm, and more than FEW do not.
MOST, FEW = 0.9, 0.05
# No more than this many times as many steps are suggested.
MANY = 1e4


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
    """Estimates from the margin ratios of several seeds, and the verdict; the fields are those of `Ranking`."""

    ratio: Estimate
    trend: Estimate | None
    decades: float
    limit: Estimate | None
    obeys: Float[np.ndarray, "seeds norms"]
    verdict: Verdict
    exponents: tuple[Exponent, ...]


def weighed(
    names: Sequence[str],
    margin_ratio: Float[np.ndarray, "seeds norms snapshots"],
    probability: Float[np.ndarray, "seeds snapshots"],
    size: Float[np.ndarray, "seeds snapshots"],
    stalled: Bool[np.ndarray, " seeds"],
    steps: Int[np.ndarray, " snapshots"],
    key: PRNGKeyArray,
    confusion: Float[np.ndarray, "norms norms"],
    located: Callable[[int], Sequence[Exponent]] = lambda best: (),
) -> Weighed:
    """Estimate the mean margin ratios over seeds and their limits, and return the verdict.

    The arguments are fields of `Ranking`, the random key of the bootstrap over seeds, and the function `located` from
    the position of the best norm to the exponents that fit best in its families. It is called only if the norm's limit
    may be named.
    """
    ratio, (slopes, decades) = bootstrap(margin_ratio, key), trends(margin_ratio, steps)
    change = None if slopes is None else bootstrap(slopes, derive_key(key))
    if len(margin_ratio) == 1:
        ratio, change = _without_interval(ratio), change and _without_interval(change)
    known = limits.extrapolated(margin_ratio, size, steps)
    if known is None:
        found = f"expected {limits.LEAST} snapshots in the last decade of steps, found {len(limits.window(steps))}"
        obeys = np.full(margin_ratio.shape[:2], np.nan)
        return Weighed(ratio, change, decades, None, obeys, too_few(len(stalled)) or undecided(found), ())
    known = known.clipped(-np.inf, 1.0)
    silent = {
        "stalled: rounding, floor or penalty outweigh the gradient": stalled,
        f"not saturated: the largest probability of some input is below {SATURATED:g}": probability[:, -1] < SATURATED,
        f"no direction: over the last snapshots the norm grows by less than {limits.GROWTH:.0%}": ~known.grows,
    }
    tells = ~np.any(list(silent.values()), axis=0)[:, None]
    obeys = np.where(tells, known.side(CLOSE), np.nan)
    limit = known.median(derive_key(key, 3))
    quiet = max(silent, key=lambda reason: silent[reason].sum())
    why = f"{quiet}, in {silent[quiet].sum()} of {len(stalled)} seeds"
    named = len(stalled) >= LEAST_SEEDS and limit.low.max() > CLOSE
    exponents = tuple(located(int(np.argmax(limit.mean)))) if named else ()
    verdict = of(names, limit, obeys, float(tells.mean()), why, confusion, known.longer, exponents)
    return Weighed(ratio, change, decades, limit, obeys, verdict, exponents)


def _without_interval(estimate: Estimate) -> Estimate:
    """Return the mean of one seed, which says nothing about other seeds."""
    unknown = np.full_like(estimate.mean, np.inf)
    return estimate._replace(low=-unknown, high=unknown)


def trends(
    ratio: Float[np.ndarray, "seeds norms snapshots"], steps: Int[np.ndarray, " snapshots"]
) -> tuple[Float[np.ndarray, "seeds norms"] | None, float]:
    """Return each seed's change of the ratios per decade of steps, and of how many decades (at most one) it is."""
    recent = limits.last_decade(steps)
    decades = np.log10(steps[recent])
    reach = float(decades[-1] - decades[0]) if decades.size else 0.0
    if reach == 0:
        return None, reach
    centred = decades - decades.mean()
    return ratio[:, :, recent] @ centred / (centred @ centred), reach


def of(
    names: Sequence[str],
    limit: Estimate,
    obeys: Float[np.ndarray, "seeds norms"],
    tell: float,
    quiet: str,
    confusion: Float[np.ndarray, "norms norms"],
    longer: Callable[[int, float, float], float],
    exponents: Sequence[Exponent] = (),
) -> Verdict:
    """Return the verdict on a run.

    A norm is named if nine in ten seeds obey it, the median of their limits has the largest value, and its interval
    lies above `CLOSE` and above those of all other norms; if the rest to 1 is less than half of what it would be for a
    solution of any other norm, unless both are of a family whose exponent is read; and if the exponent that fits best
    is its own. Norms whose intervals overlap are named together, if all lie above `CLOSE`. The verdict is "none" if
    nine in ten seeds do not obey any norm. All other cases are not decided.

    Besides fields of `Ranking`, `tell` is the share of seeds that say something about limits, `quiet` why most others
    do not, and `longer` how many times as many steps would tell, by norm, threshold of the ratio and share of seeds.
    """
    seeds, all_norms = len(obeys), range(len(names))
    if few := too_few(seeds):
        return few
    if tell < MOST:
        return undecided(quiet)
    best, follow, refuse = int(np.argmax(limit.mean)), (obeys == 1).sum(axis=0), (obeys == 0).sum(axis=0)
    if all(proportion(part[:, best]).low > FEW for part in (obeys == 1, obeys == 0)):
        return undecided(f"mixed: of {seeds} seeds, {follow[best]} obey {names[best]}, and {refuse[best]} do not")
    if (refuse >= MOST * seeds).all():
        return Verdict((), decided=True)
    certain = (follow >= MOST * seeds) & (limit.low > CLOSE)
    if not certain[best]:
        near = [f"{follow[k]} obey {names[k]} and {refuse[k]} do not" for k in all_norms if refuse[k] < MOST * seeds]
        more = _longer(longer(best, CLOSE, MOST))
        return undecided(f"of {seeds} seeds, {'; '.join(near)}; others may end on either side of {CLOSE:g}{more}")
    # Within a family the exponent tells norms apart better than their ratios.
    read = {one.family: one for one in exponents}
    apart = {
        k
        for k in all_norms
        for family, place in places(names[k]).items()
        if family in read and read[family].misses(place)
    }
    reach = limit.low[best] - ROUNDING
    level = [k for k in all_norms if k == best or (limit.high[k] >= reach and k not in apart)]
    if unsure := [names[k] for k in level if not certain[k]]:
        return undecided(f"{', '.join(unsure)} cannot be told from {names[best]}, and may lie below {CLOSE:g}")
    for k in (k for k in all_norms if k not in level and k not in apart):
        if (needed := (1 + float(confusion[k, best])) / 2) >= limit.low[best]:
            return undecided(
                f"{names[best]} cannot be told from {names[k]}, whose solutions have a ratio of "
                f"{confusion[k, best]:.4f} in it: this takes an interval above {needed:.4f}"
                f"{_longer(longer(best, needed, 0.5))}"
            )
    # A run whose limit may miss 1 may miss its exponent by as much.
    if elsewhere := [str(one) for one in exponents if one.gap > 1 - limit.low[best]]:
        return undecided(f"{names[best]} comes nearest of these, but {' and '.join(elsewhere)} fits better")
    if wide := [str(one) for one in exponents if not one.tells]:
        return Verdict((names[best],), False, f"{names[best]}, or a norm near it: {'; '.join(wide)}")
    return Verdict(tuple(names[k] for k in sorted(level, key=lambda k: -limit.mean[k])), decided=True)


def _longer(times: float) -> str:
    """Say how many times as many steps would decide, unless they would not or are already there."""
    return f"; this takes {times:.2g} times as many steps or more" if 1 < times < MANY else ""


def too_few(seeds: int) -> Verdict | None:
    """Return the verdict on fewer seeds than decide anything; None if there are enough."""
    return undecided(f"expected at least {LEAST_SEEDS} seeds, found {seeds}") if seeds < LEAST_SEEDS else None


def undecided(reason: str) -> Verdict:
    """Return the verdict on a run that does not decide."""
    return Verdict((), decided=False, reason=reason)
