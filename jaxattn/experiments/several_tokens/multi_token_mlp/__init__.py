"""Under a ReLU head, what describes W where descent selects several tokens: W_SVMeq, W_mm or W_1token?"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.several_tokens import limit
from jaxattn.experiments.several_tokens.limit import FITTED, IDENTITY, LOOKS, PARTS, RANKED, ROUNDING, number_or_nan
from jaxattn.experiments.several_tokens.multi_token_mlp.measure import measure, summarize
from jaxattn.statistics import LEAST_SEEDS
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import Agreement, Criterion, Number, Outcome, above
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

_PAPER, _FIGURE = "arXiv 2308.16898", "multi-token figure (ReLU head; multi_token_converge.ipynb, image of cell 4)"
_ORDER = (
    "W is best aligned with W_SVMeq = W_fin + C W_mm, then with W_mm, and least with W_1token, the SVM solution of "
    "the single most likely tokens."
)
# Read from the image of cell 4 of the authors' notebook: final 1 - cos, by dimension, from the best description to the
# worst.
PUBLISHED = {
    "W_SVMeq": {4: 0.034, 6: 0.0166, 8: 0.0112, 10: 0.0056},
    "W_mm": {4: 0.0705, 6: 0.0426, 8: 0.0150, 10: 0.0087},
    "W_1token": {4: 0.155, 6: 0.143, 8: 0.135, 10: 0.12},
}
_DIMENSIONS = (4, 6, 8, 10)
_SELECTED = tuple(f"d = {d}" for d in _DIMENSIONS)
_EVERY = tuple(f"d = {d}{PARTS['every']}" for d in _DIMENSIONS)
# As many runs under another key, only for the predicted finite part, which few runs have.
_AGAIN = ", again"
_PARTS = {
    part: tuple(f"d = {d}{key}{suffix}" for d in _DIMENSIONS for key in ("", _AGAIN))
    for part, suffix in (("with the selection", PARTS["published"]), ("without it", PARTS["every"]))
}
# The runs whose W_fin is predicted, and those that select several tokens.
_COUNTED = ("determined", "several")
# All published means are compared at once (Bonferroni): the probability that chance makes at least one differ.
_CHANCE = 0.05
# Two correlations count as equal if, by the interval, they differ by at most this.
_EQUAL = 0.05


@claim(
    "multi-token-mlp:selected",
    Source(_PAPER, _FIGURE, Setting.EXACT),
    f"Where descent selects several tokens, {_ORDER}",
    needs=TRAINED,
)
def _selected(runs: Datasets) -> Judgement:
    selected = {name: runs[name] for name in _SELECTED}
    return Judgement(
        _ordered(selected),
        remark=f"The numbers are 1 - cos at the end. {IDENTITY} See multi-token-mlp:predicted.",
        numbers=_ends(selected),
    )


@claim(
    "multi-token-mlp:numbers",
    Source(_PAPER, _FIGURE, Setting.EXACT),
    "1 - correlation with W_SVMeq, W_mm and W_1token ends at the means in the figure, from .034, .0705 and .155 "
    "at d = 4 to .0056, .0087 and .12 at d = 10.",
    needs=TRAINED,
)
def _numbers(runs: Datasets) -> Judgement:
    selected = {name: runs[name] for name in _SELECTED}
    apart, alike = _differences(selected), not_distinguishable(selected)
    halves = (f"{(value.high - value.low) / 2:.3f} ({label})" for label, value in apart.items())
    expected = _published_means(selected)
    return Judgement(
        [
            Agreement(f"{label}, minus the published {expected[label]:.4g},", value, -_EQUAL, _EQUAL)
            for label, value in apart.items()
        ],
        remark="The numbers are 1 - cos at the end. The published means are assumed to be over as many runs as ours. "
        f"A mean differs from the published one if the difference exceeds {_bound(len(expected)):.2f} of its "
        f"standard errors, since {len(expected)} are compared at once (Bonferroni): if it exceeds "
        + f"{', '.join(halves)}. "
        + (
            f"Not distinguishable from a published mean three times as large: {', '.join(alike)}."
            if alike
            else "Every one would have been told apart from a published mean three times as large."
        ),
        numbers=_ends(selected),
        expected=expected,
    )


@claim(
    "multi-token-mlp:every",
    Source(_PAPER, f"{_FIGURE}, without its selection of instances", Setting.OURS),
    f"Also without a selection of instances, {_ORDER}",
    needs=TRAINED,
)
def _every(runs: Datasets) -> Judgement:
    every = {name: runs[name] for name in _EVERY}
    numbers, order = _ends(every), _ordered(every)
    turned = [
        f"d = {d}: {numbers[f'{name}, W_1token'].mean:.3g} against {numbers[f'{name}, W_mm'].mean:.3g}"
        for d, name, criterion in zip(_DIMENSIONS, every, order, strict=True)
        if criterion.outcome is Outcome.BROKEN
    ]
    listed = f" ({'; '.join(turned)})" if turned else ""
    return Judgement(
        order,
        remark=f"W_1token is nearer than W_mm in {len(turned)} of {len(every)} dimensions{listed}. {IDENTITY} "
        f"{_growth(every)}",
        numbers=numbers,
    )


@claim(
    "multi-token-mlp:predicted",
    Source(_PAPER, f"{_FIGURE}, with a predicted W_fin", Setting.OURS),
    "With the W_fin that the best distributions on the selected sets predict, W_SVMeq is nearer to W than W_mm and "
    "than W_1token, with the published selection of instances and without it.",
    needs=TRAINED,
)
def _foretold(runs: Datasets) -> Judgement:
    parts = {part: {name: runs[name] for name in names} for part, names in _PARTS.items()}
    counts = {part: [sum(run.attrs[name] for run in of.values()) for name in _COUNTED] for part, of in parts.items()}
    few = [part for part, (determined, _) in counts.items() if determined < LEAST_SEEDS]
    return Judgement(
        [
            # The estimate is over the runs of all dimensions.
            above(f"{solution} minus W_SVMeq, {part}", number_or_nan(of[names[0]], "ahead", other=k), ROUNDING)
            for (part, of), names in zip(parts.items(), _PARTS.values(), strict=True)
            for k, solution in enumerate(RANKED[1:])
        ],
        remark="The problem determines W_fin if every selected set is mixed by a single best distribution: in "
        + " and ".join(f"{determined} of {several} runs ({part})" for part, (determined, several) in counts.items())
        + " that select several tokens."
        + "".join(
            f" Too few are those {part}: at least {LEAST_SEEDS} are needed, so about "
            f"{LEAST_SEEDS / max(counts[part][0], 1):.1f} times as many runs would have to be trained."
            for part in few
        ),
    )


_LIMIT = limit.claims(
    "multi-token-mlp",
    "of ReLUs",
    # The published rule stalls by rounding.
    *("d = 4, exact", "d = 8, exact"),
    ratios=" For the ratios inside the sets, few of which settle, see finite-part:ReLU.",
)


def _ordered(runs: Datasets) -> list[Criterion]:
    """Ask in every dimension that W_1token is farther from W than W_mm."""
    return [above(f"{name}: W_1token minus W_mm", number(run, "order"), ROUNDING) for name, run in runs.items()]


def _growth(every: Datasets) -> str:
    """Describe these runs, and how far W has grown in them."""
    shares = [run.attrs["finite"] / run.attrs["attempted"] for run in every.values()]
    excluded, kept = (
        [np.median(run["size"].values[run["published"].values == selected]) for run in every.values()]
        for selected in (False, True)
    )
    return (
        "These are the first 500 runs, whatever their labels and probabilities. The selected tokens are those before "
        "the first gap of a factor of 1e-3, which agrees with the published definition where that applies. "
        f"{min(shares):.0%} to {max(shares):.0%} of the runs mask no token; nothing is predicted for them. "
        f"The median final norm of W is {min(excluded):.0f} to {max(excluded):.0f} in the runs that the published "
        f"selection excludes, and {min(kept):.0f} to {max(kept):.0f} in those that it keeps: where W is small, "
        "the finite part is a larger part of it."
    )


def _ends(runs: Datasets) -> dict[str, Number]:
    """Return the final numbers by run and description."""
    return {
        f"{name}, {solution}": number(run, "off", at=-1, solution=solution)
        for name, run in runs.items()
        for solution in PUBLISHED
    }


def _differences(selected: Datasets) -> dict[str, Number]:
    """Return by how much final means of 1 - cos exceed the published ones, with simultaneous 95 % intervals.

    By run and description, such as "d = 4, W_mm"; published means are given the same standard errors as ours.
    """
    published = _published_means(selected)
    bound, numbers = math.sqrt(2) * _bound(len(published)), {}
    for label, mean in published.items():
        name, _, solution = label.rpartition(", ")
        end = selected[name].sel(solution=solution).isel(snapshot=-1)
        difference, half = float(end["off"]) - mean, bound * float(end["off_error"])
        numbers[label] = Number(difference, difference - half, difference + half)
    return numbers


def not_distinguishable(selected: Datasets) -> list[str]:
    """Return the run and description of means that would agree as well if the published one were three times as large.

    This leaves less of the difference by twice the published mean.
    """
    published = _published_means(selected)
    return [label for label, value in _differences(selected).items() if value.low <= 2 * published[label] <= value.high]


def _published_means(selected: Datasets) -> dict[str, float]:
    return {
        f"{name}, {solution}": by_d[run.attrs["data.d"]]
        for name, run in selected.items()
        for solution, by_d in PUBLISHED.items()
    }


def _bound(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - _CHANCE / (2 * comparisons))


# Diamonds stand beside the marks that they are compared with.
_BESIDE = 0.35


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row with the published selection and one without: over the steps for one dimension, at the end for all.

    The runs along the exact direction, and those under another key, are judged, and not drawn.
    """
    drawn = {name: run for name, run in summaries.items() if _AGAIN not in name}
    selected = {name: run for name, run in drawn.items() if f"{name}{PARTS['every']}" in drawn}
    every = {name: summaries[f"{name}{PARTS['every']}"] for name in selected}
    verdicts = {name: judgements[f"multi-token-mlp:{name}"].verdict for name in ("selected", "every", "numbers")}
    with page.style():
        figure = page.full(5.4)
        panels = figure.subplots(2, 2, sharey=True, sharex="col")
        for row, runs in zip(panels, (selected, every), strict=True):
            first = next(iter(runs.values()))
            _along_steps(row[0], first)
            _at_the_end(row[1], list(runs.values()))
            row[0].set_ylabel("direction error, 1 - cos")
        _published(panels[0, 1], list(selected.values()))
        d = next(iter(selected.values())).attrs["data.d"]
        panels[0, 0].set_title(f"(a) published selection, $d = {d}$")
        alike = len(not_distinguishable(selected))
        panels[0, 1].set_title(
            f"published means: {verdicts['numbers']}; {alike} of {len(_published_means(selected))} not distinguishable"
        )
        panels[1, 0].set_title(f"(b) no selection, $d = {d}$")
        panels[1, 1].set_title("no selection, at the end")
        panels[1, 0].set_xlabel("step")
        panels[1, 1].set_xlabel("dimension $d$, at the end")
        handles = [*panels[0, 1].get_legend_handles_labels()[0], Patch(color=palette.EXCLUDED, alpha=0.4)]
        labels = [*panels[0, 1].get_legend_handles_labels()[1], "95 % interval"]
        panels[1, 0].legend(handles, labels, loc="lower center", ncols=2, columnspacing=1.0)
        figure.suptitle(
            f"ReLU head: the single tokens describe $W$ worst: with the published selection {verdicts['selected']}, "
            f"without it {verdicts['every']}"
        )
        page.note(
            figure,
            f"Runs: (a) {_kept(selected)} are kept by the published selection; (b) {_kept(every)}, as the others mask "
            "no token. Not distinguishable: our mean would agree as well with a published one three times as large, by "
            f"simultaneous 95 % intervals, if published means have standard errors like ours. {FITTED}",
        )
    return figure


def _kept(runs: Datasets) -> str:
    """Say how many runs are kept for the first and the last dimension."""
    first, *_, last = (run.attrs for run in runs.values())
    return " to ".join(f"{run['kept']:,} of {run['attempted']:,} ($d = {run['data.d']}$)" for run in (first, last))


def _along_steps(axes: Axes, summary: xarray.Dataset) -> None:
    axes.set(yscale="log")
    for solution, (_, colour, dashes, _) in LOOKS.items():
        of_solution = summary.sel(solution=solution)
        curve = (of_solution[name].values for name in ("off", "off_low", "off_high"))
        page.band(axes, summary["snapshot"].values, *curve, color=colour, linestyle=dashes)


def _at_the_end(axes: Axes, runs: list[xarray.Dataset]) -> None:
    d = [run.attrs["data.d"] for run in runs]
    for solution, (label, colour, dashes, marker) in LOOKS.items():
        ends = [run.sel(solution=solution).isel(snapshot=-1) for run in runs]
        means = (np.array([float(end[name]) for end in ends]) for name in ("off", "off_low", "off_high"))
        page.bars(axes, d, *means, color=colour, linestyle=dashes, marker=marker, label=label)
    axes.set_xticks(d)


def _published(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Mark the published means, each joined to ours."""
    for run in runs:
        d = run.attrs["data.d"]
        for solution, by_d in PUBLISHED.items():
            ours = float(run["off"].sel(solution=solution)[-1])
            axes.plot([d, d + _BESIDE], [ours, by_d[d]], color=LOOKS[solution][1], linewidth=0.8)
            palette.published(axes, d + _BESIDE, by_d[d], "2308.16898, notebook")


EXPERIMENT = Experiment(
    measure, claims=(_selected, _numbers, _every, _foretold, *_LIMIT), summarize=summarize, draw=draw
)
