"""The interface of models, and parameters with a trained readout."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float

from jaxattn import heads
from jaxattn.problem import Problem

__all__ = ["Joint", "Model", "parts"]


class Joint(NamedTuple):
    """Parameters of a model that trains a readout beside the attention.

    Attributes:
        attention: the parameters of the logits.
        readout: the parameters of the predictions, for example a value vector v, (d,).
    """

    attention: Any
    readout: Any


@runtime_checkable
class Model(Protocol):
    """Logits and predictions from parameters and a problem. Equal models compile once.

    A model that is a frozen dataclass may have arrays in its fields.

    For `bias.rank` a model may have two further functions. `matrix(params)` returns W, from arrays with any leading
    axes. `seen(problem)` returns the problem of one seed whose logits `X_i W z_i` are those of the model. With `matrix`
    alone, which must then return one of the parameters unchanged, keys and queries are read from the logits.
    """

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of each head; -inf for tokens that an input cannot see."""
        ...

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the predictions from the attention of all heads; `readout` is None if no readout is trained."""
        ...


def parts(params: Any) -> Joint:
    """Return the parameters of the attention and of the readout, the latter None if there are none.

    Example:
        >>> from jaxattn import models
        >>> models.parts(start).readout is None
        True
    """
    return params if isinstance(params, Joint) else Joint(params, None)
