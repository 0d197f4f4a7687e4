"""Verdicts on the multi-token figure, from the distances of W from W_SVMeq, W_mm and W_1token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import xarray

from jaxattn.experiments.several_tokens import limit
from jaxattn.experiments.several_tokens.evidence import (
    EXACT,
    IDENTITY,
    RANKED,
    ROUNDING,
    WITHOUT,
    estimate,
    undecided,
)
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Agreement,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Outcome,
    above,
    counts_of,
)

# All published means are compared at once (Bonferroni): the probability that chance makes at least one differ.
_CHANCE = 0.05
# Two correlations count as equal if, by the interval, they differ by at most this.
_EQUAL = 0.05
# Labels of the entries of `ahead`.
_AHEAD = tuple(f"{solution} minus W_SVMeq with the predicted W_fin" for solution in RANKED[1:])


def judge_selected(summaries: Datasets) -> Judgement:
    """W_SVMeq with the predicted W_fin must be nearest, and in every dimension W_mm nearer than W_1token."""
    selected = {run: one for run, one in summaries.items() if not run.endswith((WITHOUT, EXACT))}
    return Judgement(
        numbers=_ends(selected),
        expected={},
        counts=counts_of(selected),
        stated=(*_predicted(selected), *_order(selected)),
        undecided=undecided(selected),
        remark=f"The numbers are 1 - cos at the end. {_identity(selected)} {_rest(selected)}",
    )


def judge_every(summaries: Datasets) -> Judgement:
    """As with the selection; as corrected, W_SVMeq must be nearest, but W_mm may be farther than W_1token."""
    every = {run: one for run, one in summaries.items() if run.endswith(WITHOUT)}
    numbers = _ends(every)
    order = _order(every)
    reversed_ = [run for run, one in zip(every, order, strict=True) if one.outcome is Outcome.BROKEN]
    found = (
        f"{run.removesuffix(WITHOUT)}: {single.mean:.3g} against {whole.mean:.3g}"
        for run in reversed_
        for single, whole in [(numbers[f"{run}, W_1token"], numbers[f"{run}, W_mm"])]
    )
    reason = undecided(every)
    return Judgement(
        numbers=numbers,
        expected={},
        counts=counts_of(every),
        stated=(*_predicted(every), *order),
        corrected=(
            *_predicted(every),
            *(
                above(f"{run}: W_1token minus W_SVMeq, fitted", estimate(one, "worst"), ROUNDING)
                for run, one in every.items()
            ),
        ),
        correction=f"W_1token is nearer than W_mm in {len(reversed_)} of {len(every)} dimensions{_listed(found)}. "
        "Still, W_SVMeq is nearer than W_1token, and, where its finite part is predicted, nearer than "
        "W_mm. In the other runs the latter is not decided.",
        undecided=reason,
        remark="" if reason else f"{_identity(every)} {_of_every(every)}",
    )


def judge_numbers(summaries: Datasets) -> Judgement:
    """All means must agree with the published ones."""
    selected = {run: one for run, one in summaries.items() if not run.endswith((WITHOUT, EXACT))}
    expected = _expected(selected)
    nothing = Criterion("means of the published dimensions", Number.exact(math.nan))
    return Judgement(
        numbers=_ends(selected),
        expected=expected,
        counts=counts_of(selected),
        stated=_as_published(selected) or (nothing,),
        undecided=undecided(selected),
        remark="The numbers are 1 - cos at the end. The published means are assumed to be over as many runs as ours. "
        f"A mean differs from the published one if the difference exceeds {_bound(len(expected)):.2f} of its "
        f"standard errors, since {len(expected)} are compared at once (Bonferroni).",
    )


def judge_norm(summaries: Datasets) -> Judgement:
    """Judge the runs along the exact gradient direction: the published rule stalls by rounding."""
    return _of_exact(limit.judge_norm, summaries)


def judge_direction(summaries: Datasets) -> Judgement:
    """Judge the runs along the exact gradient direction: the published rule stalls by rounding."""
    found = _of_exact(limit.judge_direction, summaries)
    return replace(
        found, remark=f"{found.remark} For the ratios inside the sets, few of which settle, see finite-part:ReLU."
    )


def _of_exact(judge: Callable[[Datasets], Judgement], summaries: Datasets) -> Judgement:
    exact = {run: one for run, one in summaries.items() if run.endswith(EXACT)}
    return judge(exact) if exact else Judgement.withheld("There are no runs along the exact gradient direction.")


def _predicted(summaries: Datasets) -> tuple[Criterion, ...]:
    """Ask that W_SVMeq with the predicted finite part is nearest, over the runs of all dimensions that have one."""
    one = next(iter(summaries.values()))
    runs = sum(summary.attrs["determined"] for summary in summaries.values())
    return tuple(
        above(f"{what}, {runs} runs of all dimensions", estimate(one, "ahead", other=other), ROUNDING)
        for other, what in enumerate(_AHEAD)
    )


def _order(summaries: Datasets) -> tuple[Criterion, ...]:
    """Ask in every dimension that W_1token is farther from W than W_mm."""
    return tuple(
        above(f"{run}: W_1token minus W_mm", estimate(summary, "order"), ROUNDING) for run, summary in summaries.items()
    )


def _identity(summaries: Datasets) -> str:
    determined, several = (sum(one.attrs[name] for one in summaries.values()) for name in ("determined", "several"))
    few = f" These are too few: at least {LEAST_SEEDS} are needed." if determined < LEAST_SEEDS else ""
    return IDENTITY.format(determined, several) + few


def _rest(selected: Datasets) -> str:
    """Say how many of the criteria that do not involve the prediction are met."""
    met = sum(one.outcome is Outcome.MET for one in _order(selected))
    return f"W_mm is nearer than W_1token in {met} of {len(selected)} dimensions."


def _of_every(every: Datasets) -> str:
    """Describe these runs, and how far W has grown in them."""
    shares = [summary.attrs["finite"] / summary.attrs["attempted"] for summary in every.values()]
    said = (
        "These are the first 500 runs, whatever their labels and probabilities. The selected tokens are those before "
        "the first gap of a factor of 1e-3, which agrees with the published definition where that applies. "
        f"{min(shares):.0%} to {max(shares):.0%} of the runs mask no token; nothing is predicted for them. "
    )
    excluded, kept = (
        [np.median(own) for summary in every.values() if len(own := _sizes(summary, selected))]
        for selected in (False, True)
    )
    if excluded and kept:
        said += (
            f"The median final norm of W is {min(excluded):.0f} to {max(excluded):.0f} in the runs that the published "
            f"selection excludes, and {min(kept):.0f} to {max(kept):.0f} in those that it keeps: where W is small, "
            "the finite part is a larger part of it."
        )
    return said.strip()


def _sizes(summary: xarray.Dataset, selected: bool) -> np.ndarray:
    return summary["size"].values[summary["published"].values == selected]


def _ends(summaries: Datasets) -> dict[str, Number]:
    """Return the final numbers by run and description."""
    return {
        f"{run}, {solution}": estimate(summary.sel(solution=solution), "off", snapshot=-1)
        for run, summary in summaries.items()
        for solution in (PUBLISHED if "off" in summary else ())
    }


def differences(selected: Datasets) -> dict[str, Number]:
    """Return by how much final means of 1 - cos exceed the published ones, with simultaneous 95 % intervals.

    Args:
        selected: of `summarize`, the runs with the published selection.

    Returns:
        By run and description, such as "d = 4, W_mm"; published means are given the same standard errors as ours.
    """
    expected = _expected(selected)
    found = {}
    for label, published in expected.items():
        run, _, solution = label.rpartition(", ")
        end = selected[run].sel(solution=solution).isel(snapshot=-1)
        difference = float(end["off"]) - published
        half = _bound(len(expected)) * math.sqrt(2) * float(end["off_error"])
        found[label] = Number(difference, difference - half, difference + half)
    return found


def _expected(selected: Datasets) -> dict[str, float]:
    return {
        f"{run}, {solution}": by_d[int(summary.attrs["d"])]
        for run, summary in selected.items()
        for solution, by_d in PUBLISHED.items()
        if int(summary.attrs["d"]) in by_d and "off" in summary
    }


def _as_published(selected: Datasets) -> tuple[Agreement, ...]:
    """Ask for the published means, all compared at once."""
    expected = _expected(selected)
    return tuple(
        Agreement(f"{label}, minus the published {expected[label]:.4g},", value, -_EQUAL, _EQUAL)
        for label, value in differences(selected).items()
    )


def _bound(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - _CHANCE / (2 * max(comparisons, 1)))


def _listed(parts: Iterable[str]) -> str:
    text = "; ".join(parts)
    return f" ({text})" if text else ""
