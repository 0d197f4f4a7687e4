"""Several selected tokens under a ReLU head (2308.16898): W against W_SVMeq, W_mm and W_1token, selected and all."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens import limit
from jaxattn.experiments.several_tokens.evidence import (
    EXACT,
    PARTS,
    RANKED,
    WITHOUT,
    ahead,
    counts_of_part,
)
from jaxattn.experiments.several_tokens.multi_token_mlp import examples, judging
from jaxattn.statistics import bootstrap, derive_key, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Datasets,
    Setting,
    Source,
)

_PAPER, _FIGURE = "arXiv 2308.16898", "multi-token figure (ReLU head)"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the curves of both parts.

    Args:
        datasets: of every dimension, as `measure` returns it.
        key: of the bootstrap.

    Returns:
        For each published run two datasets, for the published selection under the run's name and for every run under
        its name with the suffix `, no selection`: at the snapshots `off`; at the end `order`, the distance of W_1token
        from W minus that of W_mm, and `worst`, the same minus that of W_SVMeq; `ahead`, of `evidence.ahead`, pooled
        over dimensions; what `limit.estimates` returns; and the points of the scatter. The attributes `several` and
        `determined` count the runs that select several tokens, and those whose finite part is predicted. For each run
        along the exact gradient direction one dataset, without a selection, with what `limit.estimates` returns.

    Raises:
        ValueError: no run as published.
    """
    exact = {run: one for run, one in datasets.items() if run.endswith(EXACT)}
    datasets = {run: one for run, one in datasets.items() if run not in exact}
    if not datasets:
        raise ValueError("multi-token-mlp: expected at least one run by the published rule, found none")
    summaries: dict[str, xarray.Dataset] = {}
    for (run, one), own in zip(datasets.items(), jax.random.split(key, len(datasets)), strict=True):
        summaries[run] = _summary(one, "published", own)
        summaries[run + WITHOUT] = _summary(one, "every", own)
    # A single dimension has few runs with a predicted finite part.
    for part, suffix, own in zip(PARTS, ("", WITHOUT), jax.random.split(derive_key(key)), strict=True):
        together = np.concatenate([ahead(_part(one, part)) for one in datasets.values()])
        if len(together) >= LEAST_SEEDS:
            found = variables({"ahead": (("other",), bootstrap(together, own))})
            summaries |= {run + suffix: summaries[run + suffix].assign(found) for run in datasets}
    for place, (run, one) in enumerate(exact.items()):
        summaries[run] = _summary(one, "every", derive_key(key, place + 1))
    return summaries


def _part(measured: xarray.Dataset, part: str) -> xarray.Dataset:
    """Return the runs of one part, and those among them whose finite part is predicted."""
    one = measured.isel(seed=measured[part].values)
    return one.isel(whole=np.isin(one["whole_seed"].values, one["seed"].values))


def _summary(measured: xarray.Dataset, part: str, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the means of one part; there are none if no run is kept."""
    one = _part(measured, part)
    last = one["off"].values[..., -1]
    arrays = {
        "masked": one["masked"].variable,
        "last": (("seed", "solution"), last),
        "size": (("seed",), one["size"].values[:, -1]),
        "published": one["published"].variable,
    }
    if one.sizes["seed"]:
        # Final differences of W_1token to the two others; paired by seed.
        SVMeq, mm, single = (one["off"].sel(solution=solution).values[:, -1] for solution in RANKED)
        estimates = {
            "off": (("solution", "snapshot"), bootstrap(one["off"].values, key)),
            "order": ((), bootstrap(single - mm, key)),
            "worst": ((), bootstrap(single - SVMeq, derive_key(key))),
        }
        arrays |= variables({**estimates, **limit.estimates(one, key)})
    coordinates = {name: one[name].values for name in ("seed", "solution", "snapshot")}
    told = {"d": measured.attrs["d"], "several": int(one["several"].sum()), "determined": one.sizes["whole"]}
    return xarray.Dataset(arrays, coordinates, {**counts_of_part(measured, part), **told})


_ORDER = (
    "W is best aligned with W_SVMeq = W_fin + C W_mm, then with W_mm, and least with W_1token, the SVM solution of "
    "the single most likely tokens."
)
CLAIMS = (
    Claim(
        "multi-token-mlp:selected",
        Source(_PAPER, _FIGURE, Setting.EXACT),
        f"Where descent selects several tokens, {_ORDER}",
        judging.judge_selected,
        examples.of_selected,
    ),
    Claim(
        "multi-token-mlp:numbers",
        Source(_PAPER, _FIGURE, Setting.EXACT),
        "1 - correlation with W_SVMeq, W_mm and W_1token ends at the means in the figure, from .034, .0705 and .155 "
        "at d = 4 to .0056, .0087 and .12 at d = 10.",
        judging.judge_numbers,
        examples.of_numbers,
    ),
    Claim(
        "multi-token-mlp:every",
        Source(_PAPER, f"{_FIGURE}, without its selection of instances", Setting.OURS),
        f"Also without a selection of instances, {_ORDER}",
        judging.judge_every,
        examples.of_every,
    ),
    Claim("multi-token-mlp:norm", limit.SOURCE, limit.NORM.format("of ReLUs"), judging.judge_norm, examples.of_norm),
    Claim(
        "multi-token-mlp:direction",
        limit.SOURCE,
        limit.DIRECTION.format("of ReLUs"),
        judging.judge_direction,
        examples.of_direction,
    ),
)
