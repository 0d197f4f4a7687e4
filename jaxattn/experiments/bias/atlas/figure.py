"""The atlas: mean margin ratios of every rule, parameterization and schedule against the norms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.atlas.claims import CLAIMS
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.rules import RULES, STEPS
from jaxattn.study.claims import Verdict
from jaxattn.study.style import cells, page

_PARAMETERIZATIONS = {"W": "$W$, from zero", "KQ": "$(K, Q)$, as published"}
_LETTERS = {"W": "$W$", "KQ": "$(K, Q)$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel for each parameterization: a row for each rule and schedule, a column for each norm.

    Args:
        summaries: of `claims.summarize`.
    """
    made = {(one.attrs["rule"], one.attrs["step"]) for one in summaries.values()}
    rows = [(rule, step) for rule in RULES for step in STEPS if (rule, step) in made]
    with page.style():
        figure = page.full(1.5 + 0.19 * len(rows))
        panels = dict(zip(_PARAMETERIZATIONS, figure.subplots(1, 2, sharey=True), strict=True))
        for letter, (weights, axes) in zip("ab", panels.items(), strict=True):
            _panel(axes, weights, rows, summaries)
            verdicts = _verdicts(summaries, weights)
            held, every = verdicts[Verdict.HOLDS], verdicts.total()
            said = f"all {every} confirmed" if held == every else f"{held or 'none'} of {every} confirmed"
            axes.set_title(f"({letter}) {_PARAMETERIZATIONS[weights]}: {said}")
        panels["W"].set_yticks(range(len(rows)), [f"{RULES[rule]}, {STEPS[step]}" for rule, step in rows])
        panels["W"].tick_params(axis="y", labelsize=cells.SIZE)
        figure.suptitle(_finding(summaries))
        page.add_counts(figure, summaries, _key(summaries))
    return figure


def _panel(axes: Axes, weights: str, rows: list[tuple[str, str]], summaries: Mapping[str, xarray.Dataset]) -> None:
    own = {(one.attrs["rule"], one.attrs["step"]): one for one in summaries.values() if one.attrs["weights"] == weights}
    predicted = {(one.rule, one.step): one.norm for one in PREDICTIONS if one.weights == weights}
    names = [str(norm) for norm in next(iter(summaries.values()))["norm"].values]
    cells.table(axes, [cells.Row(own.get(row), predicted.get(row)) for row in rows], names)


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
    return judging.told(verdicts)


def _key(summaries: Mapping[str, xarray.Dataset]) -> str:
    steps = {run: int(one["snapshot"][-1]) for run, one in summaries.items()}
    usual = Counter(steps.values()).most_common(1)[0][0]
    longer: dict[int, list[str]] = {}
    for run, one in summaries.items():
        if steps[run] != usual:
            longer.setdefault(steps[run], []).append(_named(one))
    text = (
        f"Mean margin ratio over the seeds after {usual:,} steps; 1: a solution of that norm's Att-SVM. Framed: "
        "predicted; a framed row: none of these norms. Bold: named by the verdict, its 95 % interval above "
        f"{CLOSE} and above every other norm's. none: all below and at rest; open: not decided."
    )
    return text + "".join(f" After {number:,} steps: {'; '.join(names)}." for number, names in longer.items())


def _named(one: xarray.Dataset) -> str:
    return f"{_LETTERS[one.attrs['weights']]} with {RULES[one.attrs['rule']]}, {STEPS[one.attrs['step']]}"
