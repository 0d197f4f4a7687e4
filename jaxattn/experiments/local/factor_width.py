"""What does descent on factors K and Q of few columns reach, and for which widths does the rank constraint matter?"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxattn import attention, metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.counts import too_few, total
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import number
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.nearest import effort_of, nearest_of_rank
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import labels, page, palette

_SOURCE = Source("arXiv 2308.16898", "nuclear Att-SVM with rank W <= m", Setting.OURS)
# What the end of a run is compared with: the nuclear solution, the best stationary point of rank m found, and the
# stationary point of rank m reached from the end of the run.
_NAMES = {"nuclear": "nuclear solution", "bounded": "best of rank m found", "nearest": "stationary point reached"}
_RUNS = tuple(f"m={m}" for m in (1, 2, 4, 8, 10))
_OVER_D = tuple(f"m=d={d}" for d in (6, 12, 24, 48))
# How many solutions are computed at once; smaller batches are padded, so that it compiles once.
_TOGETHER = 16
# Certified solutions agree only to this relative accuracy, so a smaller increase of the norm cannot be detected.
_SAME = svm.DOUBLE.gap
# Fixed beforehand: the thresholds for the mean largest probability and the mean correlation.
_SATURATED, _REACHED = 0.999, 0.95


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the end of every run with the nuclear solutions with and without the rank constraint.

    Returns:
        A dataset with the axes `seed` (kept ones), `snapshot` and `solution`: final `correlation` (seed, solution); the
        `rank` of the certified nuclear solution (seed); `excess`, the relative increase of its norm at the best
        stationary point found under the constraint (seed); and the largest `probability` along the run (seed,
        snapshot). Attributes: `width` and `d`. A run whose nearest stationary point is not certified is unsolved, too.

    Raises:
        TypeError: a run of a free W.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    final = weights_of(arrays)
    if not isinstance(final, attention.Factored):
        raise TypeError("factor-width: expected runs of factors K and Q, found one of a free W")
    width, d = final.K.shape[-1], record.sizes["feature"]
    compared = compare(record, (svm.nuclear, svm.nuclear_of_rank(width)) if width < d else (svm.nuclear,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    end = np.asarray(final.K @ np.swapaxes(final.Q, -1, -2))[kept]
    primal = compared["primal"].values[kept]
    rank = compared["rank"].sel(norm="nuclear").values
    nearest = compared["W_svm"].values[:, -1].copy()
    solved = np.ones(len(nearest), bool)
    binds = np.flatnonzero(rank > width)
    if binds.size:
        problems = of_arrays({name: array[kept][binds] for name, array in arrays.items()})
        solve = partial(batch.over_seeds, nearest_of_rank(width), width=_TOGETHER, effort=effort_of(problems))
        solutions = solve(problems, compared["selected"].values[binds], end[binds])
        nearest[binds], solved[binds] = solutions.W, solutions.status == svm.Status.STATIONARY
    to_nearest = batch.over_seeds(metrics.correlation, end, nearest) if len(end) else np.zeros(0)
    to_solutions = compared["correlation"].values[:, :, -1]
    # The series is read before each update.
    steps = np.searchsorted(compared["step"].values, compared["snapshot"].values - 1, side="right") - 1
    correlation = np.stack([to_solutions[:, 0], to_solutions[:, -1], to_nearest], axis=1)
    measured = xarray.Dataset(
        {
            "rank": (("seed",), rank),
            "excess": (("seed",), primal[:, -1] / primal[:, 0] - 1),
            "correlation": (("seed", "solution"), correlation),
            "probability": (("seed", "snapshot"), compared["probability"].values[:, steps]),
        },
        {name: compared[name].values for name in ("seed", "snapshot")} | {"solution": np.array([*_NAMES], object)},
        compared.attrs | {"width": width, "d": d},
    ).isel(seed=solved)
    lost = int((~solved).sum())
    counts = {"kept": compared.attrs["kept"] - lost, "unsolved": compared.attrs["unsolved"] + lost}
    return measured.assign_attrs(counts)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the means of `correlation` (solution) and `probability` (snapshot); `rank` and `excess` stay by seed."""
    summaries = {}
    for k, (name, run) in enumerate(runs.items()):
        axes = {"correlation": "solution", "probability": "snapshot"}
        estimates = {
            quantity: ((axis,), bootstrap(run[quantity].values, jax.random.fold_in(key, 2 * k + m)))
            for m, (quantity, axis) in enumerate(axes.items())
        }
        summaries[name] = run.drop_vars(list(axes)).assign(variables(estimates))
    return summaries


@claim(
    "factor-width:binds",
    _SOURCE,
    "The bound rank W <= m changes the nuclear Att-SVM only where m is below the rank of its solution.",
    needs=TRAINED,
)
def _binds(runs: Datasets) -> Judgement:
    runs = {name: runs[name] for name in _RUNS}
    numbers, expected = {}, {}
    exceptions = {True: 0, False: 0}
    for name, run in runs.items():
        for above_m, side in ((True, "above"), (False, "up to")):
            binding = run["excess"].values[_is_above(run) == above_m] > _SAME
            if binding.size:
                label = f"{name}, share where the constraint is active, {binding.size} seeds of rank {side} m"
                numbers[label], expected[label] = Number(*map(float, proportion(binding)[:3])), float(above_m)
                exceptions[above_m] += int((binding != above_m).sum())
    return Judgement(
        (
            below("seeds of rank up to m where the bound raises the norm", Number.exact(exceptions[False]), 0),
            below("seeds of rank above m where the bound does not raise it", Number.exact(exceptions[True]), 0),
        ),
        remark="The constraint is active if the best solution of rank m found has a norm larger by more than a "
        f"relative {_SAME:g}. For ranks up to m this solution is certified optimal. For ranks above m it is the "
        "best of several stationary points, so its excess is an upper bound.",
        numbers=numbers,
        expected=expected,
        undecided=_too_few(runs, above_m=True) or _too_few(runs, above_m=False),
    )


@claim(
    "factor-width:reaches",
    _SOURCE,
    "Descent on factors of m columns saturates, and tends to the solution of the nuclear Att-SVM with rank W <= m.",
    needs=TRAINED,
)
def _reaches(runs: Datasets) -> Judgement:
    runs = {name: runs[name] for name in _RUNS}
    numbers: dict[str, Number] = {}
    criteria: list[Criterion] = []
    for name, run in runs.items():
        of = f"{name}, correlation"
        ends = {solution: number(run, "correlation", solution=solution) for solution in _NAMES}
        numbers |= {f"{of}, {_NAMES[solution]}": end for solution, end in ends.items()}
        criteria += [
            above(f"{name}, mean largest probability at the last step,", number(run, "probability", at=-1), _SATURATED),
            above(f"{of}, {_NAMES['bounded']},", ends["bounded"], _REACHED),
        ]
    name, worst = min(runs.items(), key=lambda item: float(item[1]["correlation"].sel(solution="bounded")))
    reached, bounded = (float(worst["correlation"].sel(solution=solution)) for solution in ("nearest", "bounded"))
    return Judgement(
        criteria,
        remark=f"It is farthest at {name}, where the mean correlation is {bounded:.3f} with the best stationary point "
        f"found, and {reached:.3f} with the one that is reached from the end of descent. The paper states this of the "
        "regularization path, not of descent; narrow-path:descent compares descent with that path.",
        numbers=numbers,
        expected={f"{name}, correlation, {_NAMES['bounded']}": 1.0 for name in runs},
        undecided=_too_few(runs, above_m=True),
    )


@claim(
    "factor-width:overparameterization",
    Source("a machine-made summary of arXiv 2308.16898", "alignment and overparameterization", Setting.OURS),
    "The more overparameterized the attention, the better training aligns it with its Att-SVM solution.",
    needs=TRAINED,
)
def _aligns(runs: Datasets) -> Judgement:
    ends = {name: number(runs[name], "correlation", solution="nuclear") for name in _OVER_D}
    first, *_, last = ends.values()
    falls = sum(larger.apart_from(smaller).high < 0 for smaller, larger in itertools.combinations(ends.values(), 2))
    by_width = [number(runs[name], "correlation", solution="nuclear").mean for name in _RUNS]
    return Judgement(
        [
            above("rise of the nuclear correlation from the smallest to the largest d", last.minus(first), 0),
            below("pairs of d whose intervals are disjoint in the other direction", Number.exact(falls), 0),
        ],
        remark="Here the dimension d of the tokens grows at fixed n and T, with factors of full width and the same "
        "number of steps. If overparameterization means the width m of the factors at fixed d, the correlation rises, "
        f"from {by_width[0]:.4f} at m = 1 to {by_width[-1]:.4f} at full width.",
        numbers={f"{name}, correlation, {_NAMES['nuclear']}": end for name, end in ends.items()},
    )


def _is_above(run: xarray.Dataset) -> np.ndarray:
    return run["rank"].values > run.attrs["width"]


def _too_few(runs: Datasets, above_m: bool) -> str:
    """Return why too few seeds test the constraint, with rank above m or with rank up to an m below d."""
    narrow = [run for run in runs.values() if run.attrs["width"] < run.attrs["d"]]
    seeds = sum(int((_is_above(run) == above_m).sum()) for run in narrow)
    return too_few(seeds).replace("seeds", f"seeds of rank {'above m' if above_m else 'up to an m less than d'}")


_LOOKS = {
    "nuclear": ("nuclear solution", palette.NUCLEAR, "s", "--"),
    "bounded": ("best of rank $m$", palette.AMBER, "^", ":"),
    "nearest": ("stationary\npoint reached", palette.TEAL, "o", "-"),
}
# Norms that agree to this are drawn here; and direction errors below what rounding leaves.
_FLOOR, _LEAST = 1e-12, 1e-16


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction errors at the last step over m, and the excess of every seed over rank - m."""
    widths = {name: summaries[name] for name in _RUNS if name in summaries}
    runs = list(widths.values())
    with page.style():
        figure = page.full(3.5)
        reached, active = figure.subplots(1, 2)
        _draw_errors(reached, runs)
        _draw_excess(active, runs)
        verdict = judgements["factor-width:reaches"].verdict
        figure.suptitle(f"Descent on factors of $m$ columns reaches the best solution of rank $m$: {verdict}")
        remark = (
            "(a): means with 95 % intervals; the best solution of rank $m$ is the best one found. (b): a dot for each "
            "kept run, moved sideways within its rank."
        )
        page.add_counts(figure, {f"{len(runs)} widths": xarray.Dataset(attrs=total(widths))}, remark, "runs")
    return figure


def _draw_errors(axes: Axes, runs: list[xarray.Dataset]) -> None:
    x, ends, least = np.arange(len(runs)), [], []
    for solution, (label, colour, marker, dashes) in _LOOKS.items():
        mean, low, high = (
            np.maximum(1 - np.array([float(run[f"correlation{part}"].sel(solution=solution)) for run in runs]), _LEAST)
            for part in ("", "_high", "_low")
        )
        page.bars(axes, x, mean, low, high, color=colour, marker=marker, linestyle=dashes)
        ends.append(labels.End(label, 0.0, float(mean[0]), colour))
        least.append(f"{1 - mean.max():.3f}")
    _, bounded, nearest = least
    axes.set_title(f"(a) mean cos: at least {nearest} with the point reached, {bounded} with the best")
    axes.set_xticks(x, [str(run.attrs["width"]) for run in runs])
    axes.set(xlabel="columns $m$ of $K$ and $Q$", ylabel="final direction error, 1 - cos", yscale="log")
    # Room for the labels.
    axes.set_xlim(-0.5 * len(runs), len(runs) - 0.7)
    axes.set_ylim(0.6 * axes.get_ylim()[0], None)
    labels.beside_ends(axes, ends, "left")


def _draw_excess(axes: Axes, runs: list[xarray.Dataset]) -> None:
    for run, colour in zip(runs, palette.ramp(len(runs)), strict=True):
        beyond = run["rank"].values - run.attrs["width"]
        x, excess = beyond + np.linspace(-0.25, 0.25, len(beyond)), np.maximum(run["excess"].values, _FLOOR)
        axes.scatter(x, excess, s=5, color=colour, label=f"$m = {run.attrs['width']}$", rasterized=True)
    axes.set(xlabel="rank of the nuclear solution minus $m$", ylabel="relative excess of the norm", yscale="log")
    axes.axvline(0.5, color=palette.GUIDE, linewidth=0.8)
    axes.axhline(_SAME, color=palette.GUIDE, linewidth=0.8, linestyle="--", zorder=1)
    axes.annotate(
        "accuracy of the norms", (0, _SAME), (3, 2), xycoords=axes.get_yaxis_transform(), textcoords="offset points"
    ).set(fontsize=page.SMALLEST, color=palette.GUIDE)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ticks = 10.0 ** np.arange(-12, 3, 3)
    axes.set_yticks(ticks, [r"$\leq10^{-12}$", *(f"$10^{{{round(np.log10(tick))}}}$" for tick in ticks[1:])])
    axes.set_ylim(_FLOOR / 4, None)
    axes.legend(loc="upper left", markerscale=2, borderaxespad=0.2, labelspacing=0.3)
    counts = []
    for is_above in (True, False):
        active = np.concatenate([run["excess"].values[_is_above(run) == is_above] > _SAME for run in runs])
        counts.append(f"{active.sum():,} of {active.size:,}")
    axes.set_title(f"(b) the bound is active in {counts[0]} runs of rank above $m$, {counts[1]} of rank up to $m$")


EXPERIMENT = Experiment(measure, claims=(_binds, _reaches, _aligns), summarize=summarize, draw=draw)
