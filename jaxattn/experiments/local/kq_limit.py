"""Does descent on (K, Q) without a penalty converge to the nuclear solution, and under which step rules?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn import metrics, svm
from jaxattn.experiments.local import limits
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, total
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, above, below
from jaxattn.study.estimates import estimated, exponents, geometric_mean, number, power_law
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
# Shorter training decides nothing.
_NEEDS = Needs(steps=100_000)
_PUBLISHED, _NAME = "as published", "published constant step 0.1"
_STEPS = ("constant step", "step k^-1/2", "step / norm")
_SEPARATE, _JOINT = _NORMS = ("separate norms", "joint norm")
# The factors c of the steps, and that of which the numbers are reported.
_FACTORS, _SHOWN = (1, 3), 1
# Fixed beforehand. A distance counts as still falling if, over the last factor of 100 in steps, 1 - cos goes like
# ||W||^p with p at most this: it falls by a factor of 3 while a constant step makes ||W|| 10^4 times as large. We use
# ||W|| as the clock because decreasing steps need more steps for the same growth. A first rule asked every step rule
# for that factor in the same number of steps. Under its key, 471806, at 1e6 steps, it did not decide about steps like
# k^-1/2, for which ||W|| grew only tenfold.
_SPAN, _POWER = 100, -0.12
# Thresholds for the margin ratio, and for the ratio of ||K|| and ||Q||.
_CLOSE, _APART = 0.99, 1.05
# Exponents of k are fitted to runs of at least so many steps.
_LONG = 30_000


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with its max-margin solutions, and measure how close the nuclear one is to degenerate.

    Args:
        record: of a `Training` of factors as wide as the tokens.
        solver: for all norms; each norm's default if None.

    Returns:
        The dataset of `limits.measure` with two numbers per seed, both for the nuclear solution: `room`, 1 minus the
        largest singular value of `M = sum_k a_k A_k` that W does not use (those that it uses are 1); and
        `complementarity`, the minimum over the rows of the multiplier (relative to the largest) plus the margin in
        excess of 1. Both are zero where the solution is degenerate.
    """
    measured = limits.measure(record, solver)
    kept = np.isin(record["seed"].values, measured["seed"].values)
    arrays = {str(name): record[name].values[kept] for name in record.data_vars}
    names = ("room", "complementarity")
    if not kept.any():
        return measured.assign({name: (("seed",), np.zeros(0)) for name in names})
    constraints = batch.over_seeds(svm.token_constraints, of_arrays(arrays), measured["selected"].values)
    solutions = svm.solve_batch(constraints, svm.nuclear, solver=solver)
    degeneracy = batch.over_seeds(_degeneracy, constraints, solutions.W, solutions.duals)
    return measured.assign({name: (("seed",), values) for name, values in zip(names, degeneracy, strict=True)})


def _degeneracy(
    constraints: svm.Constraints, W: Float[Array, "d d"], duals: Float[Array, "n m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = jnp.linalg.svd(svm.combination(constraints, duals), compute_uv=False)
    unused = jnp.arange(len(values)) >= metrics.rank(W)
    room = 1 - jnp.max(jnp.where(unused, values, 0.0)) / values[0]
    rows = duals / jnp.max(duals) + svm.margins(constraints, W) - 1
    present = jnp.ones(rows.shape, bool) if constraints.present is None else constraints.present
    least = jnp.min(jnp.where(present, rows, jnp.inf))
    return jax.tree.map(lambda value: jnp.maximum(value, 0.0), (room, least))


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how far a run is from the nuclear solution, and how that changes over the last factor of 100 in steps.

    Returns:
        Over the snapshots the geometric mean `off` of 1 - cos, and the mean `margin_ratio`; `exponent` and `power`, the
        exponents of the step and of ||W|| in 1 - cos; and `apart`, the geometric mean of the larger of ||K|| and ||Q||
        over the smaller at the end. For each seed: its exponent in the step, `of_seed`, `room` and `complementarity`.
        The attribute `since` is the first step of the fit.
    """
    steps, off = run["snapshot"].values, run["off"].sel(norm="nuclear", drop=True)
    since = int(steps[np.argmin(np.abs(np.log(steps * _SPAN / steps[-1])))])
    late = steps >= since
    keys = [jax.random.fold_in(key, k) for k in range(4)]
    powers = exponents(run["size"].values[:, late], off.values[:, late])
    apart = bootstrap(np.abs(np.log(run["balance"].values[:, -1])), keys[3])
    estimates = estimated(run, keys[0], off=geometric_mean(off), exponent=power_law(off, since=since, least=_LONG))
    margin = bootstrap(run["margin_ratio"].sel(norm="nuclear").values, keys[1])
    estimates = estimates.assign(
        variables({"margin_ratio": (("snapshot",), margin), "power": ((), bootstrap(powers, keys[2]))})
    ).assign(
        {f"apart{end}": np.exp(getattr(apart, of)) for end, of in (("", "mean"), ("_low", "low"), ("_high", "high"))}
    )
    of_seed = {name: run[name] for name in ("room", "complementarity")}
    of_seed["of_seed"] = run["room"].copy(data=exponents(steps[None, late], off.values[:, late]))
    return estimates.assign(of_seed).assign_attrs(since=since)


def _kinds(runs: Datasets, *steps: str) -> dict[str, list[xarray.Dataset]]:
    """Return the runs of each step rule and normalization, by the name of both, over the factors c."""
    kinds = {
        f"{step}, {norm}": [runs[f"{step}, {norm}, c = {factor}"] for factor in _FACTORS]
        for step in steps or _STEPS
        for norm in _NORMS
    }
    return kinds


def _decreasing(runs: Datasets) -> dict[str, list[xarray.Dataset]]:
    return _kinds(runs, *_STEPS[1:])


@claim(
    "kq-limit:direction", _SOURCE, "Descent on (K, Q) converges to the direction of the nuclear solution.", needs=_NEEDS
)
def _direction(runs: Datasets) -> Judgement:
    """The published rule must converge to the solution; as corrected, every rule with decreasing steps."""
    published, decreasing = runs[_PUBLISHED], _decreasing(runs)
    numbers: dict[str, Number] = {}
    shown = {kind: (own[_FACTORS.index(_SHOWN)], _SHOWN) for kind, own in _kinds(runs).items()}
    for kind, (run, factor) in ({_NAME: (published, 0.1)} | shown).items():
        numbers |= {
            f"1 - cos at the last step, {kind}, c = {factor:g}": number(run, "off", at=-1),
            f"margin ratio at the last step, {kind}, c = {factor:g}": number(run, "margin_ratio", at=-1),
            f"exponent of k in 1 - cos, {kind}, c = {factor:g}": number(run, "exponent"),
            f"exponent of ||W|| in 1 - cos, {kind}, c = {factor:g}": number(run, "power"),
        }
    ends = [float(run["off"][-1]) for own in decreasing.values() for run in own]
    least = min(float(run["margin_ratio"][-1]) for own in decreasing.values() for run in own)
    since = published.attrs["since"]
    stalls = (
        f"1 - cos goes from {float(published['off'].sel(snapshot=since)):.2g} at step {since} to "
        f"{float(published['off'][-1]):.2g} at step {int(published['snapshot'][-1])}"
    )
    return Judgement(
        _tends(_NAME, [published]),
        [criterion for kind, own in decreasing.items() for criterion in _tends(kind, own)],
        correction="it does with decreasing steps (like k^-1/2, or divided by the norm of the weights), under both "
        f"normalizations: 1 - cos keeps falling and ends between {min(ends):.2g} and {max(ends):.2g}, and "
        f"the margin ratio ends at {least:.4f} or more. With the published constant step and separate "
        f"norms, K and Q drift apart by a factor of {float(published['apart']):.3g}, and the distance "
        f"stalls: {stalls}; the margin ratio ends at {float(published['margin_ratio'][-1]):.4f}.",
        remark=_depends(runs),
        numbers=numbers,
        expected={
            label: 1.0 if label.startswith("margin") else 0.0 for label in numbers if not label.startswith("exponent")
        },
    )


@claim(
    "kq-limit:balance",
    _SOURCE,
    "Descent on (K, Q) makes ||K|| and ||Q|| equal, as they are at every point of the regularization path.",
    needs=_NEEDS,
)
def _balance(runs: Datasets) -> Judgement:
    """||K|| and ||Q|| must end equal under the published rule; as corrected, with a joint norm, for every step."""
    published, kinds = runs[_PUBLISHED], _kinds(runs)
    name = "ratio of the larger to the smaller of ||K|| and ||Q|| at the last step"
    # The published rule is one with a constant step and separate norms.
    every = (
        {_NAME: [published]} | kinds | {f"{_STEPS[0]}, {_SEPARATE}": [published, *kinds[f"{_STEPS[0]}, {_SEPARATE}"]]}
    )
    numbers = {f"{name}, {kind}": _worst(own, "apart") for kind, own in every.items()}
    joint = {f"{step}, {_JOINT}" for step in _STEPS}
    return Judgement(
        [below(f"{name}, {_NAME}", number(published, "apart"), _APART)],
        # A first rule asked this of every decreasing step; with separate norms and c = 3 it is not true.
        [
            below(f"{name}, {kind}, largest over c", _worst(own, "apart"), _APART)
            for kind, own in kinds.items()
            if kind in joint
        ],
        correction="only with a joint norm for K and Q, under every step rule. With separate norms, the first steps "
        "are large compared with the weights and make the norms of K and Q differ, and later steps do not "
        f"equalize them: they differ by a factor of {float(published['apart']):.3g} at the last step under "
        "the published rule.",
        remark="Geometric means over seeds; for each rule, the c with the largest ratio is shown.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
    )


def _tends(kind: str, runs: Sequence[xarray.Dataset]) -> tuple[Criterion, ...]:
    """Ask for a margin ratio near 1 and a distance that keeps falling, in the worst run for each."""
    over, since = ", worst over c," if len(runs) > 1 else ",", runs[0].attrs["since"]
    margin = min((number(run, "margin_ratio", at=-1) for run in runs), key=lambda value: value.mean)
    return (
        above(f"margin ratio at the last step, {kind}{over}", margin, _CLOSE),
        below(f"p in 1 - cos ~ ||W||^p from step {since}, {kind}{over}", _worst(runs, "power"), _POWER),
    )


def _worst(runs: Sequence[xarray.Dataset], name: str) -> Number:
    return max((number(run, name) for run in runs), key=lambda value: value.mean)


def _depends(runs: Datasets) -> str:
    """Describe what the exponents of the seeds correlate with, for steps like k^-1/2."""
    correlations = []
    for kind, own in _kinds(runs, _STEPS[1]).items():
        factor, run = _FACTORS[-1], own[-1]
        room, complementarity = (_ranks(run["of_seed"].values, run[of].values) for of in ("room", "complementarity"))
        correlations.append(
            f"{room} with 1 - s and {complementarity} with the complementarity ({kind}, c = {factor:g})"
        )
    return (
        "What determines an instance's exponent: rank correlations over the seeds, where s is the largest singular "
        "value of sum a_k A_k that the solution does not use: " + "; ".join(correlations) + "."
    )


def _ranks(x: Float[np.ndarray, " seeds"], y: Float[np.ndarray, " seeds"]) -> str:
    """Return Spearman's rank correlation with Fisher's 95 % interval, as text."""
    of_x, of_y = (np.argsort(np.argsort(values)).astype(float) for values in (x, y))
    correlation = float(np.corrcoef(of_x, of_y)[0, 1])
    width = 1.96 / np.sqrt(max(len(x) - 3, 1))
    middle = np.arctanh(np.clip(correlation, -1 + 1e-12, 1 - 1e-12))
    low, high = np.tanh(middle - width), np.tanh(middle + width)
    return f"{correlation:.2f} [{low:.2f}, {high:.2f}]"


_COLOURS: dict[str, str] = dict(zip(_STEPS, (palette.TEAL, palette.WINE, palette.AMBER), strict=True))
_WRITTEN = dict(zip(_STEPS, ("constant step", "step like $k^{-1/2}$", "step / norm"), strict=True))
# Line, marker and its face for each normalization, and for the published run.
_LOOKS: dict[str, tuple[Literal["-", "--"], str, bool]] = {_SEPARATE: ("-", "o", True), _JOINT: ("--", "s", False)}
_DOTTED = (":", "o", True)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of each rule along the steps, and the exponents that claims are judged by."""
    families = {
        (step, norm): own
        for step in _STEPS
        for norm in _NORMS
        if (own := [summaries[run] for c in _FACTORS if (run := f"{step}, {norm}, c = {c}") in summaries])
    }
    published = summaries[_PUBLISHED]
    with page.style():
        figure = page.full(3.5)
        distance, margin, exponent = figure.subplots(1, 3)
        for (step, norm), own in families.items():
            _both(distance, margin, own[0], color=_COLOURS[step], linestyle=_LOOKS[norm][0])
        _both(distance, margin, published, color=palette.GUIDE, linestyle=_DOTTED[0])
        first = [own[0] for own in families.values()]
        error, ratio = float(published["off"][-1]), float(published["margin_ratio"][-1])
        best_error = min([error, *(float(run["off"][-1]) for run in first)])
        best_ratio = max([ratio, *(float(run["margin_ratio"][-1]) for run in first)])
        ends = f"{page.power(error)} as published" + (f", best {page.power(best_error)}" if best_error < error else "")
        distance.set(title=f"(a) final error: {ends}", ylabel="direction error, 1 - cos")
        ends = f"{ratio:.3f} as published" + (f", best {best_ratio:.3f}" if best_ratio > ratio else "")
        margin.set(title=f"(b) margin ratio: {ends}", ylabel="1 - margin ratio")
        for axes in (distance, margin):
            axes.set(xlabel="step $k$", xscale="log", yscale="log")
        _exponents(exponent, families, published)
        figure.legend(handles=_key(), loc="outside upper center", ncols=3, handlelength=3)
        others = {run: summary for run, summary in summaries.items() if run != _PUBLISHED}
        together = {f"{len(others)} others together": xarray.Dataset(attrs=total(others))} if others else {}
        page.add_counts(
            figure,
            {_PUBLISHED: published} | together,
            "(a) geometric, (b) arithmetic means with 95 % intervals, for c = 1 where not said. (c): fitted over the "
            "last factor of 100 in steps, with 95 % intervals, for the c with the largest $p$; the error counts as "
            f"falling on for $p$ below {_POWER:g}.",
        )
    return figure


def _both(distance: Axes, margin: Axes, run: xarray.Dataset, **look: str) -> None:
    steps = run["snapshot"].values
    page.band(distance, steps, *(run[f"off{part}"].values for part in ("", "_low", "_high")), **look)
    page.band(margin, steps, *(1 - run[f"margin_ratio{part}"].values for part in ("", "_low", "_high")), **look)


def _exponents(axes: Axes, families: dict[tuple[str, str], list[xarray.Dataset]], published: xarray.Dataset) -> None:
    """Draw the largest exponent over c of each rule with its interval, and the threshold of still falling."""
    _exponent(axes, 0.0, _worst([published], "power"), palette.GUIDE, _DOTTED)
    for (step, norm), own in families.items():
        height = 1 + _STEPS.index(step) + (0.15 if norm == _JOINT else -0.15)
        _exponent(axes, height, _worst(own, "power"), _COLOURS[step], _LOOKS[norm])
    axes.axvline(_POWER, color=palette.INK, linewidth=0.7, linestyle=":")
    near = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "fontsize": page.SMALLEST}
    axes.annotate("stalls", (_POWER, 0.0), (4, 4), ha="left", **near)
    axes.annotate("falls on", (_POWER, 0.0), (-4, 4), ha="right", **near)
    axes.set_yticks(range(4), ["as published", *_WRITTEN.values()])
    for label, colour in zip(axes.get_yticklabels(), (palette.GUIDE, *_COLOURS.values()), strict=True):
        label.set_color(colour)
    axes.set_ylim(3.8, -0.5)
    # Room for both words.
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 4 * _POWER), max(right, _POWER + 0.35 * (right - left)))
    axes.set_xlabel(r"$p$ in 1 - cos $\sim \|W\|^p$")
    decreasing = [_worst(own, "power") for (step, _), own in families.items() if step in _STEPS[1:]]
    outcomes = [f"as published: {_outcome(number(published, 'power'))}"]
    if decreasing:
        outcomes.append(f"decreasing steps: {_outcome(max(decreasing, key=lambda p: p.mean))}")
    axes.set_title(f"(c) {'; '.join(outcomes)}")


def _exponent(axes: Axes, height: float, p: Number, colour: str, look: tuple[str, str, bool]) -> None:
    _, marker, filled = look
    errors = np.clip([[p.mean - p.low], [p.high - p.mean]], 0, None)
    face = colour if filled else "white"
    axes.errorbar(p.mean, height, xerr=errors, color=colour, marker=marker, markersize=4, markerfacecolor=face)


def _outcome(p: Number) -> str:
    return {Outcome.MET: "falls on", Outcome.BROKEN: "stalls"}.get(below("p", p, _POWER).outcome, "open")


def _key() -> list[Line2D]:
    """Return what explains colours, and apart from them dashes and markers."""
    colours = [Line2D([], [], color=_COLOURS[step], label=label) for step, label in _WRITTEN.items()]
    dashes = [
        Line2D(
            *([], []),
            label=norm,
            color=palette.INK,
            linestyle=dash,
            marker=marker,
            markersize=4,
            markerfacecolor=palette.INK if filled else "white",
        )
        for norm, (dash, marker, filled) in _LOOKS.items()
    ]
    label = f"as published: constant step 0.1, {_SEPARATE}"
    dashes.append(Line2D([], [], color=palette.GUIDE, linestyle=_DOTTED[0], label=label))
    return [line for pair in zip(colours, dashes, strict=True) for line in pair]


EXPERIMENT = Experiment(measure, claims=(_direction, _balance), estimate=estimate, draw=draw)
