"""Mirror descent on W with the l_p potential (2410.14581): whose solution it converges to, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
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
from jaxattn.statistics import Estimate, bootstrap, derive_key, variables
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements
from jaxattn.study.claims.claim import Needs, Setting, Source
from jaxattn.study.claims.criteria import Criterion, above, below
from jaxattn.study.estimates import number
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


def epochs(p: float) -> str:
    """Return the name of the run of l_p-AttGD over the paper's epochs."""
    return f"l_p-AttGD, p = {p:g}, 1,500 epochs"


def longer(p: float) -> str:
    """Return the name of the long run of l_p-AttGD."""
    return f"l_p-AttGD, p = {p:g}"


def normalized(p: float) -> str:
    """Return the name of the run of the normalized rule."""
    return f"normalized, p = {p:g}"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the l_p Att-SVM solutions of its selected tokens, for every p of NORMS.

    Args:
        record: of a `Training` of a free W by `lp_gd` or `mirror`.
        solver: must be None; each norm has its own.

    Returns:
        `correlation` and `margin_ratio`, (seed, norm, snapshot); `divergence`, the Bregman divergence of the potential
        from the run's direction to the solution of its own p, both of l_p norm 1, (seed, snapshot); and `probability`,
        the mean over inputs of the largest attention probability, (seed, snapshot).

    Raises:
        ValueError: a solver is given; a p that is not among NORMS.
    """
    ratios.native(solver)
    p = record.attrs["optimizer.p"]
    if p not in NORMS:
        raise ValueError(f"p: expected one of {list(NORMS)}, found {p:g}")
    run = compare(record, [norms.named(norm) for norm in NORMS.values()])
    # Entrywise norms have their own names.
    run = run.assign_coords(norm=np.array(list(NORMS.values()), object))
    kept = np.isin(record["seed"].values, run["seed"].values)
    W = record["W_snapshots"].values[kept]
    solution = run["W_svm"].sel(norm=NORMS[p]).values[:, None]
    run["divergence"] = (("seed", "snapshot"), np.maximum(divergence(solution, W, p), _SAME))
    run["probability"] = (("seed", "snapshot"), _probability(W, record, kept))
    return run[["correlation", "margin_ratio", "divergence", "probability"]]


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


def _probability(W: np.ndarray, record: xarray.Dataset, kept: np.ndarray) -> Any:
    """Return the mean over inputs of the largest attention probability at every snapshot, (seed, snapshot)."""
    X, Z = record["X"].values[kept], record["Z"].values[kept]
    images = np.einsum("skde,sie->skid", W, Z, optimize=True)
    logits = np.einsum("sitd,skid->skit", X, images, optimize=True)
    return (1 / np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1)).mean(axis=-1)


def bound(steps: Int[np.ndarray, " snapshots"], p: float) -> Float[np.ndarray, " snapshots"]:
    """Return the order of the paper's upper bound on the divergence after these steps, all above e."""
    log = np.log(steps.astype(float))
    if p > 2:
        return np.log(log) / log
    return np.log(log) ** 2 / log if p == 2 else log ** (1 - p)


def over_bound(
    steps: Int[np.ndarray, " snapshots"], divergence: Float[np.ndarray, "seeds snapshots"], p: float
) -> Float[np.ndarray, " seeds"]:
    """Return for each seed the exponent of log k in the divergence divided by the bound; 0 is the rate of the bound."""
    late = steps >= _SINCE
    return _exponents(np.log(steps[late].astype(float)), divergence[:, late] / bound(steps[late], p))


def of_steps(
    steps: Int[np.ndarray, " snapshots"], divergence: Float[np.ndarray, "seeds snapshots"]
) -> Float[np.ndarray, " seeds"]:
    """Return for each seed the exponent of k in the divergence over the last decade of steps."""
    late = steps * 10 >= steps[-1]
    return _exponents(steps[late].astype(float), divergence[:, late])


def _exponents(x: Float[np.ndarray, " snapshots"], y: Float[np.ndarray, "seeds snapshots"]) -> np.ndarray:
    """Return the exponent p in y ~ x^p for each seed, by least squares on the logarithms."""
    centred = np.log(x) - np.log(x).mean()
    return np.log(y) @ centred / (centred @ centred)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate how close each run comes to every solution, and the rate for its own.

    Returns:
        For each run what `ratios.estimate` returns, and: `cosine`, the mean correlation with each solution at the last
        snapshot, and `ahead`, the correlation with its own minus this one, (norm,); `off`, the geometric mean of the
        divergence along the snapshots; `attention`, the mean largest attention probability at the last one; and for
        runs of at least 100,000 steps the exponents `power`, of k in the divergence, and `slack`, of log k in the
        divergence divided by the paper's bound.
    """
    return {
        name: _estimate(run, jax.random.fold_in(key, k), jax.random.split(derive_key(key, k), 5))
        for k, (name, run) in enumerate(runs.items())
    }


def _estimate(run: xarray.Dataset, key: PRNGKeyArray, keys: PRNGKeyArray) -> xarray.Dataset:
    steps, divergences, p = run["snapshot"].values, run["divergence"].values, run.attrs["optimizer.p"]
    cosines = run["correlation"].values[:, :, -1]
    own = run["correlation"].sel(norm=NORMS[p]).values[:, -1:]
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {
        "cosine": (("norm",), bootstrap(cosines, keys[0])),
        "ahead": (("norm",), bootstrap(own - cosines, keys[1])),
    }
    if steps[-1] >= _LONG:
        estimates["power"] = ((), bootstrap(of_steps(steps, divergences), keys[2]))
        estimates["slack"] = ((), bootstrap(over_bound(steps, divergences, p), keys[3]))
    off = bootstrap(np.log(divergences), keys[4])
    curve = {"off": off.mean, "off_low": off.low, "off_high": off.high}
    return ratios.estimate(run, key).assign(
        variables(estimates)
        | {name: (("snapshot",), np.exp(logarithm)) for name, logarithm in curve.items()}
        | {"attention": float(run["probability"].values[:, -1].mean())}
    )


def _nearest(p: float, runs: Datasets) -> Judgement:
    """Its own solution must have the highest correlation after the paper's epochs; as corrected, later."""
    first, last = runs[epochs(p)], runs[longer(p)]
    means = ", ".join(f"{float(last['cosine'].sel(norm=NORMS[q])):.3f}" for q in PUBLISHED)
    return Judgement(
        _ahead(p, first),
        _ahead(p, last),
        correction=f"only after {last.attrs['steps']:,} steps, when the correlations with the solutions of p = 1.75, "
        f"2 and 3 are {means}.",
        remark=f"At step {first.attrs['steps']} the mean largest attention probability is "
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
    """The divergence must not fall more slowly than the bound over the last decade of steps."""
    run = runs[longer(p)]
    last = run.attrs["steps"]
    if "slack" not in run:
        return Judgement.withheld(f"A run of {last} steps is too short for a rate in log k.")
    slack = number(run, "slack")
    return Judgement(
        [below(f"exponent of log k in the divergence over the bound, {_SINCE} to {last} steps", slack, 0.0)],
        remark="The bound is an upper bound, so a faster decrease agrees with it. During these steps the attention "
        f"is still saturating (largest probability {float(run['attention']):.3f} at the end), so the exponent "
        "is not the asymptotic one.",
        numbers={
            f"divergence at step {last}": number(run, "off", at=-1),
            "exponent of k in the divergence": number(run, "power"),
            "exponent of log k in the divergence over the bound": slack,
        },
    )


_CLAIMS = (
    *claims_of(
        "mirror",
        [
            Prediction(
                f"direction-{p:g}",
                normalized(p),
                norm,
                _DIRECTION,
                "Mirror descent with the potential ||W||_p^p / p converges in direction to the solution of the l_p "
                f"Att-SVM (here p = {p:g}).",
            )
            for p, norm in NORMS.items()
        ],
    ),
    *(
        Claim(
            f"mirror:nearest-{p:g}",
            _NEAREST,
            f"After 1,500 epochs of l_p-AttGD with p = {p:g}, W has a higher correlation with the l_p Att-SVM "
            "solution of its own p than with those of the other p among 1.75, 2 and 3.",
            partial(_nearest, p),
            TRAINED,
        )
        for p in PUBLISHED
    ),
    *(
        Claim(
            f"mirror:rate-{p:g}",
            _RATE,
            "The Bregman divergence between the direction of l_p-AttGD after k steps and that of the l_p Att-SVM "
            f"solution is {bounded} (here p = {p:g}).",
            partial(_rate, p),
            Needs(TRAINED.seeds, _LONG),
        )
        for p, bounded in _BOUNDS.items()
    ),
)

# A ramp in the order of p, with a dash of its own for each.
_LOOKS = {
    p: {"color": colour, "linestyle": dashes}
    for p, colour, dashes in zip(NORMS, palette.ramp(len(NORMS)), palette.STYLES, strict=True)
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw correlations after the paper's epochs, margin ratios of the limits, and divergences of both rules."""
    first, last = ([summaries[name(p)] for p in PUBLISHED if name(p) in summaries] for name in (epochs, longer))
    limits = [summaries[normalized(p)] for p in NORMS if normalized(p) in summaries]
    with page.style():
        figure = page.full(5.6)
        panels = figure.subplots(2, 2)
        _draw_correlations(panels[0, 0], first)
        _draw_ratios(panels[0, 1], limits)
        _draw_divergences(panels[1, 0], last)
        _draw_divergences(panels[1, 1], limits)
        _draw_bounds(panels[1, 0], last)
        for axes in panels[1]:
            axes.legend(loc="lower left")
        panels[1, 0].set_title("(c) $l_p$-AttGD: faster than the bound (thin)")
        panels[1, 1].set_title("(d) normalized rule: a power of $k$")
        panels[1, 0].set_ylabel("Bregman divergence from\nown solution")
        page.add_counts(
            figure,
            summaries,
            "Framed: the solution of the run's own $p$. Bold: the largest of a row in (a), what the verdict names in "
            "(b); open: still moving. "
            "Means over seeds (geometric in (c), (d)), bands: 95 % intervals. Exponents: over the last decade. "
            f"Bounds are drawn through the divergence at step {min(_SINCE, last[0].attrs['steps']):,}.",
        )
    return figure


def _draw_correlations(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the mean correlation of each run with each solution of the paper's experiment."""
    means = np.array([[float(run["cosine"].sel(norm=NORMS[p])) for p in PUBLISHED] for run in runs])
    axes.imshow(means, cmap="Blues", vmin=0.2, vmax=1.0, aspect="auto")
    nearest = 0
    for row, column in np.ndindex(means.shape):
        best, own = column == int(np.argmax(means[row])), PUBLISHED[column] == runs[row].attrs["optimizer.p"]
        nearest += best and own
        colour, weight = "white" if means[row, column] > 0.6 else "black", "bold" if best else "normal"
        look: dict[str, Any] = {"color": colour, "fontweight": weight, "fontsize": cells.SIZE}
        axes.text(column, row, f"{means[row, column]:.3f}", ha="center", va="center", **look)
        if own:
            corner = (column - 0.45, row - 0.43)
            axes.add_patch(Rectangle(corner, 0.9, 0.86, fill=False, edgecolor=palette.NUCLEAR, linewidth=1.4))
    _label_exponents(axes, PUBLISHED, runs)
    epochs_run = runs[0].attrs["steps"]
    axes.set_title(
        f"(a) correlation after {epochs_run:,} epochs of $l_p$-AttGD:\nown solution first in {nearest} of {len(runs)}"
    )


def _draw_ratios(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    own = [NORMS[run.attrs["optimizer.p"]] for run in runs]
    cells.table(axes, [cells.Row(run, norm) for run, norm in zip(runs, own, strict=True)], list(NORMS.values()))
    _label_exponents(axes, NORMS, runs)
    named = sum(bool(run["named"].sel(norm=norm)) for run, norm in zip(runs, own, strict=True))
    axes.set_title(f"(b) margin ratio of the normalized rule:\nown norm obeyed in {named} of {len(runs)}")


def _label_exponents(axes: Axes, columns: Sequence[float] | dict[float, str], runs: Sequence[xarray.Dataset]) -> None:
    axes.set_xticks(range(len(columns)), [f"${p:g}$" for p in columns], fontsize=cells.SIZE)
    axes.set_yticks(range(len(runs)), [f"${run.attrs['optimizer.p']:g}$" for run in runs], fontsize=cells.SIZE)
    axes.set(xlabel="$p$ of the Att-SVM", ylabel="$p$ of the potential")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _draw_divergences(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    for run in runs:
        p = run.attrs["optimizer.p"]
        label = f"$p = {p:g}$" + (f": $k^{{{float(run['power']):.2f}}}$" if "power" in run else "")
        trained = run.isel(snapshot=run["snapshot"].values > 0)
        curve = (trained[name].values for name in ("snapshot", "off", "off_low", "off_high"))
        page.band(axes, *curve, label=label, **_LOOKS[p])
    axes.set(xscale="log", yscale="log", xlabel="step $k$")


def _draw_bounds(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the order of the paper's bound for each p, through the run's divergence where rates are fitted from."""
    for run in runs:
        p, steps = run.attrs["optimizer.p"], run["snapshot"].values
        late = steps >= min(_SINCE, steps[-1])
        order = bound(steps[late], p)
        scaled = order * run["off"].values[late][0] / order[0]
        axes.plot(steps[late], scaled, color=_LOOKS[p]["color"], linewidth=0.7, linestyle="-")


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
