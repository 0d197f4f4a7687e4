"""Does descent that starts far along an SVM solution stay at its tokens if and only if these are locally optimal?"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import LEAST_SEEDS, Estimate, bootstrap, pooled, proportion, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim
from jaxattn.study.claims.counts import LEAST_STEPS, too_few
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import number
from jaxattn.study.measuring import exclusions
from jaxattn.study.style import page, palette

# A run has stayed if it selects alpha at the end and its direction is this close to W_alpha.
_STAYED = 0.99
# Fixed beforehand: the largest share of locally optimal choices that descent may leave at the largest radius, since R
# must be large enough for alpha.
_FEW = 0.1


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every run of a `Directions` with the solution along which it started, solved and certified again.

    Returns:
        A dataset with axes `start`, a kept choice of tokens of the problem of one `seed` in dimension `d`, and
        `radius`. (start, radius): whether descent `stayed`, and its final `correlation` with W_alpha. (start): whether
        alpha is locally optimal (`locally`); its smallest lead in score over a support neighbour (`gap`); the `slack`
        of the tokens that outscore alpha but are not support neighbours: the excess of their smallest margin over 1
        (inf if there are none); the `length` of W_alpha. Choices whose Att-SVM is not solved count as `infeasible` or
        `unsolved`, solved ones with a non-finite run as `diverged`.
    """
    seeds, dimensions, choices = record["alpha"].shape[:3]
    lanes = {str(name): record[name].values.reshape(-1, *record[name].shape[2:]) for name in record.data_vars}
    problems = of_arrays({name: np.repeat(lanes[name], choices, axis=0) for name in ("X", "Z", "Y", "v")})
    alpha, final = (lanes[name].reshape(-1, *lanes[name].shape[2:]) for name in ("alpha", "W"))
    solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, problems, alpha), solver=solver)
    of_start, of_run = batch.over_seeds(_compared, problems, alpha, solution.W, final)
    solved, infeasible = (np.equal(solution.status, one) for one in (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    kept = solved & np.isfinite(final).all(axis=(1, 2, 3))
    of_start |= {
        "d": np.tile(np.repeat(record["d"].values, choices), seeds),
        "seed": np.repeat(record["seed"].values, dimensions * choices),
    }
    counts = exclusions.count(kept, diverged=solved, infeasible=infeasible)
    if not counts["diverged"]:
        del counts["diverged"]
    return xarray.Dataset(
        {name: (("start",), values[kept]) for name, values in of_start.items()}
        | {name: (("start", "radius"), values[kept]) for name, values in of_run.items()},
        {"radius": record["radius"].values},
        counts,
    )


def _compared(
    problem: Problem, alpha: Int[Array, " n"], W: Float[Array, "d d"], final: Float[Array, "radii d d"]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what is known about a choice of tokens with solution W, and about the runs that started along W."""
    scores, logits = tokens.scores(problem), attention.logits(W, problem)
    margins = svm.margins(svm.token_constraints(problem, alpha), W)
    neighbours = tokens.support_neighbours(margins, alpha)
    lead, above = (jnp.take_along_axis(one, alpha[:, None], axis=1) - one for one in (scores, logits))
    correlation = jax.vmap(metrics.correlation, in_axes=(0, None))(final, W)
    selects = (jax.vmap(tokens.selected, in_axes=(0, None))(final, problem) == alpha[None, :]).all(axis=1)
    of_start = {
        "locally": tokens.is_locally_optimal(scores, alpha, neighbours),
        "gap": jnp.min(jnp.where(neighbours, lead, jnp.inf)),
        "slack": jnp.min(jnp.where((lead < 0) & ~neighbours, above - 1, jnp.inf)),
        "length": metrics.norm(W),
    }
    return of_start, {"correlation": correlation, "stayed": selects & (correlation > _STAYED)}


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Count the starts that descent left, by whether their tokens are locally optimal.

    The bootstrap resamples whole problems, since the choices of tokens of one problem are dependent.

    Returns:
        The measured runs with axes `of`, locally optimal or not, and `radius` in addition: the share of starts that
        descent `left`, with its interval, and the number of `starts`; and, over `farther`, `rise`, the change in the
        share of locally optimal starts left from one radius to the next, with its interval.
    """
    run = runs["all starts"]
    left, seed, locally = ~run["stayed"].values, run["seed"].values, run["locally"].values
    shares = [pooled(left[of], seed[of], jax.random.fold_in(key, k)) for k, of in enumerate((~locally, locally))]
    estimates = {
        "left": (("of", "radius"), Estimate(*(np.stack(part) for part in zip(*shares, strict=True)))),
        "rise": (("farther",), bootstrap(_rises(run), jax.random.fold_in(key, 2))),
    }
    summary = run.assign(variables(estimates)).assign(starts=(("of",), [(~locally).sum(), locally.sum()]))
    return {"all starts": summary.assign_coords(of=["not local", "local"])}


def _rises(run: xarray.Dataset) -> Float[np.ndarray, "problems farther"]:
    """Return what each problem contributes to the change in the share of locally optimal starts left."""
    local = run.isel(start=run["locally"].values)
    problems, problem = np.unique(local["seed"].values, return_inverse=True)
    rises = np.zeros((len(problems), local.sizes["radius"] - 1))
    np.add.at(rises, problem, np.diff((~local["stayed"].values).astype(float), axis=1))
    return rises * len(problems) / local.sizes["start"]


@claim(
    "local-directions:exactly",
    Source("arXiv 2308.16898", "section 5, theorem on local convergence of gradient descent", Setting.OURS),
    "As R grows, descent that starts along W_alpha with the norm R stays at alpha if and only if alpha is locally "
    "optimal.",
    needs=Needs(steps=LEAST_STEPS),
)
def _exactly(runs: Datasets) -> Judgement:
    run = runs["all starts"]
    radii, stayed, locally = run["radius"].values, run["stayed"].values, run["locally"].values
    numbers, expected = {}, {}
    for (of, goal), radius in itertools.product((("local", 0.0), ("not local", 1.0)), radii):
        label = f"{of}, share left, R = {radius:g}"
        numbers[label], expected[label] = number(run, "left", of=of, radius=radius), goal
    wrongly = int((stayed & ~locally[:, None]).sum())
    converse = below("runs that stayed at tokens that are not locally optimal", Number.exact(wrongly), 0)
    left = run["left"].sel(of="local").values
    # With choices of both kinds.
    problems = min(len(np.unique(run["seed"].values[locally == kind])) for kind in (True, False))
    few = number(run, "left", of="local", radius=radii[-1])
    falls = [
        below(f"change of that share from R = {a:g} to {b:g}", number(run.isel(farther=k), "rise"), 0)
        for k, (a, b) in enumerate(itertools.pairwise(radii))
    ]
    return Judgement(
        [converse, below(f"share of the locally optimal choices left at R = {radii[-1]:g}", few, _FEW), *falls],
        remark="The theorem requires that R is large enough for alpha. Descent leaves "
        f"{left[0]:.1%} of the locally optimal choices at R = {radii[0]:g}, and {left[-1]:.1%} at R = {radii[-1]:g}. "
        "A run has stayed if it selects alpha after the last step and its correlation with W_alpha is above "
        f"{_STAYED}. {wrongly} runs stayed at tokens that are not locally optimal. {_slack(run)}".rstrip(),
        numbers=numbers,
        expected=expected,
        undecided=too_few(int(run["starts"].min())) or too_few(problems, LEAST_SEEDS),
    )


def _scaled_slack(run: xarray.Dataset) -> tuple[Float[np.ndarray, " runs"], Bool[np.ndarray, " runs"]]:
    """Return `slack R / ||W_alpha||`, and what stayed, for the locally optimal starts outscored by some token."""
    local = run.isel(start=run["locally"].values)
    scaled = (local["slack"] * local["radius"] / local["length"]).values
    return scaled[np.isfinite(scaled)], local["stayed"].values[np.isfinite(scaled)]


def _slack(run: xarray.Dataset) -> str:
    """Say the median slack of the starts left and of the others; empty unless there are both."""
    scaled, stays = _scaled_slack(run)
    left, stayed = scaled[~stays], scaled[stays]
    if not (left.size and stayed.size):
        return ""
    return (
        "Among locally optimal choices outscored by a token that is not a support neighbour, the median of that "
        f"token's slack times R / ||W_alpha|| is {np.median(left):.1f} where descent left and {np.median(stayed):.1f} "
        "where it stayed."
    )


# Shares are those of about this many groups of equally many starts; a group has at least so many.
_GROUPS, _LEAST = 16, 8


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw three panels: the share of starts that stay over the score lead, over R, and over the slack."""
    run = summaries["all starts"]
    with page.style():
        figure = page.full(3.3)
        panels = figure.subplots(1, 3, sharey=True)
        for panel, axes in zip((_over_lead, _over_radius, _over_slack), panels, strict=True):
            panel(axes, run)
        panels[0].set(ylabel="share of starts that stay", ylim=(-0.03, 1.03))
        figure.suptitle(
            r"As $R$ grows, descent from $R\, W_\alpha$ stays at $\alpha$ exactly where $\alpha$ is locally optimal: "
            f"{judgements['local-directions:exactly'].verdict}"
        )
        page.add_counts(
            figure,
            summaries,
            r"A start is $R\, W_\alpha / \|W_\alpha\|_F$ for one of the $T^n$ choices $\alpha$ of tokens; it stays if "
            r"descent selects $\alpha$ at the end, with a correlation above 0.99. (a), (c): groups of equally many "
            "starts, Wilson intervals; (b): problems resampled. All intervals are of 95 %.",
            counted="choices",
        )
    return figure


def _over_lead(axes: Axes, run: xarray.Dataset) -> None:
    last, locally = run.isel(radius=-1), run["locally"].values
    # Choices that are locally optimal are those with a positive lead: no group has both.
    for those, colour in ((~locally, palette.WINE), (locally, palette.TEAL)):
        _shares(axes, last["gap"].values[those], last["stayed"].values[those], colour)
    axes.axvline(0, color=palette.NOTE, linewidth=0.8)
    wrong = int((last["stayed"].values & ~locally).sum())
    axes.set_title(f"(a) {wrong} stay with a negative lead\n($R = {float(last['radius']):g}$)")
    axes.set_xlabel("score lead over the best\nsupport neighbour")


def _over_radius(axes: Axes, run: xarray.Dataset) -> None:
    for of, is_local, colour, marker in (("local", "yes", palette.TEAL, "o"), ("not local", "no", palette.WINE, "s")):
        left = run.sel(of=of)
        stay = (1 - left[f"left{part}"].values for part in ("", "_high", "_low"))
        label = f"{is_local} ({int(left['starts']):,})"
        page.bars(axes, run["radius"], *stay, color=colour, marker=marker, label=label)
    stay = 1 - float(run["left"].sel(of="local")[-1])
    axes.set_title(f"(b) far enough along $W_\\alpha$,\n{stay:.1%} of locally optimal $\\alpha$ stay")
    axes.set(xlabel="$R$", xscale="log")
    axes.legend(title=r"$\alpha$ locally optimal?", loc="center right")


def _over_slack(axes: Axes, run: xarray.Dataset) -> None:
    slack, stayed = _scaled_slack(run)
    _shares(axes, slack, stayed, palette.TEAL)
    shares = [stayed[group].mean() for group in _groups(slack)]
    axes.set_title(f"(c) locally optimal $\\alpha$, all $R$:\n{shares[0]:.0%} to {shares[-1]:.0%} stay, by their slack")
    axes.set(xlabel="slack of better tokens\n" r"$\times\, R\, /\, \|W_\alpha\|_F$", xscale="log")


def _groups(x: Float[np.ndarray, " starts"]) -> list[Int[np.ndarray, " group"]]:
    """Return the indices of groups of neighbouring x, in increasing order."""
    return np.array_split(np.argsort(x), max(1, min(_GROUPS, len(x) // _LEAST)))


def _shares(axes: Axes, x: Float[np.ndarray, " starts"], stayed: Bool[np.ndarray, " starts"], colour: str) -> None:
    """Draw the share that stayed in groups of neighbouring x, each at its median."""
    groups = _groups(x)
    mean, low, high, _ = np.array([proportion(stayed[group]) for group in groups], float).T
    middle = [np.median(x[group]) for group in groups]
    page.bars(axes, middle, mean, low, high, color=colour, marker="o", markersize=3)


EXPERIMENT = Experiment(measure, claims=(_exactly,), summarize=summarize, draw=draw)
