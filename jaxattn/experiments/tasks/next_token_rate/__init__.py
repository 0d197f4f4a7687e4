"""Next-token prediction in two stages: how fast do both layers reach their max-margin solutions (2409.17335)?"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.tasks.next_token_rate.measure import LAYERS, NEAR, PERCENTS, estimate, measure
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, above, below, between
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2409.17335", "abstract; the setting as recalled", Setting.PROXY)
_OURS = Source("arXiv 2409.17335", "on the rate of the abstract", Setting.OURS)
_RUNS = ("orthonormal words", "words with cosine 0.3")
_RATE = "exponent of t in the distance of the directions"
_NAMES = {"ov": "feed-forward layer", "kq": "attention layer"}
# Fixed beforehand: the share of seeds that counts as nearly all; the slowest power of t of a rate; the powers that
# count as 1 / t; the smallest ratio of falls per step of linear convergence, which is 1/2 for a power of t; the share
# of the unseen sentences; and the smallest number of these that decides.
_ALL, _SLOWEST, _INVERSE, _LINEAR, _RIGHT, _LEAST = 0.95, -0.5, (-1.2, -0.8), 0.9, 0.99, 100


def _each(ask: Callable[..., Criterion], quantity: str, runs: Datasets, name: str, *edges: float) -> list[Criterion]:
    """Ask the same of an estimate of each layer in each run."""
    return [
        ask(f"{quantity}, {_NAMES[layer]}, {run}", number(runs[run], f"{name}_{layer}"), *edges)
        for run, layer in itertools.product(_RUNS, LAYERS)
    ]


@claim(
    "next-token-rate:directions",
    _SOURCE,
    "Both layers converge sub-linearly in direction to their max-margin solutions.",
    needs=TRAINED,
)
def _directions(runs: Datasets) -> Judgement:
    return Judgement(
        [
            *_each(above, f"share of seeds that end with 1 - cos <= {NEAR}", runs, "arrived", _ALL),
            *_each(below, _RATE, runs, "rate", _SLOWEST),
        ],
        remark="The distance is that of the unit matrices. Sub-linear is read as a power of t, of at least 1/2; the "
        "bound of the paper is not in its abstract. A distance that falls faster agrees with a bound.",
    )


@claim("next-token-rate:loss", _SOURCE, "The cross-entropy loss converges linearly.", needs=TRAINED)
def _loss(runs: Datasets) -> Judgement:
    return Judgement(
        _each(above, "fall of the log loss per step, last half over the quarter before", runs, "linear", _LINEAR),
        remark="In the stage of the attention layer the loss is taken less its infimum, set by the other layer.",
    )


@claim(
    "next-token-rate:unseen",
    _SOURCE,
    "The trained transformer predicts non-trivially under dataset shift, on sentences that it was not trained on.",
    needs=TRAINED,
)
def _unseen(runs: Datasets) -> Judgement:
    right = "share of unseen sentences with the right next word"
    return Judgement(
        [
            *(above(f"{right}, {run}", number(runs[run], "right"), _RIGHT) for run in _RUNS),
            *(above(f"unseen sentences, {run}", number(runs[run], "unseen"), _LEAST) for run in _RUNS),
        ],
        remark="Tried are all sentences whose best word follows from trained ones, directly or by transitivity. A "
        "word's score does not depend on the other words, so right answers on trained sentences carry over.",
    )


@claim(
    "next-token-rate:inverse",
    _OURS,
    "With constant normalized steps, the distance of both directions from their limits falls like 1/t, since the norms "
    "grow like t and the remainders stay bounded.",
    needs=TRAINED,
)
def _inverse(runs: Datasets) -> Judgement:
    return Judgement(_each(between, _RATE, runs, "rate", *_INVERSE))


_LOOKS = {_RUNS[0]: (palette.TEAL, "-"), _RUNS[1]: (palette.WINE, "--")}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction errors of both layers (a), (b), and the logarithms of both losses (c), (d) along the steps."""
    said = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(4.6)
        figure.suptitle(
            f"Both layers turn to their max-margin solutions like a power of t: {said['directions']}; "
            f"both losses fall linearly: {said['loss']}"
        )
        panels = figure.subplots(2, 2)
        for column, layer in enumerate(LAYERS):
            off, log = panels[:, column]
            for run in filter(summaries.__contains__, _RUNS):
                summary, (colour, dash) = summaries[run], _LOOKS[run]
                label = f"{run}: $t^{{{2 * float(summary[f'rate_{layer}']):.2f}}}$"
                for axes, name, look in ((off, "off", {"label": label}), (log, "log", {})):
                    parts = (summary[f"{name}_{layer}_{q}"].values for q in PERCENTS)
                    page.band(axes, summary["snapshot"].values, *parts, color=colour, linestyle=dash, **look)
            _finish(off, log, layer, "ab"[column], "cd"[column])
        page.add_counts(figure, summaries)
    return figure


def _finish(off: Axes, log: Axes, layer: str, upper: str, lower: str) -> None:
    off.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
    place = {"xycoords": off.get_yaxis_transform(), "ha": "left", "va": "top"}
    off.annotate("asked for: below", (0.01, NEAR), fontsize=page.SMALLEST, color=palette.GUIDE, **place)
    off.set(xscale="log", yscale="log", xlabel="step t", ylabel="direction error, 1 - cos", ylim=(1e-7, 2))
    off.set_title(f"({upper}) {_NAMES[layer]}")
    off.legend(loc="lower left", title="median, 10th to 90th percentile")
    log.set(xlabel="step t", ylabel="log loss" if layer == "ov" else "log of the loss above its infimum")
    log.set_title(f"({lower}) {_NAMES[layer]}")


CLAIMS = (_directions, _loss, _unseen, _inverse)
EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
