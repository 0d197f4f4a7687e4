"""Decoders with rotary positions, whose logits stay linear in one matrix W for each head.

Keys and queries turn by an angle for each position. All their pairs of features turn equally fast, so a head is a
complex matrix. As a real one, it acts on lifted tokens: a token beside itself, times the cosine and the sine of the
angle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn.experiments.beyond.hierarchy.attending import attended
from jaxattn.experiments.beyond.hierarchy.decoder import Decoder, Layer, Parameters, root_mean_square


def lifted(x: Float[Array, "*batch T d"], angle: float) -> Float[Array, "*batch T 2*d"]:
    """Return normed tokens, each beside itself, times cosine and sine of its position times an angle."""
    turns, x = angle * jnp.arange(x.shape[-2]), root_mean_square(x)
    cosines, sines = (jnp.broadcast_to(of(turns)[:, None], x.shape) for of in (jnp.cos, jnp.sin))
    return jnp.concatenate([cosines * x, sines * x], axis=-1)


def quarter(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return lifted tokens turned by a quarter: as they would be if all positions moved on by so much."""
    half = x.shape[-1] // 2
    return jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1)


class Rotary(Decoder):
    """A decoder without learned positions, whose keys and queries turn; `compared` has to be `lifted`.

    K and Q are (heads, 2 d, width): lifted tokens times K, and a quarter further, are the pairs of a key's features.
    """

    def _layer(self, key: PRNGKeyArray) -> Layer:
        of_cosines, of_sines = jax.random.split(key)
        layer, other = super()._layer(of_cosines), super()._layer(of_sines)
        both: Any = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), layer.attention, other.attention)
        return layer._replace(attention=both)

    def logits(
        self, parameters: Parameters, sequences: Int[Array, "n T"], attend: Callable[..., Array] = attended
    ) -> tuple[Float[Array, "n T V"], Float[Array, "layers n T 2*d"]]:
        """Return the logits of the next token at every position, and the lifted tokens that each layer compares."""
        without = parameters._replace(positions=jnp.zeros_like(parameters.positions))
        return super().logits(without, sequences, attend)

    @staticmethod
    def _written(
        layer: Layer, x: Float[Array, "n T 2*d"], copied: Float[Array, "n T d"], attend: Callable[..., Array]
    ) -> Float[Array, "heads n T d"]:
        # The transpose of a quarter turn is the turn back.
        pairs: Any = jax.tree.map(lambda part: jnp.concatenate([part, -quarter(part.mT).mT], axis=-1), layer.attention)
        return Decoder._written(layer._replace(attention=pairs), x, copied, attend)


def unfolded(record: xarray.Dataset) -> xarray.Dataset:
    """Return the record of rotary decoders as one in which W alone gives the logits, with the same optima.

    W becomes `W + J' W J` with J the quarter turn, which commutes with J. Every sequence is also shown a quarter
    further, where its logits are the same. So if a matrix satisfies all rows, the mean of it and its `J' W J` does so
    too; this commutes with J, and no norm of singular values makes it longer. The largest margin over all matrices is
    therefore that over those of rotary heads.
    """
    whole = {}
    for name in ("W", "start"):
        turned = quarter(quarter(jnp.asarray(record[name].values)).mT).mT
        whole[name] = record[name] + record[name].copy(data=turned)
    further = record["read"].copy(data=quarter(jnp.asarray(record["read"].values)))
    shown = {"read": xarray.concat([record["read"], further], "sequence")}
    shown |= {name: xarray.concat([record[name]] * 2, "sequence") for name in ("sequences", "sources")}
    return record.drop_vars([*whole, *shown]).assign(whole | shown)
