"""Mirror descent on W with the l_p potential (2410.14581): whose solution it converges to, and how fast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxattn import norms, svm
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, claims_of
from jaxattn.statistics import derive_key
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, Kind, Verdict
from jaxattn.study.claims.claim import Needs, Setting, Source
from jaxattn.study.claims.criteria import Criterion, above, below
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, power_law
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.style import cells, page, palette

# The exponents of the paper's experiment, all that we use, and the entrywise l_p norms of these.
PUBLISHED = (1.75, 2.0, 3.0)
NORMS = {1.1: "l_1.1", 1.75: "l_1.75", 2.0: "frobenius", 3.0: "l_3", 10.0: "l_10"}
# Rates are fitted from this step on, to runs of at least so many steps.
_SINCE, _LONG = 10_000, 100_000
# The rounding error of the divergence in double precision for equal directions.
_SAME = 1e-16
# As recalled: experiments on synthetic data, and the theorems on the limit and its rate.
_DIRECTION = Source("arXiv 2410.14581", "local convergence of l_p-AttGD in direction", Setting.PROXY)
_NEAREST = Source("arXiv 2410.14581", "experiments on synthetic data, p = 1.75, 2, 3", Setting.PROXY)
_RATE = Source("arXiv 2410.14581", "theorem on the convergence rate of l_p-AttGD", Setting.PROXY)
_BOUNDS = {
    1.75: "O(1 / (log k)^(p - 1)) for p < 2",
    2.0: "O((log log k)^2 / log k) for p = 2",
    3.0: "O(log log k / log k) for p > 2",
}


# The names of the runs: l_p-AttGD over the paper's epochs, and longer, and the normalized rule.
_EPOCHS, _LONGER, _NORMALIZED = "l_p-AttGD, p = {:g}, 1,500 epochs", "l_p-AttGD, p = {:g}", "normalized, p = {:g}"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W by `lp_gd` or `mirror` with the l_p Att-SVM solutions of its selected tokens, for every p.

    Returns:
        What `ratios.compared` does; `correlation`, (seed, norm, snapshot); and `divergence`, the Bregman divergence of
        the potential from the run's direction to the solution of its own p, both of l_p norm 1, (seed, snapshot).

    Raises:
        ValueError: a solver is given; a p that is not among NORMS.
    """
    ratios.native(solver)
    p, seeds = record.attrs["optimizer.p"], record["seed"].values
    if p not in NORMS:
        raise ValueError(f"p: expected one of {list(NORMS)}, found {p:g}")
    run = ratios.compared(record, solver, [*NORMS.values()], "cosine").rename(cosine="correlation")
    run = run.assign_coords(seed=seeds[run["seed"].values])
    own = compare(record, [norms.named(NORMS[p])])
    run = ratios.restricted(run, np.intersect1d(run["seed"].values, own["seed"].values))
    W = record["W_snapshots"].sel(seed=run["seed"], snapshot=run["snapshot"]).values
    solution = own["W_svm"].sel(seed=run["seed"]).isel(norm=0).values[:, None]
    return run.assign(divergence=(("seed", "snapshot"), np.maximum(divergence(solution, W, p), _SAME)))


def divergence(
    A: Float[np.ndarray, "*shape d e"], B: Float[np.ndarray, "*shape d e"], p: float
) -> Float[np.ndarray, "*shape"]:
    """Return the Bregman divergence of `||.||_p^p / p` from B to A, both scaled to l_p norm 1.

    This is `psi(A) - psi(B) - <grad psi(B), A - B>`, here equal to `1 - <grad psi(B), A>`.
    """

    def unit(W: np.ndarray) -> np.ndarray:
        W = W / np.abs(W).max(axis=(-1, -2), keepdims=True)
        return W / (np.abs(W) ** p).sum(axis=(-1, -2), keepdims=True) ** (1 / p)

    A, B = unit(A), unit(B)
    return 1 - (np.sign(B) * np.abs(B) ** (p - 1) * A).sum(axis=(-1, -2))


def bound(steps: Int[np.ndarray, " snapshots"], p: float) -> Float[np.ndarray, " snapshots"]:
    """Return the order of the paper's upper bound on the divergence after these steps, all above e."""
    log = np.log(steps.astype(float))
    if p > 2:
        return np.log(log) / log
    return np.log(log) ** 2 / log if p == 2 else log ** (1 - p)


def _over_bound(divergences: xarray.DataArray, p: float) -> xarray.DataArray:
    """Return the divergence divided by the bound, (seed, snapshot), against log k; a constant is the bound's rate."""
    late = _late(divergences)
    steps = late["snapshot"].values
    return (late / bound(steps, p)).assign_coords(snapshot=np.log(steps))


def _late(curve: xarray.DataArray) -> xarray.DataArray:
    steps = curve["snapshot"].values
    return curve.isel(snapshot=steps >= min(_SINCE, steps[-1]))


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate how close each run comes to every solution, and the rate for its own.

    Returns:
        What `ratios.estimate` returns, and: `cosine`, the mean correlation with each solution at the end, and `ahead`,
        that with its own minus this one, (norm,); `power`, the exponent of k in the divergence over the last decade of
        steps, and `slack`, that of log k in the divergence over the paper's bound, NaN for runs of less than 100,000
        steps; `off`, the geometric mean of the divergence, (snapshot,); and `attention`, the mean over seeds of the
        worst input's largest probability at the end.
    """
    keys = [(jax.random.fold_in(key, k), derive_key(key, k)) for k in range(len(runs))]
    return {
        name: ratios.estimate(run, of_ratios).assign(_estimate(run, of_rates))
        for (name, run), (of_ratios, of_rates) in zip(runs.items(), keys, strict=True)
    }


def _estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    last, p = run.isel(snapshot=-1, drop=True), run.attrs["optimizer.p"]
    return estimated(
        run,
        key,
        cosine=mean(last["correlation"]),
        ahead=mean(last["correlation"].sel(norm=NORMS[p], drop=True) - last["correlation"]),
        power=power_law(run["divergence"], since=run["snapshot"].values[-1] / 10, least=_LONG),
        slack=power_law(_over_bound(run["divergence"], p), since=0, least=math.log(_LONG)),
        off=geometric_mean(run["divergence"]),
        attention=exact(float(last["probability"].mean())),
    )


def _nearest(p: float, runs: Datasets) -> Judgement:
    first, last = runs[_EPOCHS.format(p)], runs[_LONGER.format(p)]
    means = ", ".join(f"{float(last['cosine'].sel(norm=NORMS[q])):.3f}" for q in PUBLISHED)
    return Judgement(
        _ahead(p, first),
        _ahead(p, last),
        correction=f"only after {last.attrs['steps']:,} steps, when the correlations with the solutions of p = 1.75, "
        f"2 and 3 are {means}.",
        remark=f"At step {first.attrs['steps']} the worst input's largest attention probability is on average "
        f"{float(first['attention']):.2f}.",
        numbers={
            f"correlation with the l_{q:g} solution at step {run.attrs['steps']}": number(run, "cosine", norm=NORMS[q])
            for run in (first, last)
            for q in PUBLISHED
        },
    )


def _ahead(p: float, run: xarray.Dataset) -> list[Criterion]:
    label = "correlation with its own solution minus that with the l_{:g} solution at step {}"
    return [
        above(label.format(q, run.attrs["steps"]), number(run, "ahead", norm=NORMS[q]), 0.0)
        for q in PUBLISHED
        if q != p
    ]


def _rate(p: float, runs: Datasets) -> Judgement:
    run = runs[_LONGER.format(p)]
    last, slack = run.attrs["steps"], number(run, "slack")
    return Judgement(
        [below(f"exponent of log k in the divergence over the bound, {_SINCE} to {last} steps", slack, 0.0)],
        remark="A check of consistency: over one decade of steps any power of k falls faster than this upper bound, "
        "whose constant is unknown. During these steps the attention is still saturating (largest probability "
        f"{float(run['attention']):.3f} at the end), so the exponent is not the asymptotic one.",
        numbers={
            f"divergence at step {last}": number(run, "off", at=-1),
            "exponent of k in the divergence": number(run, "power"),
            "exponent of log k in the divergence over the bound": slack,
        },
    )


def _claims() -> Iterator[Claim]:
    limit = "converges in direction to the solution of the l_p Att-SVM"
    directions = f"Mirror descent with the potential ||W||_p^p / p {limit}"
    yield from claims_of(
        "mirror",
        [
            Prediction(f"direction-{p:g}", _NORMALIZED.format(p), norm, _DIRECTION, f"{directions} (here p = {p:g}).")
            for p, norm in NORMS.items()
        ],
    )
    for p in PUBLISHED:
        statement = (
            f"After 1,500 epochs of l_p-AttGD with p = {p:g}, W has a higher correlation with the l_p Att-SVM "
            "solution of its own p than with those of the other p among 1.75, 2 and 3."
        )
        yield Claim(f"mirror:nearest-{p:g}", _NEAREST, statement, partial(_nearest, p), TRAINED)
    for p, bounded in _BOUNDS.items():
        statement = (
            "The Bregman divergence between the direction of l_p-AttGD after k steps and that of the l_p Att-SVM "
            f"solution is {bounded} (here p = {p:g}, over one decade of steps)."
        )
        needs = Needs(TRAINED.seeds, _LONG)
        yield Claim(f"mirror:rate-{p:g}", _RATE, statement, partial(_rate, p), needs, Kind.CHECK)


# A ramp in the order of p, with a dash of its own for each.
_COLOURS, _DASHES = (dict(zip(NORMS, looks, strict=True)) for looks in (palette.ramp(len(NORMS)), palette.STYLES))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw correlations after the paper's epochs, margin ratios of the limits, and divergences of both rules."""
    first, last, limits = (
        {p: summaries[name.format(p)] for p in exponents if name.format(p) in summaries}
        for name, exponents in ((_EPOCHS, PUBLISHED), (_LONGER, PUBLISHED), (_NORMALIZED, NORMS))
    )
    with page.style():
        figure = page.full(5.6)
        (nearest, ratio), (published, normalized) = figure.subplots(2, 2)
        _draw_correlations(nearest, first)
        verdicts = "; ".join(f"$p = {p:g}$: {judgements[f'mirror:nearest-{p:g}'].verdict}" for p in first)
        figure.suptitle(f"After {_epochs(first):,} epochs the run's own solution is the nearest. {verdicts}")
        cells.table(ratio, [cells.Row(run, NORMS[p]) for p, run in limits.items()], [*NORMS.values()])
        _label_exponents(ratio, NORMS, limits)
        held = sum(judgements[f"mirror:direction-{p:g}"].verdict is Verdict.HOLDS for p in NORMS)
        ratio.set_title(f"(b) margin ratio of the normalized rule:\nown norm obeyed in {held} of {len(NORMS)}")
        for axes, runs in ((published, last), (normalized, limits)):
            _draw_divergences(axes, runs)
            axes.legend(loc="lower left")
        _draw_bounds(published, last)
        published.set_title("(c) $l_p$-AttGD, and the bound (thin)")
        published.set_ylabel("Bregman divergence from\nown solution")
        normalized.set_title("(d) normalized rule")
        page.add_counts(
            figure,
            summaries,
            "Framed: the solution of the run's own $p$. Bold: the largest of a row in (a), what the verdict names in "
            "(b); open: not decided. "
            "Means over seeds (geometric in (c), (d)), bands: 95 % intervals. Exponents: over the last decade. "
            f"Bounds are drawn through the divergence at step {_SINCE:,}, or at the end.",
        )
    return figure


def _draw_correlations(axes: Axes, runs: dict[float, xarray.Dataset]) -> None:
    means = np.array([run["cosine"].sel(norm=[NORMS[q] for q in PUBLISHED]).values for run in runs.values()])
    axes.imshow(means, cmap="Blues", vmin=0.2, vmax=1.0, aspect="auto")
    for (row, column), value in np.ndenumerate(means):
        colour, weight = "white" if value > 0.6 else "black", "bold" if column == means[row].argmax() else "normal"
        look: dict[str, Any] = {"color": colour, "fontweight": weight, "fontsize": cells.SIZE}
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", **look)
    for row, p in enumerate(runs):
        corner = (PUBLISHED.index(p) - 0.45, row - 0.43)
        axes.add_patch(Rectangle(corner, 0.9, 0.86, fill=False, edgecolor=palette.NUCLEAR, linewidth=1.4))
    _label_exponents(axes, PUBLISHED, runs)
    axes.set_title(f"(a) correlation with each solution after\n{_epochs(runs):,} epochs of $l_p$-AttGD")


def _epochs(runs: dict[float, xarray.Dataset]) -> int:
    return next(iter(runs.values())).attrs["steps"]


def _label_exponents(axes: Axes, columns: Iterable[float], rows: Iterable[float]) -> None:
    for ticks, exponents in ((axes.set_xticks, [*columns]), (axes.set_yticks, [*rows])):
        ticks(range(len(exponents)), [f"${p:g}$" for p in exponents], fontsize=cells.SIZE)
    axes.set(xlabel="$p$ of the Att-SVM", ylabel="$p$ of the potential")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _draw_divergences(axes: Axes, runs: dict[float, xarray.Dataset]) -> None:
    for p, run in runs.items():
        label = f"$p = {p:g}$" + (f": $k^{{{float(run['power']):.2f}}}$" if np.isfinite(run["power"]) else "")
        trained = run.isel(snapshot=run["snapshot"].values > 0)
        curve = (trained[name].values for name in ("snapshot", "off", "off_low", "off_high"))
        page.band(axes, *curve, label=label, color=_COLOURS[p], linestyle=_DASHES[p])
    axes.set(xscale="log", yscale="log", xlabel="step $k$")


def _draw_bounds(axes: Axes, runs: dict[float, xarray.Dataset]) -> None:
    """Draw the order of the paper's bound for each p, through the run's divergence where rates are fitted from."""
    for p, run in runs.items():
        late = _late(run["off"])
        order = bound(late["snapshot"].values, p)
        scaled = order * late.values[0] / order[0]
        axes.plot(late["snapshot"].values, scaled, color=_COLOURS[p], linewidth=0.7, linestyle="-")


EXPERIMENT = Experiment(measure, claims=tuple(_claims()), summarize=summarize, draw=draw)
