"""The regularization path: minimizers of the risk on balls, followed from small and from large radii."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from jaxattn import checks, heads, losses, tokens
from jaxattn.attention import Weights
from jaxattn.descent import gradients, gram_engine
from jaxattn.problem import Problem, check_one
from jaxattn.regularization.balls import FROBENIUS, Ball
from jaxattn.regularization.continuation import Branch, follow
from jaxattn.regularization.newton import Task
from jaxattn.regularization.objective import Surprise, first, lower, of_tokens, read_path, slope_of
from jaxattn.svm import constraints as cons

__all__ = ["Path", "check_radii", "path"]

# Two solutions closer than this, in units of R, count as the same.
_SAME = 1e-4


class Path(NamedTuple):
    """The best point found on each radius, with its evidence.

    Attributes:
        weights: W, (radii, d, d), or K and Q, (radii, d, m) each, with m = min(d, n).
        risk: (radii).
        excess: `log(risk - risk of the optimal tokens)` where the difference is positive, (radii).
        residual: `1 - <-G, W> / (||G||_dual R)`, G the gradient of the risk with respect to W, (radii). It is zero if
            and only if W satisfies the first-order conditions on the ball. The risk is not convex, so several W may
            satisfy them.
        solved: whether the residual is within the tolerance, (radii); if not, the point is not an answer.
        falling: whether the point comes from the path followed down, (radii).
        apart: the distance between the two paths in units of R, inf if one of them is not solved, (radii).
        steps: the number of steps of the paths up and down, (2, radii).
    """

    weights: Weights
    risk: Float[Array, " radii"]
    excess: Float[Array, " radii"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]
    falling: Bool[Array, " radii"]
    apart: Float[Array, " radii"]
    steps: Int[Array, "2 radii"]


def path(
    problem: Problem,
    radii: ArrayLike,
    ball: Ball = FROBENIUS,
    *,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    most: int = 20,
    tolerance: float = 1e-6,
) -> Path:
    """Minimize the risk on balls of growing radius (2308.16898, regularization paths of W and of (K, Q)).

    One path is followed up from the smallest radius, where the risk is nearly linear. Another is followed down from the
    largest radius, starting from the minimizer of the cross entropy of the optimal tokens, a convex problem. On each
    radius the point of lower risk is kept. Works under `jit` and `vmap`; makes no LAPACK calls.

    Args:
        problem: one problem.
        radii: positive and increasing.
        ball: `FROBENIUS` for W, `NUCLEAR` for (K, Q), or another.
        loss: a function of one margin.
        head: a function of one attention output and v.
        most: the largest number of Newton steps on one radius of one path.
        tolerance: the tolerance of the residual.

    Raises:
        ValueError: not a Problem, or not a ball; radii that are not positive and increasing numbers; a loss or head
            that is not a function to one number; most or tolerance not positive.

    Example:
        >>> found = regularization.path(problem, jnp.logspace(0, 1, 4), regularization.FROBENIUS)
        >>> bool(found.solved.all())
        True
    """
    check_one(problem)
    if not hasattr(ball, "toward"):
        raise ValueError(f"ball: expected one such as regularization.FROBENIUS, found {ball!r}")
    check_radii(radii)
    checks.count("most", most)
    checks.positive("tolerance", tolerance)
    R = jnp.asarray(radii, problem.X.dtype)
    reduction = cons.reduce(cons.Constraints(gram_engine.differences(problem), problem.Z))
    optimal = tokens.optimal(problem, head)
    risk = slope_of(problem, problem.Y, gradients.reading(problem, head), loss)
    entropy = slope_of(problem, jnp.ones_like(problem.Y), of_tokens(optimal), Surprise())
    task = Task(reduction.constraints, risk, ball)

    def stage(starts: Array, turn: _Turn) -> tuple[Array, Branch]:
        def slope(logits: Array) -> tuple[Array, Array]:
            # One program for risk and cross entropy.
            return jax.tree.map(lambda a, b: jnp.where(turn.of_risk, a, b), risk(logits), entropy(logits))

        def one(x: Array, radii: Array, count: Array) -> Branch:
            return follow(task._replace(slope=slope), x, radii, most, count)

        found = jax.vmap(one)(starts, turn.radii, turn.counts)
        high = found.x[1, turn.counts[1] - 1]
        return jnp.stack([_at_length(first(task), high), high]), found

    begun = first(task._replace(slope=entropy))
    stages = jax.lax.scan(stage, jnp.stack([begun, begun]), _turns(R))[1]
    both = jax.tree.map(lambda leaf: leaf[1], stages)
    up, down = (read_path(task, problem, reduction, optimal, R, one, tolerance, loss, head) for one in _apart(both))
    distance = jnp.sqrt(jnp.sum((up.W - down.W) ** 2, axis=(1, 2))) / R
    falling = down.solved & (~up.solved | (lower(down, up) & (distance > _SAME)))
    found = jax.tree.map(lambda a, b: jnp.where(falling.reshape(-1, *[1] * (a.ndim - 1)), b, a), up, down)
    return Path(
        weights=found.weights,
        risk=found.risk,
        excess=found.excess,
        residual=found.residual,
        solved=found.solved,
        falling=falling,
        apart=jnp.where(up.solved & down.solved, distance, jnp.inf),
        steps=jnp.stack([both.steps[0], both.steps[1, ::-1]]),
    )


def check_radii(radii: ArrayLike) -> None:
    """Raise ValueError unless radii is a non-empty list of finite, positive and increasing numbers.

    Example:
        >>> regularization.check_radii([1.0, 10.0, 100.0])
    """
    if isinstance(radii, Tracer):
        return
    try:
        numbers = np.asarray(radii, float)
    except (TypeError, ValueError):
        raise ValueError(f"radii: expected a list of numbers, found {radii!r}") from None
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"radii: expected a list of numbers, found shape {numbers.shape}")
    if not np.isfinite(numbers).all() or numbers[0] <= 0 or (np.diff(numbers) <= 0).any():
        raise ValueError(f"radii: expected positive and increasing numbers, found {numbers.tolist()}")


class _Turn(NamedTuple):
    """Paths followed together: those of the risk, up and down, or before them one of the cross entropy.

    Attributes:
        of_risk: whether the function is the risk.
        radii: the radii of both paths, in the order in which they are followed.
        counts: the number of radii to follow on each path.
    """

    of_risk: Bool[Array, "..."]
    radii: Float[Array, "... 2 radii"]
    counts: Int[Array, "... 2"]


def _turns(R: Float[Array, " radii"]) -> _Turn:
    # For a convex problem every second radius suffices, including the last. The other path is not needed here.
    seconds = R[::-1][::2][::-1]
    convex = jnp.concatenate([seconds, jnp.broadcast_to(R[-1], (R.size - seconds.size,))])
    return _Turn(
        of_risk=jnp.array([False, True]),
        radii=jnp.stack([jnp.stack([convex, convex]), jnp.stack([R, R[::-1]])]),
        counts=jnp.array([[0, seconds.size], [R.size, R.size]]),
    )


def _at_length(x: Float[Array, "a b"], like: Float[Array, "a b"]) -> Float[Array, "a b"]:
    return x * jnp.sqrt(jnp.sum(like * like) / jnp.sum(x * x))


def _apart(both: Branch) -> tuple[Array, Array]:
    """Return the coordinates of the two paths, each in the order of the radii."""
    return both.x[0], both.x[1, ::-1]
