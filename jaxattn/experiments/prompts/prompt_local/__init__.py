"""Which directions attract a prompt in the plane: only those of locally optimal tokens, and sometimes several?"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn import metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import pooled, variables
from jaxattn.study.claims import LEAST_STEPS, Datasets, Experiment, Judgement, Judgements, Needs, Source, claim
from jaxattn.study.claims.claim import Setting, family
from jaxattn.study.claims.criteria import Number, above
from jaxattn.study.estimates import number
from jaxattn.study.measuring import exclusions
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2306.13596", "theorems on locally optimal directions, and its pictures", Setting.PROXY)
# The runs over many problems, by the number of inputs; the others have one problem, to be drawn.
_RUNS = {1: "n = 1, 25 starts", 2: "n = 2, 25 starts"}
# Fixed beforehand: the largest direction error of an end at its solution, the smallest share of its norm by which a
# growing prompt moves in the second half of training, and the share of starts that counts as all.
_PARALLEL, _MOVES, _ALL = 0.01, 0.2, 0.98
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16
# The ends of a prompt that stays at a point, and of one that grows but is not at a locally optimal solution.
_AT_REST, _ELSEWHERE = -1, -2


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve the token SVM of every choice of tokens, and compare every end with that of the tokens it selects.

    A problem is kept if all ends are finite, every choice is certified optimal or infeasible, and those at which a
    start ends are optimal.

    Returns:
        For each start: `choice`, the number of the choice of tokens that its end selects; `off`, 1 - cos of the end and
        that choice's solution; and `moved`, the distance of the prompts at the end and halfway over the norm at the
        end: about 1/2 if the prompt grows, about 0 if it stays at a point. For each choice its `solution`, and whether
        it is `locally` optimal.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    seeds = len(arrays["p"])
    choices = np.array(list(itertools.product(range(problems.T), repeat=problems.n)))
    each: Problem = jax.tree.map(lambda leaf: np.repeat(leaf, len(choices), axis=0), problems)
    every = np.tile(choices, (seeds, 1))
    constraints = batch.over_seeds(svm.prompt_constraints, each.X, every)
    solutions = svm.solve_batch(constraints, solver=solver)
    status = np.asarray(solutions.status).reshape(seeds, -1)
    locally = batch.over_seeds(_locally, each, every, constraints, solutions.W).reshape(seeds, -1)
    locally = locally & (status == svm.Status.OPTIMAL)
    solution = np.asarray(solutions.W).reshape(seeds, len(choices), -1)
    finite = np.asarray(np.isfinite(arrays["p"]).all(axis=(1, 2)))
    ends, halfway = (np.where(finite[:, None, None], arrays[name], 1.0) for name in ("p", "p_halfway"))
    lengths = np.maximum(np.linalg.norm(ends, axis=2), np.finfo(float).tiny)
    moved = np.linalg.norm(ends - halfway, axis=2) / lengths
    choice, off = batch.over_seeds(_ends, ends, problems, solution)
    reached = np.take_along_axis(status, choice, axis=1) == svm.Status.OPTIMAL
    kept = finite & (status != svm.Status.NOT_CONVERGED).all(axis=1) & reached.all(axis=1)
    return xarray.Dataset(
        {
            "choice": (("seed", "start"), choice[kept]),
            "off": (("seed", "start"), np.maximum(off, _SAME)[kept]),
            "moved": (("seed", "start"), moved[kept]),
            "solution": (("seed", "choice_number", "feature"), solution[kept]),
            "locally": (("seed", "choice_number"), locally[kept]),
            "alpha": (("choice_number", "input"), choices),
            "X": (("seed", "input", "token", "feature"), arrays["X"][kept]),
            "score": (("seed", "input", "token"), batch.over_seeds(tokens.scores, problems)[kept]),
            "p_initial": (("seed", "start", "feature"), arrays["p_initial"][kept]),
        },
        {"seed": record["seed"].values[kept]},
        exclusions.count(kept, diverged=~finite),
    )


def _locally(problem: Problem, alpha: Int[Array, " n"], constraints: svm.Constraints, p: Float[Array, "d 1"]) -> Array:
    neighbours = tokens.support_neighbours(svm.margins(constraints, p), alpha)
    return tokens.is_locally_optimal(tokens.scores(problem), alpha, neighbours)


def _ends(
    ends: Float[Array, "start d"], problem: Problem, solution: Float[Array, "choice d"]
) -> tuple[Int[Array, " start"], Float[Array, " start"]]:
    """Return the number of the choice that each end selects, and 1 - cos with its solution."""
    selected = jnp.argmax(jnp.einsum("ntd,sd->snt", problem.X, ends), axis=2)
    choice = selected @ (problem.T ** jnp.arange(problem.n - 1, -1, -1))
    return choice, 1 - jax.vmap(metrics.correlation)(ends[:, :, None], solution[choice][:, :, None])


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate where the starts end, resampling whole problems, and keep the first problem for the figure.

    Returns:
        Shares of all starts: `arrived` at the solution of a locally optimal choice; `resting`, whose prompt stays at a
        point; and `elsewhere`, the others. `growing`, the share that arrived among the starts that do not rest. The
        number of problems in which starts end at two or more locally optimal choices, `several`, and of those that have
        them, `optima`. For the first problem its arrays, and `end`, the number of the choice at which a start ends.
    """
    choice, locally, off = run["choice"].values, run["locally"].values, run["off"].values
    rests = run["moved"].values < _MOVES
    arrived = np.take_along_axis(locally, choice, axis=1) & (off > 0) & (off < _PARALLEL) & ~rests
    every = np.ones_like(rests)
    cases = {
        "arrived": (arrived, every),
        "resting": (rests, every),
        "elsewhere": (~arrived & ~rests, every),
        # If none grows, none has arrived.
        "growing": (arrived, every if rests.all() else ~rests),
    }
    seed = np.broadcast_to(np.arange(len(choice))[:, None], choice.shape)
    shares = {
        name: ((), pooled(hits[among], seed[among], jax.random.fold_in(key, k)))
        for k, (name, (hits, among)) in enumerate(cases.items())
    }
    ends = np.where(arrived[0], choice[0], np.where(rests[0], _AT_REST, _ELSEWHERE))
    reached = [np.unique(ends_of[at]).size > 1 for ends_of, at in zip(choice, arrived, strict=True)]
    counts = {"several": sum(reached), "optima": int((locally.sum(axis=1) > 1).sum())}
    return run.isel(seed=0, drop=True).assign(variables(shares) | {"end": (("start",), ends)} | counts)


@claim(
    "prompt-local:attract",
    _SOURCE,
    "Only the max-margin directions of locally optimal tokens attract gradient descent on the prompt: from every "
    "start it ends at one of them.",
    needs=Needs(steps=LEAST_STEPS),
)
def _attract(runs: Datasets) -> Judgement:
    def shares(words: str, name: str) -> dict[str, Number]:
        return {f"{words}, {run}": number(runs[run], name) for run in _RUNS.values()}

    arrived = shares("share of starts that end at a locally optimal solution", "arrived")
    growing = shares("share that ends at a locally optimal solution, among starts whose prompt grows", "growing")
    others = ", ".join(f"{float(runs[run]['elsewhere']):.2%} ({run})" for run in _RUNS.values())
    return Judgement(
        [above(label, share, _ALL) for label, share in arrived.items()],
        [above(label, share, _ALL) for label, share in growing.items()],
        correction="from every start the prompt either stays at a finite point or grows, and all growing prompts "
        "converge in direction to the solution of a locally optimal choice.",
        remark=f"Share of starts that grow but end elsewhere or have not converged yet: {others}.",
        numbers=arrived | shares("share of starts whose prompt stays at a finite point", "resting") | growing,
    )


@claim(
    "prompt-local:several",
    _SOURCE,
    "A problem may have several locally optimal directions, each of which attracts some starts.",
    needs=Needs(steps=LEAST_STEPS),
)
def _several(runs: Datasets) -> Judgement:
    label = "problems in which starts end at two or more locally optimal solutions"
    optima = ", ".join(f"{int(runs[run]['optima'])} of {runs[run].attrs['kept']} ({run})" for run in _RUNS.values())
    return Judgement(
        [above(f"{label}, {run}", number(runs[run], "several"), 1.0) for run in _RUNS.values()],
        remark=f"Problems with two or more locally optimal choices: {optima}.",
    )


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw for each number of inputs the problem with most starts, and in the titles the shares of all problems."""
    with page.style():
        figure = page.full(5.1)
        panels = figure.subplots(1, 2)
        for axes, inputs, title in zip(panels, _RUNS, ("(a) One input", "(b) Two inputs"), strict=True):
            run, drawn = summaries[_RUNS[inputs]], family(summaries, {"data.n": inputs})
            _draw_ends(axes, max(drawn.values(), key=lambda run: run.sizes["start"]))
            axes.set_title(
                f"{title}: {float(run['arrived']):.2%} of all starts end at\n"
                f"locally optimal solutions, {float(run['resting']):.2%} at a point"
            )
        verdict = judgements["prompt-local:attract"].verdict
        figure.suptitle(f"Only directions of locally optimal tokens attract the prompt, from every start: {verdict}")
        page.add_counts(
            figure,
            {run: summaries[run] for run in _RUNS.values()},
            "Arrows: certified solutions of all locally optimal choices. They say where prompts end, not where they "
            "start, so an arrow may cross another's area. Grey: stays at a point; black: elsewhere. Tokens are scaled "
            "to the panel (squares: second input; the darker, the higher the score). Shares: over the starts of all "
            "problems; of those drawn hardly one stays at a point.",
            counted="problems",
        )
    return figure


def _draw_ends(axes: Axes, run: xarray.Dataset) -> None:
    """Colour every start by the choice of tokens at whose solution it ends."""
    starts, end = run["p_initial"].values, run["end"].values
    side, reach = int(np.sqrt(len(starts))), float(np.abs(starts).max())
    optima = np.flatnonzero(run["locally"].values)
    number_of = {choice: k for k, choice in enumerate(optima)} | {_AT_REST: len(optima)}
    numbers = np.array([number_of.get(choice, len(optima) + 1) for choice in end])
    # Of the locally optimal choices, in order; of prompts that stay at a point; and of ends elsewhere.
    colours = [*(palette.OTHERS[k % 5] for k in range(len(optima))), palette.EXCLUDED, palette.INK]
    half = reach * side / (side - 1)
    axes.imshow(
        numbers.reshape(side, side),
        origin="lower",
        extent=(-half, half, -half, half),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        interpolation="nearest",
        alpha=0.6,
    )
    for choice, colour in zip(optima, colours, strict=False):
        solution = run["solution"].values[choice]
        tip = 0.97 * half * solution / np.linalg.norm(solution)
        look = {"arrowstyle": "simple,tail_width=0.2,head_width=0.7,head_length=0.7", "mutation_scale": 14}
        look |= {"facecolor": colour, "edgecolor": "black", "linewidth": 0.7}
        axes.annotate("", xy=tuple(tip), xytext=(0, 0), arrowprops=look)
    X = run["X"].values * 0.75 * half / np.abs(run["X"].values).max()
    look = {"cmap": "Greys", "s": 34, "edgecolors": "black", "linewidths": 0.8, "zorder": 5}
    for positions, scores, marker in zip(X, run["score"].values, "os", strict=False):
        axes.scatter(*positions.T, c=scores, marker=marker, **look)
    names = ["token " + " and ".join(str(t + 1) for t in run["alpha"].values[choice]) for choice in optima]
    handles = [Patch(color=colour, alpha=0.6, label=name) for colour, name in zip(colours, names, strict=False)]
    look = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2, "frameon": False}
    axes.legend(handles=handles, title="ends at", columnspacing=1.0, handlelength=1.4, **look)
    axes.set(xlim=(-half, half), ylim=(-half, half), aspect="equal", xlabel="first coordinate of the start")
    axes.set_ylabel("second coordinate")


EXPERIMENT = Experiment(measure, claims=(_attract, _several), estimate=estimate, draw=draw)
