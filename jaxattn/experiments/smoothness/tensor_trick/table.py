"""The tensor-trick table: how far the two forms are apart, and what the scores cost, for every size."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.experiments.smoothness.tensor_trick.claims import SAME
from jaxattn.study.style import page
from jaxattn.study.style.counting import told
from jaxattn.study.style.table import Table


def table(summaries: Mapping[str, xarray.Dataset]) -> Table:
    """Return one row per size, ordered by n and d.

    Args:
        summaries: "texts", as `claims.summarize` returns it.
    """
    summary = summaries["texts"].sortby(["n", "d"])
    forms = [str(form) for form in summary["form"].values]
    heads = (
        *("$n$", "$d$", "texts kept", "difference of the risk", "difference of the gradient"),
        r"entries of $A_1 \otimes A_2$",
        *(f"cost, {form}" for form in forms),
    )
    rows = tuple(_row(summary.isel(run=k)) for k in range(summary.sizes["run"]))
    m, V = (int(summary[name].values.flat[0]) for name in "mV")
    losses = ", ".join(map(str, summary["loss"].values))
    note = (
        "The tensor trick is compared with the form that all other experiments use, a table of all pairs of words. "
        f"Differences are relative, the largest over all texts and losses ({losses}); the claim allows "
        f"{page.power(SAME)}. Costs are those of the scores of {m} sequences of $n$ words, with embeddings of "
        f"dimension $d$ and a vocabulary of {V}: multiply-adds / numbers in memory at a time, counted and not timed. "
        f"Texts in which no prefix has a choice of the next word are excluded as labels. {told(summaries, 'texts')}"
    )
    return Table(heads, rows, note)


def _row(one: xarray.Dataset) -> tuple[str, ...]:
    n, d = int(one["n"]), int(one["d"])
    costs = zip(one["products"].values, one["held"].values, strict=True)
    return (
        str(n),
        str(d),
        f"{int(one['kept'])} of {int(one['attempted'])}",
        *(page.power(float(one[name].max())) for name in ("risk", "gradient")),
        f"{((n - 1) * d) ** 2:,}",
        *(f"{int(products):,} / {int(held):,}" for products, held in costs),
    )
