"""Causal attention by the tensor trick, compared with the engine: the same risk and gradient, at what cost."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.smoothness.paper import TENSOR_TRICK
from jaxattn.experiments.smoothness.tensor_trick import examples
from jaxattn.experiments.smoothness.tensor_trick.costs import FORMS, costs
from jaxattn.statistics import pooled, variables
from jaxattn.study.claims import Claim, Datasets, Judgement, Kind, Number, between, number, too_few, total

# Fixed beforehand: relative differences up to this count as zero.
SAME = 1e-12
_COUNTS = ("attempted", "kept", "labels")
_COMPARED = ("risk", "gradient")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Gather the largest differences and the costs of every size.

    Args:
        datasets: of `measure`, of every n and d.
        key: of the resampling.

    Returns:
        "texts", a dataset with axes `run`, `loss` and `form`, and the share of texts that agree.

    Raises:
        ValueError: there is no run.
    """
    if not datasets:
        raise ValueError("tensor-trick: expected a run, found none")
    summary = xarray.concat([_largest(one) for one in datasets.values()], "run", coords="all")
    same = np.concatenate(
        [((one["risk"] <= SAME) & (one["gradient"] <= SAME)).all("loss").values for one in datasets.values()]
    )
    # The texts of a seed are drawn from one key for all sizes.
    share = pooled(same, np.concatenate([one["seed"].values for one in datasets.values()]), key)
    return {"texts": summary.assign(variables({"same": ((), share)})).assign_attrs(total(datasets))}


def _largest(one: xarray.Dataset) -> xarray.Dataset:
    m, n, d, V = (int(one.attrs[name]) for name in "mndV")
    arrays = {name: (("loss",), one[name].values.max(axis=0)) for name in _COMPARED}
    products, held = costs(m, n, d, V)
    arrays |= {"products": (("form",), list(products.values())), "held": (("form",), list(held.values()))}
    arrays |= {name: ((), int(one.attrs[name])) for name in _COUNTS}
    sizes = {"run": one.attrs["run"], "m": m, "n": n, "d": d, "V": V, "seeds": one.sizes["seed"]}
    return xarray.Dataset(arrays, {"loss": one["loss"].values, "form": list(FORMS), **sizes})


def _judge_identity(summaries: Datasets) -> Judgement:
    """No text of any size may differ by more than rounding, in risk or gradient, for any loss."""
    (summary,) = summaries.values()
    numbers: dict[str, Number | float] = {
        f"largest relative difference of the {name}, {loss}": float(summary[name].sel(loss=loss).max())
        for name in _COMPARED
        for loss in summary["loss"].values
    }
    expected = dict.fromkeys(numbers, 0.0)
    label = "share of texts that agree to 1e-12 for every loss"
    expected[label], numbers[label] = 1.0, number(summary, "same")
    dearer = []
    for name, of in (("products", "multiply-adds"), ("held", "numbers in memory")):
        ratio = float((summary[name].sel(form=FORMS[0]) / summary[name].sel(form=FORMS[1])).max())
        numbers[f"{of}, tensor trick over matrix form, largest"] = ratio
        dearer.append(f"{ratio:.3g} times the {of}")
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts={
            str(run): {count: int(summary[count].sel(run=run)) for count in _COUNTS} for run in summary["run"].values
        },
        stated=tuple(
            between(
                f"largest relative difference of the {name}, over all texts, sizes and losses,",
                Number.exact(float(summary[name].max())),
                0.0,
                SAME,
            )
            for name in _COMPARED
        ),
        undecided=too_few(int(summary["seeds"].min())),
        remark="One sum of exponentials per row is used, as in Definition 3.2; section 1 gives the diagonal matrix "
        f"of these sums, D(X), the size of X. The tensor trick needs up to {' and '.join(dearer)} of the "
        "matrix form.",
    )


CLAIMS = (
    Claim(
        "tensor-trick:identity",
        TENSOR_TRICK,
        "Causal attention written as exp((A1 kron A2) vec(X)) equals that of the matrix form, with the same loss "
        "and gradient.",
        _judge_identity,
        examples.of_identity,
        Kind.CHECK,
    ),
)
