"""The induced norms: mean margin ratios of steepest descent on (K, Q), a row for each norm of the factors and width."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias.induced.predictions import PREDICTIONS, SAID
from jaxattn.experiments.bias.ratios import run_of
from jaxattn.study.style import cells, page


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a table: a row for each run, a column for each norm.

    Args:
        summaries: of `claims.summarize`.
    """
    pairs = [(one, run_of(summaries, **one.row)) for one in PREDICTIONS]
    found = [(one, run) for one, run in pairs if run is not None]
    names = [str(norm) for norm in next(iter(summaries.values()))["norm"].values]
    with page.style():
        figure = page.full(1.6 + 0.21 * len(found))
        axes = figure.subplots()
        cells.table(axes, [cells.Row(run, one.norm) for one, run in found], names)
        labels = [f"{SAID[one.row['rule']]} of $K$ and of $Q$, $m = {one.row['m']}$" for one, _ in found]
        axes.set_yticks(range(len(found)), labels, fontsize=cells.SIZE)
        axes.set_title(_finding(summaries))
        page.add_counts(figure, summaries, _key(summaries))
    return figure


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Return in how many runs the induced norm has the largest ratio, and in how many the verdict names it."""
    pairs = [(one, run_of(summaries, **one.row)) for one in PREDICTIONS]
    made = [(one.norm, run) for one, run in pairs if run is not None]
    closest = sum(str(run["norm"].values[int(run["ratio"].values.argmax())]) == norm for norm, run in made)
    named = sum(bool(run["named"].sel(norm=norm)) for norm, run in made)
    every = len(made)
    if closest == named == every:
        return f"In all {every} runs the induced norm is closest and named by the verdict"
    by_verdict = f"the verdict names it in {named}" if named else "no verdict names it"
    return f"The induced norm is closest in {_share(closest, every)} runs; {by_verdict}"


def _share(count: int, every: int) -> str:
    return f"all {every}" if count == every else f"{count or 'none'} of {every}"


def _key(summaries: Mapping[str, xarray.Dataset]) -> str:
    steps = sorted({int(one["snapshot"][-1]) for one in summaries.values()})
    return (
        f"Mean margin ratio over the seeds after {' or '.join(f'{one:,}' for one in steps)} steps that fall like "
        "$k^{-1/2}$; 1: a solution of that norm's Att-SVM. Framed: the norm induced on $KQ^\\top$. Bold: named by "
        f"the verdict, its 95% interval above {CLOSE} and every other norm's. none: all below and at rest; open: not "
        "decided."
    )
