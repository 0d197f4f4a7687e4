"""What every model has: logits and predictions, of parameters that may have a part for the readout."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float

from jaxattn import heads
from jaxattn.problem import Problem

__all__ = ["Joint", "Model", "parts"]


class Joint(NamedTuple):
    """Parameters of a model whose predictions have some of their own, beside those of its attention.

    Attributes:
        attention: what the logits depend on.
        readout: what the predictions depend on, such as a value vector v, (d,).
    """

    attention: Any
    readout: Any


@runtime_checkable
class Model(Protocol):
    """How parameters and a problem give logits and predictions. Models are hashable: equal ones compile once."""

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of every head; -inf for a token that an input cannot see."""
        ...

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what is made of the attention of all heads; `readout` is None where nothing of it is trained."""
        ...


def parts(params: Any) -> Joint:
    """Return the parameters of attention, and those of the readout or None.

    Example:
        >>> from jaxattn import models
        >>> models.parts(start).readout is None
        True
    """
    return params if isinstance(params, Joint) else Joint(params, None)
