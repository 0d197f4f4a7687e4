"""The nuclear-norm Att-SVM, solved by operator splitting from the Frobenius solution.

`min ||W||_*  s.t. <A_k, W> >= 1` is written with copies `Z = W` and `s = (<A_k, W>)_k`, so that the
norm acts on Z alone and the constraints on s alone (alternating direction method of multipliers,
over-relaxed). Between the spans of the token differences and of the queries, where the solution
lives, an iteration is one small SVD. Feasibility knows no norm: the Frobenius active set decides it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.active_set import ActiveSet
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.norms import Norm, frobenius, nuclear
from jaxattn.svm.pivoting import inverted
from jaxattn.svm.solution import Candidate


@dataclass(frozen=True)
class Splitting:
    """Over-relaxed ADMM on the reduced problem, stopped by its own primal-dual gap.

    Attributes:
        penalty: weight of the copies, at the scale where the Frobenius solution has norm 1.
        relaxation: between 1 (none) and 2.
        most: iterations allowed.
        between: iterations from one reading of the gap to the next.
        sharpness: the gap to stop at, as a share of the certificate's tolerance.
        start: the solver that decides feasibility and gives the first iterate.
    """

    penalty: float = 2.0
    relaxation: float = 1.7
    most: int = 20_000
    between: int = 20
    sharpness: float = 0.3
    start: ActiveSet = field(default_factory=ActiveSet)

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the nuclear solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: another norm than the nuclear norm.
        """
        if norm is not nuclear:
            raise ValueError(f"Splitting: expected norm 'nuclear', found {norm.name!r}")
        reduction = cons.reduce(constraints)
        first = self.start(reduction.constraints, frobenius)
        worst = jnp.min(cons.margins(reduction.constraints, first.W))
        separable = worst > 0
        W = first.W / jnp.where(separable, worst, 1.0)
        scale = jnp.where(separable, metrics.norm(W), 1.0)
        unit = Constraints(reduction.constraints.differences * scale, reduction.constraints.queries)

        found = self._split(unit, W / scale, separable)
        return Candidate(
            W=reduction.lift(jnp.where(separable, found.Z * scale, first.W)),
            duals=jnp.where(separable, found.duals(self.penalty), first.duals),
            iterations=first.iterations + found.iterations,
        )

    def _split(self, unit: Constraints, W: Float[Array, "p q"], separable: Array) -> _Iterate:
        tolerance = self.sharpness * tolerance_of(W.dtype).gap
        lengths = cons.lengths(unit)
        lengths = jnp.where(lengths > 0, lengths, 1.0)
        # Constraints of unit length, `<A_k, W> >= least_k`: the two copies then weigh the same (this
        # halves the iterations of easy problems and takes a tenth of those of nearly infeasible ones).
        rows = unit._replace(differences=unit.differences / lengths[..., None])
        least = 1.0 / lengths
        inverse = inverted(cons.gram(rows) + jnp.eye(least.size, dtype=least.dtype))

        def step(_: Int[Array, ""], now: _Iterate) -> _Iterate:
            # The W that minimizes ||W - V||^2 + ||margins(W) - t||^2.
            V, t = now.Z - now.U, now.s - now.lagged
            residual = t - cons.margins(rows, V)
            W = V + cons.combination(rows, (inverse @ residual.ravel()).reshape(t.shape))
            margins = cons.margins(rows, W)
            V = self.relaxation * W + (1 - self.relaxation) * now.Z
            t = self.relaxation * margins + (1 - self.relaxation) * now.s
            left, values, right = jnp.linalg.svd(V + now.U, full_matrices=False)
            shrunk = jnp.maximum(values - 1 / self.penalty, 0.0)
            Z = (left * shrunk[None, :]) @ right
            s = jnp.maximum(t + now.lagged, least)
            return now._replace(
                Z=Z,
                s=s,
                U=now.U + V - Z,
                lagged=now.lagged + t - s,
                nuclear=jnp.sum(shrunk),
            )

        def round_(now: _Iterate) -> _Iterate:
            now = jax.lax.fori_loop(0, self.between, step, now)
            worst = jnp.min(cons.margins(rows, now.Z) / least)
            duals = now.duals(self.penalty)
            bound = jnp.sum(duals * least) / nuclear.dual(cons.combination(rows, duals))
            primal = now.nuclear / worst
            gap = jnp.where(worst > 0, (primal - bound) / primal, jnp.inf)
            return now._replace(gap=gap, iterations=now.iterations + self.between)

        start = _Iterate(
            Z=W,
            s=cons.margins(rows, W),
            U=jnp.zeros_like(W),
            lagged=jnp.zeros_like(least),
            nuclear=jnp.zeros((), W.dtype),
            gap=jnp.where(separable, jnp.inf, 0.0).astype(W.dtype),
            iterations=jnp.zeros((), int),
        )
        found = jax.lax.while_loop(lambda now: (now.gap > tolerance) & (now.iterations < self.most), round_, start)
        return found._replace(lagged=found.lagged / lengths)


class _Iterate(NamedTuple):
    """Copies of W and of its margins with their scaled multipliers, and what was last read of them."""

    Z: Float[Array, "p q"]
    s: Float[Array, "n m"]
    U: Float[Array, "p q"]
    lagged: Float[Array, "n m"]
    nuclear: Float[Array, ""]
    gap: Float[Array, ""]
    iterations: Int[Array, ""]

    def duals(self, penalty: float) -> Float[Array, "n m"]:
        """Return the multipliers of the constraints."""
        return jnp.maximum(-penalty * self.lagged, 0.0)
