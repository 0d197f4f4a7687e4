"""Prediction heads `h`, which map one attention output to one number.

A head is a pure function `head(x, v)` of the attention output x, (d,), and the problem's `v`: a direction, (d,), or a
layer, (d, width). `losses.risk` applies it to all inputs. Write a head with parameters of its own as a small frozen
dataclass with `__call__`, so that equal heads compare equal and compile once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import checks
from jaxattn.checks import Number

__all__ = ["Head", "Quadratic", "linear", "mlp"]

Parameters = Float[Array, " d"] | Float[Array, "d width"]
Head = Callable[[Float[Array, " d"], Parameters], Float[Array, ""]]


def linear(x: Float[Array, " d"], v: Parameters) -> Float[Array, ""]:
    """The fixed linear head `h(x) = v . x` (2308.16898, section 2).

    Raises:
        ValueError: v is not a direction, (d,).

    Example:
        >>> float(heads.linear(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
        11.0
    """
    check("linear", v.shape)
    return jnp.vdot(v, x)


@dataclass(frozen=True)
class Quadratic:
    """The concave head `h(x) = v . x - penalty ||x||^2` (2308.16898, section on multiple tokens).

    If the penalty is large enough, the maximum of h lies between the tokens, and descent selects several of them.

    Attributes:
        penalty: the paper's lambda, at least 0.

    Raises:
        ValueError: the penalty is negative or not finite; in a call, v is not a direction, (d,).
    """

    penalty: Number

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", checks.at_least_zero("penalty", self.penalty))

    def __call__(self, x: Float[Array, " d"], v: Parameters) -> Float[Array, ""]:
        """Return `h(x)`."""
        check("quadratic", v.shape)
        return jnp.vdot(v, x) - self.penalty * jnp.vdot(x, x)


def mlp(x: Float[Array, " d"], v: Parameters) -> Float[Array, ""]:
    """Return the summed outputs of a ReLU layer, `h(x) = 1^T ReLU(v^T x)`, v (d, width) (2308.16898, multiple tokens).

    Raises:
        ValueError: v is not a layer, (d, width).

    Example:
        >>> float(heads.mlp(jnp.array([1.0, -1.0]), jnp.eye(2)))  # 1^T ReLU(V^T x)
        1.0
    """
    check("mlp", v.shape, axes=2)
    return jnp.sum(jax.nn.relu(x @ v))


def of_each(head: Head, outputs: Float[Array, "n d"], v: Parameters) -> Float[Array, " n"]:
    """Return the predictions from the attention output of each input.

    Raises:
        ValueError: the head does not return one number of the outputs' precision.
    """
    predictions = jax.vmap(head, in_axes=(0, None))(outputs, v)
    checks.one_number("head", predictions, outputs[:, 0])
    return predictions


def check(name: str, shape: tuple[int, ...], axes: int = 1) -> None:
    """Raise ValueError unless v has the expected number of axes: 1 for a direction, 2 for a layer."""
    if len(shape) != axes:
        expected = ("a direction, shape (d,)", "a layer, shape (d, width)")[axes - 1]
        raise ValueError(f"v: expected {expected}, for the {name} head, found shape {shape}")
