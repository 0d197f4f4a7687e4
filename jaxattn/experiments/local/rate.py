"""At what rate does descent on W and on (K, Q) converge to the direction of its max-margin solution?"""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.local.limits import measure
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, Number, below, between
from jaxattn.study.estimates import estimated, geometric_mean, number, power_law, quantiles, share
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, continued", Setting.OURS)
_NORMS = {"free": "frobenius", "factored": "nuclear"}
# Exponents are fitted from the first of these steps on, to runs of at least as many steps as the second.
_SINCE, _LONG = 1000, 30_000
# Fixed beforehand: the range of an exponent of -2; the threshold for 1 - cos; and the exponent of a distance that keeps
# falling.
_SQUARE, _NEAR, _FALLING = (-2.2, -1.8), 1e-6, -0.12
# The last step of the published runs, and the distance that an independent run of the published rule had by then.
_PUBLISHED_STEPS, _STALLED = 2000, 1e-2


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the distance from the solution that the run is claimed to reach, step by step, and its exponent."""
    off = run["off"].sel(norm=_NORMS[run.attrs["weights"]], drop=True)
    return estimated(
        run,
        key,
        off=geometric_mean(off),
        exponent=power_law(off, since=_SINCE, least=_LONG),
        near=share(off.isel(snapshot=-1) < _NEAR),
        off_quantile=quantiles(off, 10, 90),
    )


def _is_fast(runs: Datasets, run: str) -> tuple[Criterion, ...]:
    return (
        between(f"exponent, {run}", number(runs[run], "exponent"), *_SQUARE),
        below(f"1 - cos at the last step, {run}", number(runs[run], "off", at=-1), _NEAR),
    )


def _falls(runs: Datasets, run: str) -> tuple[Criterion, ...]:
    return (below(f"exponent, {run}", number(runs[run], "exponent"), _FALLING),)


def _ends(runs: Datasets, weights: str, *forms: str) -> dict[str, Number]:
    ends = {f"1 - cos at the last step, {form}": number(runs[f"{weights}, {form}"], "off", at=-1) for form in forms}
    return ends | {f"exponent, {form}": number(runs[f"{weights}, {form}"], "exponent") for form in forms}


@claim(
    "rate:W",
    _SOURCE,
    "Normalized descent on W converges to the direction of the Frobenius solution like k^-2.",
    needs=Needs(steps=_LONG),
)
def _W(runs: Datasets) -> Judgement:
    published, exact = runs["W, as published"], runs["W, exact direction"]
    nearest = published.isel(snapshot=int(published["off"].values.argmin()))
    at = published.sel(snapshot=_PUBLISHED_STEPS, method="nearest")
    label = f"1 - cos at step {int(at['snapshot'])}, as published"
    return Judgement(
        _is_fast(runs, "W, as published"),
        _is_fast(runs, "W, exact direction"),
        correction=f"it does along the exact gradient direction, where {float(exact['near']):.0%} of the seeds are "
        "below 1e-6 at the last step. The published rule, which adds 2.2e-16 to the gradient's norm, is nearest at "
        f"step {int(nearest['snapshot'])}, with 1 - cos = {float(nearest['off']):.2g}. After that its gradient is "
        f"dominated by rounding error, and W drifts away, to {float(published['off'][-1]):.2g}.",
        numbers={label: number(at, "off")} | _ends(runs, "W", "as published", "exact direction"),
        expected={"exponent, exact direction": -2.0, label: _STALLED},
    )


@claim(
    "rate:KQ",
    _SOURCE,
    "Normalized descent on (K, Q) converges to the direction of the nuclear solution, without stalling.",
    needs=Needs(steps=_LONG),
)
def _KQ(runs: Datasets) -> Judgement:
    published, constant, falling = (runs[f"KQ, {form}"] for form in _LOOKS)
    return Judgement(
        _falls(runs, "KQ, as published"),
        _falls(runs, "KQ, step k^-1/2"),
        correction="without a penalty, along the exact gradient direction and with steps like k^-1/2, 1 - cos goes "
        f"like k^{float(falling['exponent']):.2f}, and is {float(falling['off'][-1]):.2g} at step "
        f"{falling.attrs['steps']}. The published run ends at {float(published['off'][-1]):.2g}, where its penalty "
        "stops it, and the run without the penalty but with the published constant step at "
        f"{float(constant['off'][-1]):.2g}. See kq-penalty and kq-limit.",
        remark="The paper draws no rates; the rate of W is about k^-2.",
        numbers=_ends(runs, "KQ", *_LOOKS),
    )


_TITLES = {"W": "(a) training $W$, distance to $W_F$:\n", "KQ": "(b) training $(K, Q)$, distance to $W_*$:\n"}
_LOOKS = {
    "as published": ("as published", palette.GUIDE, "--"),
    "exact direction": ("exact direction, no penalty", palette.TEAL, "-"),
    "step k^-1/2": ("the same, step like $k^{-1/2}$", palette.WINE, "-."),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel each for W and (K, Q): geometric means over seeds, and the range of the middle 80 % of the seeds."""
    with page.style():
        figure = page.full(3.9)
        for (weights, title), axes in zip(_TITLES.items(), figure.subplots(1, 2, sharey=True), strict=True):
            runs = {form: summaries[run] for form in _LOOKS if (run := f"{weights}, {form}") in summaries}
            for form, run in runs.items():
                _curve(axes, form, run)
            if weights == "W":
                _guide(axes, runs["exact direction"])
            reached, nearest = min((float(run["off"][-1]), _LOOKS[form][0]) for form, run in runs.items())
            axes.set_title(f"{title}nearest at the end: {nearest}, {page.power(reached)}")
            axes.set(xlabel="step", xscale="log", yscale="log")
            spread = Patch(facecolor=palette.GUIDE, alpha=0.2, label="10 % to 90 % of the seeds")
            axes.legend(handles=[*axes.get_legend_handles_labels()[0], spread], loc="lower left")
        figure.axes[0].set_ylabel("direction error, 1 - cos")
        figure.suptitle(
            f"$W$ converges to $W_F$ like $k^{{-2}}$: {judgements['rate:W'].verdict}; $(K, Q)$ converges to $W_*$ "
            f"without stalling: {judgements['rate:KQ'].verdict}"
        )
        page.add_counts(
            figure,
            summaries,
            f"Geometric means over kept seeds. Exponents: fitted from step {_SINCE:,} on; level: between {_FALLING:g} "
            f"and {-_FALLING:g}. $W_F$, $W_*$: the Frobenius and the nuclear SVM solution.",
        )
    return figure


def _curve(axes: Axes, form: str, run: xarray.Dataset) -> None:
    label, colour, dashes = _LOOKS[form]
    exponent = float(run["exponent"])
    if abs(exponent) <= -_FALLING:
        label += ": level"
    elif not np.isnan(exponent):
        label += f": {'falls' if exponent < 0 else 'rises'} like $k^{{{exponent:.2f}}}$"
    curve = (run[name].values for name in ("snapshot", "off", "off_quantile_10", "off_quantile_90"))
    page.band(axes, *curve, color=colour, linestyle=dashes, label=label)


def _guide(axes: Axes, run: xarray.Dataset) -> None:
    """Draw a line that falls like k^-2, above the curve of a run."""
    first, last = run["snapshot"].values[[0, -1]].astype(float)
    factor = 30 * float(run["off"][-1]) * last**2
    steps = np.array([max(first, (factor / 0.3) ** 0.5), last])
    axes.plot(steps, factor * steps**-2.0, color="black", linewidth=0.7, linestyle=":", label="$k^{-2}$")


EXPERIMENT = Experiment(measure, claims=(_W, _KQ), estimate=estimate, draw=draw)
