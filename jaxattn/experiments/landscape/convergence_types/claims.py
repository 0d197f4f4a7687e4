"""Global, local and other convergence of descent, against d (2308.16898, figure of the convergence types)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxattn import svm, tokens
from jaxattn.attention import Factored, Weights
from jaxattn.experiments.landscape.global_probability.claims import described, read
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import Claim, Verdict, counts_of, too_few, too_short, total
from jaxattn.study.settings.training import finite_seeds
from jaxattn.study.statistics import proportion

_SOURCE = "arXiv 2308.16898, figure of the convergence types"
# What a finished run is counted as: one of these, of which "local" are those that are not global.
TYPES = ("global", "local", "neither", "unsaturated")


# Share of saturated runs that are to be locally optimal in every dimension, if not all are.
_NEARLY_ALL = 0.98


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Classify the tokens that every seed has selected, by the certified Frobenius solution that selects them.

    Args:
        record: of a `Training`.
        solver: of the Att-SVMs; this package's own if None.

    Returns:
        A dataset with axis `seed` of the seeds that stayed finite and whose Att-SVM is solved: the fields of
        `tokens.Outcome`, and `nearest`, the smallest margin that is not active. Of (K, Q), whose own solution is the
        nuclear one, `locally_own` is as `locally` with the support neighbours of that. Kept are those that saturated;
        the others count as `ambiguous`, `diverged`, `infeasible` or `unsolved`.
    """
    final, problems = read(record)
    finite = finite_seeds(final)
    constraints = batch.over_seeds(_posed, final, problems, finite)
    norms = (svm.frobenius, svm.nuclear) if isinstance(final, Factored) else (svm.frobenius,)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    classified = [batch.over_seeds(_classified, final, problems, constraints, one.W) for one in solutions]
    (outcome, nearest), own = classified[0], classified[-1][0].locally
    infeasible = finite & np.any([one.status == svm.Status.INFEASIBLE for one in solutions], axis=0)
    solved = finite & np.all([one.status == svm.Status.OPTIMAL for one in solutions], axis=0)
    counts = {
        "attempted": finite.size,
        "kept": int((solved & outcome.saturated).sum()),
        "diverged": int((~finite).sum()),
        "ambiguous": int((solved & ~outcome.saturated).sum()),
        "infeasible": int(infeasible.sum()),
        "unsolved": int((finite & ~infeasible & ~solved).sum()),
    }
    variables = {**outcome._asdict(), "locally_own": own, "nearest": nearest}
    return xarray.Dataset(
        {name: (("seed",), values[solved]) for name, values in variables.items()},
        {"seed": record["seed"].values[solved]},
        attrs={**counts, **described(record)},
    )


def _posed(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> svm.Constraints:
    """Return the constraints that select a seed's tokens; token 0 if it diverged and selects nothing."""
    return svm.token_constraints(problem, jnp.where(finite, tokens.selected(weights, problem), 0))


def _classified(
    weights: Weights, problem: Problem, constraints: svm.Constraints, W_svm: Float[Array, "d d"]
) -> tuple[tokens.Outcome, Float[Array, ""]]:
    margins = svm.margins(constraints, W_svm)
    inactive = jnp.where(margins > 1 + tokens.ACTIVE, margins, jnp.inf)
    return tokens.outcome(weights, problem, margins), jnp.min(inactive)


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate the share of every type against d, and judge the claims.

    Args:
        datasets: of `measure`, of W and of (K, Q) in several dimensions.
        key: not used; the intervals of shares are not resampled.

    Returns:
        For "W" and "KQ" a dataset with axes `d` and `type`: the shares, those up to and with each type (`up_to`) with
        their intervals, and the share of problems whose tokens are all support vectors; the claims.

    Raises:
        ValueError: a run of which no Att-SVM was solved.
    """
    del key
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"convergence-types: expected a solved Att-SVM in each run, found none in {empty}")
    summaries = {}
    for weights in ("W", "KQ"):
        own = {run: one for run, one in datasets.items() if one.attrs["weights"] == weights}
        parts = [_shares(one) for one in sorted(own.values(), key=lambda one: one.attrs["d"])]
        summaries[weights] = xarray.concat(parts, "d", data_vars="all").assign_attrs(total(own))
    undecided = too_short(min(one.attrs["steps"] for one in datasets.values()))
    undecided = undecided or too_few(min(int(one.attrs["kept"]) for one in datasets.values()))
    counts = counts_of(datasets)
    claims = [_rises(summaries, counts), _local(datasets, counts), _support(datasets, summaries, counts)]
    if undecided:
        claims = [replace(claim, verdict=Verdict.OPEN, note=undecided) for claim in claims]
    return summaries, claims


def _shares(one: xarray.Dataset) -> xarray.Dataset:
    saturated, globally, locally = (one[name].values for name in ("saturated", "globally", "locally"))
    # A global selection is counted as such even where two scores tie.
    kinds = [globally, locally & ~globally, ~(locally | globally), np.ones_like(saturated)]
    kinds = np.stack([*(saturated & kind for kind in kinds[:3]), ~saturated], axis=1)
    up_to, support = proportion(np.cumsum(kinds, axis=1) > 0), proportion(one["all_support"].values)
    own = proportion(saturated & (globally | one["locally_own"].values))
    variables = {
        "share": (("type",), kinds.mean(axis=0)),
        "up_to": (("type",), up_to.mean),
        "up_to_low": (("type",), up_to.low),
        "up_to_high": (("type",), up_to.high),
        "own": ((), own.mean),
        "own_low": ((), own.low),
        "own_high": ((), own.high),
        "all_support": ((), support.mean),
        "all_support_low": ((), support.low),
        "all_support_high": ((), support.high),
        "seeds": ((), one.sizes["seed"]),
    }
    return xarray.Dataset(variables, {"type": np.array(TYPES, dtype=object), "d": one.attrs["d"]})


Numbers = tuple[dict[str, float], dict[str, tuple[float, float]]]


def _named(summaries: Mapping[str, xarray.Dataset], name: str, label: str) -> Numbers:
    """Return an estimate of every run and its interval, under its label."""
    measured, interval = {}, {}
    for weights, summary in summaries.items():
        for d in summary["d"].values:
            here = summary.sel(d=d)
            measured[f"{weights} d={d}, {label}"] = float(here[name])
            interval[f"{weights} d={d}, {label}"] = (float(here[f"{name}_low"]), float(here[f"{name}_high"]))
    return measured, interval


def _rise(summary: xarray.Dataset, name: str) -> bool:
    """Whether a share rises with d: last interval above the first, none above that of a larger dimension."""
    low, high = summary[f"{name}_low"].values, summary[f"{name}_high"].values
    return bool(low[-1] > high[0] and all(low[a] <= high[b] for a, b in itertools.combinations(range(low.size), 2)))


def _rises(summaries: Mapping[str, xarray.Dataset], counts: Mapping[str, Mapping[str, int]]) -> Claim:
    shares = {weights: one.sel(type="global") for weights, one in summaries.items()}
    measured, interval = _named(shares, "up_to", "global")
    rises = all(_rise(share, "up_to") for share in shares.values())
    return Claim(
        id="convergence-types:global",
        source=_SOURCE,
        statement="The larger d, the more runs converge to the globally optimal tokens.",
        expected={},
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.HOLDS if rises else Verdict.FAILS,
        note="Shares of all runs whose Att-SVM is solved; a run that has not saturated has selected nothing. Holds if "
        "for W and for (K, Q) the 95 % interval in the largest dimension lies above that in the smallest, and no "
        "interval above that of a larger dimension.",
    )


def _local(datasets: Mapping[str, xarray.Dataset], counts: Mapping[str, Mapping[str, int]]) -> Claim:
    measured, interval = {}, {}
    least = {"locally": 1.0, "locally_own": 1.0}
    for run, one in datasets.items():
        # W's own solution is the Frobenius one.
        names = {"locally": "Frobenius", "locally_own": "nuclear" if one.attrs["weights"] == "KQ" else "Frobenius"}
        for by, solution in names.items():
            selected = one[by].values[one["saturated"].values]
            least[by] = min(least[by], float(selected.mean()) if selected.size else 0.0)
            if selected.size:
                label, estimate = f"{run}, locally optimal by the {solution} solution", proportion(selected)
                measured[label], interval[label] = float(estimate.mean), (float(estimate.low), float(estimate.high))
    holds, corrected = least["locally"] == 1, least["locally_own"] > _NEARLY_ALL
    return Claim(
        id="convergence-types:local",
        source=_SOURCE,
        statement="A run that selects tokens selects locally optimal ones, if not the globally optimal ones.",
        expected=dict.fromkeys(measured, 1.0),
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.HOLDS if holds else Verdict.CORRECTED if corrected else Verdict.FAILS,
        note="Shares of saturated runs; support neighbours are read from margins within "
        f"{tokens.ACTIVE:g} of 1. Holds if all are local by the Frobenius solution (least share "
        f"{least['locally']:.3f}); with a correction if in every dimension more than {_NEARLY_ALL} are by the solution "
        f"that the run tends to, the nuclear one for (K, Q) (least share {least['locally_own']:.3f}). The others "
        "stand, after these steps, at tokens that a neighbour outscores.",
    )


def _support(
    datasets: Mapping[str, xarray.Dataset],
    summaries: Mapping[str, xarray.Dataset],
    counts: Mapping[str, Mapping[str, int]],
) -> Claim:
    measured, interval = _named(summaries, "all_support", "all support")
    broken = sum(
        int((one["saturated"] & one["all_support"] & one["locally"] & ~one["globally"]).sum())
        for one in datasets.values()
    )
    rises = all(_rise(summary, "all_support") for summary in summaries.values())
    return Claim(
        id="convergence-types:all-support",
        source=_SOURCE,
        statement="The larger d, the more often every token that is not selected is a support vector, where only the "
        "optimal tokens are locally optimal.",
        expected={},
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.HOLDS if rises and not broken else Verdict.FAILS,
        note="Of the Att-SVM of the tokens that each run selects. Holds if the share rises with d as that of "
        "convergence-types:global does, and no run with all tokens as support vectors is local without being global "
        f"({broken} are).",
    )
