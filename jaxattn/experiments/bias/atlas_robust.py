"""Which verdicts of the atlas change with the size of the problem, the start and the precision?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.bias.ratios import estimate, measure
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, counts_of
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import number
from jaxattn.study.style import cells, page

_SOURCE = Source("arXiv 2308.16898 and 2502.04664", "limits stated for any size and start", Setting.OURS)
# The runs as in the atlas; a change is appended to their names.
_USUAL = {
    "W, normalized GD, constant": "$W$, normalized GD, constant",
    "W, sign descent, constant": "$W$, sign descent, constant",
    "W, polar factor, constant": "$W$, polar factor, constant",
    "KQ, normalized GD, constant": "$(K, Q)$, normalized GD, constant",
    "KQ, polar factor, k^-1/2": "$(K, Q)$, polar factor, $k^{-1/2}$",
}
# What each claim changes, and its changes.
_CHANGES = {
    "sizes": ("the numbers n, T and d of inputs, tokens and features", ("(4, 4, 6)", "(10, 5, 20)")),
    "starts": ("the starting point of W, or of K and Q", ("start as published", "start of scale 0.01")),
    "precision": ("the precision of training", ("single precision",)),
}
# How the changes are written above the columns.
_COLUMNS = {
    "": "(6, 8, 10)\nas in the atlas",
    "(4, 4, 6)": "(4, 4, 6)",
    "(10, 5, 20)": "(10, 5, 20)",
    "start as published": "$W$ starts\nas published",
    "start of scale 0.01": "$K, Q$ start\n.01 as long",
    "single precision": "single\nprecision",
}


class _Pair(NamedTuple):
    """A run of the atlas and one with a change, whose name this is; whether both verdicts are decided, and differ."""

    name: str
    usual: xarray.Dataset
    changed: xarray.Dataset
    is_decided: bool
    differs: bool


def _pairs(runs: Datasets, changes: Iterable[str]) -> list[_Pair]:
    pairs = []
    for change, usual in itertools.product(changes, _USUAL):
        if (name := f"{usual}, {change}") in runs:
            is_decided = bool(runs[usual].attrs["decided"] and runs[name].attrs["decided"])
            differs = is_decided and bool((runs[usual]["named"].values != runs[name]["named"].values).any())
            pairs.append(_Pair(name, runs[usual], runs[name], is_decided, differs))
    return pairs


def _judge(changes: tuple[str, ...], runs: Datasets) -> Judgement:
    """No decided verdict may change, and all verdicts, with and without the change, must be decided."""
    pairs = _pairs(runs, changes)
    if not pairs:
        return Judgement.withheld("These runs are not made at this size.")
    changed = [f"{pair.name}: {pair.changed.attrs['verdict']}" for pair in pairs if pair.differs]
    undecided = [pair.name for pair in pairs if not pair.is_decided and not changed]
    agree = f"All {len(pairs)} verdicts agree with those of the same rule in the atlas."
    label = "rows whose verdict changes"
    numbers = {label: float(len(changed))} | {
        f"margin ratio, {norm}: {pair.name}": number(pair.changed, "ratio", norm=norm)
        for pair in pairs
        for norm in pair.usual["norm"].values[pair.usual["named"].values]
    }
    return Judgement(
        [below(f"rows of {len(pairs)} whose verdict changes", Number.exact(len(changed)), 0.0)],
        remark=f"Changed: {'; '.join(changed)}." if changed else agree,
        numbers=numbers,
        expected={label: 0.0},
        counts=counts_of({pair.name: pair.changed for pair in pairs}),
        undecided=f"Not decided, with or without the change: {'; '.join(undecided)}." if undecided else "",
    )


_STATEMENT = "The norm whose Att-SVM a rule obeys does not depend on {}."
_CLAIMS = tuple(
    Claim(f"atlas-robust:{name}", _SOURCE, _STATEMENT.format(subject), partial(_judge, changes), TRAINED)
    for name, (subject, changes) in _CHANGES.items()
)
_COLOURS, _LEAST = "Blues", 0.8


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row for each rule and a column for each change: the largest margin ratio, and what the verdict names."""
    ratios = np.full((len(_USUAL), len(_COLUMNS)), np.nan)
    with page.style():
        figure = page.full(1.5 + 0.33 * len(_USUAL))
        axes = figure.subplots()
        for (k, usual), (j, change) in itertools.product(enumerate(_USUAL), enumerate(_COLUMNS)):
            run = summaries.get(f"{usual}, {change}" if change else usual)
            if run is not None:
                ratios[k, j] = float(run["ratio"].max())
                look = {"color": "white" if ratios[k, j] > 0.5 * (1 + _LEAST) else "black", "fontsize": cells.SIZE}
                weight = "bold" if run.attrs["decided"] and bool(run["named"].any()) else "normal"
                axes.text(j, k, _cell(run), ha="center", va="center", fontweight=weight, **look)
        axes.imshow(np.ma.masked_invalid(ratios), cmap=_COLOURS, vmin=_LEAST, vmax=1.0, aspect="auto")
        axes.set_yticks(range(len(_USUAL)), _USUAL.values(), fontsize=cells.SIZE)
        axes.set_xticks(range(len(_COLUMNS)), _COLUMNS.values(), fontsize=cells.SIZE)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        pairs = _pairs(summaries, _COLUMNS)
        differ, undecided = sum(pair.differs for pair in pairs), sum(not pair.is_decided for pair in pairs)
        axes.set_title(
            f"Verdicts that change with size, start or precision: {differ} of {len(pairs)}; not decided: {undecided}"
        )
        page.add_counts(
            figure,
            summaries,
            "Mean margin ratio over the seeds in the norm where it is largest, and that norm. Bold: named by the "
            "verdict; near: not told from its neighbours; none: it names none; open: not decided.",
        )
    return figure


def _cell(run: xarray.Dataset) -> str:
    best = int(np.argmax(run["ratio"].values))
    norm = str(run["norm"].values[best])
    is_named, is_decided = bool(run["named"].any()), run.attrs["decided"]
    verdict = ("" if is_named else ", none") if is_decided else ", near" if is_named else ", open"
    ratio = f"{min(float(run['ratio'][best]), 0.999):.3f}".replace("0.", ".", 1)
    return f"{ratio}\n{cells.NORMS.get(norm, norm)}{verdict}"


EXPERIMENT = Experiment(measure, claims=_CLAIMS, estimate=estimate, draw=draw)
