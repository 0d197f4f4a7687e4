"""A small decoder, as people train them: embeddings, causal attention, feed-forward layers and a readout.

What a decoder lacks is a value too: `keep` in place of a norm, `replace` in place of a residual stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxattn import checks
from jaxattn.attention import Factored
from jaxattn.experiments.beyond.hierarchy.attending import attended

# Added to the mean square before its root is taken.
_LEAST = 1e-12
# The standard deviation of the entries of K and Q at the start.
_SMALL = 0.1


class Layer(NamedTuple):
    """The parameters of one layer: W, or K and Q of (heads, d, width) each, a value map, and hidden units, if any.

    The logit of token t for the query u is `x_t^T W x_u`.
    """

    attention: Float[Array, "heads d d"] | Factored
    values: Float[Array, "heads d d"]
    up: Float[Array, "d hidden"] | None
    down: Float[Array, "hidden d"] | None

    @property
    def W(self) -> Float[Array, "heads d d"]:
        """W of each head."""
        return self.attention.K @ self.attention.Q.mT if isinstance(self.attention, Factored) else self.attention


class Parameters(NamedTuple):
    """All parameters of a decoder."""

    tokens: Float[Array, "V d"]
    positions: Float[Array, "T d"]
    layers: tuple[Layer, ...]
    readout: Float[Array, "d V"]


@dataclass(frozen=True)
class Rates:
    """How fast each part learns: the factor of its gradient, 0 if it is not trained.

    Inputs are the embeddings of tokens and positions; hidden units learn like values. The readout's gradient is also
    that of its decay, `decay / 2 ||readout||_F^2`. From the step `until` on, if there is one, only the attention
    learns.

    Raises:
        ValueError: a decay that is negative, or of a readout that is not trained.
    """

    attention: float = 1.0
    inputs: float = 0.0
    readout: float = 0.0
    values: float = 0.0
    decay: float = 0.0
    until: int | None = None

    def __post_init__(self) -> None:
        checks.at_least_zero("rates.decay", self.decay)
        if self.decay and not self.readout:
            raise ValueError(f"rates.decay: expected 0 for a readout that is not trained, found {self.decay}")

    def applied(self, gradient: Parameters, parameters: Parameters, step: Int[Array, ""]) -> Parameters:
        """Return the gradient at these parameters with every part times its rate at this step."""
        others = 1.0 if self.until is None else jnp.where(step < self.until, 1.0, 0.0)

        def times(part: Any, rate: float, now: Any = 1.0) -> Any:
            # A gradient that is not used is not computed either.
            return jax.tree.map(lambda leaf: rate * now * leaf if rate else jnp.zeros_like(leaf), part)

        layers = tuple(
            Layer(times(layer.attention, self.attention), *(times(part, self.values, others) for part in layer[1:]))
            for layer in gradient.layers
        )
        tokens, positions = times((gradient.tokens, gradient.positions), self.inputs, others)
        of_readout = gradient.readout + self.decay * parameters.readout if self.decay else gradient.readout
        return Parameters(tokens, positions, layers, times(of_readout, self.readout, others))


def keep(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return x: no norm."""
    return x


def root_mean_square(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return x divided by the root of its mean square, RMSNorm without a gain."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + _LEAST)


def replace(x: Float[Array, "*batch d"], written: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return what attention has written: no residual stream."""
    del x
    return written


def add(x: Float[Array, "*batch d"], written: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return the sum: a residual stream."""
    return x + written


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder, and how fast each part learns.

    Embeddings have d dimensions, at least V + T for a vocabulary of V and a length of T, so that they are independent
    at the start. Without a width of K and Q, W itself is trained, from zero. `compared` is applied to what keys and
    queries read, `norm` to what values, hidden units and readout read; `join` joins what attention writes with its
    input.

    Raises:
        ValueError: a number that is not positive, or a dimension that is too small.
    """

    vocabulary: int
    length: int
    d: int
    width: int | None = None
    layers: int = 1
    heads: int = 1
    hidden: int = 0
    compared: Callable[[Array], Array] = keep
    norm: Callable[[Array], Array] = keep
    join: Callable[[Array, Array], Array] = replace
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        for name in ("vocabulary", "length", "d", "layers", "heads"):
            checks.count(name, getattr(self, name))
        if self.d < self.vocabulary + self.length:
            raise ValueError(f"d: expected at least V + T = {self.vocabulary + self.length}, found {self.d}")

    def initial(self, key: PRNGKeyArray) -> Parameters:
        """Draw parameters: independent embeddings, small K and Q, values that copy, and a readout dual to the tokens.

        The readout of an embedded token, at any position, is 1 for this token and 0 for all others.
        """
        embedded, *of_layers = jax.random.split(key, 1 + self.layers)
        embeddings = jax.random.normal(embedded, (self.vocabulary + self.length, self.d)) / jnp.sqrt(self.d)
        readout = jnp.linalg.pinv(embeddings)[:, : self.vocabulary]
        layers = tuple(map(self._layer, of_layers))
        return Parameters(embeddings[: self.vocabulary], embeddings[self.vocabulary :], layers, readout)

    def _layer(self, key: PRNGKeyArray) -> Layer:
        of_K, of_Q, of_up, of_down = jax.random.split(key, 4)
        copies = jnp.broadcast_to(jnp.eye(self.d) / self.heads, (self.heads, self.d, self.d))
        attention: Any = jnp.zeros_like(copies)
        if self.width is not None:
            shape = (self.heads, self.d, self.width)
            attention = Factored(*(_SMALL * jax.random.normal(key, shape) for key in (of_K, of_Q)))
        if not self.hidden:
            return Layer(attention, copies, None, None)
        up = jax.random.normal(of_up, (self.d, self.hidden)) / jnp.sqrt(self.d)
        return Layer(attention, copies, up, jax.random.normal(of_down, (self.hidden, self.d)) / jnp.sqrt(self.hidden))

    def logits(
        self, parameters: Parameters, sequences: Int[Array, "n T"], attend: Callable[..., Array] = attended
    ) -> tuple[Float[Array, "n T V"], Float[Array, "layers n T d"]]:
        """Return the logits of the next token at every position, and what the keys and queries of each layer read.

        `attend` turns the attention's logits and the values into what a head writes. Tokens are 0..V-1.
        """
        # A product is faster than a lookup, whose gradient is a scatter.
        x = jax.nn.one_hot(sequences, self.vocabulary) @ parameters.tokens + parameters.positions[None]
        read = []
        for layer in parameters.layers:
            read.append(self.compared(x))
            x = self.join(x, jnp.sum(self._written(layer, read[-1], self.norm(x), attend), axis=0))
            if layer.up is not None and layer.down is not None:
                x = x + jax.nn.relu(self.norm(x) @ layer.up) @ layer.down
        return self.norm(x) @ parameters.readout, jnp.stack(read)

    @staticmethod
    def _written(
        layer: Layer, x: Float[Array, "n T d"], copied: Float[Array, "n T d"], attend: Callable[..., Array]
    ) -> Float[Array, "heads n T d"]:
        if isinstance(layer.attention, Factored):
            keys, queries = (jnp.einsum("ntd,hdm->hntm", x, part) for part in layer.attention)
            logits = jnp.einsum("hntm,hnum->hnut", keys, queries)
        else:
            logits = jnp.einsum("ntd,hde,nue->hnut", x, layer.attention, x)
        seen = jnp.where(visible(x.shape[1])[None, None], logits, -jnp.inf)
        return attend(seen, jnp.einsum("ntd,hde->hnte", copied, layer.values))


def visible(length: int) -> Bool[Array, "T T"]:
    """Return which tokens (columns) each position (row) can see: itself and those before it."""
    return jnp.tril(jnp.ones((length, length), bool))


def log_loss(logits: Float[Array, "n T V"], targets: Int[Array, "n T"], counts: Bool[Array, "n T"]) -> Float[Array, ""]:
    """Return the logarithm of the mean cross entropy over the positions that count, however small it is."""
    is_target = jax.nn.one_hot(targets, logits.shape[-1], dtype=bool)
    target = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1, keepdims=True)
    behind = jax.nn.logsumexp(jnp.where(is_target, -jnp.inf, logits - target), axis=-1)
    # Cross entropy is softplus(behind), which is exp(behind) to the last digit where behind is below -40.
    far = behind < _FAR
    near = jnp.log(jax.nn.softplus(jnp.where(far, 0.0, behind)))
    logs = jnp.where(counts, jnp.where(far, behind, near), -jnp.inf)
    return jax.nn.logsumexp(logs) - jnp.log(jnp.sum(counts))


_FAR = -40.0
