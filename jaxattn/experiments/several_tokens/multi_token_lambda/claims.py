"""Several selected tokens under the head `v . x - lambda ||x||^2` (2308.16898): how many, and W, against lambda."""

from __future__ import annotations

import math
from itertools import pairwise

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens import limit
from jaxattn.experiments.several_tokens.evidence import IDENTITY, RANKED, ROUNDING, ahead, estimate, undecided
from jaxattn.experiments.several_tokens.multi_token_lambda import examples
from jaxattn.statistics import Estimate, bootstrap, derive_key, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    counts_of,
)

# The sizes of the published figure are not known to us.
_SOURCE = Source("arXiv 2308.16898", "multi-token figure over lambda", Setting.PROXY)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate both panels, and how they change from one lambda to the next.

    Args:
        datasets: of every lambda, as `measure` returns it; all with the same seeds.
        key: of the bootstrap.

    Returns:
        For each run, lambda increasing, its means with intervals: `tokens`, `best`, and `off` at the end; `order`, the
        distance of W_1token from W minus that of W_mm; `ahead`, of `evidence.ahead`; what `limit.estimates` returns;
        and `rise`, the increase in selected tokens from the previous lambda. The attributes `several` and `determined`
        count the runs that select several tokens, and those whose finite part is predicted.

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
    if one.sizes["seed"]:
        ranked = one["off"].sel(solution=list(RANKED)).values[..., -1]
        estimates["off"] = (("solution",), bootstrap(ranked, key))
        estimates["order"] = ((), bootstrap(ranked[:, 2] - ranked[:, 1], key))
        estimates |= limit.estimates(one, key)
    if one.sizes["whole"] >= LEAST_SEEDS:
        estimates["ahead"] = (("other",), bootstrap(ahead(one), derive_key(key)))
    coordinates = {"solution": np.array(RANKED, dtype=object), "snapshot": one["snapshot"].values}
    told = {"several": int(one["several"].sum()), "determined": one.sizes["whole"]}
    return xarray.Dataset(variables(estimates), coordinates, {**one.attrs, **told})


def _judge_tokens(summaries: Datasets) -> Judgement:
    """The number of selected tokens must increase from each lambda to the next."""
    there = {run: summary for run, summary in summaries.items() if "tokens" in summary}
    tokens = {run: estimate(summary, "tokens") for run, summary in there.items()}
    rises = tuple(
        above(f"tokens for {one} minus tokens for {before}", estimate(summaries[one], "rise"), ROUNDING)
        for before, one in pairwise(summaries)
    )
    reason = undecided(summaries)
    if not rises:
        reason = reason or "A trend needs two values of lambda, found one."
    return Judgement(
        numbers=tokens,
        expected={run: float(summary["best"]) for run, summary in there.items()},
        counts=counts_of(summaries),
        stated=rises or (Criterion("tokens from one lambda to the next", Number.exact(math.nan)),),
        undecided=reason,
        remark="A token counts as selected if it comes before the first gap of a factor of 1e-3 in the final "
        "attention. The expected number is how many tokens the best attention of an input mixes, which follows "
        "from head and tokens only.",
    )


def _judge_order(summaries: Datasets) -> Judgement:
    """For every lambda that mixes tokens, W_mm must not be nearer to W than W_SVMeq with the predicted W_fin."""
    ends = {
        f"{run}, {solution}": estimate(summary.sel(solution=solution), "off")
        for run, summary in summaries.items()
        for solution in (RANKED if "off" in summary else ())
    }
    mixing = {run: one for run, one in summaries.items() if one.attrs["several"]}
    of_runs = {name: sum(one.attrs[name] for one in mixing.values()) for name in ("determined", "several")}
    last = [run for run, one in mixing.items() if estimate(one, "order").low >= -ROUNDING]
    return Judgement(
        numbers=ends,
        expected={},
        counts=counts_of(summaries),
        stated=tuple(
            above(
                f"{run}: W_mm minus W_SVMeq with the predicted W_fin, {one.attrs['determined']} runs",
                estimate(one, "ahead", other=0),
                -ROUNDING,
            )
            for run, one in mixing.items()
        )
        or (Criterion("runs that select several tokens", Number.exact(math.nan)),),
        undecided=undecided(summaries),
        remark=f"The numbers are 1 - cos at the end. {IDENTITY.format(*of_runs.values())} W_mm is nearer than "
        f"W_1token for {len(last)} of the {len(mixing)} values of lambda that select several tokens.",
    )


_HEAD = "h(x) = v . x - lambda ||x||^2"
CLAIMS = (
    Claim(
        "multi-token-lambda:tokens",
        _SOURCE,
        "The larger lambda is, the more tokens descent selects.",
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
    Claim("multi-token-lambda:norm", limit.SOURCE, limit.NORM.format(_HEAD), limit.judge_norm, examples.of_norm),
    Claim(
        "multi-token-lambda:direction",
        limit.SOURCE,
        limit.DIRECTION.format(_HEAD),
        limit.judge_direction,
        examples.of_direction,
    ),
)
