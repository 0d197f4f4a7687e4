"""The atlas: mean margin ratios of every rule, parameterization and schedule against the norms."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias.atlas.claims import CLAIMS
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.rules import RULES, SAID, STEPS
from jaxattn.study.claims import Verdict, total
from jaxattn.study.style import page

_PARAMETERIZATIONS = {"W": "$W$, from zero", "KQ": "$(K, Q)$, as published"}
_LETTERS = {"W": "$W$", "KQ": "$(K, Q)$"}
# Sequential, its lightness falling evenly, so that cells can be told without colour; and a frame that stands out from
# all of it.
_COLOURS, _LEAST, _FRAME = "Blues", 0.2, "#D55E00"
_SIZE = 7


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel for each parameterization: a row for each rule and schedule, a column for each norm.

    Args:
        summaries: of `claims.summarize`.
    """
    made = {(one.attrs["rule"], one.attrs["step"]) for one in summaries.values()}
    rows = [(rule, step) for rule in RULES for step in STEPS if (rule, step) in made]
    with page.style():
        figure = page.new_figure(6.75, 1.5 + 0.19 * len(rows))
        panels = dict(zip(_PARAMETERIZATIONS, figure.subplots(1, 2, sharey=True), strict=True))
        for letter, (weights, axes) in zip("ab", panels.items(), strict=True):
            _panel(axes, weights, rows, summaries)
            verdicts = _verdicts(summaries, weights)
            said = f"{verdicts[Verdict.HOLDS]} of {verdicts.total()} confirmed"
            axes.set_title(f"({letter}) {_PARAMETERIZATIONS[weights]}: {said}", fontsize=8)
        panels["W"].set_yticks(range(len(rows)), [f"{RULES[rule]}, {STEPS[step]}" for rule, step in rows])
        panels["W"].tick_params(axis="y", labelsize=_SIZE)
        figure.suptitle(_finding(summaries), fontsize=9)
        page.add_counts(figure, {f"{len(summaries)} runs": xarray.Dataset(attrs=total(summaries))}, _key(summaries))
    return figure


def _panel(axes: Axes, weights: str, rows: list[tuple[str, str]], summaries: Mapping[str, xarray.Dataset]) -> None:
    own = {(one.attrs["rule"], one.attrs["step"]): one for one in summaries.values() if one.attrs["weights"] == weights}
    predicted = {(one.rule, one.step): one.norm for one in PREDICTIONS if one.weights == weights}
    names = [str(norm) for norm in next(iter(summaries.values()))["norm"].values]
    cells = np.full((len(rows), len(names)), np.nan)
    for k, row in enumerate(rows):
        if row not in own:
            continue
        one = own[row]
        cells[k] = one["ratio"].values
        for j, norm in enumerate(names):
            _cell(axes, k, j, float(cells[k, j]), bool(one["named"].values[j]))
            if predicted.get(row) == norm:
                _frame(axes, k, j, j)
        if predicted.get(row) == "":
            _frame(axes, k, 0, len(names) - 1)
        axes.text(len(names) - 0.4, k, _verdict(one), ha="left", va="center", fontsize=_SIZE)
    axes.imshow(np.ma.masked_invalid(cells), cmap=_COLOURS, vmin=_LEAST, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(names)), [SAID.get(name, name) for name in names], fontsize=_SIZE)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _cell(axes: Axes, row: int, column: int, ratio: float, is_named: bool) -> None:
    # Nothing is rounded up to 1.
    text = f"{min(ratio, 0.999):.3f}".replace("0.", ".", 1)
    is_dark = ratio > 0.5 * (1 + _LEAST)
    look: dict[str, Any] = {"fontweight": "bold" if is_named else "normal", "color": "white" if is_dark else "black"}
    axes.text(column, row, text, ha="center", va="center", fontsize=_SIZE, **look)


def _frame(axes: Axes, row: int, first: int, last: int) -> None:
    place = (first - 0.45, row - 0.43)
    look: dict[str, Any] = {"fill": False, "edgecolor": _FRAME, "linewidth": 1.4, "zorder": 3}
    axes.add_patch(Rectangle(place, last - first + 0.9, 0.86, **look))


def _verdict(one: xarray.Dataset) -> str:
    """Return what bold numbers do not say of a run's verdict."""
    return "" if bool(one["named"].any()) else "none" if one.attrs["decided"] else "open"


def _verdicts(summaries: Mapping[str, xarray.Dataset], weights: str) -> Counter[Verdict]:
    """Return how many predictions for W, or for (K, Q), have which verdict."""
    return Counter(
        claim.judge(summaries).verdict
        for claim, prediction in zip(CLAIMS, PREDICTIONS, strict=True)
        if prediction.weights == weights
    )


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Return how many predictions the runs confirm and refute."""
    verdicts = sum((_verdicts(summaries, weights) for weights in _PARAMETERIZATIONS), Counter[Verdict]())
    held, failed = verdicts[Verdict.HOLDS], verdicts[Verdict.FAILS]
    left = verdicts.total() - held - failed
    return f"{held} of {verdicts.total()} predicted limits are confirmed, {failed} refuted, {left} not decided"


def _key(summaries: Mapping[str, xarray.Dataset]) -> str:
    steps = {run: int(one["snapshot"][-1]) for run, one in summaries.items()}
    usual = Counter(steps.values()).most_common(1)[0][0]
    longer = "; ".join(f"{_named(one)}: {steps[run]:,}" for run, one in summaries.items() if steps[run] != usual)
    text = (
        f"Mean margin ratio over the seeds after {usual:,} steps; 1: a solution of that norm's Att-SVM. Framed: "
        "predicted; a framed row: none of these norms. Bold: named by the verdict, its 95 % interval above "
        f"{CLOSE} and above every other norm's. none: all below and at rest; open: not decided."
    )
    # Letters of formulas take less room than what they are written with.
    parts = [textwrap.fill(text, 112), *([textwrap.fill(f"Other steps: {longer}.", 150)] if longer else [])]
    return "\n".join(parts)


def _named(one: xarray.Dataset) -> str:
    return f"{_LETTERS[one.attrs['weights']]}, {RULES[one.attrs['rule']]}, {STEPS[one.attrs['step']]}"
