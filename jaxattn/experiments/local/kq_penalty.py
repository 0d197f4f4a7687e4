"""Which max-margin solution does descent on (K, Q) reach with a penalty, and which without?"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.attention import Factored
from jaxattn.descent import PUBLISHED_EPSILON, gradients
from jaxattn.experiments.local import limits
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import bootstrap
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import below, between
from jaxattn.study.estimates import estimated, geometric_mean, number
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
_NEEDS = Needs(steps=10_000)
# Penalties, and those under which runs of this length have converged.
_PENALTIES = (1e-8, 1e-12, 1e-16, 1e-30, 1e-100)
_RESTED = 1e-30
_PATH = tuple(penalty for penalty in _PENALTIES if penalty >= _RESTED)
# Fixed beforehand. A point counts as stationary if its residual is at most this; two distances from the solution count
# as equal if their ratio is in this range.
# From the largest penalty to the smallest, 1 - cos must fall by the factor.
_STATIONARY, _EQUAL, _FACTOR = 0.1, (0.8, 1.25), 3.0
# The kinds of runs. Small starts have weights of this scale, and are compared with the usual ones at this penalty.
_SEPARATE, _JOINT, _SMALL = "separate norms", "joint norm", "small start"
_SCALE, _OF_START = 0.01, 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run of factors with its max-margin solutions; for penalized ones, measure stationarity at the end.

    The record is of a `Training` with logistic loss and linear head.

    Returns:
        The dataset of `limits.measure`; for a run with a penalty p also `residual`, (seed,), at the end: `||g + 2 p (K,
        Q)|| / (||g|| + ||2 p (K, Q)||)`, with g the exact gradient of the risk: 0 where the penalized risk is
        stationary, 1 where the two terms do not cancel at all.
    """
    measured = limits.measure(record, solver)
    # Steps that fall are a rule around another one.
    penalty = record.attrs.get("optimizer.optimizer.penalty", record.attrs.get("optimizer.penalty", 0.0))
    if penalty == 0:
        return measured
    kept = record.sel(seed=measured["seed"].values)
    arrays = {str(name): kept[name].values for name in kept.data_vars}
    residuals, seeds = np.zeros(0), kept.sizes["seed"]
    if seeds:
        residuals = batch.over_seeds(residual, weights_of(arrays), of_arrays(arrays), np.full(seeds, penalty))
    return measured.assign(residual=(("seed",), residuals))


def residual(weights: Factored, problem: Problem, penalty: Float[Array, ""]) -> Float[Array, ""]:
    """Return the residual of stationarity of the penalized risk at factors, (), as defined in `measure`."""
    logits = attention.masked(attention.logits(weights, problem), problem)
    read = gradients.reading(problem, heads.linear)
    slope = gradients.direction(jnp.zeros((), int), logits, problem.Y, read, losses.logistic)
    # In units of the penalty, which may be too small for its square.
    coefficients = slope.coefficients * jnp.exp(slope.log_scale - jnp.log(2 * penalty))
    y = jnp.einsum("nt,ntd->nd", coefficients, problem.X)
    of_K, of_Q = y.T @ (problem.Z @ weights.Q), problem.Z.T @ (y @ weights.K)
    of_risk, of_penalty = (jnp.concatenate([leaf.ravel() for leaf in pair]) for pair in ((of_K, of_Q), weights))
    return metrics.norm(of_risk + of_penalty) / (metrics.norm(of_risk) + metrics.norm(of_penalty))


def _run(kind: str, penalty: float) -> str:
    return f"{kind}, penalty {penalty:g}"


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the distance of every run from each solution, and the ratios that the claims ask for.

    Returns:
        Geometric means over seeds: of the distances, `off`, 1 - cos, (norm, snapshot); of `residual`; and of the final
        distance over that of another run: for runs on the penalty path, `next` compares with the next larger penalty,
        `all` with the largest one, and `joint` with a joint norm; for the published run, `rested` compares with the
        same penalty and decreasing steps; for a small initial scale, `start` compares with the usual one.

    Raises:
        ValueError: two runs that are compared have no seed in common.
    """
    summaries = {}
    for r, (name, run) in enumerate(runs.items()):
        norms = run["norm"].values
        parts = [
            estimated(run, jax.random.fold_in(key, len(norms) * r + k), off=geometric_mean(run["off"].sel(norm=norm)))
            for k, norm in enumerate(norms)
        ]
        summaries[name] = xarray.concat(parts, "norm")
    pairs = []
    for larger, smaller in itertools.pairwise(_run(_SEPARATE, penalty) for penalty in _PATH):
        pairs += [(smaller, "next", larger), (smaller, "all", _run(_SEPARATE, _PATH[0]))]
    pairs += [(_run(_SEPARATE, penalty), "joint", _run(_JOINT, penalty)) for penalty in _PATH]
    pairs += [("as published", "rested", "decreasing steps")]
    pairs += [(_run(_SMALL, penalty), "start", _run(_SEPARATE, penalty)) for penalty in (_OF_START, 0.0)]
    # At size=small there are only some of them.
    pairs = [(run, ratio, other) for run, ratio, other in pairs if run in runs and other in runs]
    ratios = [(name, "residual", run["residual"]) for name, run in runs.items() if "residual" in run]
    ratios += [(name, ratio, _over(runs, name, other)) for name, ratio, other in pairs]
    for k, (name, ratio, values) in enumerate(ratios):
        logarithm = bootstrap(np.log(values.values), jax.random.fold_in(jax.random.fold_in(key, 1), k))
        parts = {"": logarithm.mean, "_low": logarithm.low, "_high": logarithm.high}
        summaries[name] = summaries[name].assign({f"{ratio}{end}": float(np.exp(part)) for end, part in parts.items()})
    return summaries


def _over(runs: Datasets, run: str, other: str) -> xarray.DataArray:
    """Return the final distance of one run over that of another, for the seeds that both kept."""
    ends = [runs[name]["off"].sel(norm="nuclear").isel(snapshot=-1) for name in (run, other)]
    # Xarray divides where both have a seed.
    ratio = ends[0] / ends[1]
    if not ratio.size:
        raise ValueError(f"kq-penalty: expected seeds that both of {[other, run]} kept, found none")
    return ratio


@claim(
    "kq-penalty:published",
    _SOURCE,
    "The published run of (K, Q) ends at a stationary point of the penalized risk, like the points of the "
    "regularization path.",
    needs=_NEEDS,
)
def _published(runs: Datasets) -> Judgement:
    label = "residual of stationarity of the penalized risk, last step"
    numbers = {f"{label}, {run}": number(runs[run], "residual") for run in ("as published", "decreasing steps")}
    of_published, of_falling = (below(f"{name},", value, _STATIONARY) for name, value in numbers.items())
    ratio = number(runs["as published"], "rested")
    return Judgement(
        [of_published],
        [of_falling, between("1 - cos as published over 1 - cos with decreasing steps", ratio, *_EQUAL)],
        correction="it oscillates about such a point: its step is constant, and the residual is "
        f"{of_published.value.mean:.2g}. With decreasing steps it is {of_falling.value.mean:.2g}, and 1 - cos of the "
        f"published run is {ratio.mean:.2f} times as large. So the penalty of {PUBLISHED_EPSILON:.2g} determines where "
        "the run ends.",
        remark="Geometric means over seeds.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 0.0),
    )


@claim(
    "kq-penalty:normalization",
    _SOURCE,
    "The point to which penalized descent on (K, Q) converges does not depend on whether K and Q are normalized "
    "separately, as published, or jointly.",
    needs=_NEEDS,
)
def _normalization(runs: Datasets) -> Judgement:
    name = "1 - cos with separate norms over 1 - cos with a joint norm"
    ratios = {f"{name}, penalty {penalty:.0e}": number(runs[_run(_SEPARATE, penalty)], "joint") for penalty in _PATH}
    return Judgement(
        [between(label, ratio, *_EQUAL) for label, ratio in ratios.items()],
        remark="For training without a penalty see kq-limit.",
        expected=dict.fromkeys(ratios, 1.0),
    )


@claim(
    "kq-penalty:start",
    _SOURCE,
    "The point to which penalized descent on (K, Q) converges does not depend on the scale of the initial weights.",
    needs=_NEEDS,
)
def _start(runs: Datasets) -> Judgement:
    name = f"1 - cos from a start of scale {_SCALE:g} over 1 - cos from a start of scale 1"
    small = runs[_run(_SMALL, _OF_START)]
    ratio, free = number(small, "start"), number(runs[_run(_SMALL, 0.0)], "start")
    return Judgement(
        [between(f"{name}, penalty {_OF_START:.0e}", ratio, *_EQUAL)],
        remark=f"Without a penalty, after the same number of steps, this ratio is {free.mean:.2f}.",
        numbers={name: ratio},
        expected={name: 1.0},
        counts=counts_of({_run(_SMALL, _OF_START): small}),
    )


@claim(
    "kq-penalty:penalized",
    _SOURCE,
    "As the penalty on (K, Q) falls to zero, the point to which penalized descent converges tends in direction to "
    "the nuclear solution, as on the regularization path.",
    needs=_NEEDS,
)
def _penalized(runs: Datasets) -> Judgement:
    path = {penalty: runs[_run(_SEPARATE, penalty)] for penalty in _PENALTIES}
    ends = {penalty: number(run, "off", at=-1, norm="nuclear") for penalty, run in path.items()}
    numbers = {f"1 - cos, nuclear, penalty {penalty:.0e}": end for penalty, end in ends.items()}
    first, last = _PATH[0], _PATH[-1]
    falls = [
        below(f"1 - cos at penalty {smaller:.0e} over 1 - cos at {larger:.0e}", number(path[smaller], "next"), 1.0)
        for larger, smaller in itertools.pairwise(_PATH)
    ]
    overall = f"1 - cos at penalty {last:.0e} over 1 - cos at {first:.0e}"
    x, y = np.log(-np.log(_PATH)), np.log([ends[penalty].mean for penalty in _PATH])
    return Judgement(
        (*falls, below(overall, number(path[last], "all"), 1 / _FACTOR)),
        remark=f"From penalty {first:.0e} to {last:.0e}, 1 - cos goes like log(1 / penalty)^"
        f"{float(np.polyfit(x, y, 1)[0]):.1f}. Runs under penalties below {_RESTED:.0e} need more steps to converge, "
        "and are not judged.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 0.0),
    )


def _end(run: xarray.Dataset) -> float:
    return number(run, "off", at=-1, norm="nuclear").mean


# Where both rules end at the same point, a narrow line is seen on a broad one.
_RULES: dict[str, dict[str, Any]] = {
    _SEPARATE: {"color": palette.TEAL, "marker": "o", "markersize": 7, "linewidth": 3.0}
    | {"markerfacecolor": "none", "alpha": 0.7},
    _JOINT: {"color": palette.WINE, "marker": "s", "markersize": 2.5, "linewidth": 1.0},
}
_NORMS = {"nuclear": "-", "frobenius": ":"}
_KIND = "geometric mean, 95 % interval"
_CURVES = {
    _run(_SEPARATE, 0.0): (palette.TEAL, "-", "separate norms, no penalty"),
    _run(_JOINT, 0.0): (palette.WINE, "--", "joint norm, no penalty"),
    "as published": (palette.INK, "-", "run as published"),
    "published rule, penalty 0": (palette.GUIDE, ":", "published rule, no penalty"),
    "decreasing steps": (palette.ROSE, "-", "published penalty, decreasing steps"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw two panels: the distances over the penalty, and along the steps without one."""
    with page.style():
        figure = page.full(3.9)
        over_penalty, along_steps = figure.subplots(1, 2)
        _over_penalty(over_penalty, summaries)
        _along_steps(along_steps, summaries)
        over_penalty.set_ylabel("direction error, 1 - cos")
        verdict = judgements["kq-penalty:penalized"].verdict
        figure.suptitle(
            f"As the penalty falls, descent on $(K, Q)$ converges nearer to the nuclear solution: {verdict}"
        )
        remark = "Means over kept seeds; bars and bands: bootstrap intervals of the mean."
        page.add_counts(figure, summaries, remark)
    return figure


def _over_penalty(axes: Axes, summaries: Datasets) -> None:
    # At size=small there are fewer.
    penalties = {rule: [each for each in _PENALTIES if _run(rule, each) in summaries] for rule in _RULES}
    free = [_end(summaries[_run(rule, 0.0)]) for rule in _RULES]
    for (rule, look), end in zip(_RULES.items(), free, strict=True):
        axes.axhline(end, color=look["color"], linestyle="--", linewidth=0.8)
        if not penalties[rule]:
            continue
        x = -np.log10(penalties[rule])
        for norm, dashes in _NORMS.items():
            runs = [summaries[_run(rule, penalty)] for penalty in penalties[rule]]
            off, low, high = np.transpose([number(run, "off", at=-1, norm=norm) for run in runs])
            label = rule if norm == "nuclear" else None
            axes.errorbar(x, off, [off - low, high - off], elinewidth=0.8, linestyle=dashes, label=label, **look)
            if rule == _SEPARATE:
                axes.annotate(page.NORMS[norm], (x[0], off[0]), (6, 5), textcoords="offset points")
    published, end = -np.log10(PUBLISHED_EPSILON), _end(summaries["as published"])
    axes.axvline(published, color=palette.GUIDE, linewidth=0.8, linestyle="-.")
    axes.plot(published, end, "X", color=palette.INK, markersize=5, zorder=5, label="run as published")
    near: dict[str, Any] = {"textcoords": "offset points", "xytext": (3, 2)}
    words = f"published penalty, {PUBLISHED_EPSILON:.1e}"
    axes.annotate(words, (published, 0.04), xycoords=axes.get_xaxis_transform(), **near)
    near |= {"xytext": (-3, 2), "ha": "right"}
    axes.annotate("no penalty (dashed)", (1, max(free)), xycoords=axes.get_yaxis_transform(), **near)
    large, small = (page.power(_end(summaries[_run(_SEPARATE, penalties[_SEPARATE][k])])) for k in (0, -1))
    title = f"nuclear error {large} under the largest penalty, {small} under the smallest"
    axes.set_title(f"(a) after {summaries['as published'].attrs['steps']:,} steps: {title}")
    axes.set(xlabel=r"$\log_{10}$ (1 / penalty)", yscale="log")
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.7), title=_KIND)


def _along_steps(axes: Axes, summaries: Datasets) -> None:
    for name, (colour, dashes, label) in _CURVES.items():
        if name not in summaries:
            continue
        run = summaries[name].sel(norm="nuclear")
        curve = (run[part].values for part in ("snapshot", "off", "off_low", "off_high"))
        page.band(axes, *curve, color=colour, linestyle=dashes, label=label)
    published = summaries["as published"]
    ends = f"as published it ends at {_end(published):.2g}"
    title = f"(b) nuclear SVM, along {published.attrs['steps']:,} steps: {ends}"
    axes.set(title=title, xlabel="step", xscale="log", yscale="log")
    # Room for the key below all curves.
    low, high = axes.get_ylim()
    axes.set_ylim(low * (low / high) ** 0.6, high)
    axes.legend(loc="lower left", title=_KIND)


EXPERIMENT = Experiment(
    measure, claims=(_published, _normalization, _start, _penalized), summarize=summarize, draw=draw
)
