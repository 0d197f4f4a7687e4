"""Several selected tokens under the head `v . x - lambda ||x||^2` (2308.16898): how many, and W, against lambda."""

from __future__ import annotations

import math
from itertools import pairwise

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens.evidence import ROUNDING, estimate, undecided
from jaxattn.experiments.several_tokens.multi_token_lambda import examples
from jaxattn.study.claims import Claim, Criterion, Datasets, Judgement, Number, Setting, Source, above, counts_of
from jaxattn.study.statistics import Estimate, beside, bootstrap, variables

# We do not know the sizes of the published figure.
_SOURCE = Source("arXiv 2308.16898", "multi-token figure over lambda", Setting.PROXY)
# From the best description to the worst, as the paper has it.
RANKED = ("W_SVMeq", "W_mm", "W_1token")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate both panels, and how they change from one lambda to the next.

    Args:
        datasets: of every lambda, as `measure` returns it; all of the same seeds.
        key: of the bootstrap.

    Returns:
        For each run, lambda increasing, its means with intervals: `tokens`, `best`, and `off` at the end; `worse`, how
        much farther from W each of RANKED is than the one before at the end, and `worse_half` at half the steps;
        `rise`, how many tokens more are selected than under the lambda before.

    Raises:
        ValueError: no run, or runs of different numbers of attempts.
    """
    if not datasets:
        raise ValueError("multi-token-lambda: expected at least one run, found none")
    ordered = dict(sorted(datasets.items(), key=lambda item: item[1].attrs["penalty"]))
    attempts = {run: one.sizes["attempt"] for run, one in ordered.items()}
    if len(set(attempts.values())) > 1:
        raise ValueError(f"multi-token-lambda: expected the same seeds under every lambda, found {attempts} attempts")
    first, *others = jax.random.split(key, len(ordered) + 1)
    summaries = {run: _summary(one, own) for (run, one), own in zip(ordered.items(), others, strict=True)}
    # The same seeds have the same problems and initial weights under every lambda.
    here = ~np.any([one["diverged"].values for one in ordered.values()], axis=0)
    if len(ordered) > 1 and here.any():
        tokens = np.stack([one["tokens"].values for one in ordered.values()], axis=1)[here]
        rises = bootstrap(np.diff(tokens, axis=1), first)
        for place, run in enumerate(list(ordered)[1:]):
            rise = Estimate(*(part[place] for part in rises))
            summaries[run] = summaries[run].assign(variables({"rise": ((), rise)}))
    return summaries


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {}
    here = ~one["diverged"].values
    for name in ("tokens", "best") if here.any() else ():
        estimates[name] = ((), bootstrap(one[name].values[here], key))
    steps = one["snapshot"].values
    half = _half(one)
    if one.sizes["seed"]:
        ranked = one["off"].sel(solution=list(RANKED)).values
        estimates["off"] = (("solution",), bootstrap(ranked[..., -1], key))
        estimates["worse"] = (("pair",), bootstrap(np.diff(ranked[..., -1], axis=1), key))
        before = np.diff(ranked[..., half], axis=1)
        estimates["worse_half"] = (("pair",), bootstrap(before, beside(key)))
    coordinates = {"solution": np.array(RANKED, dtype=object), "snapshot": steps}
    return xarray.Dataset(variables(estimates), coordinates, one.attrs)


def _half(one: xarray.Dataset) -> int:
    """Return the place of the last snapshot in the first half of the run."""
    return (one.sizes["snapshot"] - 1) // 2


def _judge_tokens(summaries: Datasets) -> Judgement:
    """From each lambda to the next the number of selected tokens has to rise."""
    there = {run: summary for run, summary in summaries.items() if "tokens" in summary}
    tokens = {run: estimate(summary, "tokens") for run, summary in there.items()}
    rises = tuple(
        above(f"tokens under {one} less those under {before}", estimate(summaries[one], "rise"), ROUNDING)
        for before, one in pairwise(summaries)
    )
    reason = undecided(summaries)
    if not rises:
        reason = reason or "A trend needs two lambdas, found one."
    return Judgement(
        measured={run: one.mean for run, one in tokens.items()},
        interval={run: (one.low, one.high) for run, one in tokens.items()},
        expected={run: float(summary["best"]) for run, summary in there.items()},
        counts=counts_of(summaries),
        stated=rises or (Criterion("tokens from one lambda to the next", Number.exact(math.nan)),),
        undecided=reason,
        remark="Selected are the tokens before the first gap of a factor of 1e-3 in the attention at the end. Expected "
        "is how many tokens the best attention of an input mixes, which follows from head and tokens alone.",
    )


def _judge_order(summaries: Datasets) -> Judgement:
    """Under every lambda W_mm must not be nearer to W than W_SVMeq, at the end and at half the steps.

    W_SVMeq is fitted to W at the end: it is the projection of W on W_fin and W_mm, and so never farther than W_mm. Half
    way it is not: there it is nearer if the ratios inside the sets are already those of the end, as a finite part has
    to have them.
    """
    reason = undecided(summaries)
    if not reason and any(_half(one) == one.sizes["snapshot"] - 1 for one in summaries.values()):
        reason = "No weights were kept before the last step, and at the last one W_SVMeq is fitted to W."
    ends = {
        f"{run}, {solution}": estimate(summary.sel(solution=solution), "off")
        for run, summary in summaries.items()
        for solution in (RANKED if "off" in summary else ())
    }
    criteria = []
    for run, one in summaries.items():
        for name, step in (("worse", int(one["snapshot"][-1])), ("worse_half", int(one["snapshot"][_half(one)]))):
            difference = f"{run}: W_mm less W_SVMeq at step {step}"
            criteria.append(above(difference, estimate(one, name, pair=0), -ROUNDING))
    last = all(estimate(one, "worse", pair=1).low >= -ROUNDING for one in summaries.values())
    return Judgement(
        measured={label: one.mean for label, one in ends.items()},
        interval={label: (one.low, one.high) for label, one in ends.items()},
        expected={},
        counts=counts_of(summaries),
        stated=tuple(criteria),
        undecided=reason,
        remark="1 - correlation at the end. There W_SVMeq is the projection of W on W_fin and W_mm, which is never "
        "farther than W_mm; the same solutions are therefore also compared with W at half the steps, to which they are "
        "not fitted. At the end W_mm is "
        + ("as good as W_1token, or better, under every lambda." if last else "not always better than W_1token."),
    )


CLAIMS = (
    Claim(
        "multi-token-lambda:tokens",
        _SOURCE,
        "The larger lambda is, the more tokens does descent select.",
        _judge_tokens,
        examples.of_tokens,
    ),
    Claim(
        "multi-token-lambda:order",
        _SOURCE,
        "W_SVMeq describes the direction of descent at least as well as W_mm.",
        _judge_order,
        examples.of_order,
    ),
)
