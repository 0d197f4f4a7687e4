"""Next-token prediction by one attention layer (2403.08081): the Graph-SVM direction, and the finite part in cycles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn.experiments.language.next_token_graph.measure import measure
from jaxattn.experiments.language.subsets import over
from jaxattn.study.claims import (
    LEAST_SEEDS,
    TRAINED,
    Claim,
    Datasets,
    Experiment,
    Judgement,
    Judgements,
    Kind,
    Setting,
    Source,
    counts_of,
)
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number
from jaxattn.study.style import page, palette

_PAPER = "arXiv 2403.08081"
# Fixed beforehand. The largest 1 - cos, with its limit, of the change of W over the last decade of steps; the smallest
# length of this change along W_svm over ||W_svm|| log 10; the largest ratio of an error over a decade of steps that
# counts as a decrease.
_PARALLEL, _GROWING, _FALLING = 0.01, 0.5, 0.9
# The largest error of a probability within a component; the largest ratio of the distance from W_fin over two decades.
_PROBABILITY, _TWO_DECADES = 0.005, 0.3
# The largest ratio of the distance between finite parts of two starts; a ratio nearer to 1 than this is no change.
_JOINED, _CHANGE = 0.01, 0.001
# For two solutions of one problem, and for the risk, which has a rounding error of some units in the last place.
_SAME, _ROUNDING = 1e-6, -1e-12
# A finite part of smaller norm counts as zero; a smaller distance counts as rounding.
_NONE, _LEAST = 1e-9, 1e-12


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate a run's distances from both parts of the limit.

    Returns:
        Means of what is measured, geometric ones of distances; `finite`, `closer` and `comes` over the texts with a
        finite part. `falls` is `whole` at the end over `whole` at a tenth of the steps; `comes` is `finite` at the end
        over `finite` at a hundredth; `closer` is `both` over `whole` at the end. Over the texts with several starts the
        largest `growth_apart`, and `joined`, the largest `finite_apart` over the largest `finite_apart_0`. `predicted`
        and `reached` for all words in cycles, (point,); `largest`, the largest error; `midpoint`, the smallest;
        `sets_apart` and `within`, the largest. The attribute `with_finite` counts the seeds with a finite part,
        `with_starts` the texts with several starts, `with_all_words` the seeds whose inputs contain every word.
    """
    steps = run["snapshot"].values
    tenth, hundredth = (int(np.argmin(np.abs(np.log(steps * part / steps[-1])))) for part in (10, 100))
    distances = run[["whole", "both", "growing", "finite"]].clip(min=_LEAST)
    whole, both, finite = (distances[name] for name in ("whole", "both", "finite"))
    has_finite = run["size"] > _NONE
    apart = run[["growth_apart", "finite_apart", "finite_apart_0"]].groupby(run["text"]).max().rename(text="seed")
    several = apart["finite_apart_0"] > _NONE
    counts = {"with_finite": has_finite.sum(), "with_starts": several.sum()}
    counts["with_all_words"] = run.sizes["seed"] * (run.attrs["data"] == "language")
    return estimated(
        run,
        key,
        **{name: geometric_mean(distances[name]) for name in ("whole", "both", "growing")},
        **{name: mean(run[name]) for name in ("margin", "increment", "rate", "error")},
        falls=geometric_mean(_ratio(whole, -1, whole, tenth)),
        finite=over(has_finite, geometric_mean, finite),
        closer=over(has_finite, geometric_mean, _ratio(both, -1, whole, -1)),
        comes=over(has_finite, geometric_mean, _ratio(finite, -1, finite, hundredth)),
        growth_apart=over(several, mean, apart["growth_apart"]),
        joined=over(several, geometric_mean, apart["finite_apart"].clip(min=_LEAST) / apart["finite_apart_0"]),
        largest=exact(run["error"].max()),
        midpoint=exact(run["midpoint"].min()),
        sets_apart=exact(run["sets_apart"].max()),
        within=exact(run["within"].max()),
        **{
            name: exact(xarray.DataArray(run[name].values[run["cyclic"].values], dims="point"))
            for name in ("predicted", "reached")
        },
    ).assign_attrs({name: int(count) for name, count in counts.items()})


def _ratio(first: xarray.DataArray, at: int, second: xarray.DataArray, since: int) -> xarray.DataArray:
    return first.isel(snapshot=at, drop=True) / second.isel(snapshot=since, drop=True)


def _ends(summaries: Datasets, name: str) -> str:
    """Return the range of the runs' means at the last snapshot."""
    return page.span((float(run[name][-1]) for run in summaries.values()), ".2g")


def _on_direction(chosen: Datasets) -> str:
    exact = {name: run for name, run in chosen.items() if run.attrs["optimizer"] == "scale_free_gd"}
    plain = {name: run for name, run in chosen.items() if name not in exact}
    longest = max(float(run["within"]) for run in plain.values())
    further = (
        " Without cycles, normalized steps along the exact gradient direction follow the same path further: 1 - "
        f"cos of W ends at {_ends(exact, 'whole')}, its margin ratio at {_ends(exact, 'margin')}."
    )
    return (
        f"For plain steps, of at most {longest:.2g} / L, 1 - cos of W itself ends at {_ends(plain, 'whole')} "
        "(geometric means). It falls like the inverse square of log step, as W is W_svm log step plus a bounded "
        "remainder. The change of W over a decade does not contain the constant part of this remainder. Margin "
        f"ratios outside the cyclic subspace are {_ends(plain, 'margin')}.{further}"
    )


def _on_finite(chosen: Datasets) -> str:
    largest = max(float(run["largest"]) for run in chosen.values())
    points = sum(run.sizes["point"] for run in chosen.values())
    return (
        f"The largest error over {points} probabilities within components is {largest:.2g}. The distance of the "
        f"projection of W on the cyclic subspace from W_fin ends at {_ends(chosen, 'finite')} (geometric means). "
        "W_fin is computed from the graphs only."
    )


def _on_global(chosen: Datasets) -> str:
    texts = sum(run.attrs["with_starts"] for run in chosen.values())
    starts = ", ".join(sorted({str(run.attrs["weights.starts"]) for run in chosen.values()}))
    return (
        f"{texts} texts with {starts} starts each. In each text the first start is compared with the one whose limit "
        "is farthest from its own; the changes are over the last decade of steps."
    )


def _on_both(chosen: Datasets) -> str:
    return (
        f"1 - cos with W_fin + C W_svm ends at {_ends(chosen, 'both')}, with W_svm at {_ends(chosen, 'whole')} "
        "(geometric means). C is fitted, W_fin is not. Both tend to 0, since W grows and W_fin does not."
    )


class _Asked(NamedTuple):
    """What is asked of an estimate of every run: a largest value, or with `above` a smallest one."""

    quantity: str
    estimate: str
    threshold: float
    criterion: Callable[[str, Number, float], Criterion] = below


def _judge(asked: Sequence[_Asked], having: str, remark: Callable[[Datasets], str], runs: Datasets) -> Judgement:
    """Every run with enough seeds or texts, by the attribute `having`, must meet the criteria; the first asks for 0."""
    chosen = {name: run for name, run in runs.items() if int(run.attrs[having]) >= LEAST_SEEDS}
    if not chosen:
        return Judgement.withheld(f"No run has {LEAST_SEEDS} seeds or texts of the kind that this claim is about.")
    labels = {f"{one.quantity}, {name}": (one, run) for name, run in chosen.items() for one in asked}
    numbers = {label: number(run, one.estimate) for label, (one, run) in labels.items()}
    return Judgement(
        [one.criterion(f"{label},", numbers[label], one.threshold) for label, (one, _) in labels.items()],
        numbers=numbers,
        expected={f"{asked[0].quantity}, {name}": 0.0 for name in chosen},
        counts=counts_of(chosen),
        remark=remark(chosen),
    )


_COMES = "distance from W_fin at the end over the distance at a hundredth of the steps"
_THEOREM = Source(_PAPER, "global convergence theorem for log-loss", Setting.PROXY)


def _claim(
    name: str,
    source: Source,
    statement: str,
    asked: Sequence[_Asked],
    remark: Callable[[Datasets], str],
    having: str = "kept",
    kind: Kind = Kind.FINDING,
) -> Claim:
    return Claim(f"next-token-graph:{name}", source, statement, partial(_judge, asked, having, remark), TRAINED, kind)


CLAIMS = (
    _claim(
        "direction",
        _THEOREM,
        "From any start, gradient descent with log-loss drives the norm of W to infinity and its direction to the "
        "Graph-SVM solution, which separates the strongly connected components of every token-priority graph.",
        (
            _Asked("1 - cos of the change over the last decade with W_svm", "increment", _PARALLEL),
            _Asked("length of that change along W_svm over ||W_svm|| log 10", "rate", _GROWING, above),
            _Asked("1 - cos of W at the end over 1 - cos at a tenth of the steps", "falls", _FALLING),
        ),
        _on_direction,
    ),
    _claim(
        "finite-part",
        _THEOREM,
        "The projection of W on the cyclic subspace converges to W_fin, the minimizer of the log-loss of the inputs "
        "restricted to the component of their label.",
        (
            _Asked("largest error of a probability, mean over seeds", "error", _PROBABILITY),
            _Asked(_COMES, "comes", _TWO_DECADES),
        ),
        _on_finite,
        "with_finite",
    ),
    _claim(
        "global",
        _THEOREM,
        "Neither part of the limit depends on the start.",
        (
            _Asked("1 - cos between the changes from two starts", "growth_apart", _PARALLEL),
            _Asked("distance between finite parts of two starts, end over start", "joined", _JOINED),
        ),
        _on_global,
        "with_starts",
    ),
    _claim(
        "both-parts",
        Source(_PAPER, "decomposition of W, and the figure of its correlations", Setting.PROXY),
        "W is W_fin plus a growing multiple of the Graph-SVM solution; the two together predict W better than the "
        "solution alone.",
        (_Asked("1 - cos with W_fin + C W_svm over 1 - cos with W_svm", "closer", 1 - _CHANGE),),
        _on_both,
        "with_finite",
    ),
    _claim(
        "sets",
        Source(_PAPER, "Graph-SVM, for inputs that contain every word", Setting.OURS),
        "If every word is a candidate, the Graph-SVM solution and W_fin are those of arXiv 2308.16898 for several "
        "selected tokens, the words that follow.",
        (_Asked("relative distance of the two solutions", "sets_apart", _SAME),),
        lambda _: (
            "This follows from the definitions: every input contains every word, so the words that follow k form one "
            "component, which comes before all others. The limit is then that of lm-cosine:mixed, W_fin + C W_sets."
        ),
        "with_all_words",
        Kind.CHECK,
    ),
    _claim(
        "convex",
        Source(_PAPER, "lemma on convexity", Setting.PROXY),
        "With log-loss the risk is convex in W.",
        (_Asked("mean of the risks at two W minus the risk halfway, smallest", "midpoint", _ROUNDING, above),),
        lambda _: (
            "Tested between the start and the end of every run. It follows by algebra: -log of a softmax "
            "probability is convex in the logits."
        ),
        kind=Kind.CHECK,
    ),
)


# Cycles by their length, from light to dark.
_CYCLES = dict(zip(range(1, 6), palette.ramp(5), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction error of W and that of its last gain, the distance from W_fin, and errors of probabilities."""
    drawn = _drawn(list(summaries.values()))
    with page.style():
        figure = page.full(3.9)
        top, bottom = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.4, 2.6)))
        left, middle, right = bottom.subplots(1, 3)
        for run in drawn:
            look = _look(run)
            colour, end = look["color"], float(run["snapshot"][-1])
            page.course(left, run, "whole", linewidth=1.2, **look)
            left.plot(end, float(run["increment"]), marker="D", markersize=3.5, color=colour, clip_on=False)
            if "finite" in run:
                page.course(middle, run, "finite", linewidth=1.2, **look)
            off = run["reached"] - run["predicted"]
            right.plot(run["predicted"], off, ".", color=colour, markersize=2.5, rasterized=True)
        verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
        left.set_title(f"(a) direction, the\nGraph-SVM solution: {verdicts['direction']}")
        left.set_ylabel("direction error, 1 - cos")
        middle.set_title(f"(b) cyclic subspace,\n$W_{{fin}}$: {verdicts['finite-part']}")
        middle.set_ylabel("distance from $W_{fin}$")
        for axes in (left, middle):
            axes.set(xlabel="step", xscale="log", yscale="log")
            axes.set_xticks([1, 10, 100, 1000, 10_000])
        largest = page.at_most(max(float(run["largest"]) for run in summaries.values()))
        right.axhline(0, color="black", linewidth=0.6, zorder=0)
        right.set(title=f"(c) probabilities:\nerror $\\leq$ {largest}", xlim=(0, 1))
        right.set(xlabel="predicted from the graph", ylabel="reached by descent, less predicted")
        top.legend(*left.get_legend_handles_labels(), loc="center", ncols=3)
        figure.suptitle(
            "From any start, $W$ converges to the Graph-SVM direction, with a finite part in cycles: "
            f"{verdicts['global']}"
        )
        page.add_counts(
            figure,
            summaries,
            "Diamonds: direction error of what W gained in the last decade of steps, mean over seeds. "
            "Curves: geometric means over seeds with 95 % intervals. With all words as candidates, W first passes "
            "beyond $W_{fin}$ and then returns. Not drawn: shorter cycles, and other starts.",
        )
    return figure


def _drawn(runs: Sequence[xarray.Dataset]) -> list[xarray.Dataset]:
    """Return the runs with one start per text; of those that differ in the cycle alone, the first and the last."""
    alone = [run for run in runs if run.attrs["weights.starts"] == 1]
    between = [run for run in alone if _look(run)["linestyle"] == "-"][1:-1]
    return [run for run in alone if all(run is not other for other in between)]


def _look(run: xarray.Dataset) -> dict[str, Any]:
    """Return label, colour and dashes of a run: by the length of its cycle, or by what distinguishes it."""
    attrs = run.attrs
    if attrs["data"] == "language":
        return {"label": "all words as candidates", "color": palette.INK, "linestyle": ":"}
    cycle, starts = attrs["data.cycle"], attrs["weights.starts"]
    label = f"cycles of {cycle}" if cycle > 1 else "no cycle"
    for differs, words, colour, dashes in (
        (starts > 1, f"{starts} starts", palette.WINE, "--"),
        (attrs["data"] == "token_graph_sphere", "unit sphere", palette.AMBER, "-."),
        (attrs["optimizer"] == "scale_free_gd", "normalized steps", palette.ROSE, "--"),
    ):
        if differs:
            return {"label": f"{label}, {words}", "color": colour, "linestyle": dashes}
    return {"label": label, "color": _CYCLES[cycle], "linestyle": "-"}


EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
