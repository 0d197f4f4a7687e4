"""Tokens on the sphere whose own first token is the query."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import PRNGKeyArray

from jaxattn import data
from jaxattn.problem import Problem


def self_attention(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw tokens, labels and head direction as `data.sphere` does, with the query `z_i = x_i1`.

    Example:
        >>> problem = self_attention(key, n=6, T=8, d=10)
        >>> bool((problem.Z == problem.X[:, 0]).all())
        True
    """
    problem = data.sphere(key, n, T, d)
    return replace(problem, Z=problem.X[:, 0])
