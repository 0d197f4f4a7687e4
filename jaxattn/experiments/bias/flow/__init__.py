"""Gradient flow on K and Q: which Att-SVM does it obey, and must the start be aligned with the data (2403.08699)?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import models, svm, tokens
from jaxattn.bias.verdict import CLOSE, LEAST_SEEDS
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.flow.model import Diagonal
from jaxattn.experiments.bias.predictions import Prediction
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import Estimate, bootstrap, proportion, variables
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, Verdict, too_few
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import between
from jaxattn.study.estimates import number
from jaxattn.study.measuring.ranked import model_of
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_FLOW = "arXiv 2403.08699"
# The runs of every start with steps h k^-1/2, by that with 2 h.
_STEPS = {
    "one matrix, h = 7": "one matrix, h = 14",
    "random, h = 0.5": "random, h = 1",
    "unbalanced, h = 0.5": "unbalanced, h = 1",
    "aligned, h = 0.5": "aligned, h = 1",
    "diagonal, h = 2": "diagonal, h = 4",
}
# Fixed beforehand, in addition to the rule of `bias.verdict`: the largest difference of the mean margin ratios for
# steps h and 2 h for which the steps count as a flow.
_ERROR = 0.01
_MINIMIZES = "minimizes the nuclear norm of K Q^T under the constraints of the Att-SVM"
_UNALIGNED = Source(_FLOW, "without the assumption of an aligned start: our question", Setting.OURS)
_PREDICTIONS = (
    Prediction(
        "diagonal",
        "diagonal, h = 2",
        "nuclear",
        Source(_FLOW, "theorem on diagonal weights, as recalled", Setting.PROXY),
        f"With diagonal K and Q, gradient flow that reaches the minimal loss {_MINIMIZES}.",
    ),
    Prediction(
        "aligned",
        "aligned, h = 0.5",
        "nuclear",
        Source(_FLOW, "theorem on aligned starts, as recalled", Setting.PROXY),
        f"If the singular spaces of K and Q are aligned with the data at the start, gradient flow {_MINIMIZES}.",
    ),
    Prediction(
        "one-matrix",
        "one matrix, h = 7",
        "frobenius",
        Source(_FLOW, "abstract, on earlier results", Setting.PROXY),
        "If K and Q are combined into one trained matrix W, the implicit regularization is on its Frobenius norm.",
    ),
    Prediction(
        "random",
        "random, h = 0.5",
        "nuclear",
        _UNALIGNED,
        f"From random K and Q, without any alignment, gradient flow {_MINIMIZES}: alignment is not needed.",
    ),
    Prediction(
        "unbalanced",
        "unbalanced, h = 0.5",
        "nuclear",
        _UNALIGNED,
        f"From random K and Q with ||K|| = 16 ||Q||, gradient flow {_MINIMIZES}: neither alignment nor balance is "
        "needed.",
    ),
)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a flow with the Frobenius and the nuclear Att-SVM of the tokens that it selects, as `bias.rank` does.

    Diagonal weights are compared with the same two problems over diagonal matrices.

    Returns:
        What `ratios.compared` does; `cosine`, (seed, norm, snapshot), 0 if the solution is not unique; and `optimal`, 1
        if every input selects its optimal token at the end, else 0, (seed,).
    """
    model: Any = model_of(record)
    names = ("frobenius", "l1" if isinstance(model, Diagonal) else "nuclear")
    run = ratios.compared(record, solver, names, "unique", "cosine")
    arrays = {str(name): record[name].values for name in record.data_vars}
    kept = np.isin(record["seed"].values, run["seed"].values)
    optimal = batch.over_seeds(_selects_optimal(model), weights_of(arrays), of_arrays(arrays))
    cosine = run["cosine"].where(run["unique"] == svm.Unique.YES, 0.0)
    run = run.drop_vars("unique").assign(cosine=cosine, optimal=(("seed",), optimal[kept].astype(float)))
    # By the norms of the matrices whose diagonals these are.
    return run.assign_coords(norm=np.array(["frobenius", "nuclear"], object))


# One object per model, so that it compiles once.
@lru_cache(maxsize=8)
def _selects_optimal(model: models.Model) -> Callable[[Any, Problem], Bool[Array, ""]]:
    def selects(weights: Any, problem: Problem) -> Bool[Array, ""]:
        logits = model.logits(weights, problem)[0]
        return (jnp.argmax(logits, axis=1) == tokens.optimal(problem)).all()

    return selects


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the margin ratios of every flow, the norms that it obeys, and the error of its discretization.

    Returns:
        What `ratios.estimate` returns for each run, over the seeds that select every optimal token at the end, as the
        minimal loss requires, or over all if these are fewer than `LEAST_SEEDS`; `reached`, their share, and the
        attribute `minimal`, their number; `path`, the mean margin ratio, (norm, snapshot); `off`, medians of 1 - cos
        over the seeds with a unique solution, alike, 1 if there are none; `size`, the median of ||W||_F, (snapshot,);
        and `error`, if there is a run with twice this h, the mean difference of their ratios at the end, (norm,).
    """
    own_key, path_key = jax.random.split(key)
    keys = jax.random.split(path_key, (len(runs), 2))
    reached = {name: run["optimal"].values > 0 for name, run in runs.items()}
    minimal = {
        name: run.isel(seed=reached[name]) if reached[name].sum() >= LEAST_SEEDS else run for name, run in runs.items()
    }
    summaries = ratios.summarize(minimal, own_key)
    for (name, run), (path, error) in zip(minimal.items(), keys, strict=True):
        estimates = {
            "path": (("norm", "snapshot"), bootstrap(run["margin_ratio"].values, path)),
            "reached": ((), proportion(reached[name])),
        }
        if _STEPS.get(name) in minimal:
            estimates["error"] = (("norm",), _error(run, minimal[_STEPS[name]], error))
        unique = (run["cosine"] != 0).any("snapshot")
        curves = {
            "off": (("norm", "snapshot"), (1 - run["cosine"].where(unique)).median("seed").fillna(1.0).values),
            "size": ("snapshot", run["size"].median("seed").values),
        }
        summary = summaries[name].assign(variables(estimates) | curves)
        summaries[name] = summary.assign_attrs(minimal=int(reached[name].sum()))
    return summaries


def _error(run: xarray.Dataset, coarse: xarray.Dataset, key: PRNGKeyArray) -> Estimate:
    """Return the mean paired difference of the margin ratios at the ends of two paths of equal length."""
    shared = np.intersect1d(run["seed"].values, coarse["seed"].values)
    fine, rough = (each["margin_ratio"].sel(seed=shared).values[:, :, -1] for each in (run, coarse))
    return bootstrap(fine - rough, key)


def _judge(prediction: Prediction, runs: Datasets) -> Judgement:
    """The verdict must name the norm, and steps twice as long must end at the same ratio."""
    judgement, run = prediction.judge(runs), runs[prediction.run]
    if "error" not in run:
        return Judgement.withheld(f"The run {_STEPS[prediction.run]!r}, with steps twice as long, is missing.")
    label, error = "mean margin ratio for steps h minus that for steps 2 h", number(run, "error", norm=prediction.norm)
    few = too_few(run.attrs["minimal"], LEAST_SEEDS)
    return dataclasses.replace(
        judgement,
        undecided=judgement.undecided or (few and f"For the seeds that reach the minimal loss: {few}"),
        numbers={
            **judgement.numbers,
            label: error,
            "share of seeds that select every optimal token": number(run, "reached"),
        },
        stated=(*judgement.stated, between(label, error, -_ERROR, _ERROR)),
        remark=f"{judgement.remark} Median ||W||_F at the end: {float(run['size'][-1]):.3g}. Judged over the "
        f"{run.attrs['minimal']} seeds that reach the minimal loss.",
    )


_CLAIMS = tuple(
    Claim(f"flow:{each.name}", each.source, each.statement, partial(_judge, each), TRAINED) for each in _PREDICTIONS
)

_LOOKS = {
    "diagonal, h = 2": {"color": palette.AMBER, "linestyle": ":", "label": "diagonal $K$, $Q$"},
    "aligned, h = 0.5": {"color": palette.ROSE, "linestyle": "-.", "label": "aligned start"},
    "random, h = 0.5": {"color": palette.WINE, "linestyle": "--", "label": "random start"},
    "unbalanced, h = 0.5": {
        "color": palette.SKY,
        "linestyle": (0, (5, 1, 1, 1, 1, 1)),
        "label": r"random, $\|K\| = 16\,\|Q\|$",
    },
    "one matrix, h = 7": {"color": palette.INK, "linestyle": "-", "label": "training $W$"},
}
_TITLES = {"nuclear": "(a) nuclear Att-SVM", "frobenius": "(b) Frobenius Att-SVM"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw 1 less the mean margin ratio in both norms, and 1 - cos with the nuclear solution, against ||W||."""
    drawn = {name: summaries[name] for name in _LOOKS if name in summaries}
    with page.style():
        figure = page.full(3.5)
        panels = figure.subplots(1, 3, sharex=True, sharey=True)
        for name, run in drawn.items():
            size, look = run["size"].values, _LOOKS[name]
            for axes, norm in zip(panels, _TITLES, strict=False):
                parts = (run[part].sel(norm=norm).values for part in ("path", "path_high", "path_low"))
                page.band(axes, size, *(np.maximum(1 - part, 1e-6) for part in parts), **look)
            off = run["off"].sel(norm="nuclear").values
            if (off < 1).any():
                panels[2].plot(size, off, **look)
        for axes, norm in zip(panels, _TITLES, strict=False):
            axes.axhline(1 - CLOSE, color=palette.GUIDE, linewidth=0.8)
            axes.text(0.12, 1 - CLOSE, f"ratio {CLOSE}", color=palette.GUIDE, fontsize=7, va="bottom")
            axes.set(title=_TITLES[norm], ylabel="1 - margin ratio")
        panels[2].set(title="(c) nuclear solution", ylabel="direction error, $1 - \\cos$")
        for axes in panels:
            axes.set(xscale="log", yscale="log", xlabel=r"$\|W\|_F$")
            axes.set_xlim(left=0.1)
            axes.tick_params(labelleft=True)
        panels[0].legend(loc="lower left", title="mean, 95 % interval")
        factored = [f"flow:{each.name}" for each in _PREDICTIONS if each.norm == "nuclear"]
        verdicts = [judgements[id].verdict for id in factored]
        held, left = verdicts.count(Verdict.HOLDS), verdicts.count(Verdict.OPEN)
        title = f"From {held} of {len(factored)} starts of $K$ and $Q$ the flow tends to the nuclear Att-SVM"
        figure.suptitle(title + (f"; not decided: {left}" if left else ""))
        page.add_counts(
            figure,
            summaries,
            "(a), (b): against the median length of W. (c): medians over the seeds with a unique solution. "
            "All of the seeds that reach the minimal loss. Exponential loss; the shorter of two steps.",
        )
    return figure


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
