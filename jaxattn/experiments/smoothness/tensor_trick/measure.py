"""From a record of texts: the differences of risk and gradient between the tensor trick and the engine."""

from __future__ import annotations

import json
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, UInt32

from jaxattn import language, losses, metrics, svm
from jaxattn.data import draws
from jaxattn.language import tensor
from jaxattn.parallel import batch
from jaxattn.study.settings.texts import choices_of

# The standard deviation of an entry of W, and of logits, since embeddings have norm 1.
_SPREAD = 3.0

_Risk = Callable[[Array, language.Choices], Array]


def _of(loss: losses.Loss) -> tuple[_Risk, Callable[[Array, Array, Array], tensor.Slope]]:
    """Return the risk of a loss, and its slope by the tensor trick."""
    return (
        lambda W, choices: language.risk(W, choices, loss=loss),
        lambda x, E, words: tensor.slope(x, E, words, loss),
    )


LOSSES = {
    "cross entropy": _of(losses.cross_entropy),
    "logistic": _of(losses.logistic),
    "squared": (language.squared_risk, tensor.squared_slope),
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare both forms at one W per text, with independent normal entries of standard deviation 3.

    Args:
        record: of `Texts` with candidates `language.prefix`.
        solver: not used; nothing is solved.

    Returns:
        For every kept seed and loss `risk` and `gradient`, the relative differences of the two forms, that of the
        gradient in the Frobenius norm. Texts in which no prefix has a choice count as `labels`. The attribute `run`
        names n and d.
    """
    del solver
    law = json.loads(record.attrs["config"])["data"]
    m, n, d, V = (int(law[name]) for name in "mndV")
    arrays = {str(name): record[name].values for name in record.data_vars}
    kept = np.asarray(arrays["weight"].any(axis=1))
    if not kept.any():
        raise ValueError(f"tensor-trick: expected a text in which a prefix chooses, found none of {kept.size}")
    arrays = {name: array[kept] for name, array in arrays.items()}
    last, following = (arrays[name].reshape(-1, m, n - 1) for name in ("last", "next"))
    words = np.concatenate([last, following[:, :, -1:]], axis=2)
    apart = batch.over_seeds(_apart, choices_of(arrays), words, arrays["draw_key"])
    of_loss = ("seed", "loss")
    counts = {"attempted": kept.size, "kept": int(kept.sum()), "labels": int((~kept).sum())}
    return xarray.Dataset(
        {"risk": (of_loss, apart[:, :, 0]), "gradient": (of_loss, apart[:, :, 1])},
        {"seed": record["seed"].values[kept], "loss": np.array(list(LOSSES), dtype=object)},
        {**counts, "run": f"n={n} d={d}", "m": m, "n": n, "d": d, "V": V},
    )


def _apart(
    choices: language.Choices, words: Int[Array, "m n"], key_words: UInt32[Array, " words"]
) -> Float[Array, "losses 2"]:
    """Return the relative differences of risk and gradient for every loss."""
    d = choices.E.shape[1]
    (W,) = draws.normals(jax.random.wrap_key_data(key_words)[None], (d, d))
    W = _SPREAD * W

    def of_loss(risk: _Risk, slope: Callable[[Array, Array, Array], tensor.Slope]) -> Array:
        value, gradient = jax.value_and_grad(risk)(W, choices)
        other = slope(tensor.stacked(W), choices.E, words)
        off = metrics.norm(other.gradient.reshape(d, d).T - gradient) / metrics.norm(gradient)
        return jnp.stack([jnp.abs(other.value - value) / jnp.abs(value), off])

    return jnp.stack([of_loss(*forms) for forms in LOSSES.values()])
