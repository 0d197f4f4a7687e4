"""The variants: mean margin ratios of every run against the norms, in its own max-margin problem and in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.variants.predictions import PREDICTIONS
from jaxattn.experiments.bias.variants.runs import OWN
from jaxattn.study.style import cells, page


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a table: a row for each run and problem, a column for each norm.

    Args:
        summaries: of `claims.summarize`.
    """
    ordered = _ordered(summaries)
    names = [str(norm) for norm in ordered[0]["norm"].values]
    with page.style():
        figure = page.full(1.4 + 0.21 * len(ordered))
        axes = figure.subplots()
        cells.table(axes, [cells.Row(one, _predicted(one)) for one in ordered], names)
        labels = [_label(one, _usual(ordered)) for one in ordered]
        axes.set_yticks(range(len(ordered)), labels, fontsize=cells.SIZE)
        axes.set_title(_finding(summaries))
        own = [one for one in summaries.values() if one.attrs["about"] == OWN]
        page.add_counts(figure, {one.attrs["run"]: one for one in own}, _key(ordered))
    return figure


def _ordered(summaries: Mapping[str, xarray.Dataset]) -> list[xarray.Dataset]:
    """Return each run in its own problem, with that in another one behind it."""
    runs = [one.attrs["run"] for one in summaries.values() if one.attrs["about"] == OWN]
    return sorted(summaries.values(), key=lambda one: (runs.index(one.attrs["run"]), one.attrs["about"] != OWN))


def _label(one: xarray.Dataset, usual: int) -> str:
    steps = int(one["snapshot"][-1])
    weights, _, rest = one.attrs["run"].partition(", ")
    written = f"${'W' if weights == 'W' else '(K, Q)'}$, {rest}"
    written += "" if steps == usual else f", {steps:,} steps"
    return written if one.attrs["about"] == OWN else f"against {one.attrs['about']}"


def _predicted(one: xarray.Dataset) -> str | None:
    """Return the norm that is predicted of a run, if one is."""
    found = [
        prediction.norm
        for predictions in PREDICTIONS.values()
        for prediction in predictions
        if all(one.attrs[name] == value for name, value in prediction.row.items())
    ]
    return found[0] if found else None


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Return how many predictions about these runs they confirm and refute."""
    verdicts = Counter(
        judging.judge(prediction, summaries).verdict
        for predictions in PREDICTIONS.values()
        for prediction in predictions
        if any(all(one.attrs[name] == value for name, value in prediction.row.items()) for one in summaries.values())
    )
    return judging.told(verdicts)


def _usual(summaries: Iterable[xarray.Dataset]) -> int:
    """Return after how many steps most runs are looked at."""
    return Counter(int(one["snapshot"][-1]) for one in summaries).most_common(1)[0][0]


def _key(ordered: list[xarray.Dataset]) -> str:
    return (
        f"Mean margin ratio over the seeds after {_usual(ordered):,} steps, or as said; 1: a solution of that "
        "norm's Att-SVM. Framed: predicted. Bold: named by the verdict, its 95 % interval above "
        f"{CLOSE} and every other norm's. none: all below and at rest; open: not decided."
    )
