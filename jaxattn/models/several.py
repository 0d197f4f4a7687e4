"""Models of several heads, whose outputs are added or concatenated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, checks, heads
from jaxattn.models.input_transforms import TransformedInputs, of_outputs, plain
from jaxattn.problem import Problem

__all__ = ["Heads", "concatenated", "summed"]


@dataclass(frozen=True)
class Heads:
    """Several heads over the same tokens; the parameters are a tuple of the weights of each head.

    The attention outputs are added, or concatenated: head h then gives the h-th block of d / count coordinates. An
    optimizer that treats each array separately, like `normalized_gd`, normalizes each head's gradient by its own
    length; `jointly_normalized_gd` uses one length for all heads.

    The joint max-margin problem, which `bias.rank` solves, has the constraints of all heads and one norm, that of the
    block diagonal matrix of all W_h. To rank one head alone, use `run._replace(weights=run.weights[h],
    snapshots=run.snapshots[h])` with that head's model, for example `model=models.plain`.

    Attributes:
        count: the number of heads.
        blocks: whether the outputs are concatenated.
        model: the model of each head.
    """

    count: int
    blocks: bool = False
    model: TransformedInputs = plain

    def __post_init__(self) -> None:
        checks.count("count", self.count)
        if not isinstance(self.model, TransformedInputs):
            raise ValueError(  # noqa: TRY004
                f"model: expected models.TransformedInputs for each head, such as models.plain, found {self.model!r}"
            )

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of each head.

        Raises:
            ValueError: the weights are not a tuple with one entry per head.
        """
        self._check(weights)
        seen = self.model.for_attention(problem)
        return jnp.stack([attention.logits(one, seen) for one in weights])

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions from the sum or concatenation of all outputs.

        Raises:
            ValueError: outputs are concatenated, and d is not a multiple of the number of heads.
        """
        X = self.model.for_head(problem).X
        if not self.blocks:
            return of_outputs(jnp.einsum("ntd,hnt->nd", X, probabilities), readout, problem, head)
        if problem.d % self.count:
            raise ValueError(f"heads: expected d = {problem.d} to be a multiple of {self.count} concatenated heads")
        split = X.reshape(*X.shape[:2], self.count, -1)
        outputs = jnp.einsum("nthc,hnt->nhc", split, probabilities).reshape(problem.n, problem.d)
        return of_outputs(outputs, readout, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem of the joint SVM: the n inputs repeated for each head, in separate coordinates."""
        seen = self.model.for_attention(problem)
        arrays = {name: jnp.concatenate([array] * self.count) for name, array in seen.arrays.items() if name != "v"}
        for name in ("X", "Z"):
            blocks = [_in_block(getattr(seen, name), h, self.count) for h in range(self.count)]
            arrays[name] = jnp.concatenate(blocks)
        return Problem(**arrays, v=jnp.tile(seen.v, (self.count,) + (1,) * (seen.v.ndim - 1)))

    def matrix(self, weights: Any) -> Float[Array, "*batch e e"]:
        """Return the block diagonal matrix of all W_h, (count * d, count * d)."""
        self._check(weights)
        matrices = [attention.matrix(one) for one in weights]
        rows = [_in_block(W, h, self.count) for h, W in enumerate(matrices)]
        return jnp.concatenate(rows, axis=-2)

    def _check(self, weights: Any) -> None:
        found: Any = weights
        fits = isinstance(weights, tuple) and not hasattr(weights, "_fields") and len(weights) == self.count
        if not fits:
            kind = f"an array of shape {found.shape}" if hasattr(found, "shape") else type(found).__name__
            found = f"{len(found)} of them" if isinstance(found, tuple) else kind
            raise ValueError(f"weights: expected a tuple of {self.count} heads' weights, found {found}")


def _in_block(array: Array, h: int, count: int) -> Array:
    """Return an array with the entries of its last axis in the h-th of `count` blocks, and zeros elsewhere."""
    d = array.shape[-1]
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(h * d, (count - 1 - h) * d)])


def summed(count: int, model: TransformedInputs = plain) -> Heads:
    """Return `count` heads whose outputs are added: `h(sum_h X_i^T s_ih)`.

    Raises:
        ValueError: count < 1, or a model of another kind, such as a function.

    Example:
        >>> run = descent.train((start, 0.5 * start), problem, model=models.summed(2), steps=10)
        >>> len(run.weights), run.probability.shape
        (2, (10,))
    """
    return Heads(count, model=model)


def concatenated(count: int, model: TransformedInputs = plain) -> Heads:
    """Return `count` heads whose outputs are concatenated: head h gives the h-th of `count` blocks of coordinates.

    Raises:
        ValueError: count < 1, or a model of another kind; in training, d is not a multiple of count.

    Example:
        >>> wide = data.sphere(key, n=3, T=4, d=6)
        >>> run = descent.train((jnp.zeros((6, 6)),) * 2, wide, model=models.concatenated(2), steps=10)
    """
    return Heads(count, blocks=True, model=model)
