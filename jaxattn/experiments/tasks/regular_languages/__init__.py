"""Even pairs and parity: two phases of training attention and a linear layer together (2505.00926)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias import CLOSE
from jaxattn.experiments.tasks.regular_languages.measure import estimate, measure
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, above, below, between
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2505.00926", "abstract; the setting as recalled", Setting.PROXY)
_OURS = Source("arXiv 2505.00926", "on the second phase of the abstract", Setting.OURS)
# Runs in which the attention takes steps ten times as long as the linear layer, and one with equal steps.
FAST = ("even pairs, 4 bits", "even pairs, 5 bits", "parity, 4 bits")
EQUAL = "even pairs, 5 bits, equal steps"
RUNS = (*FAST, EQUAL)
# Fixed beforehand. The share of seeds that counts as nearly all; the interval of 20 of 20 lies above it.
_ALL = 0.8
# The exponent of rapid growth; over the last decade of steps, the largest change of a probability of stable attention,
# and growth in its second half over that in its first, of what slows down and of a logarithm.
_RAPID, STABLE, _SLOWS, _LOGARITHM = 1.0, 0.05, 0.95, (0.9, 1.1)
# The largest 1 - cos from the limit, the smallest from another direction; the exponent of 1 / t, with a tolerance.
NEAR, FAR, _LOSS = 0.01, 0.03, -0.95
# The share of sequences whose parity is found.
_ANSWERED = 0.99
# The condition was added after all runs were trained, when the second phase was judged with equal steps too.
_IF_FAST = "only if the attention takes steps ten times as long as the linear layer; with equal steps"


def _each(
    ask: Callable[..., Criterion], quantity: str, runs: Datasets, name: str, *edges: float, names: Sequence[str] = RUNS
) -> list[Criterion]:
    """Ask the same of an estimate of each run."""
    return [ask(f"{quantity}, {run}", number(runs[run], name), *edges) for run in names]


def _span(runs: Datasets, name: str, names: Sequence[str] = RUNS, form: str = ".3g") -> str:
    return page.span([number(runs[run], name).mean for run in names], form)


@claim(
    "regular-languages:phases",
    _SOURCE,
    "In a first phase of the joint training, the attention layer grows rapidly and maps the sequences to separable "
    "vectors.",
    needs=TRAINED,
)
def _phases(runs: Datasets) -> Judgement:
    return Judgement(
        [
            *_each(above, "share of seeds whose outputs are not separable at the start", runs, "start", _ALL),
            *_each(above, "share in which all are classified within 1 % of the steps", runs, "soon", _ALL),
            *_each(above, "exponent of t in the norm of the attention before that", runs, "rise_W", _RAPID),
        ],
        remark=f"The linear layer grows meanwhile with the exponents {_span(runs, 'rise_v')}, and the phase ends after "
        f"{_span(runs, 'phase')} steps. Both answers, not separable and separable, are certified.",
    )


@claim(
    "regular-languages:stable",
    _SOURCE,
    "In a second phase, the attention layer becomes stable, while the linear layer grows logarithmically.",
    needs=TRAINED,
)
def _stable(runs: Datasets) -> Judgement:
    more_W, more_v = (_span(runs, name, FAST, ".0%") for name in ("more_W", "more_v"))
    return Judgement(
        _steady(runs, RUNS),
        _steady(runs, FAST),
        f"{_IF_FAST} a probability still changes by {number(runs[EQUAL], 'turned').mean:.2g} over the last decade of "
        "steps.",
        remark="Stable is what the attention computes. Its weights go on growing, ever more slowly: with longer steps, "
        f"over the last decade by {more_W}, those of the linear layer by {more_v}.",
    )


def _steady(runs: Datasets, names: Sequence[str]) -> list[Criterion]:
    change = "largest change of a probability over the last decade"
    grown = "growth of ||{}|| in the second half of the last decade over that in the first"
    return [
        *_each(below, change, runs, "turned", STABLE, names=names),
        *_each(below, grown.format("W"), runs, "steady_W", _SLOWS, names=names),
        *_each(between, grown.format("v"), runs, "steady_v", *_LOGARITHM, names=names),
    ]


@claim(
    "regular-languages:hyperplane",
    _SOURCE,
    "In the second phase, the linear layer approaches in direction a max-margin hyperplane that separates the outputs "
    "of the attention layer into positive and negative ones.",
    needs=TRAINED,
)
def _hyperplane(runs: Datasets) -> Judgement:
    return Judgement(
        _near(runs, RUNS),
        _near(runs, FAST),
        f"{_IF_FAST} 1 - cos ends at {number(runs[EQUAL], 'off_end').mean:.2g}, after as many steps.",
        remark="The hyperplane is the certified one of the outputs at the same step.",
    )


def _near(runs: Datasets, names: Sequence[str]) -> list[Criterion]:
    limits = _each(above, "limit of the margin ratio", runs, "limit", CLOSE, names=names)
    return [*limits, *_each(below, "1 - cos at the end", runs, "off_end", NEAR, names=names)]


@claim("regular-languages:loss", _SOURCE, "In the second phase, the loss falls at a rate of O(1/t).", needs=TRAINED)
def _loss(runs: Datasets) -> Judgement:
    stated = _each(below, "exponent of t in the loss over the last decade", runs, "exponent", _LOSS)
    return Judgement(stated, expected=dict.fromkeys((one.quantity for one in stated), -1.0))


@claim(
    "regular-languages:parity",
    _SOURCE,
    "Parity is solved by a chain of thought, either at inference, by a model trained on even pairs, or in training.",
    needs=TRAINED,
)
def _parity(runs: Datasets) -> Judgement:
    return Judgement(_each(above, "share of sequences whose parity is found", runs, "answered", _ANSWERED))


@claim(
    "regular-languages:final-outputs",
    _OURS,
    "Whether attention is trained faster or with equal steps, its outputs move on after the first phase, and the "
    "linear layer converges to the max-margin hyperplane of the final outputs, not of those that end the first phase.",
    needs=TRAINED,
)
def _final(runs: Datasets) -> Judgement:
    away = "1 - cos at the end from the hyperplane that ends the first phase"
    turned, off = (number(runs[EQUAL], name).mean for name in ("turned", "off_end"))
    return Judgement(
        [
            *_each(above, away, runs, "off_first_end", FAR),
            *_each(above, "limit of the margin ratio", runs, "limit", CLOSE),
        ],
        remark=f"With equal steps a probability still changes by {turned:.2g} over the last decade, and v ends at "
        f"1 - cos = {off:.2g} from the hyperplane.",
    )


CLAIMS = (_phases, _stable, _hyperplane, _loss, _parity, _final)

_LOOKS = {
    FAST[0]: (palette.TEAL, "-"),
    FAST[1]: (palette.WINE, "--"),
    FAST[2]: (palette.AMBER, "-."),
    EQUAL: (palette.INK, ":"),
}
# The runs whose norms are drawn.
_GROWING = (FAST[1], EQUAL)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw both norms (a), the loss (b), and v's distance from two hyperplanes (c), (d) along the steps."""
    said = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(4.6)
        figure.suptitle(
            f"After a rapid first phase ({said['phases']}) the linear layer turns to the max-margin hyperplane "
            f"({said['hyperplane']})"
        )
        norms, loss, now, first = figure.subplots(2, 2).ravel()
        for run in filter(summaries.__contains__, RUNS):
            summary, (colour, dash) = summaries[run], _LOOKS[run]
            if run in _GROWING:
                _curve(norms, summary, "size_v", color=colour, linestyle=dash, linewidth=0.8)
                _curve(norms, summary, "size_W", color=colour, linestyle=dash, linewidth=1.6)
                norms.axvline(float(summary["phase"]), color=colour, linestyle=dash, linewidth=0.6)
            _curve(loss, summary, "loss", color=colour, linestyle=dash, label=run)
            _curve(now, summary, "off", "later", color=colour, linestyle=dash)
            _curve(first, summary, "off_first", color=colour, linestyle=dash)
            first.axvline(float(summary["phase"]), color=colour, linestyle=dash, linewidth=0.6)
        norms.set(ylabel="norm")
        norms.set_title(f"(a) attention (thick) becomes stable,\nlinear layer (thin) logarithmic: {said['stable']}")
        loss.set(ylabel="loss", yscale="log", ylim=(1e-9, 2), title=f"(b) loss of O(1/t): {said['loss']}")
        loss.legend(loc="lower left", title="mean over seeds, 95 % interval")
        now.set_title(f"(c) from the hyperplane of the present outputs: {said['hyperplane']}")
        first.set_title(f"(d) from that of the outputs ending phase 1: {said['final-outputs']}")
        for axes, asked, words, side in ((now, NEAR, "below", "left"), (first, FAR, "above", "right")):
            axes.axhline(asked, color=palette.GUIDE, linewidth=0.7)
            place = {"xycoords": axes.get_yaxis_transform(), "ha": side, "va": "top"}
            at = (0.01 if side == "left" else 0.99, asked)
            axes.annotate(f"asked for: {words}", at, fontsize=page.SMALLEST, color=palette.GUIDE, **place)
            axes.set(yscale="log", ylabel="direction error, 1 - cos", ylim=(1e-3, 1))
        for axes in figure.axes:
            axes.set(xscale="log", xlabel="step", xlim=(1, None))
        page.add_counts(figure, summaries, "Vertical lines: the end of the first phase.")
    return figure


def _curve(axes: Axes, summary: xarray.Dataset, name: str, along: str = "snapshot", **look: Any) -> None:
    page.band(axes, *(summary[part].values for part in (along, name, f"{name}_low", f"{name}_high")), **look)


EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
