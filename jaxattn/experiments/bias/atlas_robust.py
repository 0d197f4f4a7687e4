"""Which verdicts of the atlas change with the size of the problem, the start and the precision?"""

from __future__ import annotations

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
# The changes of each claim, and how they are written above the columns.
_CHANGES = {
    "sizes": ("(4, 4, 6)", "(10, 5, 20)"),
    "starts": ("start as published", "start of scale 0.01"),
    "precision": ("single precision",),
}
_COLUMNS = {
    "": "(6, 8, 10)\nas in the atlas",
    "(4, 4, 6)": "(4, 4, 6)",
    "(10, 5, 20)": "(10, 5, 20)",
    "start as published": "$W$ starts\nas published",
    "start of scale 0.01": "$K, Q$ start\n.01 as long",
    "single precision": "single\nprecision",
}
_SUBJECTS = {
    "sizes": "the numbers n, T and d of inputs, tokens and features",
    "starts": "the starting point of W, or of K and Q",
    "precision": "the precision of training",
}


class _Pair(NamedTuple):
    """A run of the atlas, and the same rule with a change, whose run has this name."""

    name: str
    usual: xarray.Dataset
    changed: xarray.Dataset

    @property
    def is_decided(self) -> bool:
        """Whether both verdicts are decided."""
        return bool(self.usual.attrs["decided"] and self.changed.attrs["decided"])

    @property
    def differs(self) -> bool:
        """Whether both verdicts are decided and differ."""
        return self.is_decided and bool((self.usual["named"].values != self.changed["named"].values).any())


def _pairs(runs: Datasets, which: str) -> list[_Pair]:
    return [
        _Pair(name, runs[usual], runs[name])
        for change in _CHANGES[which]
        for usual in _USUAL
        if (name := f"{usual}, {change}") in runs
    ]


def _judge(which: str, runs: Datasets) -> Judgement:
    """No decided verdict may change, and all verdicts, with and without the change, must be decided."""
    pairs = _pairs(runs, which)
    if not pairs:
        return Judgement.withheld("These runs are not made at this size.")
    changed, undecided = [pair for pair in pairs if pair.differs], [pair.name for pair in pairs if not pair.is_decided]
    count = Number.exact(len(changed))
    verdicts = "; ".join(f"{pair.name}: {pair.changed.attrs['verdict']}" for pair in changed)
    return Judgement(
        [below(f"rows of {len(pairs)} whose verdict changes", count, 0.0)],
        remark=f"Changed: {verdicts}."
        if changed
        else f"All {len(pairs)} verdicts agree with those of the same rule in the atlas.",
        numbers={"rows whose verdict changes": count.mean}
        | {
            f"margin ratio, {norm}: {pair.name}": number(pair.changed, "ratio", norm=norm)
            for pair in pairs
            for norm in pair.usual["norm"].values[pair.usual["named"].values]
        },
        expected={"rows whose verdict changes": 0.0},
        counts=counts_of({pair.name: pair.changed for pair in pairs}),
        undecided=f"Not decided, with or without the change: {'; '.join(undecided)}."
        if undecided and not changed
        else "",
    )


_CLAIMS = tuple(
    Claim(
        f"atlas-robust:{which}",
        _SOURCE,
        f"The norm whose Att-SVM a rule obeys does not depend on {subject}.",
        partial(_judge, which),
        TRAINED,
    )
    for which, subject in _SUBJECTS.items()
)
_COLOURS, _LEAST = "Blues", 0.8


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row for each rule and a column for each change: the largest margin ratio, and what the verdict names."""
    rows = [usual for usual in _USUAL if usual in summaries]
    grid = {change: [summaries.get(f"{usual}, {change}" if change else usual) for usual in rows] for change in _COLUMNS}
    grid = {change: column for change, column in grid.items() if any(run is not None for run in column)}
    ratios = np.full((len(rows), len(grid)), np.nan)
    with page.style():
        figure = page.full(1.5 + 0.33 * len(rows))
        axes = figure.subplots()
        for j, column in enumerate(grid.values()):
            for k, run in enumerate(column):
                if run is not None:
                    ratios[k, j] = float(run["ratio"].max())
                    look = {"color": "white" if ratios[k, j] > 0.5 * (1 + _LEAST) else "black", "fontsize": cells.SIZE}
                    weight = "bold" if bool(run["named"].any()) else "normal"
                    axes.text(j, k, _cell(run), ha="center", va="center", fontweight=weight, **look)
        axes.imshow(np.ma.masked_invalid(ratios), cmap=_COLOURS, vmin=_LEAST, vmax=1.0, aspect="auto")
        axes.set_yticks(range(len(rows)), [_USUAL[usual] for usual in rows], fontsize=cells.SIZE)
        axes.set_xticks(range(len(grid)), [_COLUMNS[change] for change in grid], fontsize=cells.SIZE)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(_finding([pair for which in _CHANGES for pair in _pairs(summaries, which)]))
        page.add_counts(
            figure,
            summaries,
            "Mean margin ratio over the seeds in the norm where it is largest, and that norm. Bold: named by the "
            "verdict; none: it names none; open: not decided.",
        )
    return figure


def _cell(run: xarray.Dataset) -> str:
    best = int(np.argmax(run["ratio"].values))
    norm = str(run["norm"].values[best])
    verdict = "" if bool(run["named"].any()) else ", none" if run.attrs["decided"] else ", open"
    ratio = f"{min(float(run['ratio'][best]), 0.999):.3f}".replace("0.", ".", 1)
    return f"{ratio}\n{cells.NORMS.get(norm, norm)}{verdict}"


def _finding(pairs: list[_Pair]) -> str:
    differ, undecided = sum(pair.differs for pair in pairs), sum(not pair.is_decided for pair in pairs)
    count, change = len(pairs), "with size, start or precision"
    if not differ and not undecided:
        return f"All {count} verdicts stay the same whatever the size, start or precision"
    text = f"{differ or 'None'} of {count} verdicts {'changes' if differ == 1 else 'change'} {change}"
    return text + (f"; {undecided} {'is' if undecided == 1 else 'are'} not decided" if undecided else "")


EXPERIMENT = Experiment(measure, claims=_CLAIMS, estimate=estimate, draw=draw)
