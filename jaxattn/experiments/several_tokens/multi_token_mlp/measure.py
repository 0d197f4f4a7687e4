"""The distance of each kept run from its descriptions, snapshot by snapshot, and means over the runs."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.several_tokens import limit, screening
from jaxattn.experiments.several_tokens.descriptions import described
from jaxattn.experiments.several_tokens.limit import PARTS, RANKED, ahead, counts_of_part
from jaxattn.statistics import bootstrap, derive_key, variables
from jaxattn.study.claims import EXCLUDED, LEAST_SEEDS, Datasets


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Describe the first 500 runs that the published selection keeps, and those of the first 500 that can be described.

    The record is of a `Screening`.

    Returns:
        What `descriptions.described` returns for both; `published` and `every` say to which of the two a run belongs.
        The counts of the latter have the prefix `every_`.
    """
    runs = screening.runs_of(record)
    published, every = screening.attempts(runs, labels=screening.labels_of_one_kind(runs))
    seeds = np.union1d(np.flatnonzero(published < 0), np.flatnonzero(every < 0))
    kept, failed = described(runs, seeds, None, solver)
    for name, reason in zip(PARTS, (published, every), strict=True):
        here = seeds[seeds < len(reason)]
        reason[here] = np.where(reason[here] < 0, failed[: len(here)], reason[here])
        kept[name] = (("seed",), screening.kept_of(kept["seed"].values, reason))
    of_every = {f"every_{name}": count for name, count in screening.counts(every).items()}
    return kept.assign_attrs({**screening.counts(published, EXCLUDED), **of_every})


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the curves of both parts.

    Returns:
        For each run by the published rule two datasets, for the published selection under the run's name and for every
        seed with the suffix `, no selection`; for each run along the exact gradient direction the second alone, under
        its name: at the snapshots `off`; at the end `order`, the distance of W_1token from W minus that of W_mm;
        `ahead`, of `limit.ahead`, pooled over dimensions; what `limit.estimates` returns; and for every seed its
        final `size` and whether it is `published`. The attributes `several` and `determined` count the seeds that
        select several tokens, and those whose finite part is predicted.
    """
    published = {name: run for name, run in runs.items() if "optimizer" not in run.attrs}
    summaries: dict[str, xarray.Dataset] = {}
    for k, (name, run) in enumerate(published.items()):
        for part, suffix in PARTS.items():
            summaries[f"{name}{suffix}"] = _summary(run, part, jax.random.fold_in(key, k))
    # A single dimension has few runs with a predicted finite part.
    for k, (part, suffix) in enumerate(PARTS.items()):
        together = np.concatenate([ahead(_part(run, part)) for run in published.values()])
        if len(together) >= LEAST_SEEDS:
            estimate = bootstrap(together, jax.random.fold_in(derive_key(key), k))
            for name in published:
                summary = summaries[f"{name}{suffix}"]
                summaries[f"{name}{suffix}"] = summary.assign(variables({"ahead": (("other",), estimate)}))
    exact = {name: run for name, run in runs.items() if name not in published}
    for k, (name, run) in enumerate(exact.items()):
        summaries[name] = _summary(run, "every", derive_key(key, k + 1))
    return summaries


def _part(run: xarray.Dataset, part: str) -> xarray.Dataset:
    """Return the seeds of one part, and those among them whose finite part is predicted."""
    own = run.isel(seed=run[part].values)
    return own.isel(whole=np.isin(own["whole_seed"].values, own["seed"].values))


def _summary(run: xarray.Dataset, part: str, key: PRNGKeyArray) -> xarray.Dataset:
    own = _part(run, part)
    # Paired by seed.
    mm, single = (own["off"].sel(solution=solution).values[:, -1] for solution in RANKED[1:])
    estimates = {
        "off": (("solution", "snapshot"), bootstrap(own["off"].values, key)),
        "order": ((), bootstrap(single - mm, key)),
        **limit.estimates(own, key),
    }
    counts = {"several": int(own["several"].sum()), "determined": own.sizes["whole"], **counts_of_part(run, part)}
    return xarray.Dataset(
        variables(estimates) | {"size": own["size"].isel(snapshot=-1, drop=True), "published": own["published"]},
        {name: own[name].values for name in ("seed", "solution", "snapshot")},
        {name: run.attrs[name] for name in ("data.d", "steps")} | counts,
    )
