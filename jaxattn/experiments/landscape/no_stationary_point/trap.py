"""An instance with a finite local minimum, which exists because the scores of its non-optimal tokens differ.

All inputs share one query, so that the risk is a function of `u = W z` in the plane; the second coordinate of a token
is its score. Each input comes with its mirror image in the first axis and the opposite label, so that on this axis the
gradient is parallel to it, and stationary points are the sign changes of one number.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import losses, metrics, svm, tokens
from jaxattn.problem import Problem

# The score of the last token of two inputs: with it the instance has a local minimum; with 0 all scores are equal.
SCORE = 1.8
# The plane that is drawn, and the interval searched for stationary points.
_FIRST, _SECOND, _LINE = np.linspace(-7.0, 3.0, 101), np.linspace(-3.0, 3.0, 61), np.linspace(-30.0, 30.0, 6001)


def problem(score: float = SCORE) -> Problem:
    """Return the instance; `score` is that of the last token of two inputs, while other non-optimal tokens have 0.

    Optimal are the first tokens, with score 1/2 in one pair of inputs and 2 in the other.
    """
    slow = np.array([[0.25, 0.5], [0.0, 0.0], [-0.25, 0.0]])
    fast = np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, score]])
    mirror = np.array([1.0, -1.0])
    return Problem(
        X=np.stack([slow, mirror * slow, fast, mirror * fast]),
        Z=np.tile([1.0, 0.0], (4, 1)),
        Y=np.array([1.0, -1.0, 1.0, -1.0]),
        v=np.array([0.0, 1.0]),
    )


def risk(u: Float[Array, "2"], one: Problem) -> Float[Array, ""]:
    """Return the risk at any W with `W z = u`."""
    return losses.risk(jnp.stack([u, jnp.zeros_like(u)], axis=1), one)


@jax.enable_x64(True)
def landscape(score: float) -> xarray.Dataset:
    """Return the risk on a grid, its stationary points on the axis of symmetry, and the gradient's alignment.

    Returns:
        `risk` and `alignment` (that of `-grad L` with the Frobenius solution of the optimal tokens), over `second` and
        `first`, the coordinates of u; for every `point`: its first coordinate, the norm of the gradient there and the
        `least` and `largest` eigenvalue of the second derivative in the plane; `solution`, the direction of W_mm z.
        Always in double precision.

    Raises:
        ValueError: the Att-SVM of the optimal tokens was not solved.
    """
    one = problem(score)
    solution = svm.solve(svm.token_constraints(one, tokens.optimal(one)))
    if svm.Status(int(solution.status)) is not svm.Status.OPTIMAL:
        raise ValueError(f"trap: expected a certified solution, found {svm.Status(int(solution.status)).message}")
    towards = np.asarray(solution.W[:, 0] / metrics.norm(solution.W))
    grid = np.stack(np.meshgrid(_FIRST, _SECOND), axis=-1)
    values, gradients = _read(grid.reshape(-1, 2), one)
    lengths = np.linalg.norm(gradients, axis=1)
    alignment = -gradients @ towards / np.where(lengths > 0, lengths, 1.0)
    points = _stationary(one)
    bends = np.array([np.linalg.eigvalsh(_bend(jnp.asarray(point), one)) for point in points]).reshape(-1, 2)
    return xarray.Dataset(
        {
            "risk": (("second", "first"), values.reshape(grid.shape[:2])),
            "alignment": (("second", "first"), alignment.reshape(grid.shape[:2])),
            "place": (("point",), points[:, 0]),
            "gradient": (("point",), np.linalg.norm(_read(points, one)[1], axis=1)),
            "least": (("point",), bends[:, 0]),
            "largest": (("point",), bends[:, 1]),
            "solution": (("coordinate",), towards),
        },
        {"first": _FIRST, "second": _SECOND},
        {"score": score},
    )


_slopes = jax.jit(jax.vmap(jax.value_and_grad(risk), in_axes=(0, None)))
_bend = jax.jit(jax.hessian(risk))


def _read(points: np.ndarray, one: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return risk and gradient at some points, padded to a fixed number, so that it compiles once."""
    filled = np.zeros((max(len(_LINE), len(_FIRST) * len(_SECOND)), 2))
    filled[: len(points)] = points
    values, gradients = _slopes(jnp.asarray(filled), one)
    return np.asarray(values)[: len(points)], np.asarray(gradients)[: len(points)]


def _stationary(one: Problem) -> np.ndarray:
    """Return the points of the axis where the gradient along it changes sign, by bisection."""

    def sign(places: np.ndarray) -> np.ndarray:
        return np.sign(_read(np.stack([places, np.zeros_like(places)], axis=1), one)[1][:, 0])

    signs = sign(_LINE)
    changes = np.flatnonzero(signs[1:] * signs[:-1] < 0)
    low, high = _LINE[changes], _LINE[changes + 1]
    for _ in range(50 if len(changes) else 0):
        middle = (low + high) / 2
        left = sign(middle) == signs[changes]
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.stack([low, np.zeros_like(low)], axis=1)
