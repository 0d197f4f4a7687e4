"""Internal: one program for problems of many dimensions, and how long it may compile.

To compile a program of descent takes as long as thousands of millions of multiply-adds. With coordinates of zero added
to tokens and queries a free W goes the same way, also in coordinates of zero, and a step that keeps the logits alone
(`spans.Gram`) does not know of them. So where that costs less than to compile, problems are laid out in a standard
dimension, which follows from their own shape, number and steps: never from the company that they are drawn in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxattn import heads
from jaxattn.attention import Factored, Weights
from jaxattn.descent.engines import Direct, Update, chosen
from jaxattn.descent.optimizers import along
from jaxattn.parallel.effort import FULL, SOLVING, Effort, worth
from jaxattn.problem import Problem

# The least standard dimension; the others are its doubles.
_LEAST = 32
# Multiply-adds that may be spent in place of a compilation, which takes 2 to 3 seconds.
_COMPILING = 8e9
# Entries of all W of a run that may be laid out anew.
_ENTRIES = 2**21
# In multiply-adds, what a token costs in a step besides, exponentials above all; and what an entry of weights that are
# kept does: it passes through memory three times. Measured on 11,300 runs of (3, 4, 8) with 20 snapshots: 20 ns.
_OF_TOKEN, _OF_ENTRY = 20, 40


class Plan(NamedTuple):
    """How a batch is trained.

    Attributes:
        d: the dimension that its program has.
        effort: how long that may compile.
    """

    d: int
    effort: Effort


def plan(
    update: Update,
    weights: Weights,
    problems: Problem,
    steps: int,
    snapshots: int,
    head: heads.Head,
    of: int | None = None,
    standard: bool = True,
) -> Plan:
    """Return how to train a batch, with a leading axis, by so many steps that keep so many snapshots.

    It follows from the `of` seeds of the study that the batch is a part of, and from its own if that is None. Where
    `standard` is false, problems keep their own dimension.
    """
    lanes, n, T, d = problems.X.shape
    lanes = lanes if of is None else of
    one = [jax.tree.map(of_lane, batch) for batch in (weights, problems)]
    # Others form the attention's output in every step.
    of_head = 0 if head in (heads.linear, heads.mlp) else 2 * n * T

    def work(d: int) -> float:
        of_step = chosen(update, one[0], one[1], d)[1].multiply_adds + of_head * d + _OF_TOKEN * n * T
        # The weights are formed from what is kept of them, and handed out.
        entries, terms = (2 * d * weights.K.shape[-1], n * T) if isinstance(weights, Factored) else (d * d, n)
        return float(lanes) * (steps * of_step + (snapshots + 2) * entries * (terms + _OF_ENTRY))

    def planned(d: int) -> Plan:
        kind, cost = chosen(update, one[0], one[1], d)
        effort = worth(work(d))
        # Products of matrices are compiled already; only passes over the weights gain by more.
        return Plan(d, SOLVING if cost.is_wide and kind is not Direct and effort == FULL else effort)

    # A rule or a head of a user's own may take the mean over all coordinates.
    exact = along(update) is not None and (head in (heads.linear, heads.mlp) or isinstance(head, heads.Quadratic))
    if standard and isinstance(weights, jax.Array | np.ndarray) and exact:
        wider = max(_LEAST, 1 << (d - 1).bit_length())
        if work(wider) - work(d) <= _COMPILING and (snapshots + 2) * wider**2 <= _ENTRIES:
            return planned(wider)
    return planned(d)


def plan_of_model(weights: Any, problems: Problem, steps: int, of: int | None = None) -> Plan:
    """Return how to train a batch of a model that no engine knows, by about how many multiply-adds a step takes."""
    lanes, n, T, d = problems.X.shape
    entries = sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(weights))
    # Forward and back, every input meets every weight; tokens meet what comes of that.
    of_step = 4 * n * entries + 4 * n * T * (d + _OF_TOKEN)
    return Plan(d, worth(float(lanes if of is None else of) * steps * of_step))


def of_lane(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type that one lane of a batch has."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def laid_out(problems: Problem, d: int) -> Problem:
    """Return a batch of problems in dimension d, with coordinates of zero behind their own."""
    arrays = problems.arrays
    padded = {name: padded_to(arrays[name], {axis: d}) for name, axis in (("X", 3), ("Z", 2), ("v", 1))}
    return Problem(**arrays | padded)


def padded_to(array: Any, lengths: dict[int, int]) -> np.ndarray:
    """Return an array with zeros added behind, along some axes, up to these lengths."""
    array = np.asarray(array)
    return np.pad(array, [(0, lengths.get(axis, length) - length) for axis, length in enumerate(array.shape)])
