"""The Frobenius Att-SVM, solved exactly by an active set.

`min ||W||_F  s.t. <A_k, W> >= b_k` is a least-distance problem, and its dual the non-negative least
squares problem `min_{u >= 0} ||A^T u||^2 + (1 - <b, u>)^2`, with u of any sign at equalities (Lawson and
Hanson, Solving Least Squares Problems, chapter 23). With residual `rho = 1 - <b, u>` the solution is
`W = A^T u / rho`; a residual of zero makes `u` a proof of infeasibility.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.norms import Norm, frobenius
from jaxattn.svm.pivoting import pivot, positive
from jaxattn.svm.solution import Candidate


@dataclass(frozen=True)
class ActiveSet:
    """Lawson and Hanson's active-set method, each exchange one principal pivot of the Gram matrix.

    A pivot is a rank-one update, so a batch of problems runs as plain array code under `vmap`.

    Attributes:
        sweeps: pivots allowed for each constraint; a problem needs about two for each of its
            support vectors.
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
        # Rows of length 1: short differences beside long ones would drown in rounding.
        lengths = cons.unit_lengths(constraints)
        unit = constraints._replace(differences=constraints.differences / lengths[..., None])
        asked = jnp.where(of.present, of.targets / lengths, 0.0)
        largest = positive(jnp.max(jnp.abs(asked)))
        b = (asked / largest).ravel()
        G = cons.gram(unit)

        # The first pass is at the scale of the constraints, the second at the solution's own, where the
        # residual is 1/2 and the active set is read at full accuracy. Where the first one found
        # (nearly) no residual, scale and multipliers stay: they are the proof.
        def one_pass(start: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Any]:
            scale, u = start
            found = _least_squares(G * scale, b, of, u, most)
            rho = 1.0 - jnp.sum(b * found.u)
            separable = rho > 1e-2 * jnp.sqrt(jnp.finfo(G.dtype).eps)
            own = jnp.where(separable & (rho < 1), scale * (1.0 - rho) / jnp.where(separable, rho, 1.0), scale)
            return (own, found.u), (found, scale, separable)

        start = jnp.ones((), G.dtype), jnp.zeros(n * m, G.dtype)
        _, passes = jax.lax.scan(one_pass, start, None, length=2)
        found, scale, separable = jax.tree.map(lambda leaf: leaf[-1], passes)
        W, duals = _refined(unit, b, of, found, scale, jnp.where(separable, 0.0, 1.0))
        W = jnp.where(separable, scale * largest, 1.0) * W
        # A row of zeros that asks for more than 0 (a token to be told from its copy) is a proof by itself.
        zero = of.present & (cons.lengths(constraints) == 0)
        absurd = zero & jnp.where(of.equal, of.targets != 0, of.targets > 0)
        duals = jnp.where(absurd.any(), jnp.where(absurd, jnp.sign(of.targets), 0.0), duals / lengths)
        return Candidate(reduction.lift(W), duals, jnp.sum(passes[0].iterations))


class _Iterate(NamedTuple):
    """Multipliers `u` on the active set, and the tableau that has been pivoted on it.

    Row k of the tableau gives, for an active constraint, its multiplier at the optimum of the active
    set (last column), and for another one how far the constraint is over-satisfied there. Between
    active rows and columns stands the inverse of the Gram matrix. `pending` constraints are still to
    be pivoted in from a warm start; `banned` ones depend on the active set and cannot enter.
    """

    u: Float[Array, " c"]
    tableau: Float[Array, "c c+1"]
    active: Bool[Array, " c"]
    pending: Bool[Array, " c"]
    banned: Bool[Array, " c"]
    finished: Bool[Array, ""]
    iterations: Int[Array, ""]


def _least_squares(
    G: Float[Array, "c c"], b: Float[Array, " c"], of: Rows, u: Float[Array, " c"], most: int
) -> _Iterate:
    """Minimize `u^T G u + (1 - <b, u>)^2` over `u >= 0` (any u at equalities), starting from the given multipliers."""
    eps = jnp.finfo(G.dtype).eps
    equal, absent = of.equal.ravel(), ~of.present.ravel()
    H = G + jnp.outer(b, b)
    longest = jnp.diagonal(H)
    # Rounding grows with the number of equalities, which are often more than the dimensions.
    dependent = jnp.where(equal.any(), 1e3, 64.0) * eps * longest
    index = jnp.arange(u.size)

    def step(now: _Iterate) -> _Iterate:
        warming = now.pending.any()
        optimum = now.tableau[:, -1]
        blocking = now.active & ~equal & (optimum <= 0) & ~warming
        blocked = blocking.any()
        # Blocked: move towards the optimum until a multiplier reaches zero, and drop that one.
        ratio = jnp.where(blocking, now.u / jnp.where(blocking, now.u - optimum, 1.0), jnp.inf)
        dropped = jnp.argmin(ratio)
        toward = jnp.where(now.active, now.u + jnp.min(ratio) * (optimum - now.u), 0.0)
        toward = jnp.where(index == dropped, 0.0, _feasible(toward, equal))
        # Not blocked: take the optimum, and let the most violated constraint in, if there is one.
        shortfall = jnp.where(now.active | now.banned | equal | absent, -jnp.inf, -optimum)
        # Equalities first: they never leave, so one that depends on others then is implied by them. Of these
        # the most independent one, lest a pivot at rounding level comes before a better one.
        share = jnp.diagonal(now.tableau) / jnp.where(longest > 0, longest, 1.0)
        first = jnp.where(equal, 2.0 + share, 1.0)
        shortfall = jnp.where(warming, jnp.where(now.pending, first, -jnp.inf), shortfall)
        entering = jnp.argmax(shortfall)
        finished = ~blocked & (shortfall[entering] <= 16 * eps)

        k = jnp.where(blocked, dropped, entering)
        # A pivot at rounding level: the constraint depends on the active ones.
        refused = ~blocked & (now.tableau[k, k] <= dependent[k])
        pivots = ~finished & ~refused
        at_k = index == k
        settled = jnp.where(now.active, _feasible(optimum, equal), 0.0)
        return _Iterate(
            u=jnp.where(warming, now.u, jnp.where(blocked, toward, settled)),
            tableau=jnp.where(pivots, pivot(now.tableau, k), now.tableau),
            active=jnp.where(at_k & pivots, ~now.active, now.active),
            pending=now.pending & ~at_k,
            banned=jnp.where(refused, now.banned | at_k, jnp.zeros_like(now.banned)),
            finished=finished,
            iterations=now.iterations + 1,
        )

    start = _Iterate(
        u=u,
        tableau=jnp.concatenate([H, -b[:, None]], axis=1),
        active=jnp.zeros(u.size, bool),
        pending=(u > 0) | equal,
        banned=jnp.zeros(u.size, bool),
        finished=jnp.zeros((), bool),
        iterations=jnp.zeros((), int),
    )
    return jax.lax.while_loop(lambda now: ~now.finished & (now.iterations < most), step, start)


def _feasible(u: Float[Array, " c"], equal: Bool[Array, " c"]) -> Float[Array, " c"]:
    return jnp.where(equal, u, jnp.maximum(u, 0.0))


def _refined(
    unit: Constraints,
    b: Float[Array, " c"],
    of: Rows,
    found: _Iterate,
    scale: Float[Array, ""],
    bias: Float[Array, ""],
) -> tuple[Float[Array, "p q"], Float[Array, "n m"]]:
    """Solve `scale <A_k, W> + bias b_k <b, u> = b_k` on the active set, `W = sum_l u_l A_l`; return W and u.

    Residuals are formed from W itself, and W corrected along with u: through the Gram matrix, or
    with W summed up anew from large multipliers, the square of the condition number would be lost
    (corrected seminormal equations). The inverse stands in the tableau.
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
    # The inverse is that of `scale G + b b^T`, so the length, unlike the direction, comes only by halves.
    reached = jnp.where(found.active, scale * cons.margins(unit, W).ravel() * b, 0.0)
    length = jnp.sum(reached) / positive(jnp.sum(jnp.where(found.active, b * b, 0.0)))
    W = W / jnp.where((bias == 0) & (length > 0), length, 1.0)
    return W, _feasible(u, of.equal.ravel()).reshape(shape)
