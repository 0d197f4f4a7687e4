"""How often does descent converge globally, locally or otherwise, against d (2308.16898)?"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from jaxattn import descent, heads, losses, svm, tokens
from jaxattn.attention import Factored, Weights
from jaxattn.experiments.landscape.outcomes import by_weights, read, share_among
from jaxattn.experiments.landscape.rising import Trend, points, trend
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study import claims
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Number, below, claim
from jaxattn.study.estimates import estimated, exact, number, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds
from jaxattn.study.style import page, palette

# Fixed beforehand: runs that end at tokens that are not locally optimal are trained on for so many steps in turn, until
# they have left them. They follow the exact gradient direction: the published rule stalls by rounding before.
_ROUNDS = (100_000, 400_000, 1_500_000)
_FURTHER = sum(_ROUNDS)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Classify the tokens that every seed of a `Training` has selected, by the certified solution that selects them.

    Seeds whose tokens are not locally optimal by their own solution, the Frobenius one for W and the nuclear one for
    (K, Q), are first trained on, see `_ROUNDS`.

    Returns:
        For the seeds that stayed finite and whose Att-SVM is solved: the fields of `tokens.Outcome` by the Frobenius
        solution; `nearest`, the smallest inactive margin; `locally_own`, like `locally`, by the own solution; whether
        the seed was `trained_on`, and then still selects no locally optimal tokens, `remains`. Kept are those that
        saturated; the others count as `ambiguous`, `diverged`, `infeasible` or `unsolved`.
    """
    final, problems = read(record)
    finite = finite_seeds(final)
    classes = _classes(final, problems, finite, solver)
    remains = trained_on = classes.solved & classes.outcome.saturated & ~classes.own
    for steps in _ROUNDS:
        if remains.any():
            weights, posed, ended = jax.tree.map(lambda leaf, chosen=remains: leaf[chosen], (final, problems, finite))
            exact_direction = descent.exact_normalized_gd(0.1, floor=0.0, penalty=0.0)
            arguments = {"optimizer": exact_direction, "loss": losses.logistic, "head": heads.linear}
            weights = descent.train_batch(weights, posed, steps=steps, record_every=steps, **arguments).weights
            new = weights, _classes(weights, posed, ended, solver)
            final, classes = jax.tree.map(partial(_replaced, remains), (final, classes), new)
            remains = trained_on & ~(classes.outcome.saturated & classes.own)
    outcome, solved = classes.outcome, classes.solved
    variables = {**outcome._asdict(), "locally_own": classes.own, "nearest": classes.nearest}
    variables |= {"trained_on": trained_on, "remains": remains}
    ambiguous = solved & ~outcome.saturated
    return xarray.Dataset(
        {name: (("seed",), values[solved]) for name, values in variables.items()},
        {"seed": record["seed"].values[solved]},
        exclusions.count(
            solved & outcome.saturated, diverged=~finite, ambiguous=ambiguous, infeasible=classes.infeasible
        ),
    )


class _Classes(NamedTuple):
    """What every seed selects, by the Frobenius solution and by its own, and whether both are solved."""

    outcome: tokens.Outcome
    nearest: Float[np.ndarray, " seeds"]
    own: Bool[np.ndarray, " seeds"]
    solved: Bool[np.ndarray, " seeds"]
    infeasible: Bool[np.ndarray, " seeds"]


def _classes(
    final: Weights, problems: Problem, finite: Bool[np.ndarray, " seeds"], solver: svm.Solver | None
) -> _Classes:
    constraints = batch.over_seeds(_posed, final, problems, finite)
    norms = (svm.frobenius, svm.nuclear) if isinstance(final, Factored) else (svm.frobenius,)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    classified = [batch.over_seeds(_classified, final, problems, constraints, one.W) for one in solutions]
    solved = finite & np.all([one.status == svm.Status.OPTIMAL for one in solutions], axis=0)
    infeasible = finite & np.any([one.status == svm.Status.INFEASIBLE for one in solutions], axis=0)
    outcome, nearest = classified[0]
    return _Classes(outcome, nearest, classified[-1][0].locally, solved, infeasible)


def _replaced(
    chosen: Bool[np.ndarray, " seeds"], leaf: Shaped[np.ndarray, "seeds ..."], new: Shaped[np.ndarray, "chosen ..."]
) -> Shaped[np.ndarray, "seeds ..."]:
    leaf = np.array(leaf)
    leaf[chosen] = new
    return leaf


def _posed(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> svm.Constraints:
    """Return the constraints that select a seed's tokens; those of token 0 if it diverged and selects nothing."""
    return svm.token_constraints(problem, jnp.where(finite, tokens.selected(weights, problem), 0))


def _classified(
    weights: Weights, problem: Problem, constraints: svm.Constraints, W_svm: Float[Array, "d d"]
) -> tuple[tokens.Outcome, Float[Array, ""]]:
    margins = svm.margins(constraints, W_svm)
    inactive = jnp.where(margins > 1 + tokens.ACTIVE, margins, jnp.inf)
    return tokens.outcome(weights, problem, margins), jnp.min(inactive)


# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = claims.Source("arXiv 2308.16898", "figure of the convergence types", claims.Setting.PROXY)
_NEEDS = claims.Needs(steps=claims.LEAST_STEPS)
_POINTS = "dimensions"


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the shares of runs that select the optimal tokens, and of problems with only support vectors.

    Of the saturated runs also the shares that are locally optimal by the Frobenius solution and by the run's own.
    """
    # A global selection counts as global even if two scores are tied.
    saturated, globally, locally = run["saturated"], run["globally"], run["locally"]
    return estimated(
        run,
        key,
        globally=share(saturated & globally),
        all_support=share(run["all_support"]),
        by_frobenius=share_among(saturated, locally),
        by_own=share_among(saturated, run["locally_own"]),
        seeds=exact(run.sizes["seed"]),
        saturated=exact(saturated.sum()),
        not_by_frobenius=exact((saturated & ~locally).sum()),
        not_by_own=exact((saturated & ~run["locally_own"]).sum()),
        trained_on=exact(run["trained_on"].sum()),
        remains=exact(run["remains"].sum()),
        only_local=exact((saturated & run["all_support"] & locally & ~globally).sum()),
    )


@claim(
    "convergence-types:global",
    _SOURCE,
    "The larger d, the more runs converge to the globally optimal tokens.",
    needs=_NEEDS,
)
def _global(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    rise = _rise(summaries, "globally")
    return Judgement(
        rise.criteria("increase of the share of global runs from the smallest to the largest d", _POINTS),
        remark="Shares are of all runs whose Att-SVM is solved; a run that has not saturated has selected nothing. "
        + rise.remark(_POINTS),
        numbers=_numbers(summaries, "globally", "global"),
        undecided=rise.undecided,
    )


@claim(
    "convergence-types:local",
    _SOURCE,
    "A run that selects tokens selects locally optimal ones, if not the globally optimal ones.",
    needs=_NEEDS,
)
def _local(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    of_kinds = (("W", "frobenius", "Frobenius"), ("KQ", "frobenius", "Frobenius"), ("KQ", "own", "nuclear"))
    numbers = {
        f"{run}, locally optimal by the {solution} solution": share
        for weights, by, solution in of_kinds
        for run, share in points(summaries[weights], f"by_{by}")
    }
    saturated, elsewhere, trained_on, remains = (
        _total(summaries, name) for name in ("saturated", "not_by_frobenius", "trained_on", "remains")
    )
    stay = "runs trained on that remain at tokens not locally optimal by the solution they converge to"
    return Judgement(
        [below("saturated runs not locally optimal by the Frobenius solution", Number.exact(elsewhere), 0)],
        # A run that remains may still leave: it is no counter-example.
        [below(stay, Number(remains, 0, remains), 0)],
        correction="support neighbours must be those of the solution that the run converges to, the nuclear one for "
        f"(K, Q): {elsewhere} of {saturated} saturated runs are not local by the Frobenius solution, and {remains} by "
        "their own.",
        remark=f"Support neighbours are the tokens with margins within {tokens.ACTIVE:g} of 1. At the end of the "
        f"published rule {trained_on} runs select tokens that a neighbour outscores, by their own solution. They are "
        f"trained for up to {_FURTHER:,} steps more along the exact gradient direction, which does not stall; "
        f"{remains} remain at such tokens.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
    )


@claim(
    "convergence-types:all-support",
    _SOURCE,
    "The larger d, the more often every token that is not selected is a support vector, in which case only the "
    "optimal tokens are locally optimal.",
    needs=_NEEDS,
)
def _all_support(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    rise = _rise(summaries, "all_support")
    only_local = _total(summaries, "only_local")
    increase = "increase of the share with all tokens as support vectors, from the smallest to the largest d"
    return Judgement(
        (
            *rise.criteria(increase, _POINTS),
            below("runs with all tokens as support vectors, local but not global", Number.exact(only_local), 0),
        ),
        remark=f"Support vectors are those of the Att-SVM of the tokens that each run selects. {rise.remark(_POINTS)} "
        f"{only_local} runs with all tokens as support vectors are local but not global.",
        numbers=_numbers(summaries, "all_support", "all support"),
        undecided="" if only_local else rise.undecided,
    )


def _rise(summaries: Datasets, name: str) -> Trend:
    """Return how shares change with d, comparing every two dimensions."""
    curves = [points(summary, name) for summary in summaries.values()]
    return trend(curves, up=True, pairs=lambda curve: itertools.combinations(curve, 2))


def _numbers(summaries: Datasets, name: str, label: str) -> dict[str, Number]:
    return {
        f"{weights} d={d}, {label}": number(summary.isel(run=k), name)
        for weights, summary in summaries.items()
        for k, d in enumerate(summary["d"].values)
    }


def _total(summaries: Datasets, name: str) -> int:
    return sum(int(summary[name].sum()) for summary in summaries.values())


# The curves of each panel: weights, estimate, and label.
_NOT_GLOBAL, _SUPPORT = ([(run, name, page.RUNS[run]) for run in ("W", "KQ")] for name in ("globally", "all_support"))
_NOT_LOCAL = [
    ("W", "by_own", "$W$: Frobenius SVM"),
    ("KQ", "by_own", r"$KQ^\top$: nuclear SVM"),
    ("KQ", "by_frobenius", r"$KQ^\top$: Frobenius SVM"),
]


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the shares of runs that are not global, not local, and all support, with zeros at the floor of the axis."""
    summaries = by_weights(summaries)
    seeds = max(int(summary["seeds"].max()) for summary in summaries.values())
    # Half of the smallest share that is not zero.
    floor = 0.5 / seeds
    d = summaries["W"]["d"].values
    decades = np.arange(np.ceil(np.log10(2 * floor) - 1e-9), 1)
    with page.style():
        figure = page.full(3.3)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, curves in zip(panels, (_NOT_GLOBAL, _NOT_LOCAL, _SUPPORT), strict=True):
            for weights, name, label in curves:
                _curve(axes, summaries[weights], weights, name, label, floor)
            axes.axhline(floor, color=palette.GUIDE, linewidth=0.7, linestyle=":", zorder=1)
            axes.set(xscale="log", yscale="log", ylim=(0.75 * floor, 1.3), xlabel="dimension $d$")
            axes.set_xlim(0.8 * d[0], 1.25 * d[-1])
            axes.set_xticks(d, [f"{size}" for size in d])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.legend(loc="upper left" if curves is _SUPPORT else "upper right")
        ends = [
            f"{' to '.join(_percent(1 - float(summary['globally'][k])) for k in (0, -1))} ({page.RUNS[weights]})"
            for weights, summary in summaries.items()
        ]
        saturated, trained_on, remains, only_local = (
            _total(summaries, name) for name in ("saturated", "trained_on", "remains", "only_local")
        )
        panels[0].set(title=f"(a) not global: {', '.join(ends)}", ylabel="share of runs")
        panels[1].set_title(f"(b) not local: by their own SVM {remains:,} of {saturated:,} runs")
        panels[2].set_title(f"(c) all tokens support vectors: {only_local:,} of these local only")
        panels[0].yaxis.set_major_locator(FixedLocator([floor, *10**decades]))
        panels[0].set_yticklabels(["none", *(f"{100 * 10**power:g} %" for power in decades)])
        verdicts = {name: judgements[f"convergence-types:{name}"].verdict for name in ("global", "local")}
        figure.suptitle(
            f"A larger $d$ leads more runs to the optimal tokens: {verdicts['global']}. All other runs select locally "
            f"optimal tokens: {verdicts['local']}"
        )
        page.add_counts(
            figure,
            summaries,
            f"Bars: 95 % intervals, up to {seeds:,} runs per point. (a) includes runs that are not saturated, (b) does "
            f"not. {trained_on:,} runs that the published rule leaves at tokens that are not local by their own SVM "
            f"were trained for up to {_FURTHER:,} steps more. Support vectors: (b) of the SVM in the legend, (c) of "
            "the Frobenius SVM.",
        )
    return figure


def _curve(axes: Axes, summary: xarray.Dataset, weights: str, name: str, label: str, floor: float) -> None:
    """Draw shares, or those of the other runs, with their intervals; zeros are open triangles at the floor."""
    mean, low, high = (summary[part].values for part in (name, f"{name}_low", f"{name}_high"))
    if name != "all_support":
        mean, low, high = 1 - mean, 1 - high, 1 - low
    none = mean <= 0
    mean, low, high = (np.maximum(part, floor) for part in (mean, low, high))
    colour = palette.COLOURS[weights]
    look: dict[str, Any] = {"linestyle": palette.DASHES[weights], "marker": "o", "markerfacecolor": colour}
    if (weights, name) == ("KQ", "by_frobenius"):
        look = {"linestyle": palette.DASHES["frobenius"], "marker": "s", "markerfacecolor": "white"}
    # So that W and (K, Q) do not cover each other.
    x = summary["d"].values * {"W": 0.97, "KQ": 1.03}[weights]
    marked = np.flatnonzero(~none).tolist()
    page.bars(axes, x, mean, low, high, color=colour, markersize=3.5, label=label, markevery=marked, **look)
    axes.plot(x[none], mean[none], "v", color=colour, markerfacecolor="white", markersize=5, zorder=4)


def _percent(share: float) -> str:
    """Return a share in percent, which is not broken into two lines."""
    return rf"${100 * share:.{2 if share < 0.0995 else 3}g}\,\%$"


EXPERIMENT = Experiment(measure, claims=(_global, _local, _all_support), estimate=estimate, draw=draw)
