"""Causal attention by the tensor trick, against the engine: the same risk and gradient, at what cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from jaxattn import language, losses, metrics, svm
from jaxattn.data import draws
from jaxattn.language import tensor
from jaxattn.parallel import batch
from jaxattn.study.claims import Claim, Verdict, counts_of, too_few, total, verdict
from jaxattn.study.settings.texts import choices_of
from jaxattn.study.statistics import pooled

# What counts as the same, and the standard deviation of an entry of W: of logits too, as embeddings have length 1.
_SAME, _SPREAD = 1e-12, 3.0

_Risk = Callable[[Array, language.Choices], Array]


def _of(loss: losses.Loss) -> tuple[_Risk, Callable[[Array, Array, Array], tensor.Slope]]:
    """Return the risk of a loss, and its slope by the tensor trick."""
    return (
        lambda W, choices: language.risk(W, choices, loss=loss),
        lambda x, E, words: tensor.slope(x, E, words, loss),
    )


_LOSSES = {
    "cross entropy": _of(losses.cross_entropy),
    "logistic": _of(losses.logistic),
    "squared": (language.squared_risk, tensor.squared_slope),
}
FORMS = ("tensor trick", "matrix form", "pairs of words")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold both forms against each other at one W a text, of independent normal entries with standard deviation 3.

    Args:
        record: of `Texts` with candidates `language.prefix`.
        solver: not used; nothing is solved.

    Returns:
        For every kept seed and loss `risk` and `gradient`, the relative differences of the two forms, the gradient's in
        the Frobenius norm. Texts in which no prefix chooses are counted as `labels`. The attribute `run` names n and d.
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
        {"seed": record["seed"].values[kept], "loss": np.array(list(_LOSSES), dtype=object)},
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

    return jnp.stack([of_loss(*forms) for forms in _LOSSES.values()])


def costs(m: int, n: int, d: int, V: int) -> tuple[dict[str, int], dict[str, int]]:
    """Count what the scores of m sequences of n words cost: multiply-adds, and numbers held at a time, by form.

    Of a sequence k = n - 1 words ask. The tensor trick forms `A1 kron A2` of every sequence, k^2 d^2 products, and
    multiplies x by it; one matrix is held at a time. The matrix form is `(A1 X) A2^T` of every sequence, and holds
    `A1 X` and the scores. The engine forms the table of all pairs of words once, `(E W^T) E^T`, and looks up V logits
    for each of the m k prefixes. Embeddings and weights themselves, which all forms need, are not counted.
    """
    k = n - 1
    products = m * 2 * k**2 * d**2, m * (k * d**2 + k**2 * d), V * d**2 + V**2 * d
    held = k**2 * d**2 + k**2, k * d + k**2, V * d + V**2 + m * k * V
    return dict(zip(FORMS, products, strict=True)), dict(zip(FORMS, held, strict=True))


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Gather the largest differences and the costs of every size, and judge the identity.

    Args:
        datasets: of `measure`, of every n and d.
        key: of the resampling.

    Returns:
        "texts", a dataset with axes `run`, `loss` and `form`; the claim.
    """
    summary = xarray.concat([_largest(one) for one in datasets.values()], "run", coords="all")
    return {"texts": summary.assign_attrs(total(datasets))}, [_claim(summary, datasets, key)]


def _largest(one: xarray.Dataset) -> xarray.Dataset:
    m, n, d, V = (int(one.attrs[name]) for name in "mndV")
    arrays = {name: (("loss",), one[name].values.max(axis=0)) for name in ("risk", "gradient")}
    products, held = costs(m, n, d, V)
    arrays |= {"products": (("form",), list(products.values())), "held": (("form",), list(held.values()))}
    sizes = {"run": one.attrs["run"], "m": m, "n": n, "d": d, "V": V, "seeds": one.sizes["seed"]}
    return xarray.Dataset(arrays, {"loss": one["loss"].values, "form": list(FORMS), **sizes})


def _claim(summary: xarray.Dataset, datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray) -> Claim:
    measured = {
        f"largest relative difference of the {'risk' if name == 'risk' else 'gradient'}, {loss}": float(
            summary[name].sel(loss=loss).max()
        )
        for name in ("risk", "gradient")
        for loss in summary["loss"].values
    }
    expected = dict.fromkeys(measured, 0.0)
    same = np.concatenate(
        [((one["risk"] <= _SAME) & (one["gradient"] <= _SAME)).all("loss").values for one in datasets.values()]
    )
    # A seed's texts of all sizes are drawn from one key.
    share = pooled(same, np.concatenate([one["seed"].values for one in datasets.values()]), key)
    label = "share of texts that agree to 1e-12 for every loss"
    expected[label], measured[label] = 1.0, float(share.mean)
    for name, of in (("products", "multiply-adds"), ("held", "numbers held")):
        ratio = (summary[name].sel(form=FORMS[0]) / summary[name].sel(form=FORMS[1])).values
        measured[f"{of}, tensor trick over matrix form, largest"] = float(ratio.max())
    undecided = too_few(int(summary["seeds"].min()))
    return Claim(
        id="tensor-trick:identity",
        source="withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, tensor trick",
        statement="Causal attention written as exp((A1 kron A2) vec(X)) is that of the matrix form: same loss, same "
        "gradient.",
        expected=expected,
        measured=measured,
        interval={label: (float(share.low), float(share.high))},
        counts=counts_of(datasets),
        verdict=verdict(Verdict.HOLDS, bool(same.all()), undecided),
        note=undecided
        or "Holds if every text of every size agrees to 1e-12, relatively, in risk and gradient for every loss; NaN "
        "does not agree. With one sum of exponentials a row: the size that the paper gives D(X), as recalled, does not "
        "fit. An identity, and a dear one: its cost is counted beside it.",
    )
