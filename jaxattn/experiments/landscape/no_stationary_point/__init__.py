"""Can the gradient point away from the SVM solution of the optimal tokens, or vanish (2308.16898)?"""

from __future__ import annotations

from typing import Any

import contourpy
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.no_stationary_point.measure import measure
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Kind, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import estimated, mean, number, share
from jaxattn.study.style import page, palette
from jaxattn.study.style.view import rounded

_PAPER, _LOCATOR = "arXiv 2308.16898", "lemma on stationary points under equal scores"
# The lemma is sampled as stated; what holds without its assumption is our question.
_EXACT, _OURS = (Source(_PAPER, _LOCATOR, setting) for setting in (Setting.EXACT, Setting.OURS))
# The fewest weights per problem that can decide. Thresholds for rounding: of a cosine, and of the norm of a vanishing
# gradient; and for the smallest eigenvalue at a local minimum.
_ENOUGH = 1000
_ROUNDING, _VANISHED, _BENT = 1e-9, 1e-12, 1e-6


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return what was measured, with the mean smallest cosine and the share of problems with a negative one.

    Raises:
        ValueError: norms or eigenvalues at stationary points that are impossible.
    """
    if (run["trap_gradient"] < 0).any() or (run["trap_least"] > run["trap_largest"]).any():
        raise ValueError("trap: expected norms of at least 0 and ordered eigenvalues, found others")
    estimates = estimated(
        run, key, mean_least=mean(run["least"]), mean_negative=mean(run["negative"]), turns_away=share(run["least"] < 0)
    )
    return run.assign(dict(estimates.data_vars))


@claim(
    "no-stationary-point:equal",
    _EXACT,
    "With equal scores of non-optimal tokens, -<grad L(W), W_mm> > 0 for every W, so there is no finite "
    "stationary point.",
)
def _equal(runs: Datasets) -> Judgement:
    equal = runs["equal"]
    least = Number.exact(float(equal["least"].min()))
    over = Number.exact(float((equal["least"] / equal["bound"]).min()))
    return Judgement(
        (
            above("smallest cosine of -grad L and W_mm", least, 0.0),
            above("smallest ratio of the cosine to the proof's bound", over, 1 - _ROUNDING),
        ),
        remark=f"{int(equal.attrs['draws'])} weights per problem, with norms from 0.01 to 100. The proof gives more "
        "than the sign: the cosine is at least 1 / (||W_mm|| max ||z_i|| ||x_opt - x_t||) at every W. The "
        f"smallest one found is {over.mean:.4g} times this bound.",
        numbers={
            "smallest cosine of -grad L and W_mm, mean over problems": number(equal, "mean_least"),
            "share of problems with a negative cosine": number(equal, "turns_away"),
            "smallest cosine overall": least,
            "smallest ratio of the cosine to the proof's bound, over all problems": over,
        },
        expected={"share of problems with a negative cosine": 0.0},
        undecided=_too_few_draws(equal),
    )


@claim("no-stationary-point:needed", _OURS, "Without equal scores, -<grad L(W), W_mm> is negative at some W.")
def _needed(runs: Datasets) -> Judgement:
    free = runs["free"]
    return Judgement(
        [below("smallest cosine of -grad L and W_mm", Number.exact(float(free["least"].min())), -_ROUNDING)],
        remark="Sphere data with scores as drawn. A negative cosine at drawn weights is a proof for its problem; "
        "problems without one may have negative cosines at other weights.",
        numbers={
            "share of problems with a negative cosine": number(free, "turns_away"),
            "share of negative cosines": number(free, "mean_negative"),
            "smallest cosine of -grad L and W_mm, mean over problems": number(free, "mean_least"),
        },
        undecided=_too_few_draws(free),
    )


@claim(
    "no-stationary-point:finite",
    _OURS,
    "Without equal scores the risk can have a finite stationary point, even a local minimum that traps descent.",
)
def _finite(runs: Datasets) -> Judgement:
    free, equal = runs["free"], runs["equal"]
    points, of_equal = (Number.exact(run.sizes["point"]) for run in (free, equal))
    lowest = free.isel(point=int(np.argmax(free["trap_least"].values)))
    gradient, bend = (Number.exact(float(lowest[f"trap_{name}"])) for name in ("gradient", "least"))
    minimum = [
        above("stationary points on the axis of the instance", points, 1),
        below("stationary points on the axis of the instance with equal scores", of_equal, 0),
        below("norm of the gradient at its local minimum", gradient, _VANISHED),
        above("smallest eigenvalue of the second derivative at its local minimum", bend, _BENT),
    ]
    return Judgement(
        minimum,
        remark="The instance is constructed: its inputs have the same query and opposite labels. See "
        "no-stationary-point:variance for problems that have no such point.",
        numbers={
            **{criterion.quantity: criterion.value for criterion in minimum},
            "norm of W z at its local minimum": Number.exact(abs(float(lowest["trap_place"]))),
        },
        expected={"stationary points on the axis of the instance with equal scores": 0.0},
        # No problem with equal scores is judged.
        counts=counts_of({"free": free}),
    )


# A check: the inner product is a mean of the variances of the scores, each times a positive factor.
@claim(
    "no-stationary-point:variance",
    _OURS,
    "If some u has Y_i u . z_i > 0 for all i, as it does for independent queries (n <= d), then "
    "-<grad L(W), v u^T> > 0 for every W and any scores, so there is no finite stationary point.",
    kind=Kind.CHECK,
)
def _variance(runs: Datasets) -> Judgement:
    free = runs["free"]
    readout = Number.exact(float(free["readout"].min()))
    return Judgement(
        [above("smallest cosine of -grad L and v u^T over drawn problems and weights", readout, 0.0)],
        remark="The inner product is a mean of variances of the scores under the attention, with positive weights. "
        f"Over {free.sizes['seed']} problems and {int(free.attrs['draws'])} weights each.",
        undecided=_too_few_draws(free),
    )


def _too_few_draws(run: xarray.Dataset) -> str:
    few = f"{run.attrs['draws']} weights per problem are too few to decide; the published size is 10000."
    return few if run.attrs["draws"] < _ENOUGH else ""


_LOOKS = {"equal": (palette.TEAL, "o", "equal scores"), "free": (palette.WINE, "^", "scores as drawn")}
# From where descent is drawn: the same points in both landscapes.
_STARTS = ((-5.5, 2.6), (-4.0, -2.6), (-1.2, 1.6), (0.2, -2.4))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the cosines at all weights, the smallest of each problem, and the landscapes of the constructed instance."""
    equal, free = (summaries[name] for name in _LOOKS)
    with page.style():
        figure = page.full(6.4)
        verdicts = {name: judgements[f"no-stationary-point:{name}"].verdict for name in ("equal", "finite")}
        figure.suptitle(
            f"With equal scores there is no finite stationary point: {verdicts['equal']}.\n"
            f"Without them a local minimum can trap descent: {verdicts['finite']}"
        )
        (left, right), landscapes = figure.subplots(2, 2)
        for name, (colour, marker, label) in _LOOKS.items():
            _shares(left, summaries[name], colour, label)
            least = summaries[name]["least"]
            right.scatter(summaries[name]["bound"], least, s=12, c=colour, marker=marker, label=label)
        negative = [f"{100 * float(run['mean_negative']):.2g} %" for run in (equal, free)]
        at = (0, float(free["mean_negative"]))
        left.annotate(f"{negative[1]} negative", at, (-6, 4), textcoords="offset points", ha="right")
        left.axvline(0, color=palette.INK, linewidth=0.7, linestyle=":")
        left.set(title=f"(a) negative cosines: {negative[0]} with equal scores, {negative[1]} with scores as drawn")
        left.set(xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1], yscale="log")
        left.set(xlabel=r"cosine of $-\nabla L(W)$ and $W_{mm}$", ylabel="share of weights with a smaller cosine")
        ends = np.array([0, 1.05 * max(float(run["bound"].max()) for run in (equal, free))])
        right.plot(ends, ends, color=palette.INK, linewidth=0.7, label="the bound itself")
        right.axhline(0, color=palette.INK, linewidth=0.7, linestyle=":")
        ratio, turns = float((equal["least"] / equal["bound"]).min()), float(free["turns_away"])
        right.set_title(f"(b) equal scores: {ratio:.4g} times the bound or more; as drawn: {turns:.0%} negative")
        right.set(xlabel="the proof's bound for equal scores", ylabel="smallest cosine per problem")
        for axes in (left, right):
            axes.legend(loc="best")
        # One scale for both landscapes.
        risks = np.stack([run["trap_risk"].values for run in (equal, free)])
        levels = np.linspace(risks.min(), risks.max(), 21)
        filled = [_draw_landscape(axes, run, levels) for axes, run in zip(landscapes, (free, equal), strict=True)]
        for axes, run, title in zip(landscapes, (free, equal), ("(c) unequal", "(d) equal"), strict=True):
            axes.set_title(f"{title} scores, local minima: {int((run['trap_least'] > 0).sum())}")
        bar = figure.colorbar(filled[1], ax=[*landscapes], label="risk", pad=0.02, aspect=25, format="%.2f")
        bar.set_ticks(list(np.linspace(levels[0], levels[-1], 5)))
        page.add_counts(
            figure,
            {label: summaries[name] for name, (_, _, label) in _LOOKS.items()},
            f"{int(equal.attrs['draws']):,} weights per problem. (c), (d): the risk of the constructed instance over "
            r"$Wz$, the same query for all inputs; shaded where $-\langle\nabla L, W_{mm}\rangle < 0$; lines: descent "
            "(gradient flow) from the same four points, which leaves the frame where its norm diverges; the second "
            "coordinate of a token is its score; the arrow on the right points along $W_{mm}z$.",
            counted="problems",
        )
    return figure


def _shares(axes: Axes, run: xarray.Dataset, colour: str, label: str) -> None:
    """Draw the share of weights below every cosine: on a log axis rare ones show, and uneven bins do not."""
    below = run["histogram"].values.sum(axis=0).cumsum()
    edges, there = run["bin"].values + (run["bin"].values[1] - run["bin"].values[0]) / 2, below > 0
    axes.plot(edges[there], below[there] / below[-1], color=colour, label=label)
    if run["mean_negative"] > 0:
        axes.plot(0, run["mean_negative"], "o", color=colour, markersize=4)


def _draw_landscape(axes: Axes, run: xarray.Dataset, levels: np.ndarray) -> QuadContourSet:
    """Draw the risk, paths of descent, and the stationary points."""
    first, second, risk = run["first"].values, run["second"].values, run["trap_risk"].values
    filled = axes.contourf(first, second, risk, levels=levels, cmap="Greys", vmax=1.5 * levels[-1] - 0.5 * levels[0])
    axes.contour(first, second, risk, levels=levels, colors="white", linewidths=0.4)
    axes.contourf(first, second, run["trap_alignment"], levels=[-1.01, 0.0], colors=[palette.WINE], alpha=0.2)
    upwards, sidewards = np.gradient(risk, second, first)
    # Without gaps at the starts, and also paths that soon leave the panel.
    whole: dict[str, Any] = {"broken_streamlines": False, "density": 6, "minlength": 0.01}
    look = {"start_points": _STARTS, "integration_direction": "forward", "color": palette.TEAL, "linewidth": 1.2}
    axes.streamplot(first, second, -sidewards, -upwards, **whole, **look)
    axes.plot(*np.transpose(_STARTS), ".", color=palette.TEAL)
    for place, is_minimum in zip(run["trap_place"].values, run["trap_least"].values > 0, strict=True):
        axes.plot(place, 0, "o" if is_minimum else "X", color=palette.INK, markersize=5, zorder=5)
        # Minima are named below, saddles above, so that neighbours do not meet.
        name, lift, side = ("local minimum", -6, "top") if is_minimum else ("saddle", 6, "bottom")
        axes.annotate(name, (place, 0), (0, lift), textcoords="offset points", ha="left", va=side, zorder=5)
    start = np.array([0.8, -2.5])
    end = start + 1.8 * run["trap_solution"].values
    axes.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "->", "linewidth": 1.2})
    axes.set(xlabel="first coordinate of $Wz$", ylabel="second coordinate of $Wz$")
    axes.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
    return filled


# How many contours are drawn, each with as many points of the grid above as below it as its place says.
_CONTOURS = 24


def view(runs: Datasets) -> dict[str, Any]:
    """Return the risk over the plane of W z, with unequal and with equal scores, for the picture on the site.

    Returns:
        `first` and `second`, the coordinates of the grid, and for each instance in `landscapes` its `name`, the `risk`
        on the grid, (second, first), its `contours`, each a list of points, the `minima` and `saddles` on the axis, and
        the direction of the `solution`.
    """
    names = {"free": "unequal scores", "equal": "equal scores"}
    grid = {name: rounded(runs["free"][name].values) for name in ("first", "second")}
    return grid | {"landscapes": [_landscape(name, runs[run]) for run, name in names.items()]}


def _landscape(name: str, run: xarray.Dataset) -> dict[str, Any]:
    is_minimum, risk = run["trap_least"].values > 0, run["trap_risk"].values
    lines = contourpy.contour_generator(run["first"].values, run["second"].values, risk)
    heights = np.quantile(risk, (np.arange(_CONTOURS) + 0.5) / _CONTOURS)
    contours = [np.asarray(points, float) for height in heights for points in lines.lines(height)]
    return {
        "name": name,
        # The slope of neighbouring values is drawn, too.
        "risk": rounded(risk, 6),
        "contours": [rounded(points, 3) for points in contours],
        "minima": rounded(run["trap_place"].values[is_minimum]),
        "saddles": rounded(run["trap_place"].values[~is_minimum]),
        "solution": rounded(run["trap_solution"].values),
    }


EXPERIMENT = Experiment(measure, (_equal, _needed, _finite, _variance), estimate=estimate, draw=draw, view=view)
