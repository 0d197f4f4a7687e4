"""An exact active-set solver for the Frobenius Att-SVM.

`min ||W||_F  s.t. <A_k, W> >= b_k` is a least-distance problem. Its dual is the non-negative least-squares problem
`min_{u >= 0} ||A^T u||^2 + (1 - <b, u>)^2`, with u of any sign at equalities (Lawson and Hanson, Solving Least Squares
Problems, chapter 23). With the residual `rho = 1 - <b, u>` the solution is `W = A^T u / rho`. If the residual is zero,
`u` is a proof of infeasibility.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.norms import Norm, frobenius
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.least_squares import Pivoted, feasible, least_squares
from jaxattn.svm.pivoting import per_lane, positive
from jaxattn.svm.solution import Candidate

__all__ = ["ActiveSet"]


@dataclass(frozen=True)
class ActiveSet:
    """Lawson and Hanson's active-set method; each exchange is one principal pivot of the Gram matrix.

    A pivot is a rank-one update, so a batch of problems runs as plain array code under `vmap`.

    Attributes:
        sweeps: the number of pivots allowed per constraint; a problem needs about two per support vector.
    """

    sweeps: int = 6

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the Frobenius solution, or a proof of infeasibility.

        Raises:
            ValueError: another norm than the Frobenius norm, or soft rows.
        """
        if norm.plain != frobenius:
            raise ValueError(f"ActiveSet: expected norm 'frobenius', found {norm.name!r}")
        if constraints.penalty is not None:
            raise ValueError("ActiveSet: expected hard rows, found a penalty; InteriorPoint solves the soft margin")
        reduction = cons.reduce(constraints)
        constraints = reduction.constraints
        of = cons.rows(constraints)
        n, m, _ = constraints.differences.shape
        most = self.sweeps * n * m
        # Scale rows to length 1: short differences would otherwise be lost in the rounding of long ones.
        lengths = cons.unit_lengths(constraints)
        unit = constraints._replace(differences=constraints.differences / lengths[..., None])
        asked = jnp.where(of.present, of.targets / lengths, 0.0)
        largest = positive(jnp.max(jnp.abs(asked)))
        b = (asked / largest).ravel()
        G = cons.gram(unit)

        # The first pass is at the scale of the constraints, the second at that of the solution, where the residual is
        # 1/2 and the active set is found at full accuracy. If the first pass found (nearly) no residual, scale and
        # multipliers are kept: they are the proof.
        def one_pass(start: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Any]:
            scale, u = start
            found = least_squares(G * scale + jnp.outer(b, b), b, of, u, most)
            rho = 1.0 - jnp.sum(b * found.u)
            separable = rho > 1e-2 * jnp.sqrt(jnp.finfo(G.dtype).eps)
            own = jnp.where(separable & (rho < 1), scale * (1.0 - rho) / jnp.where(separable, rho, 1.0), scale)
            return (own, found.u), (found, scale, separable)

        start = jnp.ones((), G.dtype), jnp.zeros(n * m, G.dtype)
        _, passes = jax.lax.scan(one_pass, per_lane(start, G), None, length=2)
        found, scale, separable = jax.tree.map(lambda leaf: leaf[-1], passes)
        W, duals = _refined(unit, b, of, found, scale, jnp.where(separable, 0.0, 1.0))
        W = jnp.where(separable, scale * largest, 1.0) * W
        # A zero row with a target above 0 (a token and its copy) is a proof by itself.
        zero = of.present & (cons.lengths(constraints) == 0)
        absurd = zero & jnp.where(of.equal, of.targets != 0, of.targets > 0)
        duals = jnp.where(absurd.any(), jnp.where(absurd, jnp.sign(of.targets), 0.0), duals)
        proof = _contradiction(unit, G, asked.ravel(), of.equal.ravel()).reshape(duals.shape)
        proves = _left(unit, asked, proof) < jnp.minimum(_left(unit, asked, duals), jnp.sqrt(jnp.finfo(G.dtype).eps))
        duals = jnp.where(proves & ~absurd.any(), proof, duals) / lengths
        return Candidate(reduction.lift(W), duals, jnp.sum(passes[0].iterations))


def _contradiction(
    unit: Constraints, G: Float[Array, "c c"], b: Float[Array, " c"], equal: Bool[Array, " c"]
) -> Float[Array, " c"]:
    """Return the multipliers that show the largest contradiction among dependent equations.

    Beside larger targets, small targets of such equations are lost in the squares of the least-squares problem.
    """
    found = cons.equations(unit)
    # The coefficients of each row in terms of the independent equations.
    multiples = jnp.where(found.taken[:, None], found.inverse @ G, 0.0)
    off, size = b - b @ multiples, jnp.abs(b) + jnp.abs(b) @ jnp.abs(multiples)
    k = jnp.argmax(jnp.where(equal & ~found.taken, jnp.abs(off) / positive(size), -1.0))
    return jnp.sign(off[k]) * jnp.where(jnp.arange(b.size) == k, 1.0, -multiples[:, k])


def _left(unit: Constraints, b: Float[Array, "n m"], a: Float[Array, "n m"]) -> Float[Array, ""]:
    """Return how close multipliers come to combining rows of length 1 to zero, as in `Tolerance.farkas`."""
    left, worth = metrics.norm(cons.combination(unit, a)), jnp.sum(a * b)
    share = left / positive(jnp.sum(jnp.abs(a))) * (jnp.sum(jnp.abs(a * b)) / positive(worth))
    return jnp.where(worth > 0, share, jnp.inf)


def _refined(
    unit: Constraints,
    b: Float[Array, " c"],
    of: Rows,
    found: Pivoted,
    scale: Float[Array, ""],
    bias: Float[Array, ""],
) -> tuple[Float[Array, "p q"], Float[Array, "n m"]]:
    """Solve `scale <A_k, W> + bias b_k <b, u> = b_k` on the active set, `W = sum_l u_l A_l`; return W and u.

    Residuals are computed from W itself, and W is corrected along with u (corrected seminormal equations). Using the
    Gram matrix, or recomputing W from large multipliers, would lose accuracy by the square of the condition number. The
    inverse is taken from the tableau.
    """
    both = found.active[:, None] & found.active[None, :]
    inverse = jnp.where(both, found.tableau[:, :-1], 0.0)
    shape = unit.differences.shape[:2]

    def correct(_: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
        u, W = now
        reached = scale * cons.margins(unit, W).ravel() + bias * b * jnp.sum(b * u)
        correction = inverse @ jnp.where(found.active, b - reached, 0.0)
        return u + correction, W + cons.combination(unit, correction.reshape(shape))

    start = found.u, cons.combination(unit, found.u.reshape(shape))
    u, W = jax.lax.fori_loop(0, 6, correct, start)
    # The inverse is that of `scale G + b b^T`, so the length converges by a factor of 2 only, unlike the direction.
    reached = jnp.where(found.active, scale * cons.margins(unit, W).ravel() * b, 0.0)
    length = jnp.sum(reached) / positive(jnp.sum(jnp.where(found.active, b * b, 0.0)))
    W = W / jnp.where((bias == 0) & (length > 0), length, 1.0)
    return W, feasible(u, of.equal.ravel()).reshape(shape)
