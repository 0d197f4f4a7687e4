"""Which max-margin solution does descent on (K, Q) reach with a penalty, and which without?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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
from jaxattn.study.claims.criteria import Number, below, between
from jaxattn.study.estimates import estimated, geometric_mean, number
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
# Shorter runs cannot decide.
_NEEDS = Needs(steps=10_000)
# Penalties, and those under which runs of this length have converged.
_PENALTIES = (1e-8, 1e-12, 1e-16, 1e-30, 1e-100)
_RESTED = 1e-30
_PATH = tuple(penalty for penalty in _PENALTIES if penalty >= _RESTED)
# Fixed beforehand. A point counts as stationary if its residual is at most this; two distances from the solution count
# as equal if their ratio is in this range.
_STATIONARY, _EQUAL = 0.1, (0.8, 1.25)
# From the largest penalty to the smallest, 1 - cos must fall by this factor.
_FACTOR = 3.0
# The small scale of the initial weights, and the penalty at which it is compared with the usual one.
_SMALL, _OF_START = 0.01, 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run of factors with its max-margin solutions; for penalized ones, measure stationarity at the end.

    Args:
        record: of a `Training` of factors, with logistic loss and linear head.
        solver: for all norms; each norm's default if None.

    Returns:
        The dataset of `limits.measure`; for a run with a penalty p also `residual`, (seed,), at the end: `||g + 2 p (K,
        Q)|| / (||g|| + ||2 p (K, Q)||)`, with g the exact gradient of the risk: 0 where the penalized risk is
        stationary, 1 where the two terms do not cancel at all.
    """
    measured, penalty = limits.measure(record, solver), _penalty(record)
    if penalty == 0:
        return measured
    kept = np.isin(record["seed"].values, measured["seed"].values)
    if not kept.any():
        return measured.assign(residual=(("seed",), np.zeros(0)))
    arrays = {str(name): record[name].values[kept] for name in record.data_vars}
    penalties = np.full(kept.sum(), penalty)
    residuals = batch.over_seeds(residual, weights_of(arrays), of_arrays(arrays), penalties)
    return measured.assign(residual=(("seed",), residuals))


def _penalty(run: xarray.Dataset) -> float:
    """Return the penalty of a run; steps that fall are a rule around another one."""
    return run.attrs.get("optimizer.optimizer.penalty", run.attrs.get("optimizer.penalty", 0.0))


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


def _separate(penalty: float) -> str:
    return f"separate norms, penalty {penalty:g}"


def _joint(penalty: float) -> str:
    return f"joint norm, penalty {penalty:g}"


def _small(penalty: float) -> str:
    return f"small start, penalty {penalty:g}"


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the distance of every run from each solution, and the ratios that the claims ask for.

    Returns:
        For each run the geometric mean `off` of the distances, 1 - cos, (norm, snapshot), and for each with a penalty
        also that of `residual`; and geometric means over seeds of paired ratios: the final distance over that of
        another run, where there is one. For runs on the penalty path, `next` compares with the next larger penalty and
        `all` with the largest one, and `joint` with a joint norm; for the published run, `rested` compares with the
        same penalty and decreasing steps; for a small initial scale, `start` compares with the usual one.

    Raises:
        ValueError: two runs that are compared have no seed in common.
    """
    summaries = {}
    for r, (name, run) in enumerate(runs.items()):
        norms = run["norm"].values
        parts = [
            estimated(
                run,
                jax.random.fold_in(key, len(norms) * r + k),
                off=geometric_mean(run["off"].sel(norm=norm)),
            )
            for k, norm in enumerate(norms)
        ]
        summaries[name] = xarray.concat(parts, "norm")
    path = [_separate(penalty) for penalty in _PATH if _separate(penalty) in runs]
    pairs = []
    for larger, smaller in itertools.pairwise(path):
        pairs += [(smaller, "next", larger), (smaller, "all", path[0])]
    pairs += [(_separate(penalty), "joint", _joint(penalty)) for penalty in _PATH]
    pairs += [("as published", "rested", "decreasing steps")]
    pairs += [(_small(penalty), "start", _separate(penalty)) for penalty in (_OF_START, 0.0)]
    ratios = [(name, "residual", run["residual"].values) for name, run in runs.items() if "residual" in run]
    ratios += [
        (name, ratio, _nearer(runs, other, name)) for name, ratio, other in pairs if name in runs and other in runs
    ]
    changes = jax.random.fold_in(key, 1)
    for k, (name, ratio, values) in enumerate(ratios):
        logarithm = bootstrap(np.log(values), jax.random.fold_in(changes, k))
        parts = {"": logarithm.mean, "_low": logarithm.low, "_high": logarithm.high}
        summaries[name] = summaries[name].assign({f"{ratio}{end}": float(np.exp(part)) for end, part in parts.items()})
    return summaries


def _nearer(runs: Datasets, before: str, after: str) -> Float[np.ndarray, " seeds"]:
    """Return the final distance of one run over that of another, for the seeds that both kept."""
    shared = np.intersect1d(runs[before]["seed"].values, runs[after]["seed"].values)
    if not shared.size:
        raise ValueError(f"kq-penalty: expected seeds that both of {[before, after]} kept, found none")
    ends = (runs[name]["off"].sel(norm="nuclear", seed=shared).values[:, -1] for name in (after, before))
    return np.divide(*ends)


@claim(
    "kq-penalty:published",
    _SOURCE,
    "The published run of (K, Q) ends at a stationary point of the penalized risk, like the points of the "
    "regularization path.",
    needs=_NEEDS,
)
def _published(runs: Datasets) -> Judgement:
    """The published run must end where the penalized risk is stationary; as corrected, as far as a run that does."""
    name, published = "residual of stationarity of the penalized risk, last step", runs["as published"]
    of_published, of_falling = number(published, "residual"), number(runs["decreasing steps"], "residual")
    ratio = number(published, "rested")
    numbers = {f"{name}, as published": of_published, f"{name}, decreasing steps": of_falling}
    return Judgement(
        [below(f"{name}, as published,", of_published, _STATIONARY)],
        [
            below(f"{name}, decreasing steps,", of_falling, _STATIONARY),
            between("1 - cos as published over 1 - cos with decreasing steps", ratio, *_EQUAL),
        ],
        correction="it oscillates about such a point: its step is constant, and the residual is "
        f"{of_published.mean:.2g}. With decreasing steps it is {of_falling.mean:.2g}, and 1 - cos of the published run "
        f"is {ratio.mean:.2f} times as large. So the penalty of {PUBLISHED_EPSILON:.2g} determines where the run ends.",
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
    """Under each penalty, both normalizations must converge to points equally far from the solution."""
    name = "1 - cos with separate norms over 1 - cos with a joint norm"
    numbers = {f"{name}, penalty {penalty:.0e}": number(runs[_separate(penalty)], "joint") for penalty in _PATH}
    return Judgement(
        [between(label, ratio, *_EQUAL) for label, ratio in numbers.items()],
        remark="For training without a penalty see kq-limit.",
        expected=dict.fromkeys(numbers, 1.0),
    )


@claim(
    "kq-penalty:start",
    _SOURCE,
    "The point to which penalized descent on (K, Q) converges does not depend on the scale of the initial weights.",
    needs=_NEEDS,
)
def _start(runs: Datasets) -> Judgement:
    """Under a penalty, a small start must end as far from the solution as the usual start."""
    name = f"1 - cos from a start of scale {_SMALL:g} over 1 - cos from a start of scale 1"
    ratio, free = number(runs[_small(_OF_START)], "start"), number(runs[_small(0.0)], "start")
    return Judgement(
        [between(f"{name}, penalty {_OF_START:.0e}", ratio, *_EQUAL)],
        remark=f"Without a penalty, after the same number of steps, this ratio is {free.mean:.2f}.",
        numbers={name: ratio},
        expected={name: 1.0},
        counts=counts_of({_small(_OF_START): runs[_small(_OF_START)]}),
    )


@claim(
    "kq-penalty:penalized",
    _SOURCE,
    "As the penalty on (K, Q) falls to zero, the point to which penalized descent converges tends in direction to "
    "the nuclear solution, as on the regularization path.",
    needs=_NEEDS,
)
def _penalized(runs: Datasets) -> Judgement:
    """The distance must fall with every smaller penalty, and over all penalties by the required factor."""
    ends = {penalty: number(runs[_separate(penalty)], "off", at=-1, norm="nuclear") for penalty in _PENALTIES}
    numbers = {f"1 - cos, nuclear, penalty {penalty:.0e}": end for penalty, end in ends.items()}
    falls = [
        below(
            f"1 - cos at penalty {smaller:.0e} over 1 - cos at {larger:.0e}",
            number(runs[_separate(smaller)], "next"),
            1.0,
        )
        for larger, smaller in itertools.pairwise(_PATH)
    ]
    first, last = _PATH[0], _PATH[-1]
    overall = f"1 - cos at penalty {last:.0e} over 1 - cos at {first:.0e}"
    x, y = np.log(-np.log(_PATH)), np.log([ends[penalty].mean for penalty in _PATH])
    return Judgement(
        (*falls, below(overall, number(runs[_separate(last)], "all"), 1 / _FACTOR)),
        remark=f"From penalty {first:.0e} to {last:.0e}, 1 - cos goes like log(1 / penalty)^"
        f"{float(np.polyfit(x, y, 1)[0]):.1f}. Runs under penalties below {_RESTED:.0e} need more steps to converge, "
        "and are not judged.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 0.0),
    )


# One under the other where both are equal: the first broad and hollow, the second narrow and full.
_RULES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "exact_gd": (
        "separate norms",
        palette.TEAL,
        "-",
        {"marker": "o", "markersize": 7, "markerfacecolor": "none", "linewidth": 3.0, "alpha": 0.7},
    ),
    "joint_gd": ("joint norm", palette.WINE, "--", {"marker": "s", "markersize": 2.5, "linewidth": 1.0}),
}
# In the order of the key: runs along the steps, beside those without a penalty.
_CURVES = {
    "as published": (palette.INK, "-", "run as published"),
    "published rule, penalty 0": (palette.GUIDE, ":", "published rule, no penalty"),
    "plain descent": (palette.AMBER, "-.", "plain descent"),
    _small(0.0): (palette.SKY, "--", f"separate norms, no penalty, start x {_SMALL:g}"),
    "decreasing steps": (palette.ROSE, "-", "published penalty, decreasing steps"),
}
_NORMS = {"nuclear": "-", "frobenius": ":"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw two panels: the distances over the penalty, and along the steps without one."""
    with page.style():
        figure = page.full(3.7)
        over_penalty, along_steps = figure.subplots(1, 2)
        _over_penalty(over_penalty, summaries)
        _along_steps(along_steps, summaries)
        over_penalty.set_ylabel("direction error, 1 - cos")
        remark = "Geometric means over kept seeds; bars and bands: 95 % bootstrap intervals of the mean."
        page.add_counts(figure, summaries, remark)
    return figure


def _of_rule(summaries: Datasets, rule: str) -> list[xarray.Dataset]:
    """Return the penalized runs of a rule from the usual start, by decreasing penalty."""
    runs = [run for run in summaries.values() if run.attrs["optimizer"] == rule and "weights.scale" not in run.attrs]
    return sorted((run for run in runs if _penalty(run) > 0), key=lambda run: -_penalty(run))


def _end(run: xarray.Dataset) -> float:
    return number(run, "off", at=-1, norm="nuclear").mean


def _over_penalty(axes: Axes, summaries: Datasets) -> None:
    highest, falls = 0.0, True
    for rule, (label, colour, _, look) in _RULES.items():
        runs = _of_rule(summaries, rule)
        x = [-np.log10(_penalty(run)) for run in runs]
        falls &= bool(np.all(np.diff([_end(run) for run in runs]) < 0))
        for norm, dashes in _NORMS.items():
            own = {"color": colour, "linestyle": dashes, "label": label if norm == "nuclear" else None} | look
            ends = [number(run, "off", at=-1, norm=norm) for run in runs]
            _points(axes, x, ends, **own)
            if ends and rule == "exact_gd":
                axes.annotate(page.NORMS[norm], (x[0], ends[0].mean), (6, 5), textcoords="offset points")
        if (free := f"{label}, penalty 0") in summaries:
            axes.axhline(_end(summaries[free]), color=colour, linestyle="--", linewidth=0.8)
            highest = max(highest, _end(summaries[free]))
    published = -np.log10(PUBLISHED_EPSILON)
    axes.axvline(published, color=palette.GUIDE, linewidth=0.8, linestyle="-.")
    look = {"color": palette.INK, "markersize": 5, "zorder": 5, "linestyle": "", "label": "run as published"}
    axes.plot(published, _end(summaries["as published"]), "X", **look)
    near = {"textcoords": "offset points", "xytext": (3, 2)}
    of_axes = axes.get_xaxis_transform()
    axes.annotate(f"published penalty, {PUBLISHED_EPSILON:.1e}", (published, 0.75), xycoords=of_axes, **near)
    if highest:
        end = near | {"xytext": (-3, 2), "ha": "right"}
        axes.annotate("no penalty (dashed)", (1, highest), xycoords=axes.get_yaxis_transform(), **end)
    trend = f"the nuclear error {'falls' if falls else 'does not always fall'} with the penalty"
    axes.set_title(f"(a) after {summaries['as published'].attrs['steps']:,} steps: {trend}")
    axes.set(xlabel=r"$\log_{10}$ (1 / penalty)", xscale="log", yscale="log")
    axes.legend(loc="lower left", frameon=True, facecolor="white", edgecolor="none", framealpha=1.0)


def _points(axes: Axes, x: list[float], ends: Sequence[Number], **look: Any) -> None:
    off, low, high = np.reshape(ends, (-1, 3)).T
    axes.errorbar(x, off, yerr=[off - low, high - off], elinewidth=0.8, **look)


def _along_steps(axes: Axes, summaries: Datasets) -> None:
    curves = {
        f"{label}, penalty 0": (colour, dashes, f"{label}, no penalty") for label, colour, dashes, _ in _RULES.values()
    }
    for name, (colour, dashes, label) in (curves | _CURVES).items():
        if name in summaries:
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
    axes.legend(loc="lower left")


EXPERIMENT = Experiment(
    measure, claims=(_published, _normalization, _start, _penalized), summarize=summarize, draw=draw
)
