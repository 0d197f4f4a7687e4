"""Why does Muon on W not obey the spectral norm: too few iterations, or coefficients that do not converge?"""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import bias, svm
from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import ratios
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, claim
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import above, below
from jaxattn.study.estimates import estimated, mean, number
from jaxattn.study.settings.schedule import Logarithmically
from jaxattn.study.style import page, palette

_USUAL = ("usual coefficients, 5 iterations", "usual coefficients, 12 iterations")
_CONVERGENT = "convergent coefficients, 24 iterations"
_COLOURS = dict(zip((*_USUAL, _CONVERGENT), (palette.WINE, palette.AMBER, palette.TEAL), strict=True))
_SOURCE = Source("jaxattn", "Muon's five Newton-Schulz steps in place of the polar factor", Setting.OURS)
# The smallest over the largest singular value of an update: 1 for a polar factor.
_APART, _EQUAL = 0.9, 0.99


def in_pairs(steps: int) -> tuple[int, ...]:
    """Return eight steps a decade, each with the one before it.

    Example:
        >>> from jaxattn.experiments.bias.newton_schulz import in_pairs
        >>> in_pairs(100)[-4:]
        (74, 75, 99, 100)
    """
    ends = [step for step in Logarithmically(8)(steps) if step > 1]
    return tuple(sorted({*ends, *(step - 1 for step in ends)}))


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return what `ratios.compared` does for all norms, and how even the singular values of W's updates are.

    Of the update before each snapshot `evenness` is the smallest singular value over the largest, (seed, snapshot).
    Gradients have the rank n of the queries, so these are the first n.
    """
    steps = record["snapshot"].values
    ends = np.flatnonzero(np.isin(steps - 1, steps))
    run = ratios.compared(record.isel(snapshot=ends), solver, bias.NORMS)
    W = record["W_snapshots"].sel(seed=run["seed"]).values
    sizes = np.linalg.svd(W[:, ends] - W[:, ends - 1], compute_uv=False)
    return run.assign(evenness=(("seed", "snapshot"), sizes[:, :, record["Z"].shape[1] - 1] / sizes[:, :, 0]))


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return what `ratios.estimate` does, and along the steps the mean `evenness` and `spectral` margin ratio."""
    spectral = run["margin_ratio"].sel(norm="spectral", drop=True)
    curves = estimated(run, jax.random.fold_in(key, 1), evenness=mean(run["evenness"]), spectral=mean(spectral))
    return ratios.estimate(run, key).assign(curves)


@claim(
    "newton-schulz:weights",
    _SOURCE,
    "Muon on W, with steps that fall like k^-1/2, misses the spectral Att-SVM because its Newton-Schulz coefficients "
    "do not converge, and not because five iterations are few: W obeys it neither with 5 nor with 12 iterations of the "
    "usual coefficients, and does with 24 iterations of coefficients that converge.",
    needs=TRAINED,
)
def _weights(runs: Datasets) -> Judgement:
    limits = {name: number(runs[name], "limit", norm="spectral") for name in _COLOURS}
    limit = "limit of the margin ratio, spectral"
    return Judgement(
        [
            *(below(f"{limit}, {name}", limits[name], CLOSE) for name in _USUAL),
            above(f"{limit}, {_CONVERGENT}", limits[_CONVERGENT], CLOSE),
        ],
        remark=" ".join(f"The verdict on {name}: {runs[name].attrs['verdict']}." for name in _COLOURS),
    )


@claim(
    "newton-schulz:updates",
    _SOURCE,
    "The singular values of Muon's updates of W are apart with 5 and with 12 iterations of the usual coefficients, and "
    "equal with 24 iterations of coefficients that converge.",
    needs=TRAINED,
)
def _updates(runs: Datasets) -> Judgement:
    evenness = {name: number(runs[name], "evenness", at=-1) for name in _COLOURS}
    even = "smallest over largest singular value of the last update"
    return Judgement(
        [
            *(below(f"{even}, {name}", evenness[name], _APART) for name in _USUAL),
            above(f"{even}, {_CONVERGENT}", evenness[_CONVERGENT], _EQUAL),
        ],
        remark="Where the gradient's singular values span more than six decades, 24 iterations leave some small.",
    )


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw how even the singular values of the updates are (a), and the spectral margin ratio (b), along the steps."""
    weights, updates = (judgements[f"newton-schulz:{name}"].verdict for name in ("weights", "updates"))
    panels = {
        "evenness": (f"(a) updates of equal singular values: {updates}", "smallest over largest singular value"),
        "spectral": ("(b) the weights", "margin ratio, spectral norm"),
    }
    with page.style():
        figure = page.full(3.0)
        for axes, (name, (title, label)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            for run, colour in _COLOURS.items():
                if run in summaries:
                    curve = (summaries[run][part] for part in ("snapshot", name, f"{name}_low", f"{name}_high"))
                    page.band(axes, *curve, color=colour, label=run)
            axes.set(xlabel="step", xscale="log", title=title, ylabel=label, ylim=(0, 1.05), xlim=(10, None))
        figure.axes[1].axhline(CLOSE, color=palette.GUIDE, linewidth=0.8, linestyle=":")
        figure.axes[1].annotate(f"asked for: {CLOSE:g}", (12, CLOSE), va="bottom", fontsize=7, color=palette.GUIDE)
        figure.axes[0].legend(loc="lower left", title="mean, 95 % interval")
        figure.suptitle(
            f"Muon misses the spectral norm because its Newton-Schulz coefficients do not converge: {weights}"
        )
        page.add_counts(figure, summaries)
    return figure


EXPERIMENT = Experiment(measure, claims=(_weights, _updates), estimate=estimate, draw=draw)
