"""Next-token prediction by one attention layer (2403.08081): the Graph-SVM direction, and the finite part in cycles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language.next_token_graph import remarks
from jaxattn.experiments.language.subsets import over
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, Kind, Setting, Source, counts_of
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number

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


class _Asked(NamedTuple):
    """What is asked of an estimate of every run.

    Attributes:
        quantity: in words.
        estimate: its name.
        threshold: the smallest or the largest value allowed.
        criterion: `above` or `below`.
    """

    quantity: str
    estimate: str
    threshold: float
    criterion: Callable[[str, Number, float], Criterion] = below


def _judge(asked: Sequence[_Asked], having: str, remark: Callable[[Datasets], str], runs: Datasets) -> Judgement:
    """Every run with enough of what the claim is about must meet the criteria.

    Args:
        asked: of every run; the first number should be 0.
        having: the attribute that counts what the claim is about.
        remark: made from the runs that have it.
        runs: by name.
    """
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
        remarks.on_direction,
    ),
    _claim(
        "finite-part",
        _THEOREM,
        "The projection of W on the cyclic subspace converges to W_fin, the minimizer of the log-loss of the inputs "
        "restricted to the component of their label.",
        (
            _Asked("largest error of a probability, mean over seeds", "error", _PROBABILITY),
            _Asked(
                "distance from W_fin at the end over the distance at a hundredth of the steps", "comes", _TWO_DECADES
            ),
        ),
        remarks.on_finite,
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
        remarks.on_global,
        "with_starts",
    ),
    _claim(
        "both-parts",
        Source(_PAPER, "decomposition of W, and the figure of its correlations", Setting.PROXY),
        "W is W_fin plus a growing multiple of the Graph-SVM solution; the two together predict W better than the "
        "solution alone.",
        (_Asked("1 - cos with W_fin + C W_svm over 1 - cos with W_svm", "closer", 1 - _CHANGE),),
        remarks.on_both,
        "with_finite",
    ),
    _claim(
        "sets",
        Source(_PAPER, "Graph-SVM, for inputs that contain every word", Setting.OURS),
        "If every word is a candidate, the Graph-SVM solution and W_fin are those of arXiv 2308.16898 for several "
        "selected tokens, the words that follow.",
        (_Asked("relative distance of the two solutions", "sets_apart", _SAME),),
        lambda chosen: (
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
        lambda chosen: (
            "Tested between the start and the end of every run. It follows by algebra: -log of a softmax "
            "probability is convex in the logits."
        ),
        kind=Kind.CHECK,
    ),
)
