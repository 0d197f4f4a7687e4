"""Global, local and other convergence of descent, against d (2308.16898, figure of the convergence types)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, PRNGKeyArray

from jaxattn import tokens
from jaxattn.experiments.landscape.outcomes import by_weights
from jaxattn.experiments.landscape.rising import Curve, Point, Trend, trend
from jaxattn.statistics import proportion
from jaxattn.study.claims import LEAST_STEPS, Datasets, Judgement, Kind, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import number

# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = Source("arXiv 2308.16898", "figure of the convergence types", Setting.PROXY)
_NEEDS = Needs(steps=LEAST_STEPS)
# The types of finished runs; "local" means locally but not globally optimal.
_TYPES = ("global", "local", "neither", "unsaturated")
# Fixed beforehand: the share of saturated runs that must be locally optimal in every dimension, if not all are.
_NEARLY_ALL = 0.98
_POINTS = "dimensions"


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the share of every type, cumulated in `up_to`, and that of problems with only support vectors.

    For the saturated runs also the shares that are locally optimal by the Frobenius solution and by the run's own (NaN
    if none saturated), and the number that are not. The key is not used: intervals of shares are not resampled.
    """
    del key
    names = ("saturated", "globally", "locally", "locally_own", "all_support")
    saturated, globally, locally, locally_own, all_support = (run[name].values for name in names)
    # A global selection counts as global even if two scores are tied.
    kinds = [globally, locally & ~globally, ~(locally | globally), np.ones_like(saturated)]
    kinds = np.stack([*(saturated & kind for kind in kinds[:3]), ~saturated], axis=1)
    up_to = proportion(np.cumsum(kinds, axis=1) > 0)
    arrays = {
        "up_to": (("type",), up_to.mean),
        "up_to_low": (("type",), up_to.low),
        "up_to_high": (("type",), up_to.high),
        **_share("all_support", all_support),
        **_share("by_frobenius", locally[saturated]),
        **_share("by_own", locally_own[saturated]),
        "seeds": ((), run.sizes["seed"]),
        "saturated": ((), int(saturated.sum())),
        "not_by_frobenius": ((), int((saturated & ~locally).sum())),
        "not_by_own": ((), int((saturated & ~locally_own).sum())),
        "only_local": ((), int((saturated & all_support & locally & ~globally).sum())),
    }
    return xarray.Dataset(arrays, {"type": np.array(_TYPES, dtype=object)}, run.attrs)


def _share(name: str, hits: Bool[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Return a share with its interval; NaN if there are no seeds."""
    mean, low, high = proportion(hits)[:3] if hits.size else (np.nan,) * 3
    return {name: ((), mean), f"{name}_low": ((), low), f"{name}_high": ((), high)}


@claim(
    "convergence-types:global",
    _SOURCE,
    "The larger d, the more runs converge to the globally optimal tokens.",
    needs=_NEEDS,
)
def _global(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    curves = {weights: _curve(summary.sel(type="global"), "up_to") for weights, summary in summaries.items()}
    rise = _rise(curves)
    return Judgement(
        rise.criteria("increase of the share of global runs from the smallest to the largest d", _POINTS),
        remark="Shares are of all runs whose Att-SVM is solved; a run that has not saturated has selected nothing. "
        + rise.remark(_POINTS),
        numbers=_numbers(summaries, curves, "global"),
        undecided=rise.undecided,
    )


@claim(
    "convergence-types:local",
    _SOURCE,
    "A run that selects tokens selects locally optimal ones, if not the globally optimal ones.",
    needs=_NEEDS,
)
def _local(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    numbers: dict[str, Number] = {}
    least: dict[str, Number] = {}
    for name in ("by_frobenius", "by_own"):
        shares = []
        for weights, summary in summaries.items():
            # W's own solution is the Frobenius one.
            solution = "nuclear" if (weights, name) == ("KQ", "by_own") else "Frobenius"
            for run, share in _curve(summary.isel(run=(summary["saturated"] > 0).values), name):
                numbers[f"{run}, locally optimal by the {solution} solution"] = share
                shares.append(share)
        least[name] = Number(*map(min, zip(*shares, strict=True))) if shares else Number.exact(np.nan)
    selecting, elsewhere, elsewhere_own = (
        sum(int(summary[name].sum()) for summary in summaries.values())
        for name in ("saturated", "not_by_frobenius", "not_by_own")
    )
    return Judgement(
        [below("saturated runs not locally optimal by the Frobenius solution", Number.exact(elsewhere), 0)],
        [
            above(
                "share of saturated runs that are locally optimal by the solution they converge to, smallest over "
                "dimensions,",
                least["by_own"],
                _NEARLY_ALL,
            )
        ],
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
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
    )


@claim(
    "convergence-types:all-support",
    _SOURCE,
    "The larger d, the more often every token that is not selected is a support vector, in which case only the "
    "optimal tokens are locally optimal.",
    needs=_NEEDS,
    kind=Kind.CHECK,
)
def _all_support(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    curves = {weights: _curve(summary, "all_support") for weights, summary in summaries.items()}
    rise = _rise(curves)
    only_local = sum(int(summary["only_local"].sum()) for summary in summaries.values())
    increase = "increase of the share with all tokens as support vectors, from the smallest to the largest d"
    return Judgement(
        (
            *rise.criteria(increase, _POINTS),
            below("runs with all tokens as support vectors, local but not global", Number.exact(only_local), 0),
        ),
        remark="Support vectors are those of the Att-SVM of the tokens that each run selects. "
        f"{rise.remark(_POINTS)} {only_local} runs with all tokens as support vectors are local but not "
        "global.",
        numbers=_numbers(summaries, curves, "all support"),
        undecided="" if only_local else rise.undecided,
    )


def _rise(curves: Mapping[str, Curve]) -> Trend:
    """Return how shares change with d, comparing every two dimensions."""
    return trend(curves.values(), up=True, pairs=lambda curve: itertools.combinations(curve, 2))


def _curve(summary: xarray.Dataset, name: str) -> list[Point]:
    return [Point(str(run), number(summary.sel(run=run), name)) for run in summary["run"].values]


def _numbers(summaries: Datasets, curves: Mapping[str, Curve], label: str) -> dict[str, Number]:
    """Return the shares of all curves by their label."""
    return {
        f"{weights} d={d}, {label}": point.share
        for weights, summary in summaries.items()
        for d, point in zip(summary["d"].values, curves[weights], strict=True)
    }


CLAIMS = (_global, _local, _all_support)
