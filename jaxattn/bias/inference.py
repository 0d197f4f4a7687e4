"""Infer the norm that a run obeys: the exponent in a family that fits best, and whether the family fits at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from jaxattn import attention, descent
from jaxattn.bias import checking, exponents, ranking
from jaxattn.bias import verdict as verdicts
from jaxattn.bias.exponents import Exponent
from jaxattn.bias.limits import LEAST
from jaxattn.norms import Norm
from jaxattn.problem import Problem
from jaxattn.statistics import LEAST_SEEDS, derive_key
from jaxattn.svm.packing import picked

__all__ = ["Inferred", "infer"]

# In 1 / p: the members of a family that are solved first, and how far around the best fit two more are.
_FIRST, _FINE = tuple(k / 6 for k in range(7)), 1 / 24


class Inferred(NamedTuple):
    """The exponent of the norm of a family that fits a run best, and the comparison with this norm alone."""

    exponent: Exponent
    ranking: ranking.Ranking

    @property
    def fits(self) -> bool:
        """Whether the family fits: the interval of the limit of the margin ratio lies above `bias.CLOSE`."""
        limit = self.ranking.limit
        return limit is not None and bool(limit.low[0] > verdicts.CLOSE)

    def __str__(self) -> str:
        """The exponent and the ratio in one line."""
        found, verdict, limit = self.exponent, self.ranking.verdict, self.ranking.limit
        fits = "fits" if self.fits else "does not fit" if verdict.decided else f"is {verdict}"
        ratio = float(self.ranking.ratio.mean[0, -1])
        ends = "" if limit is None else f", limit {limit.mean[0]:.4f} [{limit.low[0]:.4f}, {limit.high[0]:.4f}]"
        return (
            f"{found.family}: p = {found.p:.4g}, from {found.low:.4g} to {found.high:.4g}; margin ratio {ratio:.4f}"
            f"{ends}: the family {fits}"
        )


def infer(
    run: descent.Run, problems: Problem, family: str = "l_p", key: PRNGKeyArray | None = None, model: Any = None
) -> Inferred:
    """Find the exponent p of a family of norms whose max-margin problem a batch of runs obeys.

    The family is "l_p", the norms of the entries, or "schatten_p", of the singular values; other arguments are those of
    `bias.rank`. The members p = 1, 1.2, 1.5, 2, 3, 6 and inf are compared first, then those around the best.

    Raises:
        ValueError: an unknown family; too few seeds whose solutions are certified; and as in `bias.rank`.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(jax.random.key(1), 8))
        >>> given = {"optimizer": descent.steepest("l_3", 0.01), "steps": 2000, "snapshots": (500, 1000, 2000)}
        >>> found = bias.infer(descent.train_batch(jnp.zeros((8, 5, 5)), problems, **given), problems)
        >>> found.exponent.low < 3 < found.exponent.high
        True
    """
    if family not in exponents.FAMILIES:
        raise ValueError(f"family: expected one of {list(exponents.FAMILIES)}, found {family!r}")
    key = checking.random_key(key)
    posed = ranking.posed_batch(run, problems, model)
    lanes = np.flatnonzero(posed.finite)
    constraints = picked(posed.constraints, lanes)
    snapshots = np.asarray(attention.matrix(picked(posed.run.snapshots, lanes)))

    def read(members: Sequence[Norm]) -> Exponent:
        found = exponents.located(family, members, snapshots, posed.steps, constraints, members[0], derive_key(key))
        if found is None:
            raise ValueError(
                f"run: expected {LEAST_SEEDS} seeds whose solutions in {', '.join(one.name for one in members)} are "
                f"certified and {LEAST} snapshots in the last decade of steps, found fewer: {len(posed.finite)} seeds, "
                f"and snapshots at {posed.steps.tolist()}"
            )
        return found

    nearest = exponents.nearest([exponents.member(family, x) for x in _FIRST], snapshots[:, -1], constraints)
    place = 1 / read(exponents.around(family, nearest)).p
    around = np.unique(np.clip([place - _FINE, place, place + _FINE], 0.0, 1.0))
    found = read([exponents.member(family, x) for x in around])
    return Inferred(found, ranking.rank(run, problems, [exponents.member(family, 1 / found.p)], key, model))
