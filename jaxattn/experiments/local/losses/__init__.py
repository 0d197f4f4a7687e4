"""Losses other than the logistic one: does W tend to the same direction, with v fixed or trained?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, Setting, Source, counts_of
from jaxattn.study.claims.criteria import Criterion, Outcome, above
from jaxattn.study.estimates import estimated, mean, number, quantiles, share
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.measuring.ranked import alone
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "theorem I of the poster, with its assumption 1 on the loss", Setting.PROXY)
_JOINT_SOURCE = Source("arXiv 2308.16898", "assumption 1 on the loss, where v is trained with W", Setting.OURS)
# The names and formulas of the losses.
_LOSSES = {"logistic": "log(1 + exp(-x))", "exponential": "exp(-x)", "correlation": "-x", "heavy-tail": "1 / (1 + x)"}
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
    """Compare training W with the Frobenius and the nuclear solution of its selected tokens.

    Args:
        record: of a `Training` of a free W, alone or together with v.
        solver: for both norms; each norm's default if None.

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
    frobenius, nuclear = (end.sel(norm=norm, drop=True) for norm in ("frobenius", "nuclear"))
    estimates = estimated(
        run,
        key,
        mean=mean(end),
        parallel=share(frobenius < 1 - _PARALLEL),
        lead=mean(nuclear - frobenius),
        off=quantiles(off, 10, 50, 90),
    )
    quarter = int(np.argmin(np.abs(run["snapshot"].values - run["snapshot"].values[-1] / 4)))
    median = estimates["off_50"]
    fall = median.isel(snapshot=quarter, drop=True) / median.isel(snapshot=-1, drop=True)
    grows = growth(lengths(run), jax.random.fold_in(key, 2))
    return estimates.assign(fall=fall).assign(dict(grows.data_vars))


def _judge(loss: str, runs: Datasets) -> Judgement:
    """The norm must grow, and nearly all seeds end parallel to the Frobenius solution, not to the nuclear one."""
    run, last = runs[loss], runs[loss].attrs["steps"]
    parallel = number(run, "parallel")
    medians = ", ".join(f"{_median(runs[other]):.2g} ({other})" for other in _LOSSES)
    steps = f"from step {int(run['since'])} to {int(run['until'])}"
    return Judgement(
        (
            above(f"p in ||W Z|| ~ k^p {steps}", number(run, "growth"), AT_REST),
            above("share of seeds whose correlation with the Frobenius solution is above 0.99", parallel, _ALL),
            above("1 - cos, nuclear minus Frobenius", number(run, "lead"), _SAME),
        ),
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {medians}. The solution is the one for the "
        "tokens selected by training.",
        numbers={f"1 - cos, {norm}, at step {last}": number(run, "mean", norm=norm) for norm in run["norm"].values}
        | {"share of seeds above 0.99": parallel},
        expected={f"1 - cos, frobenius, at step {last}": 0.0},
        counts=counts_of({loss: run}),
    )


def _judge_joint(runs: Datasets) -> Judgement:
    """Under every loss nearly all seeds must end parallel to the Frobenius solution, as with a fixed v."""
    joint = {name: runs[name] for name in _JOINT}
    last = min(run.attrs["steps"] for run in joint.values())
    shares = {name: number(run, "parallel") for name, run in joint.items()}
    means = {name: number(run, "mean", norm="frobenius") for name, run in joint.items()}
    moving = [
        name
        for name, run in joint.items()
        if _is_parallel(name, run).outcome is Outcome.BROKEN and not float(run["fall"].sel(norm="frobenius")) < _MOVING
    ]
    medians = ", ".join(f"{_median(run):.2g} ({name})" for name, run in joint.items())
    return Judgement(
        [criterion for name, run in joint.items() for criterion in _converges(name, run)],
        [criterion for name in _SLOW for criterion in _converges(name, joint[name])],
        correction="only for losses whose slope does not decay exponentially in the margin: "
        f"{', '.join(f'{shares[name].mean:.0%} of the seeds end parallel ({name})' for name in _SLOW)}. As "
        "v grows, the slopes of the logistic and the exponential loss decay as fast as the attention "
        "saturates, and W takes another direction.",
        remark=f"Median 1 - cos with the Frobenius solution at step {last}: {medians}.",
        numbers={f"share of seeds above 0.99, {name}": value for name, value in shares.items()}
        | {f"1 - cos, frobenius, at step {last}, {name}": value for name, value in means.items()},
        undecided=f"Not yet converged to the solution: {', '.join(moving)}." if moving else "",
    )


def _median(run: xarray.Dataset) -> float:
    return float(run["off_50"].sel(norm="frobenius")[-1])


def _converges(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    grows = above(f"p in ||W Z|| ~ k^p at the end, {name}", number(run, "growth"), AT_REST)
    leads = above(f"1 - cos, nuclear minus Frobenius, {name}", number(run, "lead"), _SAME)
    return grows, _is_parallel(name, run), leads


def _is_parallel(name: str, run: xarray.Dataset) -> Criterion:
    quantity = f"share of seeds whose correlation with the Frobenius solution is above 0.99, {name}"
    return above(quantity, number(run, "parallel"), _ALL)


_FIXED = tuple(
    Claim(
        f"losses:{loss}",
        _SOURCE,
        "Under any strictly decreasing loss whose derivative is bounded and Lipschitz on bounded intervals, the "
        f"norm of W diverges and its direction converges to the Frobenius Att-SVM solution (here {formula}).",
        partial(_judge, loss),
        TRAINED,
    )
    for loss, formula in _LOSSES.items()
    if loss != "logistic"
)
_TRAINED_TOGETHER = Claim(
    "losses:joint",
    _JOINT_SOURCE,
    "When v is trained together with W, the norm of W also diverges and its direction converges to the Frobenius "
    "Att-SVM solution under every such loss (here logistic, exponential, correlation, and one with a heavy tail). "
    "This is a conjecture: the theorem has a fixed v.",
    _judge_joint,
    TRAINED,
)


_LOOKS = dict(
    zip(
        _LOSSES,
        ((palette.INK, "-"), (palette.TEAL, "--"), (palette.WINE, ":"), (palette.AMBER, "-.")),
        strict=True,
    )
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the medians under all losses: from each solution with v fixed, and from the Frobenius one with v trained."""
    joint = [name for name in _JOINT if name in summaries]
    with page.style():
        figure = page.full(3.2)
        panels = figure.subplots(1, 3 if joint else 2, sharey=True)
        for axes, norm in zip(panels, ("frobenius", "nuclear"), strict=False):
            _curves(axes, summaries, _LOSSES, norm)
        panels[0].set_title(f"(a) $v$ fixed, Frobenius SVM:\n{_shares(summaries, _LOSSES)} of the seeds parallel")
        panels[1].set_title("(b) $v$ fixed,\nnuclear SVM")
        panels[0].set_ylabel("direction error, 1 - cos")
        # Its lower half is empty.
        panels[1].legend(loc="lower left")
        if joint:
            _curves(panels[2], summaries, joint, "frobenius")
            panels[2].set_title(f"(c) $v$ trained, Frobenius SVM:\n{_shares(summaries, joint)} parallel")
        page.add_counts(
            figure,
            summaries,
            f"Training W; medians over the seeds, bands from the 10th to the 90th percentile; grey: cos = {_PARALLEL}.",
        )
    return figure


def _curves(axes: Axes, summaries: Datasets, names: Iterable[str], norm: str) -> None:
    # The runs are in the order of the losses.
    for name, (loss, (colour, dashes)) in zip(names, _LOOKS.items(), strict=True):
        run = summaries[name].sel(norm=norm)
        formula = _LOSSES[loss].replace("log", "\\log").replace("exp", "\\exp")
        curve = (run[f"off_{q}"].values for q in (50, 10, 90))
        label = f"{loss}, ${formula}$"
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
    axes.axhline(1 - _PARALLEL, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step")


def _shares(summaries: Datasets, names: Iterable[str]) -> str:
    shares = [float(summaries[name]["parallel"]) for name in names]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"


EXPERIMENT = Experiment(measure, claims=(*_FIXED, _TRAINED_TOGETHER), estimate=estimate, draw=draw)
