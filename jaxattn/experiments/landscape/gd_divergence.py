"""Plain gradient descent with equal scores of non-optimal tokens: growth and direction of W, and the risk."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import losses, metrics, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, family
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, share
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.style import page, palette

_PAPER, _LOCATOR = "arXiv 2308.16898", "theorem on the global convergence of gradient descent"
# The run within 1 / L ends early; a run with a much larger step stands in for its continuation.
_LIMIT = Source(_PAPER, f"{_LOCATOR} (theorem I of the poster)", Setting.PROXY)
_SMOOTHNESS = Source(_PAPER, _LOCATOR, Setting.EXACT)
# The logarithm is fitted to the last decade of a run with at least this many steps.
_LONG = 30_000
# Fixed beforehand: how far the slope of ||W|| / ||W_mm|| in log k may be from 1; the largest exponent of ||W|| in 1 -
# cos; the share of seeds whose 1 - cos must fall over the last decade of steps; and the smallest change that counts as
# an increase of the risk, above rounding.
_GROWTH, _POWER, _NEARLY_ALL, _RISE = 0.1, -1.0, 0.99, 1e-12
# The runs that record the risk at every step; and the others, which are longer.
_EVERY_STEP, _SPARSE = {"record_every": 1}, {"record_every": 1000}
_NEEDS = Needs(steps=_LONG)
# Products with the second derivative in the power iteration.
_TURNS = 30


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Frobenius solutions of its optimal tokens, and measure the curvature of the risk along it.

    Args:
        record: of a `Training` of W by plain descent, as `recording.run` writes it.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `off`, 1 - cos, and `growth`, `||W||_F / ||W_mm||_F`, at the snapshots; `bound`, the
        smoothness constant L; `bend`, the largest second derivative found at each snapshot; whether the `optimal`
        tokens are selected at the end; the recorded risk.
    """
    optima = optimum(record, solver)
    W, final = optima.of(record["W_snapshots"]), optima.of(record["W"])
    off, growth, bend, bound, selected = batch.over_seeds(_along, W, final, optima.W, optima.problems)
    along = ("seed", "snapshot")
    return xarray.Dataset(
        {
            "off": (along, off),
            "growth": (along, growth),
            "bend": (along, bend),
            "bound": (("seed",), bound),
            "optimal": (("seed",), (selected == optima.alpha).all(axis=1)),
            "loss": (("seed", "step"), optima.of(record["loss"])),
        },
        {"seed": optima.of(record["seed"]), "snapshot": record["snapshot"].values, "step": record["step"].values},
        optima.counts,
    )


def _along(
    W: Float[Array, "snapshot d d"], final: Float[Array, "d d"], W_mm: Float[Array, "d d"], problem: Problem
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed: off, growth, bend, bound, and the tokens selected at the end."""
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    growth = jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)
    return off, growth, *_smoothness(W, problem), tokens.selected(final, problem)


def _smoothness(
    W: Float[Array, "snapshot d d"], problem: Problem
) -> tuple[Float[Array, " snapshot"], Float[Array, ""]]:
    """Return a lower bound of the largest second derivative of the risk at each W, and the upper bound for all W."""
    slope = jax.grad(losses.risk)

    def of_one(W: Array) -> Array:
        def product(U: Array) -> Array:
            length = metrics.norm(U)
            # Where the risk has no curvature, the product is 0 and stays 0.
            return jax.jvp(lambda V: slope(V, problem), (W,), (U / jnp.where(length > 0, length, 1.0),))[1]

        return metrics.norm(jax.lax.fori_loop(0, _TURNS, lambda _, U: product(U), slope(W, problem)))

    return jax.vmap(of_one)(W), smoothness.bound(problem)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate growth and direction over the snapshots, and the largest step, curvature and risk.

    Raises:
        ValueError: norms or distances that are not positive.
    """
    steps, growth, off = run["snapshot"].values, run["growth"], run["off"]
    if not (growth > 0).all() or not (off > 0).all():
        least = (float(growth.min()), float(off.min()))
        raise ValueError(f"growth, off: expected positive numbers, found at least {least[0]:.3g}, {least[1]:.3g}")
    late = steps * 10 >= steps[-1]
    in_log_steps = _slope(np.log(steps[late]), growth.values[:, late])
    in_log_norm = _slope(np.log(growth.values[:, late]), np.log(off.values[:, late]))
    step_size, bound = run.attrs["optimizer.step_size"], run["bound"]
    return estimated(
        run,
        key,
        growth=mean(growth),
        off=geometric_mean(off),
        # Of each seed's own line through the last decade.
        slope=mean(run["bound"].copy(data=in_log_steps)),
        exponent=mean(run["bound"].copy(data=in_log_norm)),
        optimal=share(run["optimal"]),
        # A seed heading elsewhere does not come nearer. Whether it has selected tokens depends on a norm that grows
        # slowly.
        nearer=share(off.isel(snapshot=-1, drop=True) < off.isel(snapshot=int(np.argmax(late)), drop=True)),
        time=exact(step_size * run["snapshot"]),
        within=exact(step_size * bound.max()),
        tightest=exact((run["bend"].max("snapshot") / bound).max()),
        sharpest=exact(run["bend"].max()),
        rises=exact((run["loss"].diff("step") > _RISE).sum()),
        taken=exact(run.sizes["seed"] * (run.sizes["step"] - 1)),
        elsewhere=exact((~run["optimal"]).sum()),
    )


def _slope(
    x: Float[np.ndarray, "*seeds snapshot"], y: Float[np.ndarray, "seeds snapshot"]
) -> Float[np.ndarray, " seeds"]:
    """Return the slope of the least squares line of every row; 0 where x does not change."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    return np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)


@claim("gd-divergence:norm", _LIMIT, "The norm of W diverges, like the logarithm of the number of steps.", _NEEDS)
def _norm(runs: Datasets) -> Judgement:
    slopes = {run: number(summary, "slope") for run, summary in _by_step(family(runs, _SPARSE))}
    label = "slope of ||W|| / ||W_mm|| in log k, {}".format
    furthest = [*slopes][-1]
    return Judgement(
        [between(f"{label(furthest)},", slopes[furthest], 1 - _GROWTH, 1 + _GROWTH)],
        remark="Slopes are over the last decade of steps. If the gradient falls like exp(-||W|| / ||W_mm||), ||W|| "
        f"grows like ||W_mm|| log k.{_at_equal_times(family(runs, _SPARSE))}",
        numbers={label(run): slope for run, slope in slopes.items()},
        expected={label(run): 1.0 for run in slopes},
    )


def _at_equal_times(runs: Datasets) -> str:
    """Compare the runs of smallest and largest step at the end time of the shorter one."""
    if len(runs) < 2:
        return ""
    (first, slow), *_, (last, fast) = _by_step(runs)
    time = min(float(slow["time"][-1]), float(fast["time"][-1]))
    growths = (np.interp(np.log(time), np.log(summary["time"]), summary["growth"]) for summary in (slow, fast))
    sizes = " and ".join(f"{growth:.3g} ({run})" for growth, run in zip(growths, (first, last), strict=True))
    return f" At time {time:g} (step size times steps), ||W|| / ||W_mm|| is {sizes}."


@claim(
    "gd-divergence:direction",
    _LIMIT,
    "The direction of W converges to the Frobenius solution that selects the optimal tokens.",
    _NEEDS,
)
def _direction(runs: Datasets) -> Judgement:
    sparse = family(runs, _SPARSE)
    numbers = {}
    for run, summary in sparse.items():
        numbers[f"1 - cos at step {int(summary['snapshot'][-1])}, {run}"] = number(summary, "off", at=-1)
        numbers[f"exponent of ||W|| in 1 - cos, {run}"] = number(summary, "exponent")
        numbers[f"share of seeds that come nearer in the last decade, {run}"] = number(summary, "nearer")
        numbers[f"share that selects the optimal tokens, {run}"] = number(summary, "optimal")
    furthest, summary = _by_step(sparse)[-1]
    nearer = f"share of seeds whose 1 - cos falls over the last decade of steps, {furthest},"
    on_their_way = ", ".join(f"{int(summary['elsewhere'])} ({run})" for run, summary in sparse.items())
    return Judgement(
        (
            *(
                below(f"exponent of ||W|| in 1 - cos, {run},", number(summary, "exponent"), _POWER)
                for run, summary in sparse.items()
            ),
            above(nearer, number(summary, "nearer"), _NEARLY_ALL),
        ),
        remark="Exponents are over the last decade of steps. Since the norm grows like the logarithm of the steps, "
        "the direction changes very slowly. Seeds that do not select their optimal tokens at the end: "
        f"{on_their_way}. For other starts see global-convergence.",
        numbers=numbers,
        expected={name: float(name.startswith("share")) for name in numbers if not name.startswith("exponent")},
    )


@claim(
    "gd-divergence:step",
    _SMOOTHNESS,
    "The gradient is Lipschitz with the paper's constant L, so a step of at most 1 / L never raises the risk.",
)
def _step(runs: Datasets) -> Judgement:
    run, first = _by_step(family(runs, _EVERY_STEP))[0]
    both = _by_step(family(runs, {}))
    sparse = family(runs, _SPARSE)
    tightest = max(float(summary["tightest"]) for _, summary in both)
    within = float(first["within"])
    # A step beyond 1 / L says nothing about one within.
    rises = float(first["rises"]) if within <= 1 else math.nan
    remarks = [] if within <= 1 else [f"No run has a step of at most 1 / L; the smallest is {within:.3g} / L."]
    remarks.append(f"L is {1 / max(tightest, 1e-300):.4g} times the largest second derivative found along the runs.")
    remarks += [
        f"A step of {float(summary['within']):.3g} / L raises it {int(summary['rises'])} times between recorded steps "
        f"({other})."
        for other, summary in both
        if float(summary["within"]) > 1
    ]
    numbers = {
        f"largest step size times L, {run}": within,
        f"number of steps of all seeds, {run}": float(first["taken"]),
        "largest second derivative found, over L": tightest,
        "largest second derivative found": max(float(summary["sharpest"]) for _, summary in both),
        **{f"increases of the recorded risk, {other}": float(summary["rises"]) for other, summary in both},
    }
    return Judgement(
        (
            below("largest second derivative found, over L,", Number.exact(tightest), 1),
            below(f"steps of at most 1 / L that raise the risk, {run},", Number.exact(rises), 0),
        ),
        remark=" ".join(remarks),
        numbers=numbers,
        expected={f"increases of the recorded risk, {run}": 0.0},
        undecided=_NEEDS.missing(sparse),
    )


def _by_step(runs: Datasets) -> list[tuple[str, xarray.Dataset]]:
    return sorted(runs.items(), key=lambda run: run[1].attrs["optimizer.step_size"])


# A run's label is at its end over this.
_BEFORE = 8


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw norm and direction of W along the time, step size times steps: means over seeds with 95 % intervals."""
    # The run of every step is the beginning of another.
    runs = [run for _, run in _by_step(family(summaries, _SPARSE))]
    # By increasing step; the longer runs lie beneath.
    looks = list(zip(palette.ramp(len(runs)), ["--", *("-" * (len(runs) - 1))], strict=True))
    with page.style():
        figure = page.full(3.4)
        left, right = figure.subplots(1, 2)
        for one, look in reversed(list(zip(runs, looks, strict=True))):
            _curve(left, one, "growth", look, (6, -9))
            _curve(right, one, "off", look, (6, 9))
        furthest = runs[-1]
        _logarithm(left, furthest)
        slope, power, off = (float(furthest[name].values.flat[-1]) for name in ("slope", "exponent", "off"))
        left.set_title(f"(a) the norm grows like {slope:.2f} log $k$ (theorem: log $k$)")
        right.set_title(f"(b) 1 - cos {_trend(power)}, to {off:.2g} at the end")
        left.set(ylabel=r"norm, $\|W(k)\|_F\,/\,\|W_F\|_F$", ylim=(0, None))
        right.set(ylabel="direction error, 1 - cos to $W_F$", yscale="log")
        # Before that nothing moves; both runs are seen from here on.
        first = max(float(one["time"][0]) for one in runs)
        for axes in (left, right):
            axes.set(xlabel=r"time, step size times steps, $\eta k$", xscale="log", xlim=(first, None))
        page.add_counts(figure, {_named(one): one for one in summaries.values()}, _remark(summaries, furthest))
    return figure


def _named(one: xarray.Dataset) -> str:
    every = ", risk at every step" if one.attrs["record_every"] == 1 else ""
    return rf"$\eta = {one.attrs['optimizer.step_size']:g}${every}"


def _trend(power: float) -> str:
    """Say how the direction error changes with the norm, fitted over the last decade of steps."""
    return f"{'falls' if power < 0 else 'does not fall: it grows'} like $\\|W\\|^{{{power:.1f}}}$"


def _remark(summaries: Datasets, furthest: xarray.Dataset) -> str:
    seeds = int(furthest.attrs["kept"])
    nearer = round(float(furthest["nearer"]) * seeds)
    said = (
        f"Means over kept seeds, in (b) geometric, with 95 % intervals. Titles: {_named(furthest)}, last decade of "
        f"steps, in which {nearer:,} of {seeds:,} seeds come nearer to $W_F$, the Frobenius SVM solution."
    )
    within = [one for one in summaries.values() if one.attrs["record_every"] == 1 and float(one["within"]) <= 1]
    if not within:
        return said
    rises, taken = (sum(int(one[name]) for one in within) for name in ("rises", "taken"))
    return f"{said} Within $1/L$ the risk rises in {rises:,} of {taken:,} steps."


def _curve(axes: Axes, one: xarray.Dataset, name: str, look: tuple[str, str], beside: tuple[int, int]) -> None:
    """Draw a curve with its end marked, and its step size beside it."""
    curve = (one[part].values for part in ("time", name, f"{name}_low", f"{name}_high"))
    page.band(axes, *curve, color=look[0], linestyle=look[1])
    time, values = one["time"].values, one[name].values
    axes.plot(time[-1:], values[-1:], "o", color=look[0], markersize=3)
    # A little before the end, so that the text is within the panel.
    place = int(np.searchsorted(time, time[-1] / _BEFORE))
    text = f"{_named(one)} (${float(one['within']):.2g} / L$)"
    _written(axes, text, (time[place], values[place]), beside, look[0])


def _written(axes: Axes, text: str, at: tuple[float, float], beside: tuple[int, int], colour: str) -> None:
    """Write a text beside a point, the offset in points; it does not run over the data on that side."""
    sides: dict[str, Any] = {"ha": "left" if beside[0] > 0 else "right", "va": "bottom" if beside[1] > 0 else "top"}
    axes.annotate(text, at, beside, textcoords="offset points", color=colour, fontsize=page.SMALLEST, **sides)


def _logarithm(axes: Axes, one: xarray.Dataset) -> None:
    """Draw a line that grows like the logarithm, beside the end of a curve, and name it."""
    time, end = one["time"].values, float(one["growth"][-1])
    near = np.array([time[-1] / 1000, time[-1]])
    line = end + 1.2 + np.log(near / near[-1])
    axes.plot(near, line, color=palette.INK, linewidth=0.7, linestyle=":")
    middle = float(np.sqrt(near.prod())), float(line.mean())
    _written(axes, r"$\log(\eta k)$ + constant", middle, (-5, 3), palette.INK)


EXPERIMENT = Experiment(measure, claims=(_norm, _direction, _step), estimate=estimate, draw=draw)
