"""The regularization path of (K, Q) with few columns: the smallest risk found among W of bounded rank."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from jaxattn import checks, heads, losses, tokens
from jaxattn.attention import Factored
from jaxattn.descent import gradients, gram_engine
from jaxattn.problem import Problem, check_one
from jaxattn.regularization.balls import Narrow
from jaxattn.regularization.continuation import follow
from jaxattn.regularization.inverses import Linear, by_coordinates
from jaxattn.regularization.newton import Slope, Task, read
from jaxattn.regularization.objective import End, Surprise, first, lower, of_tokens, read_path, slope_of
from jaxattn.regularization.path import check_radii
from jaxattn.svm import constraints as cons

__all__ = ["NarrowPath", "narrow_path"]

# Two points closer than this, in units of R, count as the same.
_SAME = 1e-3
# A point counts as a minimum if no eigenvalue of the Hessian is below minus this fraction of the multiplier.
_BENT = 1e-4


class NarrowPath(NamedTuple):
    """The best point found on each radius, with its evidence. Better points may exist.

    Attributes:
        weights: K and Q, (radii, d, m) each.
        risk: (radii).
        excess: `log(risk - risk of the optimal tokens)` where the difference is positive, (radii).
        residual: the sine of the angle between (K, Q) and the negative gradient of the risk with respect to it, 1 if
            that angle is not acute, (radii). It is zero if and only if (K, Q) satisfies the first-order conditions on
            its ball.
        solved: whether the residual is within the tolerance, (radii); if not, the point is not an answer.
        minimum: whether, in addition, the Hessian along the sphere has no negative eigenvalue up to rounding, so that
            the point is a local minimum to second order, (radii).
        agreeing: the fraction of starts on this radius that end at this point, (radii).
        continued: whether only the start from a neighbouring radius ends at this point, (radii).
        drawn: whether a path from a random direction ends at this point, (radii).
    """

    weights: Factored
    risk: Float[Array, " radii"]
    excess: Float[Array, " radii"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]
    minimum: Bool[Array, " radii"]
    agreeing: Float[Array, " radii"]
    continued: Bool[Array, " radii"]
    drawn: Bool[Array, " radii"]


class _Points(NamedTuple):
    """A point on each radius: its coordinates and its evidence."""

    x: Float[Array, "radii a m"]
    end: End


class _State(NamedTuple):
    """The current points of all starts, which are followed from radius to radius, and the best points."""

    x: Float[Array, "starts a m"]
    best: _Points


class _Turn(NamedTuple):
    """One minimization: its radius, the radius whose best point is used, the function, and the starts."""

    place: Int[Array, "..."]
    source: Int[Array, "..."]
    of_risk: Bool[Array, "..."]
    anew: Bool[Array, "..."]


def narrow_path(
    problem: Problem,
    radii: ArrayLike,
    m: int,
    *,
    starts: int = 10,
    seed: int = 0,
    also: Factored | None = None,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    most: int = 20,
    tolerance: float = 1e-6,
) -> NarrowPath:
    """Minimize the risk over K and Q of m columns with `||K||_F^2 + ||Q||_F^2 <= 2 R` (2308.16898, KQ-path, any m).

    This is the minimum over the W with `||W||_* <= R` and rank at most m. For m below min(d, n) that set is not convex,
    and there are many local minima. The risk is therefore minimized from many starts, and the lowest result is kept.
    First, from the smallest radius up, each radius starts from the best point of the radius below (the first radius
    from the direction of steepest descent at W = 0) and from random directions. Then, from the largest radius down,
    each radius starts from the best point of the radius above, and from the ends of `starts - 1` paths. These begin at
    the same random directions, and follow the minimizers of the cross entropy of the optimal tokens from the middle
    radius up, and then those of the risk from the top down. Directions in `also` are followed like the random ones.

    Works under `jit` and `vmap`; makes no LAPACK calls.

    Args:
        problem: one problem.
        radii: positive and increasing.
        m: the number of columns of K and Q.
        starts: the number of starts on each radius in each direction, at least 2.
        seed: the seed of the random directions.
        also: further directions, K and Q at any scale, (more, d, m) each. Default: none.
        loss: a function of one margin.
        head: a function of one attention output and v.
        most: the largest number of Newton steps from one start.
        tolerance: the tolerance of the residual.

    Raises:
        ValueError: not a Problem; radii that are not positive and increasing numbers; m, most or tolerance not
            positive; fewer than two starts.

    Example:
        >>> found = regularization.narrow_path(problem, jnp.logspace(0, 1, 3), m=1, starts=2)
        >>> bool(found.solved.all()), found.weights.K.shape
        (True, (3, 5, 1))
    """
    check_one(problem)
    check_radii(radii)
    checks.count("starts", starts, least=2)
    checks.count("most", most)
    checks.positive("tolerance", tolerance)
    R = jnp.asarray(radii, problem.X.dtype)
    reduction = cons.reduce(cons.Constraints(gram_engine.differences(problem), problem.Z))
    rows, optimal = reduction.constraints, tokens.optimal(problem, head)
    risk = slope_of(problem, problem.Y, gradients.reading(problem, head), loss)
    entropy = slope_of(problem, jnp.ones_like(problem.Y), of_tokens(optimal), Surprise())
    task = Task(rows, risk, Narrow(m=m), by_coordinates)

    def points(x: Array, R: Array) -> _Points:
        return _Points(x, read_path(task, problem, reduction, optimal, R, x, tolerance, loss, head))

    def take(now: _State, turn: _Turn) -> tuple[_State, tuple[Array, Array]]:
        """Minimize from all starts on one radius; keep the best point if the function is the risk."""

        def slope(logits: Array) -> tuple[Array, Array]:
            # One program for risk and cross entropy.
            return jax.tree.map(lambda a, b: jnp.where(turn.of_risk, a, b), risk(logits), entropy(logits))

        x = jnp.where(turn.anew, begun, now.x)
        x = x.at[0].set(jnp.where(turn.of_risk, now.best.x[turn.source], x[0]))
        here = R[turn.place]
        ends = jax.vmap(lambda one: follow(task._replace(slope=slope), one, here[None], most).x)(x)
        found = jax.vmap(lambda one: points(one, here[None]))(ends)
        kept = jax.tree.map(lambda leaf: leaf[turn.place][None], now.best)
        for number in range(len(begun)):
            kept = _better(jax.tree.map(lambda leaf, number=number: leaf[number], found), kept)
        best = jax.tree.map(
            lambda leaf, new: jnp.where(turn.of_risk, leaf.at[turn.place].set(new[0]), leaf), now.best, kept
        )
        return _State(jnp.where(turn.anew, now.x, ends[:, 0]), best), (found.end.W[:, 0], found.end.solved[:, 0])

    begun = _begun(task, entropy, m, starts, seed)
    if also is not None:
        K, Q = reduction.left.T @ also.K, reduction.right.T @ also.Q
        begun = jnp.concatenate([begun, jnp.concatenate([K, Q], axis=1)])
    nothing = points(jnp.broadcast_to(first(task), (R.size, *begun.shape[1:])), R)
    nothing = nothing._replace(end=nothing.end._replace(solved=jnp.zeros(R.size, bool)))
    turns = _turns(R.size)
    last, (W, solved) = jax.lax.scan(take, _State(begun, nothing), turns)
    best = last.best
    assert isinstance(best.end.weights, Factored)
    near = solved & (
        jnp.sqrt(jnp.sum((W - best.end.W[turns.place][:, None]) ** 2, axis=(2, 3))) <= _SAME * R[turns.place][:, None]
    )
    of = turns.of_risk[None] & (turns.place[None] == jnp.arange(R.size)[:, None])
    return NarrowPath(
        weights=best.end.weights,
        risk=best.end.risk,
        excess=best.end.excess,
        residual=best.end.residual,
        solved=best.end.solved,
        minimum=jax.vmap(lambda x, R: _is_minimum(task, x, R))(best.x, R) & best.end.solved,
        agreeing=jnp.sum(of * jnp.mean(near, axis=1)[None], axis=1) / 2,
        continued=~(of & near[:, 1:].any(axis=1)[None]).any(axis=1),
        drawn=(of & near[:, 1:starts].any(axis=1)[None]).any(axis=1),
    )


def _turns(radii: int) -> _Turn:
    """Return the minimizations in order: cross entropy from the middle up, risk up from new starts, risk down."""
    up, high = np.arange(radii), np.arange(radii // 2, radii)
    down = up[::-1]
    return _Turn(
        place=jnp.asarray(np.concatenate([high, up, down])),
        source=jnp.asarray(np.concatenate([high, np.maximum(up - 1, 0), np.minimum(down + 1, radii - 1)])),
        of_risk=jnp.asarray(np.repeat([False, True, True], [high.size, radii, radii])),
        anew=jnp.asarray(np.repeat([False, True, False], [high.size, radii, radii])),
    )


def _begun(task: Task, entropy: Slope, m: int, starts: int, seed: int) -> Float[Array, "starts a m"]:
    """Return random directions `G R R^T` in which the cross entropy falls, G its negative gradient at W = 0."""
    coefficients, _ = entropy(jnp.zeros(task.rows.differences.shape[:2], task.rows.differences.dtype))
    G = -cons.combination(task.rows, coefficients)
    right = jax.random.normal(jax.random.key(seed), (starts, G.shape[1], m), G.dtype)
    left = jnp.einsum("pq,sqm->spm", G, right)
    size = jnp.sqrt(jnp.sum(right**2, axis=(1, 2), keepdims=True) / jnp.sum(left**2, axis=(1, 2), keepdims=True))
    return jnp.concatenate([size * left, right], axis=1)


def _better(one: _Points, other: _Points) -> _Points:
    """Return per radius the first point if it is solved and the second is unsolved or higher, else the second."""
    better = one.end.solved & (~other.end.solved | lower(one.end, other.end))
    return jax.tree.map(lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other)


def _is_minimum(task: Task, x: Float[Array, "a m"], R: Float[Array, ""]) -> Bool[Array, ""]:
    now = read(task, x, R)
    multiplier = -jnp.sum(task.ball.gradient(x, now.G) * x) / jnp.sum(x * x)
    equations = Linear(x, now.G, (1 + _BENT) * multiplier, now.B)
    return by_coordinates(task.ball, task.rows, equations).inside
