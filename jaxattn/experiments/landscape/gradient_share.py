"""The part of the gradient on tokens that are not support vectors, along the steps and against their slack."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.special import logsumexp

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.experiments.landscape.rising import MORE
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Kind, Setting, Source, claim
from jaxattn.study.claims.criteria import Number, above, between
from jaxattn.study.estimates import estimated, exact, mean, number
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.style import page, palette

# In the paper this is a step in proofs; it has no figure of it.
_SOURCE = Source("arXiv 2308.16898", "proofs of local convergence", Setting.OURS)
# A token with less slack (margin - 1) than this is a support vector.
_SUPPORT = 1e-6
# Bins of slack times ||W|| / ||W_mm||, over which quantiles of the shares are drawn, and the fewest tokens of a bin.
_EDGES, _PERCENTS, _LEAST = np.linspace(0, 60, 16), (10, 50, 90), 20
# Steps near which the shares are drawn.
_DRAWN = (100, 1000, 10_000)
# The smallest decimal logarithm of a total share that counts; smaller ones count as this.
_SMALLEST = -300.0
# Fixed beforehand: the slope in the statement, and how far the measured one may be from it.
_SLOPE, _NEAR = -1.0, 0.05


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the share of each token in the gradient at every snapshot, and its slack.

    The gradient of a `Training` of W with a linear head and the logistic loss is `sum_it a_it x_it z_i^T`; a token's
    share is `|a_it| / sum |a|`.

    Returns:
        For every kept seed `log_share`, (snapshot, input, other), natural logarithms, for the tokens that are not
        selected; their `slack`, (input, other), the margin of the Frobenius solution minus 1; and `growth`, `||W||_F /
        ||W_mm||_F`, at every snapshot.
    """
    compared = compare(record, (svm.frobenius,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    if not kept.any():
        raise ValueError(f"gradient-share: expected a kept seed, found counts {compared.attrs}")
    problems = of_arrays({str(name): record[name].values[kept] for name in record.data_vars})
    W, W_mm = record["W_snapshots"].values[kept], compared["W_svm"].values[:, 0]
    log_share, slack, growth = batch.over_seeds(_shares, W, W_mm, problems, compared["selected"].values)
    return xarray.Dataset(
        {
            "log_share": (("seed", "snapshot", "input", "other"), log_share),
            "slack": (("seed", "input", "other"), slack),
            "growth": (("seed", "snapshot"), growth),
        },
        {name: compared[name].values for name in ("seed", "snapshot")},
        compared.attrs,
    )


def _shares(
    W: Float[Array, "snapshot d d"], W_mm: Float[Array, "d d"], problem: Problem, selected: Int[Array, " n"]
) -> tuple[Array, Array, Array]:
    others = jnp.arange(problem.T - 1)[None, :]
    others = others + (others >= selected[:, None])
    slack = svm.margins(svm.token_constraints(problem, selected), W_mm) - 1
    logs = jax.vmap(log_shares, in_axes=(0, None))(W, problem)
    of_others = jax.vmap(lambda one: jnp.take_along_axis(one, others, axis=1))(logs)
    return of_others, slack, jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)


def log_shares(W: Float[Array, "d d"], problem: Problem) -> Float[Array, "n T"]:
    """Return the logarithm of every token's share in the gradient, for the logistic loss and a linear head.

    The coefficients are those of `gradients.direction`, computed factor by factor, so that shares far below the
    smallest floating-point number have a logarithm.
    """
    logits = attention.logits(W, problem)
    predictions, worth = gradients.reading(problem, heads.linear)(lanes.before(), jax.nn.softmax(logits, axis=1))
    slope = losses.log_slope(losses.logistic)
    assert slope is not None
    top = jnp.argmax(logits, axis=1, keepdims=True)
    apart = worth - jnp.take_along_axis(worth, top, axis=1)
    # For selected tokens the sum over all others, since the coefficients of an input sum to zero.
    relative = apart - jnp.sum(jax.nn.softmax(logits, axis=1) * apart, axis=1, keepdims=True)
    is_top = jnp.arange(problem.T)[None, :] == top
    logs = slope(problem.Y * predictions)[:, None] + jax.nn.log_softmax(logits, axis=1)
    logs = logs + jnp.log(jnp.abs(jnp.where(is_top, 1.0, relative)))
    largest = jnp.max(jnp.where(is_top, -jnp.inf, logs), axis=1, keepdims=True)
    sizes = jnp.where(is_top, 0.0, jnp.exp(logs - largest) * jnp.sign(relative))
    logs = jnp.where(is_top, jnp.log(jnp.abs(jnp.sum(sizes, axis=1, keepdims=True))) + largest, logs)
    return logs - jax.scipy.special.logsumexp(logs)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate how the shares fall with slack and with the steps.

    Returns:
        At every snapshot `log_together`, the decimal logarithm of the total share of the non-support tokens, and
        `slope`, that of their log share in slack times growth. At some steps, `drawn`, the quantiles `share_10`,
        `share_50` and `share_90` of the log shares in each `bin` of slack times growth, and the number of `tokens`.
    """
    run = runs["W"]
    steps, outside = run["snapshot"].values, run["slack"] > _SUPPORT
    together = run["log_share"].where(outside, -np.inf).reduce(logsumexp, ["input", "other"]) / np.log(10)
    x, y = (run["slack"] * run["growth"]).where(outside), run["log_share"].where(outside)
    estimates = estimated(
        run,
        key,
        log_together=mean(together.clip(min=_SMALLEST)),
        slope=mean(_slopes(x, y)),
        support=exact((~outside).mean()),
    )
    drawn = sorted({int(np.argmin(np.abs(np.log(steps / step)))) for step in _DRAWN})
    binned = [_binned(*xarray.broadcast(x.isel(snapshot=k), y.isel(snapshot=k))) for k in drawn]
    return {"W": estimates.merge(xarray.concat(binned, xarray.Variable("drawn", steps[drawn])))}


def _slopes(x: xarray.DataArray, y: xarray.DataArray) -> xarray.DataArray:
    """Return the least squares slope over the tokens that are not NaN; 0 for a single one."""
    tokens = ["input", "other"]
    x, y = x - x.mean(tokens), y - y.mean(tokens)
    square = (x * x).sum(tokens)
    return ((x * y).sum(tokens) / square).where(square > 0, 0.0)


def _binned(x: xarray.DataArray, y: xarray.DataArray) -> xarray.Dataset:
    """Return quantiles of y over the tokens in each bin of x, and their number; zeros for empty bins."""
    bins = np.digitize(x.values, _EDGES) - 1
    parts = [y.values[bins == k] for k in range(len(_EDGES) - 1)]
    quantiles = {f"share_{q}": [np.quantile(part, q / 100) if part.size else 0.0 for part in parts] for q in _PERCENTS}
    arrays = {name: ("bin", values) for name, values in quantiles.items()}
    arrays["tokens"] = "bin", [part.size for part in parts]
    return xarray.Dataset(arrays, {"bin": (_EDGES[1:] + _EDGES[:-1]) / 2})


@claim(
    "gradient-share:slack",
    _SOURCE,
    "The share of the gradient on a non-support token falls exponentially in its slack times the norm of W.",
    TRAINED,
    Kind.CHECK,
)
def _slack(runs: Datasets) -> Judgement:
    summary = runs["W"]
    start, end = (int(step) for step in summary["snapshot"].values[[0, -1]])
    first, last = (number(summary, "log_together", snapshot=step) for step in (start, end))
    slope, fall = number(summary, "slope", snapshot=end), first.apart_from(last)
    slopes, shares = {}, {}
    for step in sorted({*summary["drawn"].values.tolist(), end}):
        slopes[f"slope of log share in slack ||W|| / ||W_mm|| at step {step}"] = number(summary, "slope", snapshot=step)
        together = number(summary, "log_together", snapshot=step)
        shares[f"share of all non-support tokens at step {step}"] = Number(*(10**bound for bound in together))
    return Judgement(
        (
            between(f"slope of log share at step {end}", slope, _SLOPE - _NEAR, _SLOPE + _NEAR),
            above(f"decades by which the total share falls from step {start} to {end}", fall, MORE),
        ),
        remark="This follows from the algebra of the softmax if W has the direction of W_mm; it can fail only "
        "through the distance of W from that direction. Slopes are fitted for each seed over its non-support "
        f"tokens; shares are geometric means. The slope is {slope.mean:.4g} at step {end}. From step "
        f"{start} on the total share of these tokens {'falls' if fall.mean > 0 else 'does not fall'}, from "
        f"{10**first.mean:.2g} to {10**last.mean:.2g}.",
        numbers=slopes | shares,
        expected=dict.fromkeys(slopes, _SLOPE),
    )


# Between the ticks of (a).
_DECADES = 20


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the share of all non-support tokens, each one's against its slack, and the slope of the latter."""
    summary = summaries["W"]
    steps = summary["snapshot"].values
    total = 10 ** summary[["log_together", "log_together_low", "log_together_high"]]
    with page.style():
        figure = page.full(3.5)
        figure.suptitle(
            "The share of the gradient on a non-support token falls exponentially in slack times norm: "
            f"{judgements['gradient-share:slack'].verdict}"
        )
        left, middle, right = figure.subplots(1, 3)
        page.band(left, steps, *total.values(), color=palette.COLOURS["W"])
        ends = " to ".join(page.power(float(total["log_together"][k])) for k in (0, -1))
        # A share is at most 1.
        low = _DECADES * np.floor(float(summary["log_together_low"].min()) / _DECADES)
        left.set(title=f"(a) all non-support tokens:\n{ends}", ylabel="share of the gradient", yscale="log")
        left.set(ylim=(10**low, 1), yticks=10 ** np.arange(low, 1, _DECADES))
        _tokens(middle, summary)
        page.course(right, summary, "slope", color=palette.COLOURS["W"], label="mean over seeds")
        right.axhline(-1, color="black", linewidth=0.7, linestyle=":", label="$-1$")
        right.set_title(f"(c) slope of (b):\nends at {float(summary['slope'][-1]):.2f}")
        right.set_ylabel("slope of the natural logarithm")
        right.legend(loc="upper right")
        for axes in (left, right):
            axes.set(xlabel="step", xscale="log")
        page.add_counts(
            figure,
            summaries,
            "(a), (c): means over kept seeds ((a) geometric) with 95 % intervals; (b): medians and quantiles over "
            f"tokens. {float(summary['support']):.0%} of the tokens that are not selected are support vectors.",
        )
    return figure


def _tokens(axes: Axes, summary: xarray.Dataset) -> None:
    for step, colour in zip(summary["drawn"].values, palette.ramp(summary.sizes["drawn"]), strict=True):
        at = summary.sel(drawn=step)
        at = at.isel(bin=(at["tokens"] >= _LEAST).values)
        curve = (np.exp(at[name].values) for name in ("share_50", "share_10", "share_90"))
        page.band(axes, at["bin"].values, *curve, color=colour, label=f"step {int(step)}")
    ends = np.array([0, float(summary["bin"][-1])])
    guide = {"color": "black", "linewidth": 0.7, "linestyle": ":"}
    axes.plot(ends, np.exp(-2.5 - ends), label=r"$\propto e^{-\mathrm{slack}\,\|W\|/\|W_{mm}\|}$", **guide)
    axes.set(title="(b) each of them,\nagainst its slack", xlabel=r"slack $\times\ \|W\|_F\,/\,\|W_{mm}\|_F$")
    axes.set(ylabel="share of the gradient", yscale="log")
    spread = Patch(facecolor=palette.GUIDE, alpha=0.2, label="10 % to 90 %")
    axes.legend(handles=[*axes.get_legend_handles_labels()[0], spread], loc="lower left", handlelength=1.2)


EXPERIMENT = Experiment(measure, claims=(_slack,), summarize=summarize, draw=draw)
