"""Plain gradient descent with equal scores of non-optimal tokens: growth and direction of W, and the risk."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import losses, metrics, svm
from jaxattn.descent import smoothness
from jaxattn.experiments.landscape.outcomes import SETTLED, lost_on
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, exponents, geometric_mean, mean, number, share
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.style import labels, page, palette

_PAPER, _LOCATOR = "arXiv 2308.16898", "theorem on the global convergence of gradient descent"
# The run within 1 / L ends early; runs with a much larger step, and along the exact direction, stand in for its
# continuation.
_LIMIT = Source(_PAPER, _LOCATOR, Setting.PROXY)
_POSTER = Source(_PAPER, "theorem I of the poster, its proper starting point read as W = 0", Setting.OURS)
_SMOOTHNESS = Source(_PAPER, _LOCATOR, Setting.EXACT)
# The logarithm is fitted to the last decade of a run with at least this many steps.
_LONG = 30_000
# Fixed beforehand: how far the slope of ||W|| / ||W_mm|| in log k may be from 1; the largest exponent of ||W|| in 1 -
# cos; the share of seeds whose 1 - cos must fall over the last decade of steps; and the smallest change that counts as
# an increase of the risk, above rounding.
_GROWTH, _POWER, _NEARLY_ALL, _RISE = 0.1, -1.0, 0.99, 1e-12
# The runs: two long ones, of which the faster stands in for the continuation of the slower, and one that records the
# risk at every step; the faster one from W = 0; and both starts along the exact direction of the gradient, which goes
# on where the gradient of plain descent is too small.
_SLOW, _EVERY_STEP, _FAST, _EXACT = "step 0.05", "step 0.05, every step", "step 5", "exact direction"
_ZERO, _ZERO_EXACT = "W = 0, step 5", "W = 0, exact direction"
_RUNS, _SPARSE = (_SLOW, _EVERY_STEP, _FAST), (_SLOW, _FAST)
_NEEDS = Needs(steps=_LONG)
# Products with the second derivative in the power iteration.
_TURNS = 30


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a `Training` of W with the Frobenius solutions of its optimal tokens; measure the risk's curvature.

    Returns:
        For every kept seed `off`, 1 - cos, and `growth`, `||W||_F / ||W_mm||_F`, at the snapshots; `bound`, the
        smoothness constant L; `bend`, the largest second derivative found at each snapshot; whether the `optimal`
        tokens are selected at the end, and the share of the gradient `lost` on inputs where they are not; the recorded
        risk.
    """
    optima = optimum(record, solver)
    weights = optima.of(record["W_snapshots"]), optima.of(record["W"])
    off, growth, bend, bound, optimal, lost = batch.over_seeds(
        _along, *weights, optima.W, optima.problems, optima.alpha
    )
    along = ("seed", "snapshot")
    return xarray.Dataset(
        {
            "off": (along, off),
            "growth": (along, growth),
            "bend": (along, bend),
            "bound": (("seed",), bound),
            "optimal": (("seed",), optimal),
            "lost": (("seed",), lost),
            "loss": (("seed", "step"), optima.of(record["loss"])),
        },
        {"seed": optima.of(record["seed"]), "snapshot": record["snapshot"].values, "step": record["step"].values},
        optima.counts,
    )


def _along(
    W: Float[Array, "snapshot d d"],
    final: Float[Array, "d d"],
    W_mm: Float[Array, "d d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed: off, growth, bend, bound, and what `lost_on` finds at the end."""
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    growth = jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)
    bend = jax.vmap(_bend, in_axes=(0, None))(W, problem)
    return off, growth, bend, smoothness.bound(problem), *lost_on(final, problem, alpha)


def _bend(W: Float[Array, "d d"], problem: Problem) -> Float[Array, ""]:
    """Return a lower bound of the largest second derivative of the risk at W."""

    def slope(V: Array) -> Array:
        return jax.grad(losses.risk)(V, problem)

    def product(_: int, U: Array) -> Array:
        length = metrics.norm(U)
        # Where the risk has no curvature, the product is 0 and stays 0.
        return jax.jvp(slope, (W,), (U / jnp.where(length > 0, length, 1.0),))[1]

    return metrics.norm(jax.lax.fori_loop(0, _TURNS, product, slope(W)))


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate growth and direction over the snapshots, and the largest step, curvature and risk.

    For every seed also whether it ends at `other_tokens`, and whether it is `settled` there.

    Raises:
        ValueError: norms or distances that are not positive.
    """
    steps, growth, off = run["snapshot"].values, run["growth"], run["off"]
    if not ((growth > 0) & (off > 0)).all():
        least = (float(growth.min()), float(off.min()))
        raise ValueError(f"growth, off: expected positive numbers, found at least {least[0]:.3g}, {least[1]:.3g}")
    late = steps * 10 >= steps[-1]
    last_decade, step_size, bound = growth.values[:, late], run.attrs["optimizer.step_size"], run["bound"]
    wrong = ~run["optimal"]
    estimates = estimated(
        run,
        key,
        growth=mean(growth),
        off=geometric_mean(off),
        # Of each seed's own line through the last decade.
        slope=mean(bound.copy(data=np.polyfit(np.log(steps[late]), last_decade.T, 1)[0])),
        exponent=mean(bound.copy(data=exponents(last_decade, off.values[:, late]))),
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
        elsewhere=exact(wrong.sum()),
    )
    return estimates.assign(other_tokens=wrong, settled=wrong & (run["lost"] < SETTLED))


@claim("gd-divergence:norm", _LIMIT, "The norm of W diverges, like the logarithm of the number of steps.", _NEEDS)
def _norm(runs: Datasets) -> Judgement:
    what = "slope of ||W|| / ||W_mm|| in log k"
    slopes = {f"{what}, {run}": number(runs[run], "slope") for run in _SPARSE}
    time = min(float(runs[run]["time"][-1]) for run in _SPARSE)
    slow, fast = (np.interp(np.log(time), np.log(runs[run]["time"]), runs[run]["growth"]) for run in _SPARSE)
    return Judgement(
        [between(f"{what}, {_FAST},", number(runs[_FAST], "slope"), 1 - _GROWTH, 1 + _GROWTH)],
        remark="Slopes are over the last decade of steps. If the gradient falls like exp(-||W|| / ||W_mm||), ||W|| "
        f"grows like ||W_mm|| log k. At time {time:g} (step size times steps), ||W|| / ||W_mm|| is {slow:.3g} "
        f"({_SLOW}) and {fast:.3g} ({_FAST}).",
        numbers=slopes,
        expected=dict.fromkeys(slopes, 1.0),
    )


def _turns_to(runs: Datasets, plain: tuple[str, ...], exact_run: str, start: str) -> Judgement:
    """1 - cos must fall like a power of the norm, for nearly all seeds; a seed that settles elsewhere refutes.

    Of the runs of plain descent the last one follows the path furthest; the exact run has the same starts.
    """
    far = plain[-1]
    numbers: dict[str, Number] = {}
    for run in (*plain, exact_run):
        summary = runs[run]
        numbers |= {
            f"1 - cos at step {int(summary['snapshot'][-1])}, {run}": number(summary, "off", at=-1),
            f"share of seeds that come nearer in the last decade, {run}": number(summary, "nearer"),
            f"share that selects the optimal tokens, {run}": number(summary, "optimal"),
        }
    powers = {f"exponent of ||W|| in 1 - cos, {run}": number(runs[run], "exponent") for run in plain}
    wrong = runs[far]["other_tokens"] & runs[exact_run]["other_tokens"]
    at_others, staying = int(wrong.sum()), int((wrong & runs[exact_run]["settled"]).sum())
    falls = f"share of seeds whose 1 - cos falls over the last decade of steps, {far},"
    ends = f"seeds from {start} that end at other tokens (interval: those that stay there, to all),"
    return Judgement(
        [
            *(below(f"{label},", power, _POWER) for label, power in powers.items()),
            above(falls, number(runs[far], "nearer"), _NEARLY_ALL),
            below(ends, Number(at_others, staying, at_others), 0),
        ],
        remark="Exponents are over the last decade of steps. Since the norm grows like the logarithm of the steps, the "
        f"direction changes very slowly, and {int(runs[far]['elsewhere'])} seeds have other tokens at the end of "
        f"plain descent ({far}). All seeds are therefore also trained along the exact direction of the gradient. "
        f"{at_others} of them end at other tokens there as well, and for {staying} of these the wrong inputs "
        f"contribute less than {SETTLED:g} of the gradient, so they stay there (see global-convergence:equal-scores).",
        numbers=numbers | powers,
        expected={label: 0.0 if "1 - cos at" in label else 1.0 for label in numbers},
        undecided=_NEEDS.missing({run: runs[run] for run in plain}),
    )


@claim(
    "gd-divergence:direction",
    _LIMIT,
    "From any start, the direction of W converges to the Frobenius solution that selects the optimal tokens.",
    TRAINED,
)
def _direction(runs: Datasets) -> Judgement:
    return _turns_to(runs, _SPARSE, _EXACT, "random weights")


@claim(
    "gd-divergence:zero",
    _POSTER,
    "From W = 0, the direction of W converges to the Frobenius solution that selects the optimal tokens.",
    TRAINED,
)
def _from_zero(runs: Datasets) -> Judgement:
    return _turns_to(runs, (_ZERO,), _ZERO_EXACT, "W = 0")


@claim(
    "gd-divergence:step",
    _SMOOTHNESS,
    "The gradient is Lipschitz with the paper's constant L, so a step of at most 1 / L never raises the risk.",
)
def _step(runs: Datasets) -> Judgement:
    tightest, sharpest = (max(float(runs[run][name]) for run in _RUNS) for name in ("tightest", "sharpest"))
    within = {run: float(runs[run]["within"]) for run in _RUNS}
    rises = {run: float(runs[run]["rises"]) for run in _RUNS}
    # A step beyond 1 / L says nothing about one within.
    is_short = within[_EVERY_STEP] <= 1
    remarks = [
        *([] if is_short else [f"No run has a step of at most 1 / L; the smallest is {within[_EVERY_STEP]:.3g} / L."]),
        f"L is {1 / max(tightest, 1e-300):.4g} times the largest second derivative found along the runs.",
        *(
            f"A step of {within[run]:.3g} / L raises it {rises[run]:.0f} times between recorded steps ({run})."
            for run in _RUNS
            if within[run] > 1
        ),
    ]
    of_short_steps = rises[_EVERY_STEP] if is_short else math.nan
    increases = {run: f"increases of the recorded risk, {run}" for run in _RUNS}
    return Judgement(
        (
            below("largest second derivative found, over L,", Number.exact(tightest), 1),
            below(f"steps of at most 1 / L that raise the risk, {_EVERY_STEP},", Number.exact(of_short_steps), 0),
        ),
        remark=" ".join(remarks),
        numbers={
            f"largest step size times L, {_EVERY_STEP}": within[_EVERY_STEP],
            f"number of steps of all seeds, {_EVERY_STEP}": float(runs[_EVERY_STEP]["taken"]),
            "largest second derivative found, over L": tightest,
            "largest second derivative found": sharpest,
            **{increases[run]: rises[run] for run in _RUNS},
        },
        expected={increases[_EVERY_STEP]: 0.0},
        undecided=_NEEDS.missing({run: runs[run] for run in _SPARSE}),
    )


# What is drawn: runs with their colours, dashes and labels.
_DRAWN = {
    _SLOW: (palette.ramp(2)[0], "--", "random start"),
    _FAST: (palette.ramp(2)[1], "-", "random start"),
    _ZERO: (palette.WINE, "-.", "from $W = 0$"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the norm of W over the time, step size times steps, and the direction error over the norm."""
    fast, every_step = summaries[_FAST], summaries[_EVERY_STEP]
    with page.style():
        figure = page.full(3.6)
        left, right = figure.subplots(1, 2)
        drawn = {run: look for run, look in _DRAWN.items() if run in summaries}
        for run, (colour, dashes, start) in drawn.items():
            summary, look = summaries[run], {"color": colour, "linestyle": dashes}
            step = rf"$\eta = {summary.attrs['optimizer.step_size']:g}$"
            label = f"{start}, {step} (${float(summary['within']):.2g} / L$)"
            page.course(left, summary, "growth", "time", label=label, **look)
            page.course(right, summary, "off", "growth", **look)
        # A line that grows like the logarithm, above the end of the faster run.
        ends = float(fast["time"][-1]) * np.array([1e-3, 1.0])
        line = float(fast["growth"][-1]) + 1.2 + np.log([1e-3, 1.0])
        left.plot(ends, line, color=palette.INK, linewidth=0.7, linestyle=":")
        middle = float(np.sqrt(ends.prod())), float(line.mean())
        labels.beside(left, r"$\log(\eta k)$ + constant", middle, (-5, 3), color=palette.INK, ha="right", va="bottom")
        verdicts = {name: judgements[f"gd-divergence:{name}"].verdict for name in ("norm", "direction", "zero")}
        figure.suptitle(
            f"Plain descent with equal scores. The norm diverges: {verdicts['norm']}.\n"
            f"The direction converges to $W_F$: from $W = 0$ {verdicts['zero']}, from any start {verdicts['direction']}"
        )
        left.set_title(f"(a) the norm grows like {float(fast['slope']):.2f} log $k$ (theorem: log $k$)")
        powers = {run: f"$\\|W\\|^{{{float(summaries[run]['exponent']):.1f}}}$" for run in drawn if run != _SLOW}
        right.set_title(f"(b) error falls like {', from 0 like '.join(powers.values())}")
        # Before that nothing moves; all runs are seen from here on.
        left.set(xlabel=r"time, step size times steps, $\eta k$", xscale="log", xlim=(float(fast["time"][0]), None))
        left.set(ylabel=r"norm, $\|W(k)\|_F\,/\,\|W_F\|_F$", ylim=(0, None))
        right.set(xlabel=r"norm, $\|W(k)\|_F\,/\,\|W_F\|_F$", xscale="log", xlim=(0.2, None), yscale="log")
        right.set(ylabel="direction error, 1 - cos to $W_F$")
        left.legend(loc="lower right", title="mean, 95 % interval")
        page.add_counts(
            figure,
            {run: summaries[run] for run in drawn},
            "Means over kept seeds, in (b) geometric. Exponents and slope: last decade of steps. "
            f"$W_F$: Frobenius SVM solution. Steps of {float(every_step['within']):.2g} / $L$ raise "
            f"the risk in {int(every_step['rises']):,} of {int(every_step['taken']):,} cases.",
        )
    return figure


EXPERIMENT = Experiment(measure, claims=(_norm, _direction, _from_zero, _step), estimate=estimate, draw=draw)
