"""Next-token prediction by one attention layer (2403.08081): the Graph-SVM direction, and the finite part in cycles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.language.next_token_graph import examples, remarks
from jaxattn.statistics import Estimate, bootstrap, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Kind,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)

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
_DISTANCES = ("whole", "both", "growing", "finite", "increment", "error", "growth_apart", "finite_apart", "sets_apart")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate every run's distances from both parts of the limit.

    Args:
        datasets: of `measure`, of every run.
        key: of the bootstrap.

    Returns:
        For each run a dataset: over the snapshots geometric means of `whole`, `both`, `growing`, and of `finite` over
        the texts with a finite part; the means of `margin`, `increment`, `rate` and `error`; geometric means of
        `falls`, `whole` at the end over `whole` at a tenth of the steps, and over texts with a finite part of `closer`,
        `both` over `whole` at the end, and `comes`, `finite` at the end over `finite` at a hundredth. Over the texts
        with several starts `growth_apart`, and the geometric mean of `joined`, `finite_apart` over `finite_apart_0`,
        the largest of each. `predicted` and `reached` for all words in cycles, (point,); `largest`, the largest error;
        `midpoint`, the smallest; `sets_apart` and `within`, the largest. The attribute `with_finite` counts the seeds
        with a finite part, `with_starts` the texts with several starts, `with_all_words` the seeds whose inputs contain
        every word.

    Raises:
        ValueError: negative distances.
    """
    keys = jax.random.split(key, len(datasets))
    return {run: _estimated(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    keys = iter(jax.random.split(key, 16))
    for name in _DISTANCES:
        if not (one[name] >= 0).all():
            raise ValueError(f"{name}: expected distances of at least 0, found {float(one[name].min()):.3g}")
    steps, along = one["snapshot"].values, ("snapshot",)
    tenth, hundredth = (int(np.argmin(np.abs(np.log(steps * part / steps[-1])))) for part in (10, 100))
    logs = {name: np.log(np.maximum(one[name].values, _LEAST)) for name in ("whole", "both", "growing", "finite")}
    has = one["size"].values > _NONE
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {
        **{name: (along, _geometric(logs[name], next(keys))) for name in ("whole", "both", "growing")},
        "margin": (along, bootstrap(one["margin"].values, next(keys))),
        **{name: ((), bootstrap(one[name].values, next(keys))) for name in ("increment", "rate", "error")},
        "falls": ((), _geometric(logs["whole"][:, -1] - logs["whole"][:, tenth], next(keys))),
    }
    of_finite, of_closer, of_comes, of_growth, of_joined = (next(keys) for _ in range(5))
    if has.any():
        finite = logs["finite"][has]
        estimates["finite"] = (along, _geometric(finite, of_finite))
        estimates["closer"] = ((), _geometric((logs["both"] - logs["whole"])[has, -1], of_closer))
        estimates["comes"] = ((), _geometric(finite[:, -1] - finite[:, hundredth], of_comes))
    growth, ends, starts = (_by_text(one, name) for name in ("growth_apart", "finite_apart", "finite_apart_0"))
    several = starts > _NONE
    if several.any():
        joined = np.log(np.maximum(ends[several], _LEAST)) - np.log(starts[several])
        estimates["growth_apart"] = ((), bootstrap(growth[several], of_growth))
        estimates["joined"] = ((), _geometric(joined, of_joined))
    cyclic = one["cyclic"].values.astype(bool)
    ends_of = {
        "largest": float(one["error"].max()),
        "midpoint": float(one["midpoint"].min()),
        "sets_apart": float(one["sets_apart"].max()),
        "within": float(one["within"].max()),
    }
    points = {name: (("point",), one[name].values[cyclic]) for name in ("predicted", "reached")}
    arrays = variables(estimates) | {name: ((), value) for name, value in ends_of.items()} | points
    counted = {"with_finite": has, "with_starts": several, "with_all_words": np.full(len(has), not one.attrs["cycle"])}
    attrs = one.attrs | {name: int(chosen.sum()) for name, chosen in counted.items()}
    return xarray.Dataset(arrays, {"snapshot": steps}, attrs)


def _geometric(logarithms: Float[np.ndarray, "seeds ..."], key: PRNGKeyArray) -> Estimate:
    """Return the geometric mean and its interval; the standard error is that of the logarithm."""
    logs = bootstrap(logarithms, key)
    return logs._replace(**{part: np.exp(getattr(logs, part)) for part in ("mean", "low", "high")})


def _by_text(one: xarray.Dataset, name: str) -> Float[np.ndarray, " text"]:
    """Return the largest value over the starts of a text."""
    _, place = np.unique(one["text"].values, return_inverse=True)
    largest = np.full(place.max() + 1, -np.inf)
    np.maximum.at(largest, place, one[name].values)
    return largest


# From a run's name and summary to the criteria for it.
_Asked = Callable[[str, xarray.Dataset], tuple[Criterion, ...]]


def _direction(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"1 - cos of the change over the last decade with W_svm, {run},", number(one, "increment"), _PARALLEL),
        above(f"length of that change along W_svm over ||W_svm|| log 10, {run},", number(one, "rate"), _GROWING),
        below(f"1 - cos of W at the end over 1 - cos at a tenth of the steps, {run},", number(one, "falls"), _FALLING),
    )


def _finite(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"largest error of a probability, mean over seeds, {run},", number(one, "error"), _PROBABILITY),
        below(
            f"distance from W_fin at the end over the distance at a hundredth of the steps, {run},",
            number(one, "comes"),
            _TWO_DECADES,
        ),
    )


def _global(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        below(f"1 - cos between the changes from two starts, {run},", number(one, "growth_apart"), _PARALLEL),
        below(f"distance between finite parts of two starts, end over start, {run},", number(one, "joined"), _JOINED),
    )


def _both(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (below(f"1 - cos with W_fin + C W_svm over 1 - cos with W_svm, {run},", number(one, "closer"), 1 - _CHANGE),)


def _sets(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (below(f"relative distance of the two solutions, {run},", Number.exact(float(one["sets_apart"])), _SAME),)


def _convex(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    least = Number.exact(float(one["midpoint"]))
    return (above(f"mean of the risks at two W minus the risk halfway, smallest, {run},", least, _ROUNDING),)


def _judge(summaries: Datasets, asked: _Asked, having: str, remark: Callable[[Datasets], str]) -> Judgement:
    """Every run with enough of what the claim is about must meet its criteria.

    Args:
        summaries: of `summarize`.
        asked: the criteria for a run.
        having: the attribute that counts what the claim is about.
        remark: made from the runs that have it.
    """
    chosen = {run: one for run, one in summaries.items() if int(one.attrs[having]) >= LEAST_SEEDS}
    little = next((why for one in summaries.values() if (why := too_little(one))), "")
    if not chosen:
        few = f"No run has {LEAST_SEEDS} seeds or texts of the kind that this claim is about."
        return Judgement.withheld(little or few)
    stated = tuple(criterion for run, one in chosen.items() for criterion in asked(run, one))
    first = stated[:: len(stated) // len(chosen)]
    return Judgement(
        numbers={one.quantity.rstrip(","): one.value for one in stated},
        expected={one.quantity.rstrip(","): 0.0 for one in first},
        counts=counts_of(chosen),
        stated=stated,
        undecided=little,
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
        partial(_judge, asked=_direction, having="kept", remark=remarks.on_direction),
        partial(examples.of_run, "increment"),
    ),
    Claim(
        "next-token-graph:finite-part",
        _source("global convergence theorem for log-loss"),
        "The projection of W on the cyclic subspace converges to W_fin, the minimizer of the log-loss of the inputs "
        "restricted to the component of their label.",
        partial(_judge, asked=_finite, having="with_finite", remark=remarks.on_finite),
        partial(examples.of_run, "error"),
    ),
    Claim(
        "next-token-graph:global",
        _source("global convergence theorem for log-loss"),
        "Neither part of the limit depends on the start.",
        partial(_judge, asked=_global, having="with_starts", remark=remarks.on_global),
        partial(examples.of_run, "growth_apart"),
    ),
    Claim(
        "next-token-graph:both-parts",
        _source("decomposition of W, and the figure of its correlations"),
        "W is W_fin plus a growing multiple of the Graph-SVM solution; the two together predict W better than the "
        "solution alone.",
        partial(_judge, asked=_both, having="with_finite", remark=remarks.on_both),
        partial(examples.of_run, "both"),
    ),
    Claim(
        "next-token-graph:sets",
        Source(_PAPER, "Graph-SVM, for inputs that contain every word", Setting.OURS),
        "If every word is a candidate, the Graph-SVM solution and W_fin are those of arXiv 2308.16898 for several "
        "selected tokens, the words that follow.",
        partial(_judge, asked=_sets, having="with_all_words", remark=remarks.on_sets),
        partial(examples.of_run, "sets_apart"),
        Kind.CHECK,
    ),
    Claim(
        "next-token-graph:convex",
        _source("lemma on convexity"),
        "With log-loss the risk is convex in W.",
        partial(_judge, asked=_convex, having="kept", remark=remarks.on_convex),
        partial(examples.of_run, "midpoint"),
        Kind.CHECK,
    ),
)
