"""Losses other than the logistic one: does W tend to the same direction, with v fixed or trained?"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Criterion, Outcome, above
from jaxattn.study.estimates import estimated, mean, number, quantiles, share
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.measuring.ranked import alone
from jaxattn.study.style import page, palette

# The names and formulas of the losses.
_LOSSES = {"logistic": "log(1 + exp(-x))", "exponential": "exp(-x)", "correlation": "-x", "heavy-tail": "1 / (1 + x)"}
# Those that the theorem is judged by; the other experiments have the logistic one.
_FIXED = {loss: formula for loss, formula in _LOSSES.items() if loss != "logistic"}
# The runs in which v is trained too, and those of them whose loss does not fall exponentially with the margin.
_JOINT = tuple(f"joint {loss}" for loss in _LOSSES)
_SLOW = ("joint correlation", "joint heavy-tail")
# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16
# Fixed beforehand: the correlation above which a direction counts as that of the solution; the share of seeds that
# counts as nearly all; and the difference of equal distances that the solvers' accuracy can produce.
_PARALLEL, _ALL, _SAME = 0.99, 0.95, 1e-6
# Fixed before the joint runs: a run has not converged if its median distance still falls by this factor in the last
# three quarters of its steps.
_MOVING = 2.0


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W, alone or together with v, with the Frobenius and the nuclear solution of its selected tokens.

    Returns:
        `off`, 1 - cos with both solutions, (seed, norm, snapshot), and `path`, W(k) z_i, of `comparison.compare`.
    """
    compared = compare(alone(record) if "readout" in record else record, solver=solver)
    return compared.assign(off=np.maximum(1 - compared["correlation"], _ROUNDING))[["off", "path"]]


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the distances from both solutions, 1 - cos, and the growth of the weights.

    Returns:
        Quantiles `off_10`, `off_50` and `off_90`, (norm, snapshot); at the last step `mean`, (norm,), `parallel`, the
        share of seeds whose cosine with the Frobenius solution is above 0.99, and `lead`, the distance from the nuclear
        solution minus that from the Frobenius one; `fall`, the median distance at a quarter of the steps over that at
        the end, (norm,); and what `growth.growth` returns.
    """
    off = run["off"].sel(norm=["frobenius", "nuclear"])
    end = off.isel(snapshot=-1, drop=True)
    frobenius, nuclear = (end.isel(norm=k, drop=True) for k in range(2))
    estimates = estimated(
        run,
        key,
        mean=mean(end),
        parallel=share(frobenius < 1 - _PARALLEL),
        lead=mean(nuclear - frobenius),
        off=quantiles(off, 10, 50, 90),
    )
    median, last = estimates["off_50"], run["snapshot"].values[-1]
    fall = median.sel(snapshot=last / 4, method="nearest", drop=True) / median.sel(snapshot=last, drop=True)
    grows = growth(lengths(run), jax.random.fold_in(key, 2))
    return estimates.assign(fall=fall).assign(dict(grows.data_vars))


@claim(
    "losses:fixed",
    Source("arXiv 2308.16898", "theorem I of the poster, with its assumption 1 on the loss", Setting.PROXY),
    "Under any strictly decreasing loss whose derivative is bounded and Lipschitz on bounded intervals, the norm of W "
    f"diverges and its direction converges to the Frobenius Att-SVM solution (here {', '.join(_FIXED.values())}).",
    needs=TRAINED,
)
def _fixed(runs: Datasets) -> Judgement:
    fixed, medians = {loss: runs[loss] for loss in _FIXED}, _medians({loss: runs[loss] for loss in _LOSSES})
    numbers = {}
    for loss, run in fixed.items():
        numbers |= {f"1 - cos, {norm}, {loss}": number(run, "mean", norm=norm) for norm in run["norm"].values}
        numbers[f"share of seeds above 0.99, {loss}"] = number(run, "parallel")
    return Judgement(
        [
            criterion
            for loss, run in fixed.items()
            for criterion in _converges(run, f"from step {int(run['since'])} to {int(run['until'])}", f", {loss}")
        ],
        remark=f"Median 1 - cos with the Frobenius solution at the end: {medians}. The solution is the one for the "
        "tokens selected by training. The scores are bounded, so that the slope of each loss stays between two "
        "positive constants: this is one result, not one for each loss.",
        numbers=numbers,
        expected={f"1 - cos, frobenius, {loss}": 0.0 for loss in fixed},
        counts=counts_of(fixed),
    )


@claim(
    "losses:joint",
    Source("arXiv 2308.16898", "assumption 1 on the loss, where v is trained with W", Setting.OURS),
    "When v is trained together with W, the norm of W also diverges and its direction converges to the Frobenius "
    "Att-SVM solution under every such loss (here logistic, exponential, correlation, and one with a heavy tail). "
    "This is a conjecture: the theorem has a fixed v.",
    needs=TRAINED,
)
def _joint(runs: Datasets) -> Judgement:
    joint = {name: runs[name] for name in _JOINT}
    last = min(run.attrs["steps"] for run in joint.values())
    criteria = {name: _converges(run, "at the end", f", {name}") for name, run in joint.items()}
    moving = [
        name
        for name, run in joint.items()
        if criteria[name][1].outcome is Outcome.BROKEN and not float(run["fall"].sel(norm="frobenius")) < _MOVING
    ]
    numbers = {f"share of seeds above 0.99, {name}": number(run, "parallel") for name, run in joint.items()}
    for name, run in joint.items():
        numbers[f"1 - cos, frobenius, at step {last}, {name}"] = number(run, "mean", norm="frobenius")
    reached = ", ".join(f"{float(joint[name]['parallel']):.0%} of the seeds end parallel ({name})" for name in _SLOW)
    return Judgement(
        [criterion for name in _JOINT for criterion in criteria[name]],
        [criterion for name in _SLOW for criterion in criteria[name]],
        correction="only for losses whose slope does not decay exponentially in the margin: "
        f"{reached}. As v grows, the slopes of the logistic and the exponential loss decay as fast as the attention "
        "saturates, and W takes another direction.",
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {_medians(joint)}.",
        numbers=numbers,
        undecided=f"Not yet converged to the solution: {', '.join(moving)}." if moving else "",
    )


def _medians(runs: Datasets) -> str:
    return ", ".join(f"{float(run['off_50'].sel(norm='frobenius')[-1]):.2g} ({name})" for name, run in runs.items())


def _converges(run: xarray.Dataset, when: str, of: str) -> tuple[Criterion, Criterion, Criterion]:
    """Ask for a norm that grows, and for nearly all seeds parallel to the Frobenius solution, not the nuclear one."""
    parallel = f"share of seeds whose correlation with the Frobenius solution is above 0.99{of}"
    return (
        above(f"p in ||W Z|| ~ k^p {when}{of}", number(run, "growth"), AT_REST),
        above(parallel, number(run, "parallel"), _ALL),
        above(f"1 - cos, nuclear minus Frobenius{of}", number(run, "lead"), _SAME),
    )


# In the order of the losses.
_LOOKS = ((palette.INK, "-"), (palette.TEAL, "--"), (palette.WINE, ":"), (palette.AMBER, "-."))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the distances from the Frobenius solution under all losses, with v fixed and with v trained."""
    with page.style():
        figure = page.full(3.6)
        fixed, joint = figure.subplots(1, 2, sharey=True)
        _curves(fixed, summaries, _LOSSES)
        _curves(joint, summaries, _JOINT)
        shares = ", ".join(f"{float(summaries[run]['parallel']):.0%}" for run in _JOINT if run in summaries) or "-"
        span = page.span((float(summaries[loss]["parallel"]) for loss in _LOSSES if loss in summaries), ".0%")
        fixed.set_title(f"(a) $v$ fixed: {span} of the seeds parallel")
        joint.set_title(f"(b) $v$ trained: {shares} parallel, in the order of the legend")
        fixed.set_ylabel("direction error, 1 - cos")
        fixed.legend(loc="lower left", title="median, 10th to 90th percentile")
        figure.suptitle(
            "$W$ converges to the Frobenius solution under every loss: with $v$ fixed, "
            f"{judgements['losses:fixed'].verdict}; with $v$ trained, {judgements['losses:joint'].verdict}"
        )
        page.add_counts(figure, summaries, f"Grey: cos = {_PARALLEL}; parallel: beyond it.")
    return figure


def _curves(axes: Axes, summaries: Datasets, names: Iterable[str]) -> None:
    for name, (loss, written), (colour, dashes) in zip(names, _LOSSES.items(), _LOOKS, strict=True):
        # At size=small v is not trained.
        if name not in summaries:
            continue
        run = summaries[name].sel(norm="frobenius")
        formula = written.replace("log", "\\log").replace("exp", "\\exp")
        curve = (run[f"off_{q}"].values for q in (50, 10, 90))
        label = f"{loss}, ${formula}$"
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
    axes.axhline(1 - _PARALLEL, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step")


EXPERIMENT = Experiment(measure, claims=(_fixed, _joint), estimate=estimate, draw=draw)
