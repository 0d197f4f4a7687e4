"""The max-margin problem in a spectral or an entrywise norm, by a primal-dual interior-point method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.active_set import ActiveSet
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.entries import Entries
from jaxattn.svm.norm_path import Geometry, Point, Task, begin, step
from jaxattn.svm.norms import Entrywise, Norm, frobenius, spectral
from jaxattn.svm.singular import Singular
from jaxattn.svm.solution import Candidate, Solution, Solver

# Share of the certificate's tolerance that leaves room for how the certificate computes the gap.
_SAFE = 0.3
# Steps in a row that may fail to narrow the gap.
_PATIENCE = 20


@dataclass(frozen=True)
class PathFollowing:
    """Primal-dual path following (see `norm_path`), stopped by its own gap.

    Attributes:
        most: iterations allowed; a problem needs 10 to 30.
        sharpness: the gap to stop at, as a share of the certificate's tolerance.
        start: the solver that decides feasibility of the hard rows and gives the first iterate.
    """

    most: int = 80
    sharpness: float = 0.003
    start: Solver = field(default_factory=ActiveSet)

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: a norm that is neither spectral nor entrywise.
        """
        hard = constraints
        if constraints.penalty is not None:
            hard = constraints._replace(penalty=None, present=cons.rows(constraints).hard)
        return self.improve(constraints, norm, self.start(hard, frobenius))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate | Solution) -> Candidate:
        """Do as a call does, from an answer of the Frobenius problem of the hard rows that is known already.

        Raises:
            ValueError: as a call.
        """
        geometry = _geometry(norm)
        squared = norm.power == 2 or constraints.penalty is None
        if isinstance(geometry, Singular):
            reduction = cons.reduce(constraints)
            found = self._follow(reduction.constraints, geometry, reduction.left.T @ first.W @ reduction.right, squared)
            found = found._replace(W=reduction.lift(found.W))
        else:
            found = self._follow(constraints, geometry, first.W, squared)
        return Candidate(
            W=jnp.where(found.separable, found.W, 0.0),
            duals=jnp.where(found.separable & found.walked, found.a, first.duals),
            iterations=first.iterations + found.iterations,
        )

    def _follow(self, constraints: Constraints, geometry: Geometry, W: Float[Array, "p q"], squared: bool) -> _Found:
        equations = None if constraints.equal is None else cons.equations(constraints)
        if equations is not None:
            implied = cons.rows(constraints).equal & ~equations.taken.reshape(constraints.differences.shape[:2])
            constraints = constraints._replace(present=cons.rows(constraints).present & ~implied)
        of = cons.rows(constraints)
        worst = cons.worst_margin(constraints, W)
        W = W / jnp.where(worst > 0, worst, 1.0)
        tolerance = tolerance_of(W.dtype)
        # A Frobenius answer that is off has no W near the rows; its proof stands instead.
        separable = (worst > 0) & (cons.violation(constraints, W) <= 1e3 * tolerance.violation)
        lengths = cons.lengths(constraints)
        lengths = jnp.where(of.present & (lengths > 0), lengths, 1.0)
        length = metrics.norm(W)
        reach = jnp.max(jnp.where(of.present, jnp.abs(of.targets) / lengths, 0.0))
        if squared and constraints.penalty is not None:
            # With all multipliers at their bounds, W is no longer than this, nor dearer than W = 0.
            full = jnp.where(of.present & ~of.hard, of.upper, 0.0)
            reach = jnp.minimum(
                metrics.norm(cons.combination(constraints, full)), jnp.sqrt(2 * jnp.sum(full * jnp.abs(of.targets)))
            )
        # At this scale the Frobenius solution and every A_k have norm 1; without one, its length is guessed.
        scale = jnp.where(separable & (length > 0), length, jnp.where(reach > 0, reach, 1.0))
        unit = scale if squared else 1.0
        # Where no row is at a price and W = 0 satisfies all of them, that is the solution.
        walked = (length > 0) | (of.present & ~of.hard).any()
        # A row that is not present asks for 0 >= -1.
        rows = constraints._replace(
            differences=jnp.where(of.present[..., None], constraints.differences / lengths[..., None], 0.0)
        )
        task = Task(
            rows=rows,
            A=jnp.einsum("nmp,nq->nmpq", rows.differences, rows.queries).reshape(of.targets.size, -1),
            b=jnp.where(of.present, of.targets / (scale * lengths), -1.0),
            C=None if rows.penalty is None else jnp.where(of.hard | ~of.present, jnp.inf, of.upper * lengths / unit),
            equal=of.equal,
            allowed=_SAFE * tolerance.violation / (scale * lengths),
            squared=squared,
        )
        start = begin(task, geometry, jnp.where(separable, W / scale, 0.0))
        best = _Best(W / scale, start.a, jnp.asarray(jnp.inf, W.dtype))

        def guarded(now: _Progress) -> _Progress:
            """Make a step and keep the best iterate.

            What is not finite or cannot move uses up all patience; so does the first failure to narrow
            a gap that is small enough already.
            """
            new, gap, moved = step(task, geometry, now.last)
            finite = jnp.isfinite(gap) | (jnp.isfinite(new.part.W).all() & jnp.isfinite(new.a).all())
            better = finite & (gap < now.best.gap)
            best = jax.tree.map(
                lambda one, other: jnp.where(better, one, other), _Best(new.part.W, new.a, gap), now.best
            )
            goes_on = finite & moved & (best.gap > _SAFE * tolerance.gap)
            patience = jnp.where(better, _PATIENCE, jnp.where(goes_on, now.patience - 1, 0))
            return _Progress(new, best, patience, now.iterations + 1)

        found = jax.lax.while_loop(
            lambda now: (
                (now.best.gap > self.sharpness * tolerance.gap) & (now.patience > 0) & (now.iterations < self.most)
            ),
            guarded,
            _Progress(start, best, jnp.where(separable & walked, _PATIENCE, 0), jnp.zeros((), int)),
        )
        W = scale * found.best.W
        return _Found(
            # Rounding along the path leaves the equalities off by more than the certificate allows.
            W if equations is None else cons.onto(constraints, equations, W),
            jnp.where(of.present, unit * found.best.a / lengths, 0.0),
            separable,
            walked,
            found.iterations,
        )


class _Found(NamedTuple):
    W: Float[Array, "p q"]
    a: Float[Array, "n m"]
    separable: Bool[Array, ""]
    walked: Bool[Array, ""]
    iterations: Int[Array, ""]


class _Best(NamedTuple):
    """The answer so far, with a bound of its relative gap: near the end rounding lets the gap rise again."""

    W: Float[Array, "p q"]
    a: Float[Array, "n m"]
    gap: Float[Array, ""]


class _Progress(NamedTuple):
    last: Point
    best: _Best
    patience: Int[Array, ""]
    iterations: Int[Array, ""]


def _geometry(norm: Norm) -> Geometry:
    if isinstance(norm, Entrywise):
        return Entries(norm)
    if norm.plain == spectral:
        return Singular()
    raise ValueError(f"PathFollowing: expected norm 'spectral' or an entrywise one, found {norm.name!r}")
