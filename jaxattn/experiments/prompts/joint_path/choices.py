"""Which tokens a joint path may select: choices of one token an input that no exchange of a single one improves."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxattn import svm
from jaxattn.experiments.prompts import joint
from jaxattn.parallel import batch
from jaxattn.problem import Problem

# All choices are tried, each a small max-margin problem.
_MOST = 4096


class Choices(NamedTuple):
    """The best choices of tokens of a batch of problems by falling label margin; the first again where too few."""

    alpha: Int[np.ndarray, "seed start n"]
    margin: Float[np.ndarray, "seed start"]


def best(problems: Problem, starts: int) -> Choices:
    """Return so many choices of tokens of largest label margin `1 / ||v||`, of those that are locally best.

    Raises:
        ValueError: there are too many choices to try them all.
    """
    seeds, n, T = np.shape(problems.X)[:3]
    if T**n > _MOST:
        raise ValueError(f"data: expected at most {_MOST:,} choices of tokens to try, found {T}^{n}")
    every = np.array(list(itertools.product(range(T), repeat=n)))
    repeated = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), len(every), axis=0), problems)
    solved = svm.solve_batch(batch.over_seeds(joint.label_constraints, repeated, np.tile(every, (seeds, 1))))
    length = np.linalg.norm(np.asarray(solved.W), axis=(1, 2))
    optimal = np.asarray(solved.status) == svm.Status.OPTIMAL
    margin = np.where(optimal, 1 / np.where(optimal, length, 1.0), 0.0).reshape(seeds, *[T] * n)
    improved = np.zeros(margin.shape, bool)
    for axis in range(1, n + 1):
        improved |= margin < margin.max(axis=axis, keepdims=True)
    ranked = np.where(improved, -1.0, margin).reshape(seeds, -1)
    order = np.argsort(-ranked, axis=1)[:, :starts]
    order = np.where(np.take_along_axis(ranked, order, axis=1) > 0, order, order[:, :1])
    return Choices(every[order], np.take_along_axis(margin.reshape(seeds, -1), order, axis=1))
