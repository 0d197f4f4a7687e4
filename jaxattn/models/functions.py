"""Wrap a user's function of parameters and a problem as a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, checks, heads
from jaxattn.models.input_transforms import of_outputs
from jaxattn.models.protocol import Model
from jaxattn.problem import Problem

__all__ = ["Logits", "of"]


@dataclass(frozen=True)
class Logits:
    """A model given by one function from parameters and a problem to logits. Outputs of several heads are added.

    Attributes:
        function: maps any pytree and a problem to logits, (n, T) or (heads, n, T).
        matrix: for `bias.rank`, which of the parameters is W: a function that returns it unchanged, an array (d, d) or
            Factored(K, Q). Default: the parameters are W itself.
    """

    function: Callable[[Any, Problem], Array]
    matrix: Callable[[Any], Any] | None = None

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the function's logits.

        Raises:
            ValueError: the function returns a shape other than (n, T) or (heads, n, T).
        """
        found = jnp.asarray(self.function(weights, problem))
        if found.ndim not in (2, 3) or found.shape[-2:] != (problem.n, problem.T):
            raise ValueError(
                f"model: expected logits of shape (n, T) = ({problem.n}, {problem.T}) or (heads, n, T), "
                f"found {found.shape}"
            )
        return attention.masked(found.reshape(-1, problem.n, problem.T), problem)

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions from the sum of all outputs."""
        return of_outputs(jnp.einsum("ntd,hnt->nd", problem.X, probabilities), readout, problem, head)


def of(model: Any) -> Model:
    """Return a model unchanged, or wrap a function from parameters and a problem to logits as `Logits`.

    Raises:
        ValueError: the argument is neither.

    Example:
        >>> models.of(lambda W, problem: problem.Z @ W.T @ problem.X[0].T).logits(start, problem).shape
        (1, 3, 4)
    """
    if isinstance(model, Model) and not isinstance(model, type):
        return model
    checks.function("model", model, ("params", "problem"))
    return Logits(model)
