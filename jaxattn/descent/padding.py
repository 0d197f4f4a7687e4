"""Internal: share one program among problems of several dimensions, and choose its compilation effort.

Compiling a program of descent takes as long as billions of multiply-adds. Padding tokens and queries with zero
coordinates does not change the trajectory of a free W, whose added entries stay 0, and a step of `gram_engine.Gram`
costs the same. If padding costs less than compiling, problems are therefore padded to a standard dimension. It depends
only on their shape, number and steps, never on other batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxattn import heads, models
from jaxattn.attention import Factored
from jaxattn.descent.engines import Direct, chosen
from jaxattn.descent.noise import full_batch
from jaxattn.descent.optimizers import along
from jaxattn.descent.penalties import unpenalized
from jaxattn.descent.run import Rule
from jaxattn.parallel.effort import FULL, SOLVING, Effort, worth
from jaxattn.problem import Problem

# The smallest standard dimension; each of the others is twice the one before.
_LEAST = 16
# The number of multiply-adds worth spending to avoid a compilation of 2 to 3 seconds.
_COMPILING = 8e9
# The largest number of entries of all W of a run that may be padded.
_ENTRIES = 2**21
# Extra costs in multiply-adds: per token and step, mostly for exponentials; and per entry of the weights kept, which
# passes through memory three times. Measured on 11,300 runs of (3, 4, 8) with 20 snapshots: 20 ns.
_OF_TOKEN, _OF_ENTRY = 20, 40


class Plan(NamedTuple):
    """How to train a batch: the dimension of its program, and the compilation effort."""

    d: int
    effort: Effort


def plan(rule: Rule, weights: Any, problems: Problem, snapshots: int, of: int | None = None) -> Plan:
    """Return how to train a batch with a leading axis by a rule, with this number of snapshots.

    The plan depends on the study's number of seeds, `of` (default: the batch's own).
    """
    seeds, n, T, d = problems.X.shape
    seeds = seeds if of is None else of
    if not isinstance(rule.model, models.TransformedInputs):
        entries = sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(weights))
        # In the forward and backward pass each input meets each weight, and tokens meet the results.
        of_step = 4 * n * entries + 4 * n * T * (d + _OF_TOKEN)
        return Plan(d, worth(float(seeds) * rule.steps * of_step))
    update, head = rule.optimizer.update, rule.head
    lane = [jax.tree.map(of_lane, batch) for batch in (weights, problems)]
    # Other heads compute the attention output in each step.
    of_head = 0 if head in (heads.linear, heads.mlp) else 2 * n * T

    def work(d: int) -> float:
        of_step = chosen(update, lane[0], lane[1], d)[1].weighed + of_head * d + _OF_TOKEN * n * T
        # The weights are computed from what the engine keeps, and then returned.
        entries, terms = (2 * d * weights.K.shape[-1], n * T) if isinstance(weights, Factored) else (d * d, n)
        return float(seeds) * (rule.steps * of_step + (snapshots + 2) * entries * (terms + _OF_ENTRY))

    def planned(d: int) -> Plan:
        kind, cost = chosen(update, lane[0], lane[1], d)
        effort = worth(work(d))
        # Matrix products are precompiled; only passes over the weights profit from more compilation effort.
        return Plan(d, SOLVING if cost.is_wide and kind is not Direct and effort == FULL else effort)

    # A rule or head of a user may depend on the number of coordinates, for example by a mean; so do positions. Noise
    # and penalties have programs of their own.
    exact = along(update) is not None and (head in (heads.linear, heads.mlp) or isinstance(head, heads.Quadratic))
    is_plain = rule.model == models.plain and rule.noise is full_batch and rule.penalty is unpenalized
    if exact and is_plain and isinstance(weights, jax.Array | np.ndarray):
        wider = max(_LEAST, 1 << (d - 1).bit_length())
        if work(wider) - work(d) <= _COMPILING and (snapshots + 2) * wider**2 <= _ENTRIES:
            return planned(wider)
    return planned(d)


def of_lane(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type of one lane of a batch."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def laid_out(problems: Problem, d: int) -> Problem:
    """Return a batch of problems padded with zero coordinates to dimension d."""
    arrays = problems.arrays
    padded = {name: padded_to(arrays[name], {axis: d}) for name, axis in (("X", 3), ("Z", 2), ("v", 1))}
    return Problem(**arrays | padded)


def padded_to(array: Any, lengths: dict[int, int]) -> np.ndarray:
    """Return an array padded with trailing zeros along some axes to these lengths."""
    array = np.asarray(array)
    return np.pad(array, [(0, lengths.get(axis, length) - length) for axis, length in enumerate(array.shape)])
