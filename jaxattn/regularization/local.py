"""The local regularization path of W: stationary points of the risk on balls, near the direction of a start."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from jaxattn import heads, losses, tokens
from jaxattn.descent import gradients, gram_engine
from jaxattn.problem import Problem, check_one
from jaxattn.regularization.balls import FROBENIUS
from jaxattn.regularization.continuation import follow
from jaxattn.regularization.newton import Task
from jaxattn.regularization.objective import read_path, slope_of
from jaxattn.regularization.path import check_radii
from jaxattn.svm import constraints as cons

__all__ = ["LocalPath", "local_path"]


class LocalPath(NamedTuple):
    """The point found on each radius, with its evidence.

    Attributes:
        W: (radii, d, d).
        residual: as in `Path`, (radii).
        solved: whether the residual is within the tolerance, (radii); if not, the point is not an answer.
    """

    W: Float[Array, "radii d d"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]


def local_path(
    problem: Problem,
    radii: ArrayLike,
    start: Float[Array, "d d"],
    *,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    most: int = 50,
    tolerance: float = 1e-6,
) -> LocalPath:
    """Minimize the risk locally on balls `||W||_F <= R` (2308.16898, local regularization path).

    On each radius Newton steps start along the given direction. Works under `jit` and `vmap`; makes no LAPACK calls.

    Args:
        problem: one problem.
        radii: positive and increasing.
        start: a direction, at any scale, such as the Att-SVM solution of locally optimal tokens.
        loss: a function of one margin.
        head: a function of one attention output and v.
        most: the largest number of Newton steps on one radius.
        tolerance: the tolerance of the residual.

    Raises:
        ValueError: not a Problem; radii that are not positive and increasing numbers.

    Example:
        >>> found = regularization.local_path(problem, jnp.logspace(1, 3, 5), solution.W)
        >>> found.W.shape, bool(found.solved.all())
        ((5, 5, 5), True)
    """
    check_one(problem)
    check_radii(radii)
    R = jnp.asarray(radii, problem.X.dtype)
    reduction = cons.reduce(cons.Constraints(gram_engine.differences(problem), problem.Z))
    risk = slope_of(problem, problem.Y, gradients.reading(problem, head), loss)
    task = Task(reduction.constraints, risk, FROBENIUS)
    x = jax.vmap(lambda R: follow(task, reduction.left.T @ start @ reduction.right, R[None], most).x[0])(R)
    end = read_path(task, problem, reduction, tokens.optimal(problem, head), R, x, tolerance, loss, head)
    return LocalPath(end.W, end.residual, end.solved)
