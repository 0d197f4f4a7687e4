"""How few pairs of a prefix and a word carry the gradient during training, and are they support vectors?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.gradient_sparsity.measure import measure
from jaxattn.experiments.language.subsets import by_kind
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, family
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, above, below
from jaxattn.study.estimates import Estimator, estimated, exact, mean, number
from jaxattn.study.style import page, palette

# Kinds of texts, by whether some W separates all next words, and the pairs that should carry their gradient.
_CORES = {"feasible": "support vectors", "infeasible": "contested words"}
# Kinds with fewer texts are drawn but not judged.
_TEXTS = 8
# Fixed beforehand: "few" means at most half of all, the largest share the word allows; a share falls if its last value
# over its first is below 1 by more than rounding.
_HALF, _FALL = 0.5, 0.999
# The largest share of the gradient off the support vectors, and the largest difference from the share predicted by the
# multipliers.
_BESIDE, _MISSED = 0.01, 0.02
# Of a W trained on support vectors alone: the largest 1 - cos with the max-margin solution of the whole text, and the
# smallest margin ratio on it.
_OFF, _MARGIN = 0.01, 0.95
_NEEDS = Needs(steps=5000)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the shares along the steps, with the kind of text as a prefix for the kinds that there are."""
    dropped = run["dropped"].mean() / run.attrs["prefixes"]
    summary = estimated(run, key, dropped=exact(dropped), pairs=exact(run["pairs"].mean()))
    return summary.assign(by_kind(run, key, _of_kind).data_vars)


def _of_kind(texts: xarray.Dataset) -> dict[str, Estimator]:
    share = texts["share"]
    first, last = share.isel(snapshot=0, drop=True), share.isel(snapshot=-1, drop=True)
    # In this order, which gives each its random key.
    return {
        **{name: mean(texts[name]) for name in ("share", "beside")},
        "ratio": mean(last / first),
        "limit": mean(texts["limit"]),
        "missed": mean(abs(last - texts["limit"])),
        **{name: mean(texts[name]) for name in ("core", "off", "margin")},
        "rise": exact(max(0.0, float(np.diff(share.values.mean(axis=0)).max(initial=0.0)))),
    }


def _is_judged(run: xarray.Dataset, kind: str) -> bool:
    """Return whether a run has enough texts of a kind to judge by them."""
    return int(run[f"{kind}_texts"]) >= _TEXTS


class _Case(NamedTuple):
    """The texts of one kind in a run."""

    name: str
    kind: str
    run: xarray.Dataset

    def number(self, estimate: str, at: int = -1) -> Number:
        """Return an estimate of these texts, a curve at a snapshot."""
        return number(self.run, f"{self.kind}_{estimate}", at)

    @property
    def few(self) -> Criterion:
        label = f"share of pairs with 99 % of the gradient at the end, {self.name}, {self.kind},"
        return below(label, self.number("share"), _HALF)

    @property
    def falls(self) -> Criterion:
        return below(f"last share over first share, {self.name}, {self.kind},", self.number("ratio"), _FALL)

    def __str__(self) -> str:
        end, core = self.number("share").mean, self.number("core").mean
        return f"{self.name}, {self.kind} texts ({end:.0%}; {core:.0%} of the pairs are {_CORES[self.kind]})"


def _cases(runs: Datasets, masked: bool = False) -> list[_Case]:
    """Return the kinds of texts with enough texts, of the runs on whole texts or of those on support vectors alone."""
    runs = family(runs, {"masked": int(masked)})
    return [_Case(name, kind, run) for name, run in runs.items() for kind in _CORES if _is_judged(run, kind)]


@claim(
    "gradient-sparsity:few",
    Source(PAPER, "section 1 (contributions) and section 3.2, after Theorem 3.15", Setting.OURS),
    "Only a few tokens contribute to the gradient.",
    needs=_NEEDS,
)
def _few(runs: Datasets) -> Judgement:
    cases = _cases(runs)
    if not cases:
        return Judgement.withheld(f"No run has {_TEXTS} texts; fewer are too few to decide.")
    numbers: dict[str, Number] = {}
    for case in cases:
        of_case = f"{case.name}, {case.kind}"
        for at in (0, -1):
            step = int(case.run["snapshot"][at])
            numbers[f"share of pairs with 99 % of the gradient at step {step}, {of_case}"] = case.number("share", at)
        numbers[f"last share over first share, {of_case}"] = case.number("ratio")
        numbers[f"largest increase of the mean share, {of_case}"] = case.number("rise")
    few = [case for case in cases if case.few.outcome is Outcome.MET]
    others = [str(case) for case in cases if case not in few]
    falling = sum(case.falls.outcome is Outcome.MET for case in cases)
    return Judgement(
        stated=[case.few for case in cases],
        remark=f"In {len(few)} of {len(cases)} kinds of texts few pairs carry the gradient: "
        f"{'; '.join(map(str, few)) or 'none'}. In the others most do: {'; '.join(others) or 'none'}. The shares are "
        "of all pairs of a prefix and a candidate word, including the next word; few means at most half of them, at "
        f"the last step. The share falls during training in {falling} of {len(cases)} kinds of texts. Kinds (feasible "
        f"or not) with fewer than {_TEXTS} texts in a run are drawn but not judged.",
        numbers=numbers,
    )


@claim(
    "gradient-sparsity:support",
    Source(PAPER, "section 1 (contributions) and section 3.2; the measure is ours", Setting.OURS),
    "Tokens that are not support vectors have practically no gradient; support vectors have it in proportion to "
    "their multipliers.",
    needs=_NEEDS,
)
def _support(runs: Datasets) -> Judgement:
    cases = _cases(runs)
    if not any(case.kind == "feasible" for case in cases):
        return Judgement.withheld(f"No run has {_TEXTS} feasible texts; fewer are too few to decide.")
    numbers, expected, stated = {}, {}, []
    for case in cases:
        name, core = case.name, _CORES[case.kind]
        label = f"gradient not on {core} at the end, {name}"
        numbers[label], expected[label] = case.number("beside"), 0.0
        numbers[f"share of pairs that are {core}, {name}"] = case.number("core")
        stated.append(below(f"{label},", numbers[label], _BESIDE))
        if case.kind == "feasible":
            label, missed = f"share with 99 % of the gradient at the end, {name}", case.number("missed")
            numbers[label], expected[label] = case.number("share"), case.number("limit").mean
            numbers[f"difference of this share from that of the multipliers, {name}"] = missed
            label = f"difference of the last share from that of the multipliers, {name},"
            stated.append(below(label, missed, _MISSED))
    return Judgement(
        stated=stated,
        remark="For feasible texts we measure the gradient that is not on next words or support vectors, and compare "
        "with the share that the multipliers of the max-margin solution give. Infeasible texts have no such "
        "solution; for them we measure the gradient that is not on contested words, different words that "
        "follow the same word. Their contributions cancel in W but not in a single prefix.",
        numbers=numbers,
        expected=expected,
    )


@claim(
    "gradient-sparsity:disregarded",
    Source(PAPER, "section 1 (contributions, token selection and contextual sparsity)", Setting.PROXY),
    "Tokens that are not support vectors can be safely disregarded during training.",
    needs=_NEEDS,
)
def _disregarded(runs: Datasets) -> Judgement:
    masked, whole = ([case for case in _cases(runs, chosen) if case.kind == "feasible"] for chosen in (True, False))
    if not masked:
        return Judgement.withheld(f"No run has {_TEXTS} feasible texts; fewer are too few to decide.")
    labels = {"off": "1 - cos with the solution of the whole text", "margin": "margin ratio on the whole text"}
    numbers = {f"{label}, {case.name}": case.number(name) for case in masked + whole for name, label in labels.items()}
    numbers |= {f"share of pairs that are trained on, {case.name}": case.number("core") for case in masked}
    return Judgement(
        stated=[
            *(below(f"{labels['off']}, {case.name},", case.number("off"), _OFF) for case in masked),
            *(above(f"{labels['margin']}, {case.name},", case.number("margin"), _MARGIN) for case in masked),
        ],
        remark="The texts are trained on with only the next word and the support vectors as candidates of each prefix, "
        "and judged with all candidates. Which words are support vectors is known from the max-margin solution, not "
        "before it is solved.",
        numbers=numbers,
    )


_COLOURS = {"vocabulary": palette.TEAL, "prefix": palette.WINE}
# By d.
_DASHES, _MARKERS = {10: "--", 100: "-"}, {10: "s", 100: "o"}
_LIMIT: dict[str, Any] = {"markersize": 5}
_FEW: dict[str, Any] = {"linewidth": 0.9, "linestyle": ":"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw shares and what is left beside, of feasible texts in the first row, of others in the second."""
    runs = list(family(summaries, {"masked": 0}).values())
    with page.style():
        figure = page.full(5.7)
        top, bottom = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.2, 4.7)))
        panels = bottom.subplots(2, 2, sharex=True, sharey="col")
        for row, kind, letters in zip(panels, _CORES, ("ab", "cd"), strict=True):
            _row(row, runs, kind, letters)
        panels[0, 1].set(xscale="log", yscale="log", ylim=(None, 1.5))
        for axes in panels[1]:
            axes.set_xlabel("step")
        _key(top)
        few, disregarded = (judgements[f"gradient-sparsity:{name}"].verdict for name in ("few", "disregarded"))
        figure.suptitle(
            f"Only a few tokens contribute to the gradient: {few}; the others can be disregarded: {disregarded}"
        )
        page.add_counts(figure, summaries, _remark(runs), counted="texts")
    return figure


def _row(row: np.ndarray, runs: Sequence[xarray.Dataset], kind: str, letters: str) -> None:
    """Draw what was measured of one kind of texts."""
    shares, beside = row
    drawn = [run for run in runs if f"{kind}_share" in run]
    for run in drawn:
        colour, d = _COLOURS[run.attrs["candidates"]], run.attrs["data.d"]
        for axes, name in ((shares, "share"), (beside, "beside")):
            page.course(axes, run, f"{kind}_{name}", color=colour, linestyle=_DASHES[d])
        if kind == "feasible":
            # The limit stands beyond the last step.
            last, limit = 2 * float(run["snapshot"][-1]), float(run["feasible_limit"])
            shares.plot(last, limit, marker=_MARKERS[d], color=colour, linestyle="none", **_LIMIT)
    needed = page.span((100 * float(run[f"{kind}_share"][-1]) for run in drawn), ".0f", " %")
    off = page.at_most(max((float(run[f"{kind}_beside"][-1]) for run in drawn), default=1.0))
    shares.set(title=f"({letters[0]}) {kind} texts:\n{needed} of the pairs are needed", ylim=(0, 1.02))
    shares.set_ylabel("share of pairs with\n99 % of the gradient")
    shares.axhline(_HALF, color=palette.GUIDE, zorder=1, **_FEW)
    beside.set_title(f"({letters[1]}) {kind} texts: at most {off}\nis off the {_CORES[kind]} at the end")
    beside.set_ylabel(f"share of gradient\noff {_CORES[kind]}")
    _texts(shares, runs, kind)


def _texts(axes: Axes, runs: Sequence[xarray.Dataset], kind: str) -> None:
    """Write the numbers of texts into a panel."""
    lines = ["texts:"]
    for candidates in _COLOURS:
        alike = [run for run in runs if run.attrs["candidates"] == candidates]
        few = "" if all(_is_judged(run, kind) for run in alike) else ", not judged"
        lines.append(f"{page.span(int(run[f'{kind}_texts']) for run in alike)} {candidates}{few}")
    axes.text(0.03, 0.04, "\n".join(lines), transform=axes.transAxes, fontsize=page.SMALLEST)


def _key(part: SubFigure) -> None:
    """Explain colours, dashes, markers and the dotted line above all panels."""
    lines = [Line2D([], [], color=colour, label=f"candidates: {name}") for name, colour in _COLOURS.items()]
    for d, dash in _DASHES.items():
        look: dict[str, Any] = _LIMIT | {"linestyle": dash, "marker": _MARKERS[d], "label": f"$d = {d}$"}
        lines.append(Line2D([], [], color=palette.GUIDE, **look))
    lines.append(Line2D([], [], color=palette.GUIDE, label="few: at most half", **_FEW))
    part.legend(handles=lines, loc="center", ncols=len(lines), columnspacing=1.1)


def _remark(runs: Sequence[xarray.Dataset]) -> str:
    """Say what pairs there are; candidates of equal numbers stand once."""
    pairs = {}
    for run in runs:
        alone = f", {100 * float(run['dropped']):.0f} % of the prefixes have no choice" if float(run["dropped"]) else ""
        pairs[run.attrs["candidates"]] = f"{float(run['pairs']):.0f} ({run.attrs['candidates']}{alone})"
    return (
        "Bands: 95 % intervals of the mean. Markers at the right: limits that the multipliers predict. Contested "
        "words: different words that follow the same one. Pairs of a prefix and a candidate per text: "
        f"{', '.join(pairs.values())}."
    )


EXPERIMENT = Experiment(measure, (_few, _support, _disregarded), estimate=estimate, draw=draw)
