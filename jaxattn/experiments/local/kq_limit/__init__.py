"""Does descent on (K, Q) without a penalty converge to the nuclear solution, and under which step rules?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.local.kq_limit.measure import measure, remaining
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, total
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import estimated, exponents, geometric_mean, number, power_law, quantiles
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
_NEEDS = Needs(steps=100_000)
_PUBLISHED, _NAME = "as published", "published constant step 0.1"
_STEPS = ("constant step", "step k^-1/2", "step / norm")
_SEPARATE, _JOINT = _NORMS = ("separate norms", "joint norm")
# The factors c of the steps; numbers are reported of the first.
_FACTORS = (1, 3)
# Over the last factor of _SPAN in steps, 1 - cos = a + b ||W||^-q is fitted. We use ||W|| as the clock because
# decreasing steps need more steps for the same growth. Fixed beforehand: the distance counts as falling to 0 if at most
# the share _LEFT of what it is at the last step remains in the limit. Under other keys the rule was an exponent of
# ||W|| in 1 - cos of at most -0.12, which is arbitrary: a distance that tends to a > 0 falls as fast for a while.
_SPAN, _LEFT = 100, 0.5
# Fixed beforehand: K and Q converge in direction if 1 - cos of each between the last step and a tenth of it is at most
# _TURNED, and at most the share _SLOWER of that between a tenth and a hundredth.
_TURNED, _SLOWER = 0.01, 0.8
# Thresholds for the margin ratio, and for the ratio of ||K|| and ||Q||.
_CLOSE, _APART = 0.99, 1.05
# Exponents of k are fitted to runs of at least so many steps.
_LONG = 30_000


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how far a run is from the nuclear solution, and how that changes over the last factor of 100 in steps.

    Returns:
        Over the snapshots the geometric mean `off` of 1 - cos and the mean `margin_ratio`, and of both the quartiles
        `off_quartile_25` and so on; `remains`, the share of the last 1 - cos that remains in the limit; `exponent` and
        `power`, the exponents of the step and of ||W|| in 1 - cos; and geometric means: `apart`, of the larger of ||K||
        and ||Q|| over the smaller at the end; `turned`, of how far K or Q turned last; `slower`, of its share of how
        far it turned before. For each seed: its exponent in the step, `of_seed`, `room` and `complementarity`. The
        attribute `since` is the first step of the fit.
    """
    steps, off = run["snapshot"].values, run["off"].sel(norm="nuclear", drop=True)
    since = int(steps[np.argmin(np.abs(np.log(steps * _SPAN / steps[-1])))])
    late = steps >= since
    keys = [jax.random.fold_in(key, k) for k in range(5)]
    size, late_off = run["size"].values[:, late], off.values[:, late]
    margins, balance = run["margin_ratio"].sel(norm="nuclear", drop=True), run["balance"].isel(snapshot=-1)
    last, before = run["turned"].isel(decade=1), run["turned"].isel(decade=0)
    apart = geometric_mean(balance.where(balance > 1, 1 / balance)).parts(keys[3])
    means = {
        "margin_ratio": (("snapshot",), bootstrap(margins.values, keys[1])),
        "power": ((), bootstrap(exponents(size, late_off), keys[2])),
        "remains": ((), remaining(size, late_off, keys[4])),
    }
    of_seed = run[["room", "complementarity"]].assign(of_seed=("seed", exponents(steps[None, late], late_off)))
    estimates = estimated(
        run,
        keys[0],
        off=geometric_mean(off),
        exponent=power_law(off, since=since, least=_LONG),
        off_quartile=quantiles(off, 25, 50, 75),
        turned=geometric_mean(last),
        slower=geometric_mean(last / before),
        margin_quartile=quantiles(margins, 25, 50, 75),
    )
    estimates = estimates.assign(variables(means) | {f"apart{end}": part for end, part in apart.items()})
    return estimates.assign(of_seed.data_vars).assign_attrs(since=since)


def _names_of(steps: Sequence[str] = _STEPS) -> dict[str, list[str]]:
    """Return the runs of each step rule and normalization, over the factors c."""
    kinds = [f"{step}, {norm}" for step in steps for norm in _NORMS]
    return {kind: [f"{kind}, c = {factor}" for factor in _FACTORS] for kind in kinds}


def _kinds(runs: Datasets, steps: Sequence[str] = _STEPS) -> dict[str, list[xarray.Dataset]]:
    return {kind: [runs[name] for name in names] for kind, names in _names_of(steps).items()}


@claim(
    "kq-limit:direction", _SOURCE, "Descent on (K, Q) converges to the direction of the nuclear solution.", needs=_NEEDS
)
def _direction(runs: Datasets) -> Judgement:
    published, decreasing = runs[_PUBLISHED], _kinds(runs, _STEPS[1:])
    numbers: dict[str, Number] = {}
    expected: dict[str, float] = {}
    shown = {f"{kind}, c = {_FACTORS[0]}": own[0] for kind, own in _kinds(runs).items()}
    for name, run in {f"{_NAME}, c = 0.1": published, **shown}.items():
        error, margin = f"1 - cos at the last step, {name}", f"margin ratio at the last step, {name}"
        expected |= {error: 0.0, margin: 1.0}
        numbers |= {
            error: number(run, "off", at=-1),
            margin: number(run, "margin_ratio", at=-1),
            f"exponent of k in 1 - cos, {name}": number(run, "exponent"),
            f"exponent of ||W|| in 1 - cos, {name}": number(run, "power"),
            f"share of 1 - cos that remains in the limit, {name}": number(run, "remains"),
        }
    of_decreasing = [run for own in decreasing.values() for run in own]
    ends, ratios = ([float(run[name][-1]) for run in of_decreasing] for name in ("off", "margin_ratio"))
    off, since = published["off"], published.attrs["since"]
    return Judgement(
        _tends(_NAME, [published]),
        [criterion for kind, own in decreasing.items() for criterion in _tends(kind, own)],
        correction="it does with decreasing steps (like k^-1/2, or divided by the norm of the weights), under both "
        f"normalizations: 1 - cos falls towards 0, from {min(ends):.2g} to {max(ends):.2g} at the last step, and "
        f"the margin ratio ends at {min(ratios):.4f} or more. With the published constant step and separate "
        f"norms, K and Q drift apart by a factor of {float(published['apart']):.3g}, and the distance "
        f"stalls: 1 - cos goes from {float(off.sel(snapshot=since)):.2g} at step {since} to {float(off[-1]):.2g} at "
        f"step {int(off['snapshot'][-1])}; the margin ratio ends at {float(published['margin_ratio'][-1]):.4f}.",
        remark=_depends(runs),
        numbers=numbers,
        expected=expected,
    )


@claim(
    "kq-limit:balance",
    _SOURCE,
    "Descent on (K, Q) makes ||K|| and ||Q|| equal, as they are at every point of the regularization path.",
    needs=_NEEDS,
)
def _balance(runs: Datasets) -> Judgement:
    published, kinds, constant = runs[_PUBLISHED], _kinds(runs), f"{_STEPS[0]}, {_SEPARATE}"
    name = "ratio of the larger to the smaller of ||K|| and ||Q|| at the last step"
    # The published rule is one with a constant step and separate norms.
    every = {_NAME: [published]} | kinds | {constant: [published, *kinds[constant]]}
    numbers = {f"{name}, {kind}": _worst(own, "apart") for kind, own in every.items()}
    return Judgement(
        [below(f"{name}, {_NAME}", number(published, "apart"), _APART)],
        # A first rule asked this of every decreasing step; with separate norms and c = 3 it is not true.
        [
            below(f"{name}, {kind}, largest over c", _worst(own, "apart"), _APART)
            for kind, own in kinds.items()
            if kind.endswith(_JOINT)
        ],
        correction="only with a joint norm for K and Q, under every step rule. With separate norms, the first steps "
        "are large compared with the weights and make the norms of K and Q differ, and later steps do not "
        f"equalize them: they differ by a factor of {float(published['apart']):.3g} at the last step under "
        "the published rule.",
        remark="Geometric means over seeds; for each rule, the c with the largest ratio is shown.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
    )


@claim(
    "kq-limit:factors",
    Source("a machine-made summary of arXiv 2308.16898", "convergence of the factors, not in the paper", Setting.OURS),
    "In descent on (K, Q), the factors K and Q themselves converge in direction.",
    needs=_NEEDS,
)
def _factors(runs: Datasets) -> Judgement:
    published, decreasing = runs[_PUBLISHED], _kinds(runs, _STEPS[1:])
    return Judgement(
        _settles(_NAME, [published]),
        [criterion for kind, own in decreasing.items() for criterion in _settles(kind, own)],
        correction="they do with decreasing steps.",
        remark="The larger 1 - cos of K and of Q between two steps, of which the second is ten times the first.",
    )


def _settles(kind: str, runs: Sequence[xarray.Dataset]) -> tuple[Criterion, ...]:
    over = ", worst over c," if len(runs) > 1 else ","
    return (
        below(f"1 - cos of K or Q with itself at a tenth of the steps, {kind}{over}", _worst(runs, "turned"), _TURNED),
        below(f"that over the same ten times earlier, {kind}{over}", _worst(runs, "slower"), _SLOWER),
    )


def _tends(kind: str, runs: Sequence[xarray.Dataset]) -> tuple[Criterion, ...]:
    """Ask for a margin ratio near 1 and a distance that falls to 0, in the worst run for each."""
    over, since = ", worst over c," if len(runs) > 1 else ",", runs[0].attrs["since"]
    margin = min((number(run, "margin_ratio", at=-1) for run in runs), key=lambda value: value.mean)
    return (
        above(f"margin ratio at the last step, {kind}{over}", margin, _CLOSE),
        below(
            f"share a / (1 - cos) left in the limit, 1 - cos = a + b ||W||^-q from step {since}, {kind}{over}",
            _worst(runs, "remains"),
            _LEFT,
        ),
    )


def _worst(runs: Sequence[xarray.Dataset], name: str) -> Number:
    return max((number(run, name) for run in runs), key=lambda value: value.mean)


def _depends(runs: Datasets) -> str:
    """Describe what the exponents of the seeds correlate with, for steps like k^-1/2."""
    correlations = []
    for kind, own in _kinds(runs, _STEPS[1:2]).items():
        of_seed, room, rows = (own[-1][name].values for name in ("of_seed", "room", "complementarity"))
        correlations.append(
            f"{_ranks(of_seed, room)} with 1 - s and {_ranks(of_seed, rows)} with the complementarity "
            f"({kind}, c = {_FACTORS[-1]})"
        )
    return (
        "What determines an instance's exponent: rank correlations over the seeds, where s is the largest singular "
        "value of sum a_k A_k that the solution does not use: " + "; ".join(correlations) + "."
    )


def _ranks(x: np.ndarray, y: np.ndarray) -> str:
    """Return Spearman's rank correlation with Fisher's 95 % interval, as text."""
    correlation = float(np.corrcoef(np.argsort(np.argsort(x)), np.argsort(np.argsort(y)))[0, 1])
    middle, width = np.arctanh(np.clip(correlation, -1 + 1e-12, 1 - 1e-12)), 1.96 / np.sqrt(max(len(x) - 3, 1))
    return f"{correlation:.2f} [{np.tanh(middle - width):.2f}, {np.tanh(middle + width):.2f}]"


_COLOURS: dict[str, str] = dict(zip(_STEPS, (palette.TEAL, palette.WINE, palette.AMBER), strict=True))
_WRITTEN = dict(zip(_STEPS, ("constant step", "step like $k^{-1/2}$", "step / norm"), strict=True))
_LOOKS: dict[str, dict[str, Any]] = {
    _SEPARATE: {"linestyle": "-", "marker": "o"},
    _JOINT: {"linestyle": "--", "marker": "s", "markerfacecolor": "white"},
}
# The rules whose distance is drawn along the steps, besides the published one; (c) has all.
_DRAWN = (f"{_STEPS[0]}, {_JOINT}", f"{_STEPS[1]}, {_SEPARATE}", f"{_STEPS[1]}, {_JOINT}", f"{_STEPS[2]}, {_SEPARATE}")


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of some rules along the steps, and for all what remains of the distance in the limit."""
    published = summaries[_PUBLISHED]
    kinds = {
        kind: own
        for kind, names in _names_of().items()
        # Of the other runs there are only some at size=small.
        if (own := [summaries[name] for name in names if name in summaries])
    }
    with page.style():
        figure = page.full(4.0)
        panels = page.body(figure)
        distance, margin, rest = panels.subplots(1, 3)
        for kind in (kind for kind in _DRAWN if kind in kinds):
            step, norm = kind.split(", ")
            _both(distance, margin, kinds[kind][0], color=_COLOURS[step], linestyle=_LOOKS[norm]["linestyle"])
        _both(distance, margin, published, color=palette.GUIDE, linestyle=":")
        distance.set(title="(a) distance from the nuclear solution", ylabel="direction error, 1 - cos")
        margin.set(title="(b) margin", ylabel="1 - margin ratio")
        for axes in (distance, margin):
            axes.set(xlabel="step $k$", xscale="log", yscale="log")
        _remains(rest, kinds, published)
        panels.legend(
            handles=_key(), loc="outside upper center", ncols=3, handlelength=3, title="median, 25th to 75th percentile"
        )
        verdict = judgements["kq-limit:direction"].verdict
        figure.suptitle(f"Descent on $(K, Q)$ converges to the direction of the nuclear solution: {verdict}")
        others = {run: summary for run, summary in summaries.items() if run != _PUBLISHED}
        page.add_counts(
            figure,
            {_PUBLISHED: published, f"{len(others)} others together": xarray.Dataset(attrs=total(others))},
            "(a), (b): medians over seeds, bands from the 25th to the 75th percentile; the step is $c$ times the rule, "
            f"here $c = 1$, as published 0.1. (c): share $a$ / (1 - cos) of the last error in fits of "
            f"1 - cos $= a + b\\,\\|W\\|^{{-q}}$ to the last factor of {_SPAN} in steps, with 95 % intervals, for the "
            f"$c$ with the largest; above {_LEFT:g} (dotted) it does not converge.",
        )
    return figure


def _both(distance: Axes, margin: Axes, run: xarray.Dataset, **look: str) -> None:
    steps = run["snapshot"].values
    page.band(distance, steps, *(run[f"off_quartile_{q}"].values for q in (50, 25, 75)), **look)
    page.band(margin, steps, *(1 - run[f"margin_quartile_{q}"].values for q in (50, 75, 25)), **look)


def _remains(axes: Axes, kinds: dict[str, list[xarray.Dataset]], published: xarray.Dataset) -> None:
    _one(axes, 0.0, [published], palette.GUIDE, marker="o")
    for kind, own in kinds.items():
        step, norm = kind.split(", ")
        height = 1 + _STEPS.index(step) + (0.15 if norm == _JOINT else -0.15)
        _one(axes, height, own, _COLOURS[step], **_LOOKS[norm])
    axes.axvline(_LEFT, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_yticks(range(4), ["as published", *_WRITTEN.values()])
    for label, colour in zip(axes.get_yticklabels(), (palette.GUIDE, *_COLOURS.values()), strict=True):
        label.set_color(colour)
    axes.set(ylim=(3.5, -0.5), xlim=(-0.05, 1.05), xlabel="share of the last error")
    decreasing = max(_worst(own, "remains").mean for kind, own in kinds.items() if not kind.startswith(_STEPS[0]))
    axes.set_title(
        f"(c) left in the limit: {float(published['remains']):.0%} as published, at most {decreasing:.0%} with "
        "decreasing steps"
    )


def _one(axes: Axes, height: float, runs: Sequence[xarray.Dataset], colour: str, **look: Any) -> None:
    mean, low, high = _worst(runs, "remains")
    axes.errorbar(mean, height, xerr=[[mean - low], [high - mean]], color=colour, markersize=4, **look)


def _key() -> list[Line2D]:
    steps = [Line2D([], [], color=_COLOURS[step], label=label) for step, label in _WRITTEN.items()]
    norms = [Line2D([], [], color=palette.INK, markersize=4, label=norm, **look) for norm, look in _LOOKS.items()]
    label = f"as published: constant step 0.1, {_SEPARATE}"
    published = Line2D([], [], color=palette.GUIDE, linestyle=":", label=label)
    return [line for pair in zip(steps, [*norms, published], strict=True) for line in pair]


EXPERIMENT = Experiment(measure, claims=(_direction, _balance, _factors), estimate=estimate, draw=draw)
