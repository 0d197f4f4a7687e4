"""Problems that tell two norms apart: the solutions of their max-margin problems differ as much as they can."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxattn import svm, tokens
from jaxattn.data.problems import sphere
from jaxattn.norms import Norm, named
from jaxattn.parallel import batch
from jaxattn.problem import Problem

__all__ = ["separating"]


def separating(
    key: PRNGKeyArray, norms: Sequence[str | Norm], n: int, T: int, d: int, count: int = 100, tries: int = 8
) -> Problem:
    """Draw problems on which training shows soonest which of two norms it obeys.

    Of `count * tries` problems drawn by `sphere` those are kept in which the solution of neither norm has a large
    margin ratio in the other, for the tokens of highest score.

    Args:
        key: the random key of the draws.
        norms: two names or Norms.
        n: the number of inputs.
        T: the number of tokens in each.
        d: their dimension.
        count: the number of problems to keep.
        tries: how many are drawn for each that is kept.

    Returns:
        A batch of problems, the most telling first.

    Raises:
        ValueError: not two norms; sizes as in `sphere`; fewer than `count` problems with certified solutions.

    Example:
        >>> problems = data.separating(key, ("frobenius", "nuclear"), n=4, T=4, d=6, count=3)
        >>> problems.X.shape
        (3, 4, 4, 6)
    """
    if len(norms) != 2:
        raise ValueError(f"norms: expected two, found {len(norms)}")
    drawn = jax.vmap(partial(sphere, n=n, T=T, d=d))(jax.random.split(key, count * tries))
    constraints = batch.over_seeds(_constraints, drawn)
    values = [named(norm) for norm in norms]
    found = [svm.solve_batch(constraints, norm) for norm in values]
    certified = np.all([np.asarray(one.status) == svm.Status.OPTIMAL for one in found], axis=0)
    if certified.sum() < count:
        raise ValueError(
            f"norms: expected {count} problems with certified solutions, found {int(certified.sum())} of "
            f"{count * tries}"
        )
    # The margin ratio of a solution in the other norm: solutions have margin 1.
    ratios = [
        np.asarray(own.primal) / np.asarray(jax.vmap(norm.value)(jnp.asarray(other.W)))
        for norm, own, other in zip(values, found, reversed(found), strict=True)
    ]
    order = np.argsort(np.where(certified, np.maximum(*ratios), np.inf))[:count]
    kept: Any = jax.tree.map(lambda leaf: leaf[order], drawn)
    return kept


def _constraints(problem: Problem) -> svm.Constraints:
    return svm.token_constraints(problem, tokens.optimal(problem))
