"""Does training a prompt converge in direction to its token SVM, and is training W equivalent (2306.13596)?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Source, claim
from jaxattn.study.claims.claim import Kind, Setting
from jaxattn.study.claims.criteria import above, between
from jaxattn.study.estimates import estimated, exact, mean, number, quantiles, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.measuring.growth import AT_REST, growth
from jaxattn.study.style import page, palette

# The runs of each claim.
_EXACT = ("W, keys X, exact direction", "W, keys X A, exact direction", "p, keys X, exact direction")
_PUBLISHED = ("W, keys X, published rule", "W, keys X A, published rule")
_OF_W, _, _OF_P = _EXACT
# Fixed beforehand: the direction error of equal directions, the share of seeds that is nearly all, the smallest mean
# margin ratio of a limit, and the rounding error between two forms of the same descent.
_PARALLEL, _ALL, _LIMIT, _ROUNDING = 0.01, 0.95, 0.99, 1e-6
# The number of steps in the paper.
_STEPS = 1000
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the prompt `p = W z` at every snapshot with the certified solution for the tokens that it selects.

    The record is of a `Training` of W on inputs with one query z, or of `Prompts`. The max-margin problem is posed
    twice: for p, and for W. A seed is kept if its weights stayed finite and both solutions are certified optimal.

    Returns:
        `off`, 1 - cos of p and p_mm; `margin_ratio`; `p`; `remainder`, `||W - p z^T|| / ||W||`, zero for a trained p;
        `solutions`, `||W_mm - p_mm z^T|| / ||W_mm||`; and whether the selected tokens are `locally` and `globally`
        optimal.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    p, remainder = batch.over_seeds(_prompts, arrays["W_snapshots"], problems)
    finite = np.isfinite(arrays["W"]).all(axis=(1, 2)) & np.isfinite(p).all(axis=(1, 2))
    alpha, *constraints = batch.over_seeds(_posed, np.where(finite[:, None], p[:, -1], 0.0), problems)
    solutions = [svm.solve_batch(posed, solver=solver) for posed in constraints]
    status = np.stack([solution.status for solution in solutions], axis=1)
    kept = finite & (status == svm.Status.OPTIMAL).all(axis=1)
    lanes = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], (p, problems, alpha, constraints[0], *solutions))
    compared = batch.over_seeds(_compared, *lanes)
    return xarray.Dataset(
        {
            "off": (("seed", "snapshot"), np.maximum(compared["off"], _SAME)),
            "margin_ratio": (("seed", "snapshot"), compared["margin_ratio"]),
            "p": (("seed", "snapshot", "feature"), p[kept]),
            "remainder": (("seed", "snapshot"), remainder[kept]),
            **{name: (("seed",), compared[name]) for name in ("solutions", "locally", "globally")},
        },
        {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values},
        exclusions.count(kept, diverged=~finite, infeasible=(status == svm.Status.INFEASIBLE).any(axis=1)),
    )


def _prompts(W: Float[Array, "snapshot d e"], problem: Problem) -> tuple[Array, Array]:
    """Return `W z`, or the prompt itself, and the relative norm of the part of W other than `p z^T`."""
    if W.shape[-1] == 1:
        return W[..., 0], jnp.zeros(W.shape[0])
    z = problem.Z[0]
    p = W @ z
    length = jnp.sqrt(jnp.sum(W**2, axis=(1, 2)))
    rest = jnp.sqrt(jnp.sum((W - p[:, :, None] * z[None, None]) ** 2, axis=(1, 2)))
    return p, rest / jnp.where(length > 0, length, 1.0)


def _posed(p: Float[Array, " d"], problem: Problem) -> tuple[Int[Array, " n"], svm.Constraints, svm.Constraints]:
    """Return the tokens that p selects, and the max-margin problems of p and of W."""
    alpha = jnp.argmax(problem.X @ p, axis=1)
    return alpha, svm.prompt_constraints(problem.X, alpha), svm.token_constraints(problem, alpha)


def _compared(
    p: Float[Array, "snapshot d"],
    problem: Problem,
    alpha: Int[Array, " n"],
    constraints: svm.Constraints,
    of_p: svm.Solution,
    of_W: svm.Solution,
) -> dict[str, Array]:
    columns, scores = p[:, :, None], tokens.scores(problem)
    ratio = jax.vmap(metrics.margin_ratio, in_axes=(0, None, None, None))
    neighbours = tokens.support_neighbours(svm.margins(constraints, of_p.W), alpha)
    return {
        "off": 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(columns, of_p.W),
        "margin_ratio": ratio(columns, constraints, "frobenius", of_p),
        "solutions": metrics.norm(of_W.W - of_p.W * problem.Z[:1]) / metrics.norm(of_W.W),
        "locally": tokens.is_locally_optimal(scores, alpha, neighbours),
        "globally": tokens.is_globally_optimal(scores, alpha),
    }


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate how close the prompts are to their solutions, and how far training W is from training p."""
    summaries = {name: _estimate(run, jax.random.fold_in(key, k)) for k, (name, run) in enumerate(runs.items())}
    p, q = xarray.align(runs[_OF_W]["p"], runs[_OF_P]["p"], join="inner")
    lengths = np.linalg.norm(q.values, axis=-1)
    distances = np.linalg.norm(p.values - q.values, axis=-1) / np.where(lengths > 0, lengths, 1.0)
    summaries[_OF_W]["distance"] = float(np.max(distances))
    return summaries


def _estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    estimates = estimated(
        run,
        key,
        off=mean(run["off"]),
        ratio=mean(run["margin_ratio"]),
        parallel=share(run["off"].isel(snapshot=-1) < _PARALLEL),
        locally=share(run["locally"]),
        globally=share(run["globally"]),
        off_quantile=quantiles(run["off"], 10, 50, 90),
        remainder=exact(float(run["remainder"].max())),
        solutions=exact(float(run["solutions"].max())),
    )
    squares = (run["p"] ** 2).sum("feature", skipna=False)
    lengths = squares.copy(data=np.sqrt(squares.values))
    return estimates.assign(dict(growth(lengths, jax.random.fold_in(key, 2)).data_vars))


@claim(
    "prompt:limit",
    Source("arXiv 2306.13596", "theorem on local convergence of gradient descent on p", Setting.PROXY),
    "With W fixed, gradient descent on the prompt p converges in direction to the max-margin solution p_mm that "
    "separates locally optimal tokens from the others, and the norm of p diverges.",
    needs=TRAINED,
)
def _limit(runs: Datasets) -> Judgement:
    numbers, criteria = {}, []
    for name in _EXACT:
        run = runs[name]
        measured = [
            above(f"share of seeds with 1 - cos below {_PARALLEL}, {name}", number(run, "parallel"), _ALL),
            above(f"margin ratio, {name}", number(run, "ratio", at=-1), _LIMIT),
            above(f"share of seeds at locally optimal tokens, {name}", number(run, "locally"), _ALL),
        ]
        numbers[f"1 - cos, {name}"] = number(run, "off", at=-1)
        numbers |= {criterion.quantity: criterion.value for criterion in measured}
        criteria += [*measured, above(f"p in ||p|| ~ k^p, {name}", number(run, "growth"), AT_REST)]
    for name in _PUBLISHED:
        then = runs[name].sel(snapshot=_STEPS, method="nearest")
        numbers[f"1 - cos after the published {int(then['snapshot']):,} steps, {name}"] = number(then, "off")
    best = ", ".join(f"{float(runs[run]['globally']):.0%}" for run in _EXACT)
    return Judgement(
        criteria,
        numbers=numbers,
        expected=dict.fromkeys([f"1 - cos, {name}" for name in _EXACT], 0.0),
        remark=f"The selected tokens are those of highest score in {best} of the seeds ({', '.join(_EXACT)}). By the "
        "published rule descent turns away again after the published 1,000 steps, where the gradient is lost to "
        "rounding.",
    )


@claim(
    "prompt:equivalent",
    Source("arXiv 2306.13596", "remark on training W with p fixed", Setting.EXACT),
    "Training W with p fixed is equivalent to training p with W fixed.",
    needs=TRAINED,
    kind=Kind.CHECK,
)
def _equivalent(runs: Datasets) -> Judgement:
    of_W, _ = runs[_OF_W], runs[_OF_P]
    numbers = {
        "largest ||W z - p|| / ||p|| of the two descents": number(of_W, "distance"),
        "largest ||W - p z^T|| / ||W||": number(of_W, "remainder"),
        "largest ||W_mm - p_mm z^T|| / ||W_mm||": number(of_W, "solutions"),
    }
    return Judgement(
        [between(label, largest, 0.0, _ROUNDING) for label, largest in numbers.items()],
        remark=f"Over all seeds and snapshots up to step {int(of_W['snapshot'][-1])}; z is the unit query of all "
        "inputs.",
    )


_KEYS = {"shared_query": (palette.TEAL, "$W = I$"), "keyed": (palette.AMBER, "$W = A$ drawn")}
_RULES = {"scale_free_gd": ("-", "exact direction"), "normalized_gd": ("--", "published rule")}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction error, (a), and the margin ratio, (b), of every run."""
    with page.style():
        figure = page.full(3.2)
        left, right = figure.subplots(1, 2, sharex=True)
        for name, run in summaries.items():
            off = [run[part].values for part in ("snapshot", *(f"off_quantile_{q}" for q in (50, 10, 90)))]
            ratio = [run[part].values for part in ("snapshot", "ratio", "ratio_low", "ratio_high")]
            if name == _OF_P:
                look = {"color": "black", "linestyle": "none", "marker": ".", "label": "training $p$ itself, $W = I$"}
                left.plot(*off[:2], **look)
                right.plot(*ratio[:2], **look)
            else:
                (colour, keys), (dash, rule) = _KEYS[run.attrs["data"]], _RULES[run.attrs["optimizer"]]
                look = {"color": colour, "linestyle": dash, "label": f"{keys}, {rule}"}
                page.band(left, *off, **look)
                page.band(right, *ratio, **look)
        for axes in (left, right):
            axes.axvline(_STEPS, color=palette.GUIDE, linewidth=0.8)
            axes.set(xscale="log", xlabel="step")
            axes.text(_STEPS, 0.02, f" {_STEPS:,} steps", transform=axes.get_xaxis_transform(), fontsize=7)
        left.set(yscale="log", ylabel="direction error, $1 - \\cos$")
        right.set_ylabel("margin ratio")
        figure.suptitle(f"A prompt converges in direction to $p_{{mm}}$: {judgements['prompt:limit'].verdict}")
        left.set_title("(a) the published rule turns away again")
        right.set_title("(b) mean margin ratio, 95 % interval")
        left.legend(loc="lower left", title="median, 10th to 90th percentile")
        page.add_counts(figure, summaries)
    return figure


EXPERIMENT = Experiment(measure, claims=(_limit, _equivalent), summarize=summarize, draw=draw)
