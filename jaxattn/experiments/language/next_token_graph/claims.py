"""Next-token prediction by one attention layer (2403.08081): the Graph-SVM direction, and the finite part in cycles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
        Over the snapshots geometric means of `whole`, `both`, `growing`, and of `finite` over
        the texts with a finite part; the means of `margin`, `increment`, `rate` and `error`; geometric means of
        `falls`, `whole` at the end over `whole` at a tenth of the steps, and over texts with a finite part of `closer`,
        `both` over `whole` at the end, and `comes`, `finite` at the end over `finite` at a hundredth. Over the texts
        with several starts `growth_apart`, and the geometric mean of `joined`, `finite_apart` over `finite_apart_0`,
        the largest of each. `predicted` and `reached` for all words in cycles, (point,); `largest`, the largest error;
        `midpoint`, the smallest; `sets_apart` and `within`, the largest. The attribute `with_finite` counts the seeds
        with a finite part, `with_starts` the texts with several starts, `with_all_words` the seeds whose inputs contain
        every word.
    """
    steps = run["snapshot"].values
    tenth, hundredth = (int(np.argmin(np.abs(np.log(steps * part / steps[-1])))) for part in (10, 100))
    whole, both, growing, finite = (run[name].clip(min=_LEAST) for name in ("whole", "both", "growing", "finite"))
    has_finite = run["size"] > _NONE
    apart = run[["growth_apart", "finite_apart", "finite_apart_0"]].groupby(run["text"]).max().rename(text="seed")
    several = apart["finite_apart_0"] > _NONE
    counts = {"with_finite": has_finite.sum(), "with_starts": several.sum()}
    counts["with_all_words"] = run.sizes["seed"] * (run.attrs["data"] == "language")
    cyclic = run["cyclic"].values
    return estimated(
        run,
        key,
        whole=geometric_mean(whole),
        both=geometric_mean(both),
        growing=geometric_mean(growing),
        margin=mean(run["margin"]),
        increment=mean(run["increment"]),
        rate=mean(run["rate"]),
        error=mean(run["error"]),
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
        predicted=exact(xarray.DataArray(run["predicted"].values[cyclic], dims="point")),
        reached=exact(xarray.DataArray(run["reached"].values[cyclic], dims="point")),
    ).assign_attrs({name: int(count) for name, count in counts.items()})


def _ratio(first: xarray.DataArray, at: int, second: xarray.DataArray, since: int) -> xarray.DataArray:
    return first.isel(snapshot=at, drop=True) / second.isel(snapshot=since, drop=True)


# From a run's name and summary to the criteria for it.
_Criteria = Callable[[str, xarray.Dataset], tuple[Criterion, ...]]


def _direction(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"1 - cos of the change over the last decade with W_svm, {name},", number(run, "increment"), _PARALLEL),
        above(f"length of that change along W_svm over ||W_svm|| log 10, {name},", number(run, "rate"), _GROWING),
        below(f"1 - cos of W at the end over 1 - cos at a tenth of the steps, {name},", number(run, "falls"), _FALLING),
    )


def _finite(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"largest error of a probability, mean over seeds, {name},", number(run, "error"), _PROBABILITY),
        below(
            f"distance from W_fin at the end over the distance at a hundredth of the steps, {name},",
            number(run, "comes"),
            _TWO_DECADES,
        ),
    )


def _global(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"1 - cos between the changes from two starts, {name},", number(run, "growth_apart"), _PARALLEL),
        below(f"distance between finite parts of two starts, end over start, {name},", number(run, "joined"), _JOINED),
    )


def _both(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"1 - cos with W_fin + C W_svm over 1 - cos with W_svm, {name},", number(run, "closer"), 1 - _CHANGE),
    )


def _sets(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    return (below(f"relative distance of the two solutions, {name},", Number.exact(float(run["sets_apart"])), _SAME),)


def _convex(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    least = Number.exact(float(run["midpoint"]))
    return (above(f"mean of the risks at two W minus the risk halfway, smallest, {name},", least, _ROUNDING),)


def _judge(criteria: _Criteria, having: str, remark: Callable[[Datasets], str], runs: Datasets) -> Judgement:
    """Every run with enough of what the claim is about must meet its criteria.

    Args:
        criteria: for a run.
        having: the attribute that counts what the claim is about.
        remark: made from the runs that have it.
        runs: by name.
    """
    chosen = {name: run for name, run in runs.items() if int(run.attrs[having]) >= LEAST_SEEDS}
    if not chosen:
        return Judgement.withheld(f"No run has {LEAST_SEEDS} seeds or texts of the kind that this claim is about.")
    stated = [criterion for name, run in chosen.items() for criterion in criteria(name, run)]
    first = stated[:: len(stated) // len(chosen)]
    return Judgement(
        stated,
        numbers={criterion.quantity.rstrip(","): criterion.value for criterion in stated},
        expected={criterion.quantity.rstrip(","): 0.0 for criterion in first},
        counts=counts_of(chosen),
        remark=remark(chosen),
    )


def _source(locator: str, setting: Setting = Setting.PROXY) -> Source:
    return Source(_PAPER, locator, setting)


CLAIMS = (
    Claim(
        "next-token-graph:direction",
        _source("global convergence theorem for log-loss"),
        "From any start, gradient descent with log-loss drives the norm of W to infinity and its direction to the "
        "Graph-SVM solution, which separates the strongly connected components of every token-priority graph.",
        partial(_judge, _direction, "kept", remarks.on_direction),
        TRAINED,
    ),
    Claim(
        "next-token-graph:finite-part",
        _source("global convergence theorem for log-loss"),
        "The projection of W on the cyclic subspace converges to W_fin, the minimizer of the log-loss of the inputs "
        "restricted to the component of their label.",
        partial(_judge, _finite, "with_finite", remarks.on_finite),
        TRAINED,
    ),
    Claim(
        "next-token-graph:global",
        _source("global convergence theorem for log-loss"),
        "Neither part of the limit depends on the start.",
        partial(_judge, _global, "with_starts", remarks.on_global),
        TRAINED,
    ),
    Claim(
        "next-token-graph:both-parts",
        _source("decomposition of W, and the figure of its correlations"),
        "W is W_fin plus a growing multiple of the Graph-SVM solution; the two together predict W better than the "
        "solution alone.",
        partial(_judge, _both, "with_finite", remarks.on_both),
        TRAINED,
    ),
    Claim(
        "next-token-graph:sets",
        Source(_PAPER, "Graph-SVM, for inputs that contain every word", Setting.OURS),
        "If every word is a candidate, the Graph-SVM solution and W_fin are those of arXiv 2308.16898 for several "
        "selected tokens, the words that follow.",
        partial(_judge, _sets, "with_all_words", remarks.on_sets),
        TRAINED,
        Kind.CHECK,
    ),
    Claim(
        "next-token-graph:convex",
        _source("lemma on convexity"),
        "With log-loss the risk is convex in W.",
        partial(_judge, _convex, "kept", remarks.on_convex),
        TRAINED,
        Kind.CHECK,
    ),
)
