"""Does token selection that fits flipped labels generalize, and when (2409.17625)?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.generalization.benign.bands import BANDS, FEWEST, WEAKER, summarize
from jaxattn.experiments.generalization.benign.measure import measure
from jaxattn.study.claims import (
    LEAST_SEEDS,
    TRAINED,
    Datasets,
    Experiment,
    Judgement,
    Judgements,
    Setting,
    Source,
    claim,
    counts_of,
)
from jaxattn.study.claims.criteria import Criterion, above, below
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

_PAPER = "arXiv 2409.17625"
# Fixed beforehand: the shares that count as nearly all and as nearly none; the smallest change of test accuracy that
# counts; and the smallest increase of the attention on the signal tokens of new inputs that counts as learning to
# select them.
_ALL, _NONE, _CHANGE, _LEARNT = 0.95, 0.05, 0.05, 0.2
_ACCURACY, _FIT = "test accuracy at the end", "share of flipped labels fit at the end"


def _on_band(
    runs: Datasets,
    band: str,
    stated: Sequence[Criterion],
    corrected: Sequence[Criterion] = (),
    correction: str = "",
    remark: str = "",
    seeds: str = "kept",
    undecided: str = "",
) -> Judgement:
    """Return the judgement on the seeds of a band, or on those of them that fit all labels."""
    count, description = runs[band].attrs[seeds], BANDS[band].description
    few = f"With {description}: {count} seeds are too few to decide; at least {LEAST_SEEDS} are needed."
    return Judgement(
        stated,
        corrected,
        correction,
        remark=f"Judged over the {count} seeds with {description}. {remark}".strip(),
        counts=counts_of({name: runs[name] for name in runs if name not in BANDS}),
        undecided=few if count < LEAST_SEEDS else undecided,
    )


def _known(runs: Datasets) -> str:
    """Return why a low ratio does not show what is learnt of new inputs: nearly all of it may be known beforehand."""
    if (before := _before(runs, "low, weaker head")) < _ALL:
        return ""
    return (
        f"Test accuracy is {before:.3g} even before training, since the head reads the signal through uniform "
        "attention: it does not show whether training generalizes. This takes a head that reads less at W = 0."
    )


def _before(runs: Datasets, band: str) -> float:
    accuracy, change = (number(runs[band], name).mean for name in ("accuracy", "change"))
    return accuracy - change


@claim(
    "benign:low-snr",
    Source(_PAPER, "abstract, and theorem on benign overfitting, as recalled", Setting.PROXY),
    "With a low signal-to-noise ratio, n SNR^2 << 1, and a signal that is not too weak, token selection fits the "
    "flipped labels and still generalizes.",
    needs=TRAINED,
)
def _low(runs: Datasets) -> Judgement:
    heads = {"given head": runs["low"], "weaker head": runs["low, weaker head"]}
    finds = " and ".join(f"{float(one['finds'][-1]):.2g} ({head})" for head, one in heads.items())
    asked = {"fit": _FIT, "accuracy": _ACCURACY}
    return _on_band(
        runs,
        "low, weaker head",
        [
            above(f"{label}, {head}", number(one, name), _ALL)
            for head, one in heads.items()
            for name, label in asked.items()
        ],
        remark=f"So are {heads['given head'].attrs['kept']} seeds with the given head, which reads the signal through "
        f"uniform attention: before training its test accuracy is {_before(runs, 'low'):.3g}. That of the weaker head, "
        f"which also reads noise, is {_before(runs, 'low, weaker head'):.3g}. At the end the attention on the signal "
        f"tokens of new inputs is {finds}, initially 0.125.",
        undecided=_known(runs),
    )


@claim(
    "benign:high-snr",
    Source(_PAPER, "theorem without overfitting, as recalled", Setting.PROXY),
    "With a high signal-to-noise ratio, n SNR^2 >> 1, token selection does not overfit: it ignores the flipped "
    "labels and generalizes.",
    needs=TRAINED,
)
def _high(runs: Datasets) -> Judgement:
    fit, accuracy, stage = (number(runs["high"], name) for name in ("fit", "accuracy", "stage"))
    label = "share of seeds that at some time select the signal tokens and fit no flipped label"
    return _on_band(
        runs,
        "high",
        [below(_FIT, fit, _NONE), above(_ACCURACY, accuracy, _ALL)],
        [above(label, stage, _ALL), above(_ACCURACY, accuracy, _ALL)],
        f"only for some time. Later the flipped labels are fit too, {fit.mean:.1%} of them at the end; the flow is "
        "followed much farther than by the authors.",
    )


@claim(
    "benign:weak",
    Source("arXiv 2410.07746", "abstract, by analogy: there the head is also trained", Setting.PROXY),
    "A sufficiently large signal-to-noise ratio is necessary: with a weak signal all labels are fit, at the "
    "expense of new inputs (harmful overfitting).",
    needs=TRAINED,
)
def _weak(runs: Datasets) -> Judgement:
    fit, change, accuracy = (number(runs["weak"], name) for name in ("fit", "change", "accuracy"))
    return _on_band(
        runs,
        "weak",
        [above(_FIT, fit, _ALL), below("change of test accuracy from W = 0 to the end", change, -_CHANGE)],
        remark=f"Their final test accuracy is {accuracy.mean:.3g}.",
    )


@claim(
    "benign:late",
    Source(_PAPER, "abstract", Setting.PROXY),
    "Generalization is acquired late, after an initial phase of overfitting.",
    needs=TRAINED,
)
def _late(runs: Datasets) -> Judgement:
    band = "low, weaker head"
    rise, end = (number(runs[band], name) for name in ("rise", "accuracy"))
    return _on_band(
        runs,
        band,
        [above("increase of test accuracy after all labels are fit, weaker head", rise, _CHANGE)],
        remark=f"Test accuracy is {_before(runs, band):.3g} before training and {end.mean:.3g} at the end. With the "
        f"given head it is {_before(runs, 'low'):.3g} from the beginning.",
        seeds="fitting",
        undecided=_known(runs),
    )


@claim(
    "benign:late-selection",
    Source("jaxattn", "when the signal tokens of new inputs are selected", Setting.OURS),
    "With a low signal-to-noise ratio and a signal that is not too weak, the signal tokens of new inputs are selected "
    "late, after all labels are fit.",
    needs=TRAINED,
)
def _late_selection(runs: Datasets) -> Judgement:
    found = number(runs["low"], "found")
    label = "increase of the attention on the signal tokens of new inputs after all labels are fit"
    return _on_band(runs, "low", [above(label, found, _LEARNT)], seeds="fitting")


CLAIMS = (_low, _high, _weak, _late, _late_selection)

_COLOURS = (*palette.ramp(3), palette.WINE, palette.ROSE)
_MARKERS = ("o", "s", "^", "D", "v")
_COURSE = {
    "clean": (palette.INK, "-", "right labels fit"),
    "flipped": (palette.WINE, "--", "flipped labels fit"),
    "test": (palette.TEAL, "-.", "test accuracy"),
    "finds": (palette.AMBER, ":", "signal attended (new)"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw test accuracies against the strength of the signal, and the courses of its three bands."""
    runs = {name: run for name, run in summaries.items() if name not in BANDS}
    given = {name: run for name, run in runs.items() if not name.endswith(WEAKER)}
    with page.style():
        figure = page.full(5.2)
        (ends, high), (low, weak) = figure.subplots(2, 2)
        for (name, run), colour, marker in zip(given.items(), _COLOURS, _MARKERS, strict=False):
            seen = run["by_strength_seeds"].values >= FEWEST
            x, y, error = (run[part].values[seen] for part in ("bin", "by_strength", "by_strength_error"))
            look = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 1}
            ends.errorbar(x, y, 1.96 * error, label=_written(name), **look)
        ends.set(xscale="log", ylabel="test accuracy at the end", ylim=(0.45, 1.03))
        ends.set(title="(a) given head, by the strength of the signal", xlabel=r"$\mu\,(n/d)^{1/4}$")
        ends.legend(loc="lower right", title="mean, 95 % interval")
        _course(high, summaries["high"], "(b) given head, high ratio")
        _course(low, summaries["low, weaker head"], "(c) weaker head, low ratio, strong signal")
        _course(weak, summaries["weak"], "(d) given head, weak signal")
        low.legend(loc="lower right", labelspacing=0.25, borderaxespad=0.2)
        figure.suptitle(
            f"Overfitting of flipped labels is benign at a low ratio: {judgements['benign:low-snr'].verdict}; harmful "
            f"with a weak signal: {judgements['benign:weak'].verdict}"
        )
        page.add_counts(
            figure,
            runs,
            f"(a): bins of at least {FEWEST} seeds. (b): {_description('high')}; (c): {_description('low')}; "
            f"(d): {_description('weak')}. Means over the seeds of all runs, against the mean of log time; signal "
            "attended: mean attention on the signal tokens of new inputs. The weaker head also reads noise.",
        )
    return figure


def _course(axes: Axes, summary: xarray.Dataset, title: str) -> None:
    for name, (colour, dashes, label) in _COURSE.items():
        axes.plot(summary["time"].values, summary[name].values, color=colour, linestyle=dashes, label=label)
    axes.set(title=title, xlabel="time of the flow", ylabel="share", ylim=(-0.03, 1.03))
    ticks = np.arange(-5, 61, 5)
    inside = ticks[(ticks >= summary["time"].values.min()) & (ticks <= summary["time"].values.max())]
    axes.set_xticks(inside[:: max(1, len(inside) // 6)])
    axes.xaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")


def _written(run: str) -> str:
    n, d = run.removeprefix("n = ").split(", d = ")
    return f"$n = {n}$, $d = {d.replace(',', '{,}')}$"


def _description(band: str) -> str:
    written = {"mu^2": "$\\mu^2$", "mu ": "$\\mu$ ", "^(1/4)": "$^{1/4}$", "<=": "$\\leq$", ">=": "$\\geq$"}
    formula = BANDS[band].description
    for plain, tex in written.items():
        formula = formula.replace(plain, tex)
    return formula


EXPERIMENT = Experiment(measure, CLAIMS, summarize=summarize, draw=draw)
