"""The nuclear-norm Att-SVM, and the soft margin of both norms, by a primal-dual interior-point method."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.active_set import ActiveSet
from jaxattn.svm.central_path import Point, Task, point, step
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.norms import Norm, frobenius, nuclear
from jaxattn.svm.solution import Candidate, Solution, Solver

# Share of the certificate's tolerance that leaves room for how the certificate computes the gap.
_SAFE = 0.3
# Steps in a row that may fail to narrow the gap.
_PATIENCE = 20


@dataclass(frozen=True)
class InteriorPoint:
    """Primal-dual path following on the reduced problem (see `central_path`), stopped by its own gap.

    The Frobenius norm is the nuclear norm of W written as one column, so its soft margin needs no path
    of its own.

    Attributes:
        most: iterations allowed; a problem needs 8 to 20.
        sharpness: the gap to stop at, as a share of the certificate's tolerance. The error of W is of
            the order of the gap's square root, and a step more makes a hundredth of it.
        reach: the share of the way to the boundary that a step goes. Shorter steps stay closer to the path,
            where nearly degenerate problems can be solved more accurately.
        rounds: of refinement of each step.
        start: the solver that decides feasibility of the hard rows and gives the first iterate.
    """

    most: int = 60
    sharpness: float = 0.003
    reach: float = 0.98
    rounds: int = 2
    start: Solver = field(default_factory=ActiveSet)

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: another norm than the nuclear or the Frobenius norm.
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
        if norm.plain not in (frobenius, nuclear):
            raise ValueError(f"InteriorPoint: expected norm 'nuclear' or 'frobenius', found {norm.name!r}")
        reduction = cons.reduce(constraints)
        W = reduction.left.T @ first.W @ reduction.right
        squared = norm.power == 2 and constraints.penalty is not None
        posed = _column(reduction.constraints, W) if norm.plain == frobenius else (reduction.constraints, W)
        found = self._follow(*posed, squared)
        separable = found.separable
        return Candidate(
            W=reduction.lift(jnp.where(separable, found.W.reshape(W.shape), 0.0)),
            duals=jnp.where(separable, found.a.reshape(first.duals.shape), first.duals),
            iterations=first.iterations + found.iterations,
        )

    def _follow(self, constraints: Constraints, W: Float[Array, "p q"], squared: bool) -> _Found:
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
        # At this scale the Frobenius solution and every A_k have norm 1; without one, its length is guessed.
        length = metrics.norm(W)
        reach = jnp.max(jnp.where(of.present, jnp.abs(of.targets) / lengths, 0.0))
        if squared:
            # With all multipliers at their bounds, W is no longer than this, nor dearer than W = 0.
            full = jnp.where(of.present & ~of.hard, of.upper, 0.0)
            reach = jnp.minimum(
                metrics.norm(cons.combination(constraints, full)), jnp.sqrt(2 * jnp.sum(full * jnp.abs(of.targets)))
            )
        scale = jnp.where(separable & (length > 0), length, jnp.where(reach > 0, reach, 1.0))
        unit = scale if squared else 1.0
        # A row that is not present asks for 0 >= -1.
        rows = constraints._replace(
            differences=jnp.where(of.present[..., None], constraints.differences / lengths[..., None], 0.0)
        )
        flat = rows.differences.reshape(-1, rows.differences.shape[-1])
        task = Task(
            rows=rows,
            b=jnp.where(of.present, of.targets / (scale * lengths), -1.0),
            G=flat @ flat.T,
            C=None if rows.penalty is None else jnp.where(of.hard | ~of.present, jnp.inf, of.upper * lengths / unit),
            equal=of.equal,
            squared=squared,
            reach=self.reach,
            rounds=self.rounds,
        )
        found = jax.lax.while_loop(
            lambda now: (
                (now.best.gap > self.sharpness * tolerance.gap) & (now.patience > 0) & (now.iterations < self.most)
            ),
            partial(_guarded_step, task, _SAFE * tolerance.gap),
            _start(task, W / scale, separable),
        )
        W = 2 * scale * found.best.V
        return _Found(
            # Rounding along the path leaves the equalities off by more than the certificate allows.
            W if equations is None else cons.onto(constraints, equations, W),
            jnp.where(of.present, unit * found.best.a / lengths, 0.0),
            separable,
            found.iterations,
        )


class _Found(NamedTuple):
    W: Float[Array, "p q"]
    a: Float[Array, "n m"]
    separable: Bool[Array, ""]
    iterations: Int[Array, ""]


class _Best(NamedTuple):
    """The answer so far, with a bound of its relative gap: near the end rounding lets the gap rise again."""

    V: Float[Array, "p q"]
    a: Float[Array, "n m"]
    gap: Float[Array, ""]


class _Progress(NamedTuple):
    last: Point
    best: _Best
    patience: Int[Array, ""]
    iterations: Int[Array, ""]


def _column(constraints: Constraints, W: Float[Array, "p q"]) -> tuple[Constraints, Float[Array, "pq 1"]]:
    """Write W, and with it every row, as one column."""
    differences, queries, *rest = constraints
    n, m, p = differences.shape
    q = queries.shape[-1]
    A = jnp.einsum("nmp,nq->nmpq", differences, queries).reshape(n * m, 1, p * q)
    each = (None if leaf is None else leaf.reshape(n * m, 1) for leaf in rest)
    return Constraints(A, jnp.ones((n * m, 1), A.dtype), *each), W.reshape(p * q, 1)


def _start(task: Task, W: Float[Array, "p q"], separable: Bool[Array, ""]) -> _Progress:
    """Begin inside, at twice the Frobenius solution W; a lane that is not separable stands still."""
    soft = jnp.zeros_like(task.b, bool) if task.C is None else jnp.isfinite(task.C)
    over = 2 * cons.margins(task.rows, W) - task.b
    # Of a soft row both slacks, with this difference and at least half the target between them; never 0.
    both = jnp.sqrt(over**2 + jnp.where(task.b == 0, 1.0, task.b) ** 2)
    s = jnp.where(soft, (both + over) / 2, over)
    x = jnp.where(soft, (both - over) / 2, 0.0)
    s = jnp.where(task.equal, 0.0, jnp.where(separable & (s > 0), s, 1.0))
    a = jnp.where(task.equal, 0.0, 1 / jnp.where(s > 0, s, 1.0))
    a = a / (2 * _positive(metrics.norm(cons.combination(task.rows, a))))
    length = metrics.norm(W)
    size = 1.2 * jnp.where(length > 0, length, 1.0)
    tau = 2 * size if task.squared else jnp.ones_like(size)
    if task.C is not None:
        a = jnp.minimum(tau * a, task.C / 2)
        a = a / jnp.maximum(1.0, 2 * metrics.norm(cons.combination(task.rows, a)) / tau)
        # At a high price little shortfall to begin with, so that no product is far from the others.
        x = jnp.where(soft, jnp.minimum(x, a * s / (task.C - a)), 0.0)
    M = cons.combination(task.rows, a)
    eye = jnp.eye(W.shape[1], dtype=W.dtype)
    R = eye / jnp.sqrt(size)
    best = _Best(W, a, jnp.asarray(jnp.inf, W.dtype))
    begin = point(task, W, size * eye, s, x, a, tau, M, R)
    return _Progress(begin, best, jnp.where(separable, _PATIENCE, 0), jnp.zeros((), int))


def _guarded_step(task: Task, enough: float, now: _Progress) -> _Progress:
    """Make a step and keep the best iterate.

    What is not finite or cannot move uses up all patience; so does the first failure to narrow a gap
    that is `enough` already.
    """
    new, gap, moved = step(task, now.last)
    finite = jnp.isfinite(new.left) & jnp.isfinite(new.V).all()
    better = finite & (gap < now.best.gap)
    best = jax.tree.map(lambda one, other: jnp.where(better, one, other), _Best(new.V, new.a, gap), now.best)
    patience = jnp.where(better, _PATIENCE, jnp.where(finite & moved & (best.gap > enough), now.patience - 1, 0))
    return _Progress(new, best, patience, now.iterations + 1)


def _positive(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(x > 0, x, 1.0)
