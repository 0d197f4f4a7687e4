"""The joint regularization path of a prompt and the head's v: the smallest risk with `||p|| <= R` and `||v|| <= r`.

For given attention outputs the risk is convex in v, and its minimizer on the ball is unique; what is left is a risk of
p alone, of which `regularization.continuation` finds a minimizer on the sphere. Its gradient is that of the risk with v
held at its minimizer. As v ties the inputs together its Hessian has no blocks, so all their rows are given as those of
one input: they share their query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxattn import attention, checks, losses
from jaxattn.descent import gram_engine
from jaxattn.problem import Problem
from jaxattn.regularization.balls import FROBENIUS
from jaxattn.regularization.continuation import follow
from jaxattn.regularization.newton import Slope, Task, read
from jaxattn.regularization.objective import slope_of
from jaxattn.svm import constraints as cons
from jaxattn.svm.pivoting import cholesky, inverse_of_lower

# The minimizer over v is followed from r = 1 by a Newton step for each factor of this size, and of more at the end.
_FACTOR, _LAST = 2.5, 6
# Starting ratio of the radii, warm-up steps from it to the path's own, the probe as a share of a step, and the steps
# from one radius to the next.
_NARROW, _WIDENING, _BESIDE, _BETWEEN = 0.1, 16, 1e-3, 8
# Margins above this have a loss of `exp(-m)` in double precision.
_LARGE = 30.0


@dataclass(frozen=True)
class Growth:
    """How the radius of the ball of v grows with that of p: `r = ratio first (R / first)^exponent`."""

    exponent: float
    first: float = 10.0
    ratio: float = 2.0

    def __post_init__(self) -> None:
        for name in ("exponent", "first", "ratio"):
            checks.positive(f"ball.{name}", getattr(self, name))

    def __call__(self, R: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return r."""
        return self.ratio * self.first * (R / self.first) ** self.exponent


class JointPath(NamedTuple):
    """A stationary point (p, v) on every pair of radii, and Newton's steps in p.

    The residual is the larger of `1 - cos` of p and of v with the negative gradients of the risk. It is zero if and
    only if the first-order conditions hold on both balls; v is then the minimizer for this p.
    """

    p: Float[Array, "radii d"]
    head: Float[Array, "radii d"]
    residual: Float[Array, " radii"]
    log_risk: Float[Array, " radii"]
    steps: Int[Array, " radii"]


def path(
    problem: Problem, start: Float[Array, "d d"], R: Float[Array, " radii"], r: Float[Array, " radii"], most: int
) -> JointPath:
    """Follow a stationary point of the logistic risk from the middle radii up to the largest, and down to the smallest.

    Works under `jit` and `vmap`; calls no LAPACK. The inputs share their query, of length 1.

    Args:
        problem: as drawn.
        start: a matrix along which p begins.
        R: increasing radii of p, at least two.
        r: those of v.
        most: Newton steps on each.
    """
    reduction = cons.reduce(cons.Constraints(gram_engine.differences(problem), problem.Z))
    n, m, width = reduction.constraints.differences.shape
    differences = reduction.constraints.differences.reshape(1, n * m, width)
    rows = cons.Constraints(differences, reduction.constraints.queries[:1])

    def at(r: Array) -> Task:
        return Task(rows, _slope(problem, r), FROBENIUS)

    def read_at(x: Array, steps: Array, R: Array, r: Array) -> JointPath:
        W = reduction.lift(x)
        v, of_v, log_risk = _read(problem, W, r)
        residual = jnp.maximum(read(at(r), x, R).residual, of_v)
        return JointPath(W @ problem.Z[0], v, jnp.where(jnp.isfinite(residual), residual, jnp.inf), log_risk, steps)

    def follow_way(stages: _Stages) -> JointPath:
        x = reduction.left.T @ start @ reduction.right
        found = follow(lambda k: at(stages.r[k]), x, stages.R, most, ahead=stages.ahead)
        # Without the stages before the middle radii, that beside them, and those between radii.
        kept = np.r_[_WIDENING - 1, _WIDENING + _BETWEEN * np.arange(1, middle + 1)]
        return jax.vmap(read_at)(found.x[kept], found.steps[kept], stages.R[kept], stages.r[kept])

    middle = R.size // 2
    order = jnp.stack([jnp.minimum(middle + jnp.arange(middle + 1), R.size - 1), middle - jnp.arange(middle + 1)])
    found = jax.vmap(lambda places: follow_way(_stages(R[places], r[places])))(order)
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf[1, ::-1], leaf[0, 1 : R.size - middle]]), found)


class _Stages(NamedTuple):
    """Radii on the way, and how far the next point is expected to be, in units of the last step."""

    R: Float[Array, " stages"]
    r: Float[Array, " stages"]
    ahead: Float[Array, " stages"]


def _stages(R: Float[Array, " radii"], r: Float[Array, " radii"]) -> _Stages:
    """Return the stages that widen v's ball to the first radii, probe beside them, and go to all others."""
    places = jnp.r_[0.0, _BESIDE, jnp.arange(1, _BETWEEN * (R.size - 1) + 1) / _BETWEEN]
    all_R, all_r = (jnp.exp(jnp.interp(places, jnp.arange(R.size), jnp.log(radii))) for radii in (R, r))
    widening = jnp.geomspace(_NARROW * R[0], r[0], _WIDENING)
    steps = jnp.diff(all_R)
    return _Stages(
        jnp.concatenate([jnp.full_like(widening, R[0]), all_R[1:]]),
        jnp.concatenate([widening, all_r[1:]]),
        jnp.concatenate([jnp.zeros(_WIDENING + 1), steps[1:] / jnp.where(steps[:-1] == 0, 1.0, steps[:-1])]),
    )


def _slope(problem: Problem, r: Float[Array, ""]) -> Slope:
    """Return what a Newton step reads of the risk with v at its minimizer, the rows of all inputs being one input's."""

    def reading(_: Array, probabilities: Array) -> tuple[Array, Array]:
        outputs = attention.attended(probabilities, problem)
        v = minimizer(problem.Y[:, None] * outputs, r)
        return outputs @ v, problem.X @ v

    of_inputs = slope_of(problem, problem.Y, reading, losses.logistic)

    def slope(logits: Array) -> tuple[Array, Array]:
        coefficients, log_scale = of_inputs(logits.reshape(problem.n, -1))
        return coefficients.reshape(logits.shape), log_scale

    return slope


def _read(problem: Problem, W: Float[Array, "d d"], r: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """Return v, its residual, and the logarithm of the risk."""
    A = problem.Y[:, None] * attention.attended(attention.probabilities(W, problem), problem)
    v = minimizer(A, r)
    margins = A @ v
    weights = _log_slope(margins)
    falls = jnp.exp(weights - jnp.max(weights)) @ A
    residual = 1 - falls @ v / (jnp.sqrt(falls @ falls) * r)
    small = jnp.minimum(margins, _LARGE)
    log_loss = jnp.where(margins > _LARGE, -margins, jnp.log(losses.logistic(small)))
    return v, residual, jax.scipy.special.logsumexp(log_loss) - jnp.log(problem.n)


def minimizer(A: Float[Array, "n d"], r: Float[Array, ""]) -> Float[Array, " d"]:
    """Return the v of length r that minimizes `sum_i log(1 + exp(-A_i.v))`, differentiable in A.

    With u_i the logarithm of the i-th slope, v is along `sum_i exp(u_i) A_i`, which makes n equations for u,
    `u_i = log sigmoid(-A_i.v)`. Their Jacobian is never singular, and u is about linear in r: it is followed from
    `r = 1`, for r of any size. A number added to all u_i does not change v. They are kept relative to the largest: this
    saves five digits for r = 10^5. The rows of A, attention outputs times labels, are linearly independent.
    """
    gram = A @ A.T
    fixed = jax.lax.stop_gradient(gram)
    stages = jnp.ceil(jnp.log(r) / jnp.log(_FACTOR)).astype(int)

    def stage(k: Array, u: Array) -> Array:
        now = jnp.minimum(_FACTOR**k, r)
        u = u - _solved(fixed, u, now, _error(fixed, u, now))
        return u - jnp.max(u)

    u = jax.lax.fori_loop(0, stages + _LAST, stage, jnp.zeros_like(A[:, 0]))
    # One more step, whose derivative is that of the solution.
    u = jax.lax.stop_gradient(u)
    u = u - _solved(fixed, u, r, _error(gram, u, r))
    v = jnp.exp(u - jnp.max(u)) @ A
    return r * v / jnp.sqrt(v @ v)


def _log_slope(margins: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.nn.log_sigmoid(-margins)


def _margins(gram: Float[Array, "n n"], u: Float[Array, " n"], r: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """Return the margins of the v of length r that belongs to u, the weights `exp(u)` over the largest, and `||v||`."""
    weights = jnp.exp(u - jnp.max(u))
    along = gram @ weights
    length = jnp.sqrt(weights @ along)
    return r * along / length, weights, length


def _error(gram: Float[Array, "n n"], u: Float[Array, " n"], r: Float[Array, ""]) -> Float[Array, " n"]:
    """Return the error of the equations, less that at the largest u."""
    error = u - _log_slope(_margins(gram, u, r)[0])
    return error - error[jnp.argmax(u)]


def _solved(
    gram: Float[Array, "n n"], u: Float[Array, " n"], r: Float[Array, ""], b: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Return `(I + S G C)^{-1} b`, the Jacobian of the error's: S and C are diagonal, G is positive semidefinite."""
    margins, weights, length = _margins(gram, u, r)
    S = jax.nn.sigmoid(margins)
    across = margins / r
    G = r / length * (gram - jnp.outer(across, across))
    D = jnp.sqrt(S * weights)
    root = inverse_of_lower(cholesky(jnp.eye(u.size, dtype=u.dtype) + D[:, None] * G * D[None])[0])
    return b - S * (G @ (D * (root.T @ (root @ (jnp.sqrt(weights / S) * b)))))
