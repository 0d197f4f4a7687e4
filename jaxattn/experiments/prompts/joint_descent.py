"""Attention and head trained together by descent: which max-margin problem does each obey (2306.13596)?"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, metrics, svm
from jaxattn.experiments.prompts import joint
from jaxattn.experiments.prompts.joint import PROBLEM_LOOKS, PROBLEMS, is_parallel, medians_of, of_support
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, claim, too_few
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import above, between
from jaxattn.study.estimates import estimated, mean, number, quantiles, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds, weights_of
from jaxattn.study.style import page

_SOURCE = Source("arXiv 2306.13596", "section on training p and v together, as recalled", Setting.PROXY)
_P, _W = "p and v, tau = 1", "W and v, tau = 1"
# W with all temperatures of the logits.
_ALL_W = (_W, "W and v, tau = 0.1", "W and v, tau = 10")
# Fixed beforehand: the direction error of equal directions, the share of seeds that is nearly all, and the largest mean
# direction error of a limit.
_PARALLEL, _ALL, _NEAR = 0.01, 0.95, 0.01
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16
_SHARE = f"share of seeds with 1 - cos below {_PARALLEL}"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare W and v at every snapshot with the certified solutions for the tokens that the run selects.

    The record is of a `Training` with `model=tempered_values`. A seed is kept if its weights stayed finite and the
    problems of v and W are certified optimal. The offsets are those for `||v|| / ||W||` at the end.

    Returns:
        `off`, 1 - cos of W and each solution, and `off_v`, of v; `margin_ratio` of W in the unrelaxed problem; and
        whether an input is a `support` vector of v.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    final, snapshots = weights_of(arrays), weights_of(arrays, "_snapshots")
    finite = finite_seeds(final)
    drawn = of_arrays(arrays)
    problems = Problem(X=drawn.X, Z=drawn.Z / record.attrs["model.model.tau"], Y=drawn.Y, v=drawn.v)
    # Diverged weights, which are excluded, are replaced by ones.
    W, v = np.where(finite[:, None, None], final.attention, 1.0), np.where(finite[:, None], final.readout, 1.0)
    alpha = batch.over_seeds(_selected, W, problems)
    ratio = np.linalg.norm(v, axis=1) / np.maximum(np.linalg.norm(W, axis=(1, 2)), np.finfo(float).tiny)
    solutions = joint.solve(problems, alpha, ratio, solver)
    kept = finite & solutions.solved
    compared = (snapshots.attention, snapshots.readout, solutions.W, solutions.v, problems, alpha)
    lanes = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], compared)
    off, off_v, margin_ratio = batch.over_seeds(_compared, *lanes)
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "snapshot"), np.maximum(off, _SAME)),
            "off_v": (("seed", "snapshot"), np.maximum(off_v, _SAME)),
            "margin_ratio": (("seed", "snapshot"), margin_ratio),
            "support": (("seed", "input"), solutions.support[kept]),
        },
        {
            "seed": record["seed"].values[kept],
            "problem": np.array(PROBLEMS, object),
            "snapshot": record["snapshot"].values,
        },
        exclusions.count(kept, diverged=~finite, infeasible=solutions.infeasible),
    )


def _selected(W: Float[Array, "d d"], problem: Problem) -> Int[Array, " n"]:
    return jnp.argmax(attention.logits(W, problem), axis=1)


def _compared(
    W: Float[Array, "snapshot d d"],
    heads: Float[Array, "snapshot d"],
    solutions: Float[Array, "problem d d"],
    v: Float[Array, " d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> tuple[Array, Array, Array]:
    """Return direction errors of W and v, and the margin ratios in the unrelaxed problem, whose margin is 1."""
    off, off_v = joint.direction_errors(W, heads, solutions, v)
    rows = svm.token_constraints(problem, alpha)
    smallest = jax.vmap(lambda matrix: jnp.min(svm.margins(rows, matrix)) / metrics.norm(matrix))(W)
    return off, off_v, smallest * metrics.norm(solutions[0])


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how close W and v are to the solutions at the end, over the `mixed`, the `whole` or all seeds."""
    mixed, whole, counts = of_support(run)
    last_mixed, last_whole, last = (seeds.isel(snapshot=-1) for seeds in (mixed, whole, run))
    estimates = estimated(
        run,
        key,
        off=mean(last_mixed["off"]),
        parallel=share(is_parallel(last_mixed["off"], _PARALLEL)),
        off_whole=mean(last_whole["off"].sel(problem="unrelaxed")),
        ratio=mean(last_mixed["margin_ratio"]),
        head=share(is_parallel(last["off_v"], _PARALLEL)),
        off_quantile=quantiles(mixed["off"], 10, 50, 90),
        off_v=quantiles(run["off_v"], 10, 50, 90),
    )
    return estimates.assign_attrs(counts)


@claim(
    "joint-descent:head",
    _SOURCE,
    "With the logistic loss, v trained together with the attention converges in direction to the max-margin "
    "classifier of the selected tokens.",
    needs=TRAINED,
)
def _head(runs: Datasets) -> Judgement:
    medians = ", ".join(f"{float(runs[run]['off_v_50'][-1]):.2g} ({run})" for run in (_P, _W))
    label = f"share of seeds with 1 - cos of v below {_PARALLEL}"
    return Judgement(
        [above(f"{label}, {run}", number(runs[run], "head"), _ALL) for run in (_P, _W)],
        remark=f"Median 1 - cos of v: {medians}.",
    )


@claim(
    "joint-descent:support",
    _SOURCE,
    "If all inputs are support vectors of the max-margin v, the prompt p trained together with v converges in "
    "direction to the max-margin solution p_mm of the selected tokens.",
    needs=TRAINED,
)
def _support(runs: Datasets) -> Judgement:
    off, attrs = number(runs[_P], "off_whole"), runs[_P].attrs
    return Judgement(
        [between("mean 1 - cos of p with its plain token SVM", off, 0.0, _NEAR)],
        numbers={"1 - cos": off},
        remark=f"Over the {attrs['whole']} of {attrs['kept']} seeds for which all inputs are support vectors of v.",
        undecided=too_few(attrs["whole"], TRAINED.seeds),
    )


def _obeys(problem: str, names: tuple[str, ...], runs: Datasets) -> Judgement:
    """Nearly all mixed seeds of these runs must end at the solution of this problem."""
    used = {f"tau = {runs[name].attrs['model.model.tau']:g}": runs[name] for name in names}
    numbers = {
        f"{label}, {other}, {at}": number(run, name, problem=other)
        for at, run in used.items()
        for other in PROBLEMS
        for label, name in (("1 - cos", "off"), (_SHARE, "parallel"))
    }
    ends = "; ".join(f"{at}: {medians_of(run, 'off_quantile_50')}" for at, run in used.items())
    mixed = [run.attrs["mixed"] for run in used.values()]
    ratios = ", ".join(f"{float(run['ratio']):.3f}" for run in used.values())
    return Judgement(
        [above(label, numbers[label], _ALL) for label in (f"{_SHARE}, {problem}, {at}" for at in used)],
        remark=f"Over the {', '.join(map(str, mixed))} seeds with inputs that are no support vectors of v. Median "
        f"1 - cos: {ends}. In the unrelaxed problem the mean margin ratio is {ratios}.",
        numbers=numbers,
        undecided=too_few(min(mixed), TRAINED.seeds),
    )


_RELAXED = (
    "{} trained together with v converges in direction to the token SVM in which the constraints of inputs that are "
    "not support vectors of the max-margin v are relaxed from >= 1 to >= 0."
)
_OFFSET = (
    "{} trained together with v, in norms of a fixed ratio, converges in direction to the token SVM in which the "
    "constraints of input i have the target max(0, 1 - kappa (m_i - m)), where m_i is its label margin, m the smallest "
    "one, and kappa is ||v|| / ||W||, as found at the end, times the norm of the solution; this is between the "
    "unrelaxed problem, for a small ratio, and the relaxed one, for a large ratio."
)
_OF_W = Source("arXiv 2306.13596", "the same for W, which it remarks is equivalent to p", Setting.OURS)
_OURS = Source("jaxattn", "the limit of attention whose head is trained with it", Setting.OURS)


def _claim(name: str, source: Source, statement: str, problem: str, runs: tuple[str, ...]) -> Claim:
    return Claim(f"joint-descent:{name}", source, statement, partial(_obeys, problem, runs), TRAINED)


_CLAIMS = (
    _head,
    _support,
    _claim("prompt", _SOURCE, _RELAXED.format("The prompt p"), "relaxed", (_P,)),
    _claim("weights", _OF_W, _RELAXED.format("W"), "relaxed", (_W,)),
    _claim("prompt-offset", _OURS, _OFFSET.format("The prompt p"), "offset", (_P,)),
    _claim("weights-offset", _OURS, _OFFSET.format("W"), "offset", _ALL_W),
)

_MARKERS = {"unrelaxed": "o", "relaxed": "s", "offset": "^"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw direction errors of p, (a), and W, (b), along the steps, and of W at the end by ratio of norms, (c)."""
    # The inputs of a few seeds may all be support vectors: there is nothing to draw of these.
    drawn = {name: run for name, run in summaries.items() if run.attrs["mixed"]}
    with page.style():
        figure = page.full(3.1)
        *panels, by_ratio = figure.subplots(1, 3, sharey=True)
        for axes, name, letter, trained in zip(panels, (_P, _W), "ab", "pW", strict=True):
            run = summaries[name]
            if name in drawn:
                for problem, look in PROBLEM_LOOKS.items():
                    off = [run[f"off_quantile_{q}"].sel(problem=problem).values for q in (50, 10, 90)]
                    page.band(axes, run["snapshot"].values, *off, **look)
            offset = number(run, "parallel", problem="offset").mean
            axes.set(xscale="log", yscale="log", xlabel="step")
            axes.set_title(f"({letter}) ${trained}$ and $v$: {offset:.0%} of seeds\nat the problem with offsets")
        _draw_ends(by_ratio, [drawn[name] for name in _ALL_W if name in drawn])
        panels[0].set_ylabel("direction error, $1 - \\cos$")
        panels[0].legend(handles=panels[0].lines, loc="lower left", title="median, 10th to 90th percentile")
        offset, relaxed = (judgements[f"joint-descent:prompt{name}"].verdict for name in ("-offset", ""))
        title = f"A prompt trained together with $v$ obeys the relaxed problem: {relaxed}; that with offsets: {offset}"
        figure.suptitle(title)
        mixed = ", ".join(f"{run.attrs['mixed']} ({name})" for name, run in summaries.items())
        page.add_counts(
            figure,
            summaries,
            f"Seeds some of whose inputs are no support vectors of v: {mixed}. "
            f"Shares: of these seeds with 1 - cos below {_PARALLEL} at the end.",
        )
    return figure


def _draw_ends(axes: Axes, runs: list[xarray.Dataset]) -> None:
    runs = sorted(runs, key=lambda run: run.attrs["model.model.tau"])
    tau = [run.attrs["model.model.tau"] for run in runs]
    for problem, look in PROBLEM_LOOKS.items():
        ends = [[float(run.sel(problem=problem)[f"off_quantile_{q}"][-1]) for run in runs] for q in (10, 50, 90)]
        low, middle, high = np.array(ends)
        axes.errorbar(tau, middle, [middle - low, high - middle], marker=_MARKERS[problem], ms=4, capsize=2, **look)
    axes.set(xscale="log", xlabel=r"temperature $\tau$ of the attention")
    axes.set_title("(c) $W$ and $v$ at the end: a warm\nattention slows $W$ against $v$")


EXPERIMENT = Experiment(measure, claims=_CLAIMS, estimate=estimate, draw=draw)
