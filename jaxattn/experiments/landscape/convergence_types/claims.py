"""Global, local and other convergence of descent, against d (2308.16898, figure of the convergence types)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, PRNGKeyArray

from jaxattn import tokens
from jaxattn.experiments.landscape.convergence_types import examples
from jaxattn.experiments.landscape.outcomes import by_weights, counts_by_run
from jaxattn.experiments.landscape.rising import Curve, Point, Trend, trend
from jaxattn.statistics import proportion
from jaxattn.study.claims import (
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
    too_few,
    too_short,
    total,
)

# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = Source("arXiv 2308.16898", "figure of the convergence types", Setting.PROXY)
# The types of finished runs; "local" means locally but not globally optimal.
TYPES = ("global", "local", "neither", "unsaturated")
# Fixed beforehand: the share of saturated runs that must be locally optimal in every dimension, if not all are.
_NEARLY_ALL = 0.98
_POINTS = "dimensions"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the share of every type against d.

    Args:
        datasets: of `measure`, of W and of (K, Q) in several dimensions.
        key: not used; the intervals of shares are not resampled.

    Returns:
        For "W" and "KQ" a dataset with axes `d` and `type`: the shares, the cumulative shares (`up_to`) with their
        intervals, and the share of problems whose tokens are all support vectors. For the saturated runs: the shares
        that are locally optimal by the Frobenius solution and by the run's own (NaN if none saturated) with their
        intervals, and the number that are not. Also the counts of each run; the attributes are their sums, and the
        smallest number of steps of a run.

    Raises:
        ValueError: a run of which no Att-SVM was solved, or no run of W or of (K, Q).
    """
    del key
    summaries = {}
    for weights, own in by_weights(datasets, "a solved Att-SVM").items():
        parts = [_shares(one) for one in sorted(own.values(), key=lambda one: one.attrs["d"])]
        told = total(own) | {"steps": min(one.attrs["steps"] for one in own.values())}
        summaries[weights] = xarray.concat(parts, "d", data_vars="all").assign_attrs(told)
    return summaries


def _shares(one: xarray.Dataset) -> xarray.Dataset:
    names = ("saturated", "globally", "locally", "locally_own", "all_support")
    saturated, globally, locally, locally_own, all_support = (one[name].values for name in names)
    # A global selection counts as global even if two scores are tied.
    kinds = [globally, locally & ~globally, ~(locally | globally), np.ones_like(saturated)]
    kinds = np.stack([*(saturated & kind for kind in kinds[:3]), ~saturated], axis=1)
    up_to = proportion(np.cumsum(kinds, axis=1) > 0)
    variables = {
        "share": (("type",), kinds.mean(axis=0)),
        "up_to": (("type",), up_to.mean),
        "up_to_low": (("type",), up_to.low),
        "up_to_high": (("type",), up_to.high),
        **_share("own", saturated & (globally | locally_own)),
        **_share("all_support", all_support),
        **_share("by_frobenius", locally[saturated]),
        **_share("by_own", locally_own[saturated]),
        "seeds": ((), one.sizes["seed"]),
        "saturated": ((), int(saturated.sum())),
        "not_by_frobenius": ((), int((saturated & ~locally).sum())),
        "not_by_own": ((), int((saturated & ~locally_own).sum())),
        "only_local": ((), int((saturated & all_support & locally & ~globally).sum())),
        "run": ((), one.attrs["run"]),
        **{name: ((), count) for name, count in counts_of({"": one})[""].items()},
    }
    return xarray.Dataset(variables, {"type": np.array(TYPES, dtype=object), "d": one.attrs["d"]})


def _share(name: str, hits: Bool[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Return a share with its interval; NaN if there are no seeds."""
    mean, low, high = proportion(hits)[:3] if hits.size else (np.nan,) * 3
    return {name: ((), mean), f"{name}_low": ((), low), f"{name}_high": ((), high)}


def _judge_global(summaries: Datasets) -> Judgement:
    """The shares at the smallest and the largest d must differ; no two may differ in the other direction."""
    curves = {weights: _curve(one.sel(type="global"), "up_to") for weights, one in summaries.items()}
    found = _rise(curves)
    return _judgement(
        summaries,
        _numbers(summaries, curves, "global"),
        stated=found.criteria("increase of the share of global runs from the smallest to the largest d", _POINTS),
        undecided=found.undecided,
        remark="Shares are of all runs whose Att-SVM is solved; a run that has not saturated has selected nothing. "
        + found.remark(_POINTS),
    )


def _judge_local(summaries: Datasets) -> Judgement:
    """All must be local by the Frobenius solution; as corrected, nearly all by the one the run converges to."""
    numbers: dict[str, Number] = {}
    least: dict[str, Number] = {}
    for name in ("by_frobenius", "by_own"):
        shares = []
        for weights, summary in summaries.items():
            # W's own solution is the Frobenius one.
            solution = "nuclear" if (weights, name) == ("KQ", "by_own") else "Frobenius"
            for run, share in _curve(summary.isel(d=(summary["saturated"] > 0).values), name):
                numbers[f"{run}, locally optimal by the {solution} solution"] = share
                shares.append(share)
        least[name] = Number(*map(min, zip(*shares, strict=True))) if shares else Number.exact(np.nan)
    selecting, elsewhere, elsewhere_own = (
        sum(int(one[name].sum()) for one in summaries.values())
        for name in ("saturated", "not_by_frobenius", "not_by_own")
    )
    return _judgement(
        summaries,
        numbers,
        expected=dict.fromkeys(numbers, 1.0),
        stated=(below("saturated runs not locally optimal by the Frobenius solution", Number.exact(elsewhere), 0),),
        corrected=(
            above(
                "share of saturated runs that are locally optimal by the solution they converge to, smallest over "
                "dimensions,",
                least["by_own"],
                _NEARLY_ALL,
            ),
        ),
        correction="support neighbours must be those of the solution that the run converges to, the nuclear one for "
        f"(K, Q). Even then {elsewhere_own} of {selecting} saturated runs are not local. In every "
        f"dimension at least {least['by_own'].mean:.3f} are; by the Frobenius solution, at least "
        f"{least['by_frobenius'].mean:.3f}.",
        remark=f"Support neighbours are the tokens with margins within {tokens.ACTIVE:g} of 1."
        + (
            f" After these steps, {elsewhere_own} runs select tokens that a neighbour outscores."
            if elsewhere_own
            else ""
        ),
    )


def _judge_all_support(summaries: Datasets) -> Judgement:
    """The share must rise like that of global runs; no run with all tokens as support vectors may be only local."""
    curves = {weights: _curve(one, "all_support") for weights, one in summaries.items()}
    found = _rise(curves)
    only_local = sum(int(one["only_local"].sum()) for one in summaries.values())
    return _judgement(
        summaries,
        _numbers(summaries, curves, "all support"),
        stated=(
            *found.criteria(
                "increase of the share with all tokens as support vectors, from the smallest to the largest d", _POINTS
            ),
            below("runs with all tokens as support vectors, local but not global", Number.exact(only_local), 0),
        ),
        undecided="" if only_local else found.undecided,
        remark="Support vectors are those of the Att-SVM of the tokens that each run selects. "
        f"{found.remark(_POINTS)} {only_local} runs with all tokens as support vectors are local but not "
        "global.",
    )


def _rise(curves: Mapping[str, Curve]) -> Trend:
    """Return how shares change with d, comparing every two dimensions."""
    return trend(curves.values(), up=True, pairs=lambda curve: itertools.combinations(curve, 2))


def _curve(summary: xarray.Dataset, name: str) -> list[Point]:
    points = (summary.isel(d=k) for k in range(summary.sizes["d"]))
    return [Point(str(one["run"].item()), number(one, name)) for one in points]


def _numbers(summaries: Datasets, curves: Mapping[str, Curve], label: str) -> dict[str, Number]:
    """Return the shares of all curves by their label."""
    return {
        f"{weights} d={d}, {label}": point.share
        for weights, summary in summaries.items()
        for d, point in zip(summary["d"].values, curves[weights], strict=True)
    }


def _judgement(
    summaries: Datasets,
    numbers: Mapping[str, Number],
    stated: Iterable[Criterion],
    corrected: Iterable[Criterion] = (),
    correction: str = "",
    expected: Mapping[str, float] | None = None,
    undecided: str = "",
    remark: str = "",
) -> Judgement:
    """Return the judgement; it decides nothing if a run was too short or too few of its seeds saturated."""
    steps = min(int(one.attrs["steps"]) for one in summaries.values())
    # Counted from the measurements: where no run has selected tokens, none has selected wrong ones.
    saturated = min(int(one["saturated"].min()) for one in summaries.values())
    return Judgement(
        numbers=numbers,
        expected=expected or {},
        counts=counts_by_run(summaries),
        stated=tuple(stated),
        corrected=tuple(corrected),
        correction=correction,
        undecided=too_short(steps) or too_few(saturated) or undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "convergence-types:global",
        _SOURCE,
        "The larger d, the more runs converge to the globally optimal tokens.",
        _judge_global,
        examples.of_global,
    ),
    Claim(
        "convergence-types:local",
        _SOURCE,
        "A run that selects tokens selects locally optimal ones, if not the globally optimal ones.",
        _judge_local,
        examples.of_local,
    ),
    Claim(
        "convergence-types:all-support",
        _SOURCE,
        "The larger d, the more often every token that is not selected is a support vector, in which case only the "
        "optimal tokens are locally optimal.",
        _judge_all_support,
        examples.of_all_support,
        Kind.CHECK,
    ),
)
