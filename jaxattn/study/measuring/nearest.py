"""Find the stationary point of the nuclear problem with a rank bound that is near some weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import svm
from jaxattn.parallel import effort
from jaxattn.problem import Problem


@lru_cache(maxsize=16)
def nearest_of_rank(m: int) -> Callable[[Problem, Int[Array, " n"], Float[Array, "d d"]], svm.Solution]:
    """Return a function from weights to a stationary point of rank m; one object per rank, so that it compiles once.

    The function takes a problem, the tokens to select and a W of rank at most m, (d, d). Its result is certified.
    """
    return partial(_follow, m)


def effort_of(problems: Problem) -> effort.Effort:
    """Return the compilation effort of that function for a batch of problems."""
    lanes, n, T, d = problems.X.shape
    # It makes several times as many steps as an interior-point method.
    return effort.solving(lanes, n * (T - 1) + 3 * d, 8)


def _follow(m: int, problem: Problem, alpha: Int[Array, " n"], W: Float[Array, "d d"]) -> svm.Solution:
    constraints, norm = svm.token_constraints(problem, alpha), svm.nuclear_of_rank(m)
    nothing = jnp.zeros(constraints.differences.shape[:-1], W.dtype)
    start = svm.Candidate(W, nothing, jnp.zeros((), int))
    return svm.certify(constraints, norm, svm.LowRank(starts=1).improve(constraints, norm, start), svm.DOUBLE)
