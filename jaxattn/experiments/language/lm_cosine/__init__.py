"""Does descent on texts converge to their max-margin solutions, over m, n and d (second paper, figure 1)?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.every_run import all_above, all_below, labelled
from jaxattn.experiments.language.lm_cosine.measure import measure
from jaxattn.experiments.language.subsets import over
from jaxattn.statistics import LEAST_SEEDS, derive_key
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim, family
from jaxattn.study.claims.claim import MissingRunError
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, share
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

# The published figure has this many runs; they are the first of ours.
_PUBLISHED_RUNS = 5
# Fixed beforehand. A correlation within this distance of 1 has converged (the direction still moves at step 10000); one
# whose distance from 1 has fallen to at most this fraction over the last decade of steps is still converging.
_THERE, _FALLING = 0.001, 0.9
# A smaller rise of a correlation, or a ratio nearer to 1, counts as no change.
_CHANGE = 0.001
# Also fixed beforehand: a problem is often unsolvable if it is in at least one of ten texts; the soft margin works well
# if the mean cosine is at least .9, an angle of 26 degrees; and the share of pairs of subsequences that must have
# fundamentally different hyperplanes.
_OFTEN, _WELL, _PAIRS = 0.1, 0.9, 0.95
# Smaller distances count as rounding.
_ROUNDING = 1e-15


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the correlations along the steps for one size.

    Returns:
        For texts with (`_0`) and without (`_1`) a hard solution: their share, `feasible_0` and so on; over the
        snapshots geometric means of 1 - cos with the soft solution, `soft_0`, and with `W_fin + C W_sets`, `mixed_1`;
        `rise_0`, the rise of the correlation from the first snapshot to the last; `falls_0`, `soft_0` at the last over
        the same at a tenth of the steps; `falls`, the same of `mixed_1`; and `closer`, `mixed_1` over `soft_1` at the
        last. Ratios are paired by text. The mean correlation with the soft solution over all texts is `soft`, over the
        first five `five`; the mean shares of pairs of subsequences with different hyperplanes are `different` and
        `different_own`. The attributes `with_hard`, `without_hard`, `with_mixed`, `without_mixed` and `five` are
        numbers of texts.
    """
    kinds = {"0": run["feasible"], "1": ~run["feasible"]}
    has_mixed, five = run["has_mixed"], run["seed"] < _PUBLISHED_RUNS
    soft, mixed = (run[solution].clip(min=_ROUNDING) for solution in ("soft", "mixed"))
    courses = estimated(
        run,
        key,
        soft=mean(1 - run["soft"]),
        **{f"feasible_{kind}": share(texts) for kind, texts in kinds.items()},
        five=over(five, mean, 1 - run["soft"]),
        soft_0=over(kinds["0"], geometric_mean, soft),
        soft_1=over(kinds["1"], geometric_mean, soft),
        mixed_1=over(has_mixed, geometric_mean, mixed),
        apart=exact(run["apart"].max()),
        different=mean(run["different"]),
        different_own=mean(run["different_own"]),
    )
    steps = run["snapshot"].values
    earlier = int(np.argmin(np.abs(np.log(steps * 10 / steps[-1]))))
    first, tenth, last = (soft.isel(snapshot=at, drop=True) for at in (0, earlier, -1))
    mixed_tenth, mixed_last = (mixed.isel(snapshot=at, drop=True) for at in (earlier, -1))
    changes = {}
    for kind, texts in kinds.items():
        changes[f"rise_{kind}"] = over(texts, mean, first - last)
        changes[f"falls_{kind}"] = over(texts, geometric_mean, last / tenth)
    changes["closer"] = over(has_mixed, geometric_mean, mixed_last / last)
    changes["falls"] = over(has_mixed, geometric_mean, mixed_last / mixed_tenth)
    texts = {"with_hard": kinds["0"], "without_hard": kinds["1"], "with_mixed": has_mixed}
    texts |= {"without_mixed": kinds["1"] & ~has_mixed, "five": five}
    counts = {name: int(chosen.sum()) for name, chosen in texts.items()}
    return courses.assign(estimated(run, derive_key(key), **changes).data_vars).assign_attrs(counts)


# Remarks on texts with and without a hard solution.
_ABOUT = (
    "If there is a hard solution, the soft one differs from it only if slack is cheaper: the optimal values differ by "
    "at most {apart:.1g}, at {widest}.",
    "A text has no hard solution if a word is followed by different words (a conflict), or if its dimension is too "
    "small. The paper introduces the soft margin for such texts.",
)


def _soft(kind: int, runs: Datasets) -> Judgement:
    """For texts with (0) or without (1) a hard solution the correlation must rise and converge at every size."""
    texts = ("with", "without")[kind]
    sizes = _with_enough(runs, f"{texts}_hard", f"{texts} a hard solution")
    falls = "1 - cos at the end over 1 - cos at a tenth of the steps"
    drawn = {name: run for name, run in runs.items() if f"soft_{kind}" in run}
    ends = labelled(drawn, {"1 - cos at the end": f"soft_{kind}"})
    numbers = ends | labelled(drawn, {falls: f"falls_{kind}"})
    numbers |= labelled(runs, {f"share of texts {texts} a hard solution": f"feasible_{kind}"})
    numbers |= labelled(runs, {"correlation at the end, all texts": "soft"})
    rises = all_above("rise of the correlation", sizes, f"rise_{kind}", _CHANGE)
    there = all_below("1 - cos at the end", sizes, f"soft_{kind}", _THERE)
    falling = all_below(falls, sizes, f"falls_{kind}", _FALLING)
    lowest, highest = min(end.value.low for end in there), max(end.value.high for end in there)
    widest = max(runs, key=lambda name: float(runs[name]["apart"]))
    return Judgement(
        stated=[*rises, *there, *falling],
        corrected=[*rises, *falling],
        correction=f"it has not converged at the last step: 1 - cos is between {lowest:.2g} and {highest:.2g}, by the "
        "intervals of all sizes, and still falling.",
        remark="The numbers are geometric means of 1 - cos; by the intervals of all sizes it ends between "
        f"{lowest:.2g} and {highest:.2g}. {_ABOUT[kind].format(apart=float(runs[widest]['apart']), widest=widest)} "
        f"Sizes with fewer than {LEAST_SEEDS} texts of this kind decide nothing.",
        numbers=numbers,
        expected=dict.fromkeys(ends, 0.0),
    )


@claim(
    "lm-cosine:mixed",
    Source(PAPER, "section 4, Figure 1 (cosines); the limit is ours", Setting.OURS),
    "On a text with conflicts W is closer to W_fin + C W_sets than to the soft solution, and comes closer to it: "
    "between words that follow the same word the logits differ by log ratios of counts, and their margin over the "
    "other words grows.",
    needs=TRAINED,
)
def _mixed(runs: Datasets) -> Judgement:
    sizes = _with_enough(runs, "with_mixed", "with the limit W_fin + C W_sets")
    without = sum(run.attrs["without_mixed"] for run in runs.values())
    of_limit, of_soft = "1 - cos with W_fin + C W_sets", "1 - cos with the soft solution"
    drawn = {name: run for name, run in runs.items() if "mixed_1" in run}
    limits = labelled(drawn, {f"{of_limit} at the end": "mixed_1"})
    criteria = zip(
        all_below(f"{of_limit} over {of_soft}, at the end", sizes, "closer", 1 - _CHANGE),
        all_below(f"{of_limit} at the end over 1 - cos at a tenth of the steps", sizes, "falls", 1 - _CHANGE),
        strict=True,
    )
    least = min(number(run, "mixed_1", at=-1).low for run in sizes.values())
    away = (
        f"1 - cos ends at {least:.2g} or more, while a first threshold was {_THERE}: between conflicting words the "
        "gradient does not vanish, so constant steps oscillate, and the norm grows only logarithmically. "
    )
    return Judgement(
        stated=[criterion for of_size in criteria for criterion in of_size],
        remark="The numbers are geometric means of 1 - cos. The limit is not in this paper: it is that of arXiv "
        "2308.16898 for several selected tokens, determined by the text except for C. "
        f"{away * (least > _THERE)}Excluded: {without} texts with a conflict but without this limit, because "
        "their dimension is too small to tie the words.",
        numbers=limits | labelled(drawn, {f"{of_soft} at the end": "soft_1"}),
        expected=dict.fromkeys(limits, 0.0),
    )


@claim(
    "lm-cosine:unsolvable",
    Source(PAPER, "section 4 (experiments, before Definition 4.1)", Setting.PROXY),
    "The hard-margin problem of a text is often unsolvable, because its tokens are not linearly separable.",
    needs=TRAINED,
)
def _unsolvable(runs: Datasets) -> Judgement:
    return Judgement(
        all_above("share of texts without a hard solution", family(runs, {}), "feasible_1", _OFTEN),
        remark=f"Often means at least one text of {1 / _OFTEN:g}. That there is no solution is certified for each "
        "text.",
    )


@claim(
    "lm-cosine:works",
    Source(PAPER, "section 4 (C = 10, after Definition 4.1), Figure 1", Setting.PROXY),
    "The soft margin with C = 10 works well: over all texts, the cosine of W with its solution becomes large.",
    needs=TRAINED,
)
def _works(runs: Datasets) -> Judgement:
    return Judgement(
        all_above("mean cosine at the end, all texts", family(runs, {}), "soft", _WELL),
        remark=f"Well means a mean cosine of at least {_WELL:g}, an angle of 26 degrees, at the last step. It is not "
        "convergence, which lm-cosine:conflict judges on texts without a hard solution.",
    )


@claim(
    "lm-cosine:hyperplanes",
    Source(PAPER, "section 1 (contributions, token separation)", Setting.PROXY),
    "The decision hyperplane of each subsequence is fundamentally different from those of the others.",
    needs=TRAINED,
)
def _hyperplanes(runs: Datasets) -> Judgement:
    """At every size nearly all pairs must differ; as corrected, those with different last and different next words."""
    sizes = family(runs, {})
    what = "share of pairs of subsequences with fundamentally different hyperplanes"
    return Judgement(
        stated=all_above(what, sizes, "different", _PAIRS),
        corrected=all_above(f"{what}, of those with other last and next words", sizes, "different_own", _PAIRS),
        correction="for subsequences that end with different words and have different next words. The query is the "
        "last word, so subsequences that end with the same word have the same hyperplane, whatever follows.",
        remark="A subsequence that ends with the word e selects the word t with the largest t^T W e, so W e is the "
        "normal of its hyperplane. Two hyperplanes are fundamentally different if the angle between their normals is "
        "at least 60 degrees, at the last step.",
    )


def _with_enough(runs: Datasets, count: str, kind: str) -> dict[str, xarray.Dataset]:
    """Return the sizes with enough texts of a kind, which is named by the attribute that counts them.

    Raises:
        MissingRunError: there are none.
    """
    sizes = {name: run for name, run in runs.items() if run.attrs[count] >= LEAST_SEEDS}
    if not sizes:
        raise MissingRunError(f"with {LEAST_SEEDS} texts {kind}")
    return sizes


_BY_KIND = [
    claim(
        f"lm-cosine:{name}",
        Source(PAPER, "section 4, Figure 1 (cosines)", Setting.PROXY),
        "The cosine of W with the soft-margin solution (C = 10) rises towards 1 for all m, n and d: texts where "
        f"{some} W separates all next words.",
        TRAINED,
    )(partial(_soft, kind))
    for kind, (name, some) in enumerate((("feasible", "some"), ("conflict", "no")))
]
CLAIMS = (*_BY_KIND, _mixed, _unsolvable, _works, _hyperplanes)
_SIZES = {"m": "sequences, $m$", "n": "words of a sequence, $n$", "d": "dimension, $d$"}
# The size where another one is swept.
_DEFAULTS = {"m": 10, "n": 5, "d": 100}
_LIMIT = r"$W_{\mathrm{fin}} + C\,W_{\mathrm{sets}}$"
# Texts by kind, and the solution they are compared with: the attribute that counts them, label, colour, marker, and the
# factor that moves its points aside.
_KINDS = {
    "soft_0": ("with_hard", "hard solution: from the soft one", palette.TEAL, "o", 0.93),
    "soft_1": ("without_hard", "no hard solution: from the soft one", palette.WINE, "s", 1.0),
    "mixed_1": ("with_mixed", f"no hard solution: from {_LIMIT}", palette.AMBER, "^", 1.07),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the cosine of all texts along the steps (a), and where both kinds of texts end over each size (b to d)."""
    runs = list(summaries.values())
    last = int(runs[0]["snapshot"][-1])
    verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
    with page.style():
        figure = page.full(5.4)
        # In inches, nearly: the key and two rows of panels.
        key, rows = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.4, 4.4)))
        panels = rows.subplots(2, 2).ravel()
        _together(panels[0], _swept(runs, "m"))
        panels[0].set_title(f"(a) cosine with the soft-margin solution\nover all texts is large: {verdicts['works']}")
        for axes, letter, size in zip(panels[1:], "bcd", _SIZES, strict=True):
            _apart(axes, _swept(runs, size), size)
            others = ", ".join(f"${name} = {value}$" for name, value in _DEFAULTS.items() if name != size)
            axes.set_title(f"({letter}) {others}")
            axes.sharey(panels[1])
        key.legend(handles=_key(), loc="center", ncols=3)
        figure.suptitle(
            f"$W$ converges to the soft-margin solution if there is a hard one: {verdicts['feasible']}; "
            f"else: {verdicts['conflict']}"
        )
        page.add_counts(
            figure,
            summaries,
            "Bands and bars: 95 % bootstrap intervals of the mean. (b) to (d): geometric means of both kinds of texts "
            f"at step {last:,}; percentages: texts without a hard solution.",
            counted="texts",
        )
    return figure


def _swept(runs: Sequence[xarray.Dataset], size: str) -> list[xarray.Dataset]:
    """Return the runs in which all other sizes have their default, by increasing size."""
    others = {f"data.{name}": value for name, value in _DEFAULTS.items() if name != size}
    swept = [run for run in runs if others.items() <= run.attrs.items()]
    return sorted(swept, key=lambda run: run.attrs[f"data.{size}"])


def _together(axes: Axes, swept: Sequence[xarray.Dataset]) -> None:
    """Draw the cosine of all texts along the steps, and at its end that of the first five."""
    for run, colour in zip(swept, palette.ramp(len(swept)), strict=True):
        page.course(axes, run, "soft", color=colour, label=f"$m = {run.attrs['data.m']}$")
        look = {"fmt": "x", "color": colour, "markersize": 3.5, "elinewidth": 0.7, "clip_on": False}
        axes.errorbar(run["snapshot"][-1:], run["five"][-1:], run["five_error"][-1:], **look)
    axes.set(xscale="log", xlabel="step", ylabel="cosine with soft-margin solution")
    axes.axhline(_WELL, color=palette.INK, linewidth=0.7, linestyle="--")
    beside(axes, f"large: {_WELL:g}", (1, _WELL), (0, 2), va="bottom")
    axes.legend(loc="lower right", title="mean, all texts")


def _apart(axes: Axes, swept: Sequence[xarray.Dataset], size: str) -> None:
    """Draw the final means of each kind of texts, hollow if the texts are few."""
    for name, (count, _, colour, marker, aside) in _KINDS.items():
        for run in [run for run in swept if name in run]:
            mean, low, high = (float(run[f"{name}{part}"][-1]) for part in ("", "_low", "_high"))
            face = colour if run.attrs[count] >= LEAST_SEEDS else "none"
            x = [run.attrs[f"data.{size}"] * aside]
            page.bars(axes, x, [mean], [low], [high], fmt=marker, color=colour, markerfacecolor=face)
    values = [run.attrs[f"data.{size}"] for run in swept]
    axes.axhline(_THERE, color=palette.INK, linewidth=0.7, linestyle="--")
    beside(axes, f"converged: {_THERE:g}", (values[0], _THERE), (0, 2), va="bottom")
    unsolvable = [f"{100 * float(run['feasible_1']):.0f} %" for run in swept]
    axes.set(xscale="log", yscale="log", xlabel=_SIZES[size], ylabel="direction error, 1 - cos")
    axes.set_xticks(values, [f"{value}\n{share}" for value, share in zip(values, unsolvable, strict=True)])
    axes.minorticks_off()
    axes.margins(x=0.12, y=0.1)


def _key() -> list[Line2D]:
    looks: list[dict[str, Any]] = [
        *({"color": colour, "marker": marker, "label": label} for _, label, colour, marker, _ in _KINDS.values()),
        {"marker": "o", "label": f"fewer than {LEAST_SEEDS} texts", "markerfacecolor": "none"},
        {"marker": "x", "label": "first five texts, standard error"},
    ]
    grey: dict[str, Any] = {"color": palette.GUIDE, "linestyle": "none", "markersize": 4}
    return [Line2D([], [], **(grey | look)) for look in looks]


EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
