"""Causal attention by the tensor trick, compared with the engine: the same risk and gradient, at what cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from jaxattn import language, losses, metrics, svm
from jaxattn.data import draws
from jaxattn.language import tensor
from jaxattn.parallel import batch
from jaxattn.statistics import pooled, variables
from jaxattn.study import claims
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Number, between, claim
from jaxattn.study.estimates import number
from jaxattn.study.settings.texts import choices_of
from jaxattn.study.style import page
from jaxattn.study.style.page import told
from jaxattn.study.style.table import Table

# The paper writes no causal mask and computes nothing in this form.
_SOURCE = claims.Source(
    "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling",
    "section 1 and Definitions 3.1 to 3.3, tensor trick",
    claims.Setting.PROXY,
)
# Fixed beforehand: relative differences up to this count as zero.
_SAME = 1e-12
_COMPARED = ("risk", "gradient")
_FORMS = ("tensor trick", "matrix form", "pairs of words")
# The name of all sizes together.
_TEXTS = "texts"
# The standard deviation of an entry of W, and of logits, since embeddings have norm 1.
_SPREAD = 3.0

_Risk = Callable[[Array, language.Choices], Array]


# By loss: the risk, and its slope by the tensor trick.
_LOSSES: dict[str, tuple[_Risk, Callable[[Array, Array, Array], tensor.Slope]]] = {
    "cross entropy": (language.risk, tensor.slope),
    "logistic": (partial(language.risk, loss=losses.logistic), partial(tensor.slope, loss=losses.logistic)),
    "squared": (language.squared_risk, tensor.squared_slope),
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare both forms at one W per text of a record of `Texts` with candidates `language.prefix`.

    Texts in which no prefix has a choice count as `labels`.

    Returns:
        For every loss `risk` and `gradient`, the relative differences of the two forms, that of the gradient in the
        Frobenius norm.
    """
    del solver
    m, n = record.attrs["data.m"], record.attrs["data.n"]
    arrays = {str(name): record[name].values for name in record.data_vars}
    kept = np.asarray(arrays["weight"].any(axis=1))
    if not kept.any():
        raise ValueError(f"tensor-trick: expected a text in which a prefix chooses, found none of {kept.size}")
    arrays = {name: array[kept] for name, array in arrays.items()}
    last, following = (arrays[name].reshape(-1, m, n - 1) for name in ("last", "next"))
    words = np.concatenate([last, following[:, :, -1:]], axis=2)
    apart = batch.over_seeds(_apart, choices_of(arrays), words, arrays["draw_key"])
    return xarray.Dataset(
        {name: (("seed", "loss"), apart[:, :, k]) for k, name in enumerate(_COMPARED)},
        {"seed": record["seed"].values[kept], "loss": np.array(list(_LOSSES), dtype=object)},
        {"attempted": kept.size, "kept": int(kept.sum()), "labels": int((~kept).sum())},
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
    """Count the cost of the scores of m sequences of n words: multiply-adds, and numbers in memory at a time, by form.

    In a sequence k = n - 1 words ask. The tensor trick forms `A1 kron A2` of every sequence, k^2 d^2 products, and
    multiplies x by it; one matrix is held at a time. The matrix form is `(A1 X) A2^T` of every sequence, and holds `A1
    X` and the scores. The engine forms the table of all pairs of words once, `(E W^T) E^T`, and looks up V logits for
    each of the m k prefixes. Embeddings and weights themselves, which all forms need, are not counted.
    """
    k = n - 1
    products = m * 2 * k**2 * d**2, m * (k * d**2 + k**2 * d), V * d**2 + V**2 * d
    held = k**2 * d**2 + k**2, k * d + k**2, V * d + V**2 + m * k * V
    return dict(zip(_FORMS, products, strict=True)), dict(zip(_FORMS, held, strict=True))


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Return of each size the largest differences and the costs, and in `texts` the share of all texts that agree."""
    summaries: dict[str, xarray.Dataset] = {name: _largest(run) for name, run in runs.items()}
    same = [((run["risk"] <= _SAME) & (run["gradient"] <= _SAME)).all("loss").values for run in runs.values()]
    # The texts of a seed are drawn from one key for all sizes.
    seeds = np.concatenate([run["seed"].values for run in runs.values()])
    share = pooled(np.concatenate(same), seeds, key)
    return summaries | {_TEXTS: xarray.Dataset(variables({"same": ((), share)}), attrs=claims.total(runs))}


def _largest(run: xarray.Dataset) -> xarray.Dataset:
    products, held = costs(*(run.attrs[f"data.{name}"] for name in "mndV"))
    arrays = {name: (("loss",), run[name].values.max(axis=0)) for name in _COMPARED}
    arrays |= {"products": (("form",), list(products.values())), "held": (("form",), list(held.values()))}
    return xarray.Dataset(arrays, {"loss": run["loss"].values, "form": list(_FORMS)}, run.attrs)


@claim(
    "tensor-trick:identity",
    _SOURCE,
    "Causal attention written as exp((A1 kron A2) vec(X)) equals that of the matrix form, with the same loss "
    "and gradient.",
    kind=claims.Kind.CHECK,
)
def _identity(runs: Datasets) -> Judgement:
    same = number(runs[_TEXTS], "same")
    sizes = {name: runs[name] for name in runs if name != _TEXTS}
    summary = xarray.concat([size.drop_attrs() for size in sizes.values()], "run")
    numbers: dict[str, Number | float] = {
        f"largest relative difference of the {name}, {loss}": float(summary[name].sel(loss=loss).max())
        for name in _COMPARED
        for loss in summary["loss"].values
    }
    expected = dict.fromkeys(numbers, 0.0)
    label = "share of texts that agree to 1e-12 for every loss"
    expected[label], numbers[label] = 1.0, same
    dearer = []
    for name, of in (("products", "multiply-adds"), ("held", "numbers in memory")):
        ratio = float((summary[name].sel(form=_FORMS[0]) / summary[name].sel(form=_FORMS[1])).max())
        numbers[f"{of}, tensor trick over matrix form, largest"] = ratio
        dearer.append(f"{ratio:.3g} times the {of}")
    stated = [
        between(f"largest relative difference of the {name}, over all texts, sizes and losses,", number, 0.0, _SAME)
        for name, number in ((name, Number.exact(float(summary[name].max()))) for name in _COMPARED)
    ]
    return Judgement(
        stated,
        remark="One sum of exponentials per row is used, as in Definition 3.2; section 1 gives the diagonal matrix "
        f"of these sums, D(X), the size of X. The tensor trick needs up to {' and '.join(dearer)} of the "
        "matrix form.",
        numbers=numbers,
        expected=expected,
        counts=claims.counts_of(sizes),
    )


def table(summaries: Datasets, judgements: Judgements) -> Table:
    """Return one row per size, ordered by n and d."""
    sizes = [summary for name, summary in summaries.items() if name != _TEXTS]
    sizes.sort(key=lambda size: (size.attrs["data.n"], size.attrs["data.d"]))
    heads = (
        *("$n$", "$d$", "texts kept", "difference of the risk", "difference of the gradient"),
        r"entries of $A_1 \otimes A_2$",
        *(f"cost, {form}" for form in _FORMS),
    )
    m, V = sizes[0].attrs["data.m"], sizes[0].attrs["data.V"]
    note = (
        "The tensor trick is compared with the form that all other experiments use, a table of all pairs of words. "
        f"Differences are relative, the largest over all texts and losses ({', '.join(_LOSSES)}); the claim allows "
        f"{page.power(_SAME)}. Costs are those of the scores of {m} sequences of $n$ words, with embeddings of "
        f"dimension $d$ and a vocabulary of {V}: multiply-adds / numbers in memory at a time, counted and not timed. "
        "Texts in which no prefix has a choice of the next word are excluded as labels. "
        f"{told({_TEXTS: summaries[_TEXTS]}, 'texts')}"
    )
    return Table(heads, tuple(map(_row, sizes)), note)


def _row(size: xarray.Dataset) -> tuple[str, ...]:
    n, d = size.attrs["data.n"], size.attrs["data.d"]
    costs = zip(size["products"].values, size["held"].values, strict=True)
    return (
        str(n),
        str(d),
        f"{size.attrs['kept']} of {size.attrs['attempted']}",
        *(page.power(float(size[name].max())) for name in _COMPARED),
        f"{((n - 1) * d) ** 2:,}",
        *(f"{int(products):,} / {int(held):,}" for products, held in costs),
    )


EXPERIMENT = Experiment(measure, claims=(_identity,), summarize=summarize, table=table)
