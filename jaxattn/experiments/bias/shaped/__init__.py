"""Weight decay on K and Q: which norm is obeyed without it, after it, and under it (2504.12883)?"""

from __future__ import annotations

import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.attention import Factored
from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Together, claims_of
from jaxattn.experiments.bias.shaped import decay
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import above, below, between
from jaxattn.study.estimates import estimated, exact, mean, number, read_at
from jaxattn.study.measuring.ranked import ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_PAPER = "arXiv 2504.12883"
_TYPE = Source(_PAPER, "type of bias, as recalled", Setting.PROXY)
# The norm of each model that is small for few nonzero entries or singular values.
_SPARSE = {"diagonal": "l1", "matrices": "nuclear"}
# The decays per step of the runs that are compared.
_DECAYS = (0.0, 0.004, 0.006, 0.008, 0.01)
# Mirror flow is followed for so many steps.
_FOLLOWED = 4000
# Fixed beforehand: the ||W||_F at which runs are compared, and the largest relative difference that counts as none.
_SIZE, _SAME = 1e4, 0.01


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run from `decay.matrices` or `decay.diagonals` with two max-margin problems and with the theory.

    Returns:
        The arrays of `ratios.KEPT` for the Frobenius norm and the nuclear norm, or the l1 norm of diagonals;
        `nuclear`, `||W||_*`, and `imbalance`, both (seed, snapshot); `balance`, the b of the flow, (snapshot,); at the
        end `gap`, and `filled`, `||W||_*` over what steps and decay in balance give, 0 without decay, both (seed,);
        for diagonals also `off_mirror`, the largest `||w - w'|| / ||w'||` at early snapshots, w' that of
        `decay.mirrored`, (seed,).

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    config = json.loads(record.attrs["config"])
    rule, scale = config["optimizer"], config["weights"]["scale"]
    step_size, lost, until = (float(rule[name]) for name in ("step_size", "decay", "until"))
    is_diagonal = record["K"].shape[-1] == 1
    ranking = to_dataset(ranked(record, ("frobenius", _SPARSE["diagonal" if is_diagonal else "matrices"])))
    run, steps = ranking[ratios.KEPT], ranking["snapshot"].values
    kept = record.sel(seed=ranking["seed"].values, snapshot=steps)
    arrays = {str(name): kept[name].values for name in kept.data_vars}
    problems, snapshots = of_arrays(arrays), weights_of(arrays, "_snapshots")
    balance = decay.balance(scale, lost, until, jnp.asarray(steps))

    def along(weights: Factored) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        return jax.vmap(decay.nuclear)(weights), jax.vmap(decay.imbalance)(weights, balance)

    run["nuclear"], run["imbalance"] = ((("seed", "snapshot"), part) for part in batch.over_seeds(along, snapshots))
    run["balance"] = ("snapshot",), np.asarray(balance)
    run["gap"] = ("seed",), batch.over_seeds(decay.gap, weights_of(arrays), problems)
    run["filled"] = ("seed",), run["nuclear"].values[:, -1] * 2 * lost / step_size
    if is_diagonal:
        early = steps <= _FOLLOWED
        reached = tuple(steps[early].tolist())

        def followed(problem: Problem) -> Float[Array, "k d"]:
            return decay.mirrored(problem, scale, step_size, lost, until, reached)

        w, expected = (snapshots.K * snapshots.Q)[..., 0][:, early], batch.over_seeds(followed, problems)
        off = np.linalg.norm(w - expected, axis=2) / np.linalg.norm(expected, axis=2)
        run["off_mirror"] = ("seed",), off.max(axis=1)
    run.attrs = ratios.counts(ranking.attrs)
    return run


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the norms that every run obeys, and what theory says of it.

    Returns:
        What `ratios.estimate` returns for each run. In addition: `path`, the mean margin ratio, (norm, snapshot);
        `length`, the mean `||W||_*`, and `size`, that of `||W||_F`, (snapshot,); `gap` and `filled`, means; the
        largest `imbalance` and `off_mirror` over seeds and snapshots; `compact`, the mean of `||W||_* / ||W||_F` where
        `||W||_F` is `_SIZE`; `fall`, by how much the run with the next weaker decay exceeds it, seed by seed; and
        `least`, the smallest `||W||_F` at the end.
    """
    own_key, key = jax.random.split(key)
    summaries = ratios.summarize(runs, own_key)
    weaker = {
        _run(model, strong): _run(model, weak) for model in _SPARSE for weak, strong in itertools.pairwise(_DECAYS)
    }
    for k, (name, run) in enumerate(runs.items()):
        parts = {
            "path": mean(run["margin_ratio"]),
            "length": mean(run["nuclear"]),
            "size": mean(run["size"]),
            "gap": mean(run["gap"]),
            "filled": mean(run["filled"]),
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
    diagonal, matrices = (runs[f"{model}, short steps"] for model in _SPARSE)
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
        {_run(model, 0): "frobenius" for model in _SPARSE},
        _TYPE,
        "From a large start the type of the bias is L2: without decay, descent on K and Q obeys the Frobenius norm.",
    ),
    Together(
        "after",
        {_run(model, _DECAYS[-1]): norm for model, norm in _SPARSE.items()},
        _TYPE,
        "Decay changes the type of the bias to L1, and it stays so: after decay has been switched off, descent from "
        "the same start obeys the l1 norm of diagonals and the nuclear norm of matrices.",
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
    compared = {name: runs[name] for name in (_run(model, lost) for model in _SPARSE for lost in _DECAYS)}
    least = min(float(run["least"]) for run in compared.values())
    return Judgement(
        [
            above(f"fall of ||W||_* / ||W||_F from the next weaker decay, {name}", number(run, "fall"), 0.0)
            for name, run in compared.items()
            if "fall" in run
        ],
        numbers={f"||W||_* / ||W||_F, {name}": number(run, "compact") for name, run in compared.items()},
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
    found = {model: runs[f"{model}, decay throughout"] for model in _SPARSE}
    return Judgement(
        [
            criterion
            for model, run in found.items()
            for criterion in (
                between(f"||W||_* over step_size / (2 decay), {model}", number(run, "filled"), 1 - _SAME, 1 + _SAME),
                below(f"gap of stationarity, {model}", number(run, "gap"), _SAME),
            )
        ],
        remark=" ".join(f"The ranking of {model}: {run.attrs['verdict']}." for model, run in found.items()),
    )


_DASHES = {"diagonal": "--", "matrices": "-"}
_THROUGHOUT = "matrices, decay throughout"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw by decay (a) the margin ratios at the end and (b) the form of W; along the steps (c) ratios and (d) ||W||_*.

    (a) and (b) are drawn against the root of b when decay has ended, which is the size of a start with this b.
    """
    verdicts = {name: judgements[f"shaped:{name}"].verdict for name in ("before", "after", "gradual", "throughout")}
    with page.style():
        figure = page.full(5.6)
        ends, form, approach, growth = figure.subplots(2, 2).flat
        for model, sparse in _SPARSE.items():
            rows = [summaries[name] for lost in _DECAYS if (name := _run(model, lost)) in summaries]
            start = [float(row["balance"][-1]) ** 0.5 for row in rows]
            look = {"linestyle": _DASHES[model], "marker": "o"}
            _bars(form, start, rows, "compact", label=model, color=palette.INK, **look)
            for norm in ("frobenius", sparse):
                of_norm = [row.sel(norm=norm) for row in rows]
                _bars(ends, start, of_norm, "ratio", label=f"{norm}, {model}", color=palette.COLOURS[norm], **look)
        shown = [lost for lost in _DECAYS if _run("matrices", lost) in summaries]
        colours = dict(zip(shown, palette.ramp(len(shown)), strict=True))
        for lost, colour in colours.items():
            run = summaries[_run("matrices", lost)]
            off = (np.maximum(1 - run[f"path{part}"].sel(norm="nuclear"), 1e-4) for part in ("", "_high", "_low"))
            page.band(approach, run["size"], *off, color=colour, label=f"{lost:g}")
        curves = {_run("matrices", lost): colours[lost] for lost in (shown[:1] + shown[-1:])}
        for name, colour in (curves | {_THROUGHOUT: palette.INK}).items():
            if name in summaries:
                parts = (summaries[name][part] for part in ("snapshot", "length", "length_low", "length_high"))
                page.band(growth, *parts, color=colour, label=name.removeprefix("matrices, "))
        for axes in (ends, form):
            axes.set(xscale="log", xlabel=r"$\sqrt{b}$ when decay has ended")
            axes.invert_xaxis()
        ends.axhline(CLOSE, color=palette.GUIDE, linewidth=0.8)
        ends.set(
            title=f"(a) before: {verdicts['before']}; after: {verdicts['after']}", ylabel="margin ratio at the end"
        )
        form.set(title=f"(b) by degrees: {verdicts['gradual']}", ylabel=rf"$\|W\|_*/\|W\|_F$ at $\|W\|_F$ = {_SIZE:g}")
        approach.set(title="(c) matrices, by decay per step", ylabel="1 - margin ratio, nuclear")
        approach.set(xscale="log", yscale="log", xlabel=r"$\|W\|_F$")
        growth.set(title=f"(d) decay throughout: {verdicts['throughout']}", ylabel=r"$\|W\|_*$, matrices")
        growth.set(xscale="log", yscale="log", xlabel="step")
        for axes in (ends, form, approach, growth):
            axes.legend(title="mean, 95 % interval")
        figure.suptitle(f"Decay on $K$ and $Q$ changes the norm that is obeyed, and it stays so: {verdicts['after']}")
        page.add_counts(
            figure,
            summaries,
            "b: $K^T K - Q^T Q = b I$. Decay ends after 1,000 steps, except in the run with decay throughout, whose steps "
            "are a quarter as long.",
        )
    return figure


def _bars(axes: Axes, x: list[float], rows: list[xarray.Dataset], name: str, **look: Any) -> None:
    page.bars(axes, x, *([float(row[f"{name}{part}"]) for row in rows] for part in ("", "_low", "_high")), **look)


EXPERIMENT = Experiment(
    measure, claims=(law, *claims_of("shaped", _PREDICTIONS), gradual, throughout), summarize=summarize, draw=draw
)
