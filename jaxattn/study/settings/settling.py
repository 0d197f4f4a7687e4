"""Training of which only the selected tokens are read: most seeds need not take all steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxattn import descent, heads, tokens
from jaxattn.attention import Weights
from jaxattn.descent.optimizers import along
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.settings import parameters
from jaxattn.study.settings.training import SERIES, Training

# The least probability of an input's optimal token from which on its selection counts as final.
_SETTLED = 0.99999


class Settling(Training):
    """A `Training` that ends a seed once every input selects an optimal token for good.

    An input that gives its optimal token a probability near 1 has a gradient that raises it further. Other selections
    may still change, even at probabilities that round to 1, so their seeds take all steps. Every `record_every` steps
    the seeds that have settled are left out, and the others go on from their weights.

    Its record holds the problem, each seed's keys, the weights at the end, and the steps taken.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is not descent.full_batch or self.head is not heads.linear:
            raise ValueError("noise, head: expected full_batch and linear, for which an optimal selection settles")
        if along(self.optimizer.update) is None:
            raise ValueError(f"optimizer: expected gd or normalized_gd, which keep no state, found {self.optimizer!r}")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """None: nothing is kept along the way."""
        return {}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return () if name == "steps" else super().dims(name)

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        arrays = super().one_seed(seed, root)
        kept = {name: leaf for name, leaf in arrays.items() if name not in SERIES and "_initial" not in name}
        return kept | {"steps": jnp.zeros((), int)}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and initial weights of some seeds, and train each until it has settled."""
        own, problems, weights = self.drawn(seeds, root)
        weights, steps = jax.tree.map(np.array, weights), np.zeros(seeds.size, int)
        left, lengths = np.arange(seeds.size), self._lengths()
        of = self.seeds * len(lengths)
        for length in lengths:
            going_on = jax.tree.map(lambda leaf, chosen=left: leaf[chosen], (weights, problems))
            arguments = self.descent | {"steps": length, "record_every": length}
            trained = descent.train_batch(*going_on, **arguments, of=of).weights
            for kept, new in zip(jax.tree.leaves(weights), jax.tree.leaves(trained), strict=True):
                kept[left] = new
            steps[left] += length
            left = left[~batch.over_seeds(_is_settled, trained, going_on[1], of=of)]
            if not left.size:
                break
        return problems.arrays | own | parameters.named(weights) | {"steps": steps}

    def _lengths(self) -> list[int]:
        """Return the numbers of steps from one look at the selections to the next."""
        return [min(self.record_every, self.steps - begun) for begun in range(0, self.steps, self.record_every)]


def _is_settled(weights: Weights, problem: Problem) -> Bool[Array, ""]:
    """Return whether every input selects an optimal token for good."""
    globally = tokens.is_globally_optimal(tokens.scores(problem), tokens.selected(weights, problem))
    return globally & (tokens.saturation(weights, problem) >= _SETTLED)
