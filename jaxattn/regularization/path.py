"""The regularization path: the smallest risk on a ball, radius by radius, followed from both ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from jaxattn import attention, heads, losses, tokens
from jaxattn.attention import Weights
from jaxattn.descent import gradients, spans
from jaxattn.parallel import lanes
from jaxattn.problem import Problem, check_kind
from jaxattn.regularization.balls import FROBENIUS, Ball
from jaxattn.regularization.following import Branch, follow
from jaxattn.regularization.newton import Slope, Task, read
from jaxattn.svm import constraints as cons

__all__ = ["Path", "check_radii", "path"]

# Of the risk, below which two of them are told apart by how far each is above that of the optimal tokens.
_EQUAL = 1e-9
# Two solutions nearer than this, in units of R, are one.
_SAME = 1e-4


class Path(NamedTuple):
    """The best point found on every radius, with its evidence.

    Attributes:
        weights: W, (radii, d, d), or K and Q, (radii, d, m) each, with m the smaller of d and n.
        risk: (radii).
        excess: logarithm of the risk above that of the optimal tokens, where it is above, (radii).
        residual: `1 - <-G, W> / (||G||_dual R)`, G the gradient of the risk with respect to W, (radii). Zero if and
            only if W satisfies the first-order conditions on the ball; the risk is not convex, so that there may be
            several such.
        solved: whether the residual is within the tolerance; what is not solved is no answer, (radii).
        falling: whether the point is that of the path followed down, (radii).
        apart: the distance of the two paths in units of R, inf where one of them is not solved, (radii).
        steps: of the paths followed up and down, (2, radii).
    """

    weights: Weights
    risk: Float[Array, " radii"]
    excess: Float[Array, " radii"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]
    falling: Bool[Array, " radii"]
    apart: Float[Array, " radii"]
    steps: Int[Array, "2 radii"]


class _End(NamedTuple):
    """One of the two paths on every radius."""

    weights: Weights
    W: Float[Array, "radii d d"]
    risk: Float[Array, " radii"]
    excess: Float[Array, " radii"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]


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

    The path is followed up from the smallest radius, where the risk is all but linear, and down from the largest, where
    it is begun at the minimizer of the cross entropy of the optimal tokens, a convex problem; on every radius the point
    of lower risk is kept. Works under `jit` and `vmap`; calls no LAPACK.

    Args:
        problem: one problem.
        radii: positive and increasing.
        ball: `FROBENIUS` for W, `NUCLEAR` for (K, Q), or another.
        loss: of one margin.
        head: of one attention output.
        most: Newton steps on one radius of one path.
        tolerance: of the residual.

    Raises:
        ValueError: what is no Problem, or no ball; radii that are not positive and increasing numbers; most or
            tolerance not positive.

    Example:
        >>> found = regularization.path(problem, jnp.logspace(0, 1, 4), regularization.FROBENIUS)
        >>> bool(found.solved.all())
        True
    """
    check_kind(problem)
    if not hasattr(ball, "toward"):
        raise ValueError(f"ball: expected one such as regularization.FROBENIUS, found {ball!r}")
    check_radii(radii)
    if most < 1 or not tolerance > 0:
        raise ValueError(f"most, tolerance: expected at least 1 and a positive number, found {most} and {tolerance}")
    R = jnp.asarray(radii, problem.X.dtype)
    reduction = cons.reduce(cons.Constraints(spans.differences(problem), problem.Z))
    optimal = tokens.optimal(problem, head)
    task = Task(reduction.constraints, _slope(problem, problem.Y, gradients.reading(problem, head), loss), ball)
    entropy = Task(
        reduction.constraints, _slope(problem, jnp.ones_like(problem.Y), _of_tokens(optimal), _Surprise()), ball
    )
    # Every second radius will do for a convex problem; from the last one the other way on.
    high = follow(entropy, _first(entropy), R[::-1][::2][::-1], most).x[-1]
    starts = jnp.stack([_at_length(_first(task), high), high])
    both = jax.vmap(lambda x, radii: follow(task, x, radii, most))(starts, jnp.stack([R, R[::-1]]))
    up, down = (_read(task, problem, reduction, optimal, R, one, tolerance, loss, head) for one in _apart(both))
    lower = jnp.where(
        jnp.abs(down.risk - up.risk) > _EQUAL * jnp.abs(up.risk), down.risk < up.risk, down.excess < up.excess
    )
    distance = jnp.sqrt(jnp.sum((up.W - down.W) ** 2, axis=(1, 2))) / R
    falling = down.solved & (~up.solved | (lower & (distance > _SAME)))
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
    """Raise ValueError unless radii are at least one number, all of them finite, positive and increasing.

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


@dataclass(frozen=True)
class _Surprise:
    """The loss `-log p` of a probability p."""

    def __call__(self, p: Array) -> Array:
        return -jnp.log(p)

    def log_slope(self, p: Array) -> Array:
        return -jnp.log(p)


def _of_tokens(alpha: Int[Array, " n"]) -> gradients.Reading:
    """Return the reading whose predictions are the probabilities of one token of every input."""

    def of(_: Array, probabilities: Array) -> tuple[Array, Array]:
        chosen = jax.nn.one_hot(alpha, probabilities.shape[1], dtype=probabilities.dtype)
        return jnp.sum(chosen * probabilities, axis=1), chosen

    return of


def _slope(problem: Problem, Y: Float[Array, " n"], reading: gradients.Reading, loss: losses.Loss) -> Slope:
    def of(logits: Array) -> tuple[Array, Array]:
        full = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
        slope = gradients.direction(lanes.before(), attention.masked(full, problem), Y, reading, loss)
        return slope.coefficients[:, 1:], slope.log_scale

    return of


def _first(task: Task) -> Float[Array, "a b"]:
    """Return coordinates of the direction that the risk falls most in from `W = 0`."""
    coefficients, _ = task.slope(jnp.zeros(task.rows.differences.shape[:2], task.rows.differences.dtype))
    return task.ball.toward(-cons.combination(task.rows, coefficients))


def _at_length(x: Float[Array, "a b"], like: Float[Array, "a b"]) -> Float[Array, "a b"]:
    return x * jnp.sqrt(jnp.sum(like * like) / jnp.sum(x * x))


def _apart(both: Branch) -> tuple[Array, Array]:
    """Return the coordinates of the two paths, in the order of the radii each."""
    return both.x[0], both.x[1, ::-1]


def _read(
    task: Task,
    problem: Problem,
    reduction: cons.Reduction,
    optimal: Int[Array, " n"],
    radii: Float[Array, " radii"],
    x: Float[Array, "radii a b"],
    tolerance: float,
    loss: losses.Loss,
    head: heads.Head,
) -> _End:
    """Read a path, from the coordinates that it was left at alone."""

    def one(x: Array, R: Array) -> _End:
        weights = task.ball.weights(x, reduction)
        point = read(task, x, R)
        given_up = ~(jnp.sum(x * x) > 0)
        residual = jnp.where(given_up | ~jnp.isfinite(point.residual), jnp.inf, point.residual)
        risk = losses.risk(weights, problem, loss=loss, head=head)
        excess = _excess(weights, problem, optimal, loss, head)
        return _End(weights, attention.matrix(weights), risk, excess, residual, residual <= tolerance)

    return jax.vmap(one)(x, radii)


def _excess(
    weights: Weights, problem: Problem, optimal: Int[Array, " n"], loss: losses.Loss, head: heads.Head
) -> Float[Array, ""]:
    """Return the logarithm of the risk above that of the optimal tokens, finite however small that is.

    To first order in what the attention leaves to other tokens: two risks that double precision cannot tell apart leave
    very little.
    """
    log_share = jax.nn.log_softmax(attention.logits(weights, problem), axis=1)
    predictions, worth = gradients.reading(problem, head)(lanes.before(), jnp.exp(log_share))
    lost = problem.Y[:, None] * (jnp.take_along_axis(worth, optimal[:, None], axis=1) - worth)
    margins = problem.Y * predictions
    known = losses.log_slope(loss) or (lambda margin: jnp.log(jnp.abs(jax.vmap(jax.grad(loss))(margin))))
    return jax.scipy.special.logsumexp(
        log_share + known(margins)[:, None] - jnp.log(problem.n), b=jnp.maximum(lost, 0.0)
    )
