"""Which exponent p of a family of norms fits a run best: what tells a norm from its neighbours.

In the quotient of a matrix's margin ratios in two norms of one family the margin cancels. So it says where in the
family a run ends long before the ratios reach 1. It is compared with the quotients of the certified solutions of both
norms, seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxattn import norms, svm
from jaxattn.bias import limits
from jaxattn.lengths import euclidean
from jaxattn.norms import Norm
from jaxattn.parallel import batch
from jaxattn.statistics import LEAST_SEEDS, Estimate

__all__ = ["Exponent", "located"]

# In positions 1 / p, from 0 (p = inf) to 1: the distance of a norm's neighbours, and the error of the interpolation
# between them.
STEP, ACCURACY = 1 / 6, 0.01
# A norm is told from its neighbours if its position is known this well: p = 2 from 1.82 and 2.22, max from l_20.
RESOLUTION = 0.05
FAMILIES: dict[str, Callable[[float], Norm]] = {"l_p": norms.entrywise, "schatten_p": norms.schatten}


@dataclass(frozen=True)
class Exponent:
    """The exponent of a family of norms that fits a run best.

    Attributes:
        family: "l_p" or "schatten_p".
        p: the exponent in the limit of many steps, from 1 to inf.
        low: the lower end of its range: the 95 % interval of the median over seeds of the limits along the run
            (`bias.limits`), widened by .01 in 1 / p, the error of the method.
        high: the upper end.
        seeds: the number of seeds in which it can be read.
        compared: the exponent of the norm between whose neighbours it was read.
    """

    family: str
    p: float
    low: float
    high: float
    seeds: int
    compared: float

    def __str__(self) -> str:
        """The range in words."""
        if self.high == float("inf"):
            return f"{self.family} with p from {self.low:.3g}"
        return f"{self.family} with p from {self.low:.3g} to {self.high:.3g}"

    @property
    def gap(self) -> float:
        """How far the range is from the exponent that it is compared with, in 1 / p; 0 if it contains that."""
        return self.misses(1 / self.compared)

    def misses(self, place: float) -> float:
        """Return how far the range is from a position 1 / p; 0 if it contains that."""
        return max(place - 1 / self.low, 1 / self.high - place, 0.0)

    @property
    def tells(self) -> bool:
        """Whether the whole range lies within .05 of that exponent, in 1 / p."""
        place = 1 / self.compared
        return max(abs(1 / self.low - place), abs(1 / self.high - place)) <= RESOLUTION


def _position(family: str, norm: Norm) -> float:
    """Return 1 / p of a norm of the family, NaN for another norm."""
    norm = norm.plain
    if norm == norms.frobenius:
        return 0.5
    if family == "l_p":
        return 1 / norm.p if isinstance(norm, norms.Entrywise) else float("nan")
    if isinstance(norm, norms.Schatten):
        return 1 / norm.p
    return {norms.nuclear: 1.0, norms.spectral: 0.0}.get(norm, float("nan"))


def families_of(norm: Norm) -> list[str]:
    """Return the families that a norm belongs to."""
    return [family for family in FAMILIES if _position(family, norm) >= 0]


def places(name: str) -> dict[str, float]:
    """Return the position 1 / p in each family of the norm of a name; none for a norm of one's own."""
    try:
        norm = norms.named(name)
    except ValueError:
        return {}
    return {family: _position(family, norm) for family in families_of(norm)}


def around(family: str, norm: Norm) -> list[Norm]:
    """Return the norm with its neighbours in the family, by increasing 1 / p."""
    place = _position(family, norm)
    below, above = ([member(family, x)] if -1e-9 <= x <= 1 + 1e-9 else [] for x in (place - STEP, place + STEP))
    return [*below, norm, *above]


def member(family: str, position: float) -> Norm:
    """Return the norm of a family at a position 1 / p."""
    return FAMILIES[family](_exponent(position))


def _exponent(position: Any) -> float:
    return float("inf") if position < 1e-9 else 1.0 if position > 1 - 1e-9 else float(1 / position)


def nearest(members: Sequence[Norm], matrices: Float[np.ndarray, "seeds d e"], constraints: svm.Constraints) -> Norm:
    """Return the norm in which matrices have the largest margin ratios, in the geometric mean over certified seeds."""
    measured, known, certified = _measured(members, matrices[:, None], constraints)
    if not certified.any():
        raise ValueError(f"run: expected a seed with certified solutions, found none of {len(certified)}")
    ratios = np.einsum("sbb->sb", known) / measured[:, 0]
    return members[int(np.argmax(np.log(ratios)[certified].mean(axis=0)))]


def _measured(
    members: Sequence[Norm], matrices: Float[np.ndarray, "seeds k d e"], constraints: svm.Constraints
) -> tuple[
    Float[np.ndarray, "seeds k members"], Float[np.ndarray, "seeds members members"], Bool[np.ndarray, " seeds"]
]:
    """Return the norms of matrices and of each member's solution, and where all solutions are certified."""
    solutions = [svm.solve_batch(constraints, one) for one in members]
    certified = np.all([np.asarray(one.status) == svm.Status.OPTIMAL for one in solutions], axis=0)
    exact = np.stack([np.asarray(one.W) for one in solutions], axis=1)
    found = batch.over_seeds(sizes(tuple(members)), np.concatenate([matrices, exact], axis=1))
    return found[:, : -len(members)], found[:, -len(members) :], certified


def located(
    family: str,
    members: Sequence[Norm],
    snapshots: Float[np.ndarray, "seeds snapshots d e"],
    steps: Int[np.ndarray, " snapshots"],
    constraints: svm.Constraints,
    compared: Norm,
    key: PRNGKeyArray,
) -> Exponent | None:
    """Return the exponent that fits best, read between two members of a family or more, by increasing 1 / p.

    None with fewer than 8 seeds whose solutions are certified, or fewer than three snapshots in the last decade of
    steps. The key is that of the bootstrap over seeds.

    Example:
        >>> from jaxattn.bias.exponents import around, located
        >>> many = jax.vmap(lambda key: data.sphere(key, n=3, T=3, d=6))(jax.random.split(key, 8))
        >>> posed = jax.vmap(svm.token_constraints)(many, np.zeros((8, 3), int))
        >>> W = svm.solve_batch(posed, norms.frobenius).W[:, None] * np.array([1.0, 2.0, 4.0])[:, None, None]
        >>> members = around("l_p", norms.frobenius)
        >>> located("l_p", members, W, np.array([100, 200, 400]), posed, norms.frobenius, key).tells
        True
    """
    positions = _positions(family, members, snapshots, constraints)
    readable = np.isfinite(positions).all(axis=1)
    if readable.sum() < LEAST_SEEDS:
        return None
    known = limits.extrapolated(positions[readable, None], euclidean(snapshots[readable]), steps)
    if known is None:
        return None
    found = Estimate(*(part[0] for part in known.median(key)))
    ends = np.clip([found.mean, found.high + ACCURACY, found.low - ACCURACY], 0.0, 1.0)
    p, low, high = (_exponent(x) for x in ends)
    return Exponent(family, p, low, high, int(readable.sum()), _exponent(_position(family, compared)))


def _positions(
    family: str, members: Sequence[Norm], snapshots: Float[np.ndarray, "seeds snapshots d e"], constraints: Any
) -> Float[np.ndarray, "seeds snapshots"]:
    """Return the positions of the snapshots, NaN for seeds without certified solutions that differ."""
    places = np.array([_position(family, one) for one in members])
    of_matrices, of_solutions, certified = _measured(members, snapshots, constraints)
    # The quotient of the margin ratios in the last and the first norm, up to that of the optima, which cancels.
    with np.errstate(divide="ignore", invalid="ignore"):
        measured, known = (np.log(each[..., 0]) - np.log(each[..., -1]) for each in (of_matrices, of_solutions))
    positions = np.full(measured.shape, np.nan)
    for seed in np.flatnonzero(certified & (np.diff(known, axis=1) > 0).all(axis=1)):
        positions[seed] = _interpolated(measured[seed], known[seed], places)
    return positions


def _interpolated(
    values: Float[np.ndarray, " k"], known: Float[np.ndarray, " m"], places: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " k"]:
    """Return the places of values between known ones, linearly, beyond the ends with the slope there."""
    pieces = np.clip(np.searchsorted(known, values) - 1, 0, len(known) - 2)
    share = (values - known[pieces]) / (known[pieces + 1] - known[pieces])
    found = places[pieces] + share * (places[pieces + 1] - places[pieces])
    # No family reaches beyond 0 and 1; before training has chosen the tokens a value may be anything.
    return np.clip(found, -STEP, 1 + STEP)


@lru_cache(maxsize=64)
def sizes(members: tuple[Norm, ...]) -> Callable[[Any], Any]:
    """Return the function of matrices (k, d, e) to their norms, (k, members); the same object for the same norms."""

    def of(matrices: Float[Array, "k d e"]) -> Float[Array, "k members"]:
        return jnp.stack([jax.vmap(one.value)(matrices) for one in members], axis=-1)

    return of
