"""Weight decay on K and Q: which norm is obeyed without it, after it, and under it (2504.12883)?"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Together, claims_of
from jaxattn.experiments.bias.shaped.measuring import SPARSE, measure
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import above, below, between
from jaxattn.study.estimates import estimated, exact, mean, number, read_at
from jaxattn.study.style import page, palette

_PAPER = "arXiv 2504.12883"
_TYPE = Source(_PAPER, "type of bias, as recalled", Setting.PROXY)
# The decays per step of the runs that are compared.
_DECAYS = (0.0, 0.004, 0.006, 0.008, 0.01)
# Fixed beforehand: the ||W||_F at which runs are compared, and the largest relative difference that counts as none.
_SIZE, _SAME = 1e4, 0.01


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the norms that every run obeys, and what theory says of it.

    Returns:
        What `ratios.estimate` returns for each run. For K and Q also means: `path`, the margin ratio, (norm, snapshot),
        `length`, `||W||_*`, and `size`, `||W||_F`, (snapshot,), `gap`, `filled`, and `compact`, `||W||_* / ||W||_F`
        where `||W||_F` is `_SIZE`; `fall`, by how much the run with the next weaker decay exceeds it, seed by seed; the
        largest `imbalance` and `off_mirror`; and `least`, the smallest `||W||_F` at the end.
    """
    own_key, key = jax.random.split(key)
    summaries = ratios.summarize(runs, own_key)
    weaker = {
        _run(model, strong): _run(model, weak) for model in SPARSE for weak, strong in itertools.pairwise(_DECAYS)
    }
    for k, (name, run) in enumerate(runs.items()):
        if "nuclear" not in run:
            continue
        parts = {
            "gap": mean(run["gap"]),
            "filled": mean(run["filled"]),
            "path": mean(run["margin_ratio"]),
            "length": mean(run["nuclear"]),
            "size": mean(run["size"]),
            "compact": mean(_compact(run)),
            "imbalance": exact(run["imbalance"].max()),
            "balance": exact(run["balance"]),
            "least": exact(run["size"][:, -1].min()),
        }
        if "off_mirror" in run:
            parts["off_mirror"] = exact(run["off_mirror"].max())
        if weaker.get(name) in runs:
            parts["fall"] = mean(_compact(runs[weaker[name]]) - _compact(run))
        summaries[name] = summaries[name].merge(estimated(run, jax.random.fold_in(key, k), **parts))
    return summaries


def _run(model: str, lost: float) -> str:
    return f"{model}, decay {lost:g}"


def _compact(run: xarray.Dataset) -> xarray.DataArray:
    """Return `||W||_* / ||W||_F` of each seed where `||W||_F` is `_SIZE`, (seed,)."""
    # Decay may shorten W, but long before it reaches that size.
    longest = np.maximum.accumulate(run["size"].values, axis=1)
    read = read_at(np.array([_SIZE]), longest, (run["nuclear"] / run["size"]).values)
    return xarray.DataArray(read[:, 0], {"seed": run["seed"].values}, ["seed"])


@claim(
    "shaped:law",
    Source(_PAPER, "time-dependent mirror flow of products, as recalled", Setting.PROXY),
    "Decay changes the flow of diagonal K Q^T only through b = K^T K - Q^T Q, which falls like exp(-2 int decay): W "
    "follows mirror flow with the hyperbolic entropy of parameter b.",
    needs=TRAINED,
)
def law(runs: Datasets) -> Judgement:
    """Short steps must give the W of mirror descent that knows b alone, and the b of the formula, at every snapshot."""
    diagonal, matrices = (runs[f"{model}, short steps"] for model in SPARSE)
    return Judgement(
        [
            below("largest relative distance of W from mirror flow, diagonal", number(diagonal, "off_mirror"), _SAME),
            below("largest relative error of b, diagonal", number(diagonal, "imbalance"), _SAME),
            below("largest relative error of b I, matrices", number(matrices, "imbalance"), _SAME),
        ]
    )


_PREDICTIONS = (
    Together(
        "before",
        {_run(model, 0): "frobenius" for model in SPARSE},
        _TYPE,
        "From a large start the type of the bias is L2: without decay, descent on K and Q obeys the Frobenius norm.",
    ),
    Together(
        "after",
        {_run(model, _DECAYS[-1]): norm for model, norm in SPARSE.items()},
        _TYPE,
        "Decay changes the type of the bias to L1, and it stays so: after decay has been switched off, descent from "
        "the same start obeys the l1 norm of diagonals and the nuclear norm of matrices.",
    ),
    Together(
        "one-matrix",
        dict.fromkeys((_run("W", 0), _run("W", _DECAYS[-1])), "frobenius"),
        Source(_PAPER, "without a product: our control", Setting.OURS),
        "It is the product that decay acts on: if W itself is trained, descent obeys the Frobenius norm without decay, "
        "and as well after decay has been switched off.",
    ),
)


@claim(
    "shaped:gradual",
    _TYPE,
    "The stronger the decay before it is switched off, the nearer the bias is to L1: at the same ||W||_F, "
    "||W||_* / ||W||_F is smaller.",
    needs=TRAINED,
)
def gradual(runs: Datasets) -> Judgement:
    """Each run must have a smaller ratio than that with the next weaker decay, in the mean over paired seeds."""
    compared = {name: runs[name] for name in (_run(model, lost) for model in SPARSE for lost in _DECAYS)}
    least = min(float(run["least"]) for run in compared.values())
    return Judgement(
        [
            above(f"fall of ||W||_* / ||W||_F from the next weaker decay, {name}", number(run, "fall"), 0.0)
            for name, run in compared.items()
            if "fall" in run
        ],
        numbers={f"||W||_* / ||W||_F, {name}": number(run, "compact") for name, run in compared.items()},
        remark=" ".join(f"The verdict on {name}: {run.attrs['verdict']}." for name, run in compared.items()),
        undecided="" if least >= _SIZE else f"||W||_F ends at {least:.3g} in some seed, below {_SIZE:g}.",
    )


@claim(
    "shaped:throughout",
    Source(_PAPER, "decay that is never switched off: our question", Setting.OURS),
    "With decay throughout, W stops growing, at a stationary point of the risk plus a multiple of the nuclear norm.",
    needs=TRAINED,
)
def throughout(runs: Datasets) -> Judgement:
    """||W||_* must end where steps and decay balance, with no gap of stationarity."""
    found, stated = {model: runs[f"{model}, decay throughout"] for model in SPARSE}, []
    for model, run in found.items():
        length = f"||W||_* over step_size / (2 decay), {model}"
        stated += [
            between(length, number(run, "filled"), 1 - _SAME, 1 + _SAME),
            below(f"gap of stationarity, {model}", number(run, "gap"), _SAME),
        ]
    return Judgement(
        stated,
        remark=" ".join(f"The verdict on {model}: {run.attrs['verdict']}." for model, run in found.items()),
    )


_DASHES = {"diagonal": "--", "matrices": "-"}
_COLOURS = {"Frobenius": palette.FROBENIUS, "l1": palette.L1, "nuclear": palette.NUCLEAR}
_THROUGHOUT, _CEILING = "matrices, decay throughout", 100


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw by decay (a) the margin ratios at the end and (b) the form of W; along the steps (c) ratios and (d) ||W||_*.

    (a) and (b) are drawn against the root of b when decay has ended, which is the size of a start with this b.
    """
    with page.style():
        figure = page.full(5.6)
        ends, form, approach, growth = figure.subplots(2, 2).flat
        _draw_ends(ends, form, summaries)
        _draw_runs(approach, growth, summaries)
        verdicts = {name: one.verdict for name, one in judgements.items()}
        ends.set_title(f"(a) without decay: {verdicts['shaped:before']}; after it: {verdicts['shaped:after']}")
        form.set_title(f"(b) the stronger, the nearer to L1: {verdicts['shaped:gradual']}")
        approach.set_title("(c) matrices, by decay per step")
        growth.set_title(f"(d) decay throughout: {verdicts['shaped:throughout']}")
        figure.suptitle(
            f"Decay on $K$ and $Q$ changes the norm that is obeyed, and it stays so: {verdicts['shaped:after']}"
        )
        page.add_counts(
            figure,
            summaries,
            "b: $K^T K - Q^T Q = b I$. Decay ends after 1,000 steps, except in the run with decay throughout, whose "
            "steps are a quarter as long.",
        )
    return figure


def _draw_ends(ends: Axes, form: Axes, summaries: Datasets) -> None:
    for model, sparse in SPARSE.items():
        rows = [summaries[name] for lost in _DECAYS if (name := _run(model, lost)) in summaries]
        start = [float(row["balance"][-1]) ** 0.5 for row in rows]
        look = {"linestyle": _DASHES[model], "marker": "o"}
        _bars(form, start, rows, "compact", color=palette.INK, **look)
        for norm in ("frobenius", sparse):
            _bars(ends, start, [row.sel(norm=norm) for row in rows], "ratio", color=palette.COLOURS[norm], **look)
    for axes in (ends, form):
        axes.set(xscale="log", xlabel=r"$\sqrt{b}$ when decay has ended (3,000: no decay)")
        axes.invert_xaxis()
    _guide(ends, CLOSE, f"ratio {CLOSE:g}", 0.02)
    ends.set(ylabel="margin ratio at the end", ylim=(0.7, 1.01))
    form.set_ylabel(rf"$\|W\|_*/\|W\|_F$ at $\|W\|_F = 10^{{{round(np.log10(_SIZE))}}}$")
    page.key(ends, _COLOURS, _DASHES, loc="lower center", ncols=2, title="mean, 95 % interval")
    page.key(form, {}, _DASHES, title="mean, 95 % interval")


def _draw_runs(approach: Axes, growth: Axes, summaries: Datasets) -> None:
    shown = [lost for lost in _DECAYS if _run("matrices", lost) in summaries]
    colours = dict(zip(shown, palette.ramp(len(shown)), strict=True))
    for lost, colour in colours.items():
        run = summaries[_run("matrices", lost)]
        off = (np.maximum(1 - run[f"path{part}"].sel(norm="nuclear"), 1e-4) for part in ("", "_high", "_low"))
        page.band(approach, run["size"], *off, color=colour, label=f"{lost:g}")
    curves = {_run("matrices", lost): colours[lost] for lost in {*shown[:1], *shown[-1:]}}
    for name, colour in (curves | {_THROUGHOUT: palette.INK}).items():
        if name in summaries:
            parts = (summaries[name][part] for part in ("snapshot", "length", "length_low", "length_high"))
            page.band(growth, *parts, color=colour, label=name.removeprefix("matrices, "))
    _guide(approach, 1 - CLOSE, f"ratio {CLOSE:g}", 0.02)
    _guide(growth, _CEILING, f"ceiling: {_CEILING}", 0.98)
    approach.set(xscale="log", yscale="log", xlabel=r"$\|W\|_F$", ylabel="1 - margin ratio, nuclear")
    approach.set_ylim(bottom=1e-4)
    growth.set(xscale="log", yscale="log", xlabel="step", ylabel=r"$\|W\|_*$, matrices")
    for axes in (approach, growth):
        axes.legend(title="mean, 95 % interval")


def _guide(axes: Axes, y: float, label: str, place: float) -> None:
    axes.axhline(y, color=palette.GUIDE, linewidth=0.8)
    look = {"va": "top", "ha": "left" if place < 0.5 else "right", "fontsize": 7, "color": palette.GUIDE}
    axes.annotate(label, (place, y), xycoords=("axes fraction", "data"), **look)


def _bars(axes: Axes, x: list[float], rows: list[xarray.Dataset], name: str, **look: Any) -> None:
    page.bars(axes, x, *([float(row[f"{name}{part}"]) for row in rows] for part in ("", "_low", "_high")), **look)


EXPERIMENT = Experiment(
    measure, claims=(law, *claims_of("shaped", _PREDICTIONS), gradual, throughout), summarize=summarize, draw=draw
)
