"""Data laws for prompts: all inputs share one query z, so that W acts on the tokens as one vector `p = W z`.

The logits are `X_i p` (2306.13596). Training from `W = 0` keeps `W = p z^T`, and `||W||_F = ||p||` since z has length
1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxattn import checks
from jaxattn.data import draws, problems
from jaxattn.problem import Problem

__all__ = ["keyed", "shared_query"]


def shared_query(key: PRNGKeyArray, n: int, T: int, d: int, spread: float = 0.0) -> Problem:
    """Draw as `stretched`, but with one unit query for all inputs (2306.13596, prompt model).

    Args:
        key: the random key.
        n: the number of inputs.
        T: the number of tokens per input.
        d: the dimension of a token.
        spread: the standard deviation of the logarithms of the tokens' lengths. Default: 0, all lengths 1.

    Raises:
        ValueError: as in `data.stretched`.

    Example:
        >>> from jaxattn.data.prompts import shared_query
        >>> problem = shared_query(key, n=3, T=4, d=5)
        >>> bool((problem.Z == problem.Z[:1]).all())
        True
    """
    problem = problems.stretched(key, n, T, d, spread)
    z = draws.unit(problem.Z[0])
    return Problem(X=problem.X, Z=jnp.tile(z, (n, 1)), Y=problem.Y, v=problem.v)


def keyed(key: PRNGKeyArray, n: int, T: int, d: int, mixing: float = 0.5) -> Problem:
    """Draw as `shared_query`, with keys `X A` for a fixed matrix A instead of the tokens X.

    The logits `X A p` and scores `X v` of tokens X equal those of tokens `X A` with the head direction `A^-1 v`. A is
    the identity plus `mixing / sqrt d` times a standard normal matrix.

    Raises:
        ValueError: as in `data.sphere`; mixing is not positive and finite.

    Example:
        >>> from jaxattn.data.prompts import keyed
        >>> keyed(key, n=3, T=4, d=5).X.shape
        (3, 4, 5)
    """
    checks.positive("mixing", mixing)
    own, of_A = jax.random.split(key)
    problem = shared_query(own, n, T, d)
    (noise,) = draws.normals(of_A[None], (d, d))
    A = jnp.eye(d) + mixing * d**-0.5 * noise
    return Problem(X=problem.X @ A, Z=problem.Z, Y=problem.Y, v=jnp.linalg.solve(A, problem.v))
