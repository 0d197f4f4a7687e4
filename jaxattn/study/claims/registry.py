"""All experiments and claims, found in the folders of `jaxattn.experiments`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims.claim import Claim, Datasets, Judgement
from jaxattn.study.claims.counts import counts_of

EXPERIMENTS = "jaxattn.experiments"
Judgements = Mapping[str, Judgement]


@dataclass(frozen=True)
class Experiment:
    """An experiment as data passes through it: measure, estimate, claims, then a figure or a table.

    Attributes:
        measure: `measure(record, solver=None)`, from the record of one run to a dataset with the attributes
            `attempted`, `kept` and the reasons of `EXCLUDED`. Record and dataset also have the attributes `run` (its
            name in the YAML), `steps`, and the settings of the run in the YAML by their keys, such as `data.n`.
        claims: the claims that it decides.
        estimate: `estimate(run, key)`, from a measured run to estimates with intervals. Default: what is measured.
        summarize: `summarize(runs, key)`, in place of `estimate`, where estimates need several runs at once.
        draw: `draw(summaries, judgements)`, a figure of the estimates and of the judgements by the id of the claim.
        second: `second(summaries, judgements)`, a second figure, for what does not fit into four panels.
        table: `table(summaries, judgements)`, a `jaxattn.study.style.table.Table` in place of a figure.
        view: `view(runs)`, from what was measured to what an interactive picture shows, as JSON values.
        empty_runs: whether runs that kept no seed are estimated, too; otherwise they are refused.
    """

    measure: Callable[..., xarray.Dataset]
    claims: tuple[Claim, ...]
    estimate: Callable[[xarray.Dataset, PRNGKeyArray], xarray.Dataset] | None = None
    summarize: Callable[[Datasets, PRNGKeyArray], Datasets] | None = None
    draw: Callable[[Datasets, Judgements], Any] | None = None
    second: Callable[[Datasets, Judgements], Any] | None = None
    table: Callable[[Datasets, Judgements], Any] | None = None
    view: Callable[[Datasets], dict[str, Any]] | None = None
    empty_runs: bool = False

    def __post_init__(self) -> None:
        if (self.draw is None) == (self.table is None):
            raise ValueError("experiment: expected a figure or a table, found neither or both")
        if self.second is not None and self.draw is None:
            raise ValueError("experiment: expected a figure before a second one, found none")
        if self.estimate is not None and self.summarize is not None:
            raise ValueError("experiment: expected estimate or summarize, found both")

    def of(self, name: str) -> tuple[Claim, ...]:
        """Return the claims of one of the configurations that share this experiment, by its id."""
        return tuple(claim for claim in self.claims if claim.experiment == name)

    def estimates(self, runs: Datasets, key: PRNGKeyArray) -> Datasets:
        """Return the estimates of all runs. Run number k has the key `fold_in(key, k)`, which is `split(key)[k]`."""
        if self.summarize is not None:
            return self.summarize(runs, key)
        if self.estimate is None:
            return runs
        return {name: self.estimate(run, jax.random.fold_in(key, k)) for k, (name, run) in enumerate(runs.items())}


def experiment(path: str) -> Experiment:
    """Return what a module, such as `jaxattn.experiments.local.rate`, defines as EXPERIMENT; ValueError if nothing."""
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"experiment: expected a module {path}, found none") from error
    if not hasattr(module, "EXPERIMENT"):
        raise ValueError(f"experiment: expected EXPERIMENT in {path}, found none")
    return module.EXPERIMENT


def folders() -> list[str]:
    """Return the modules of all experiments, as dotted paths."""
    topics = _modules(EXPERIMENTS)
    entries = [entry for topic in topics for entry in _modules(topic)]
    return sorted(entry for entry in entries if hasattr(importlib.import_module(entry), "EXPERIMENT"))


def _modules(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    return [module.name for module in pkgutil.iter_modules(path, f"{package}.")]


def registry() -> dict[str, Claim]:
    """Return all claims by id."""
    claims = [claim for folder in folders() for claim in experiment(folder).claims]
    by_id = {claim.id: claim for claim in claims}
    if len(by_id) < len(claims):
        twice = sorted({claim.id for claim in claims if sum(claim.id == other.id for other in claims) > 1})
        raise ValueError(f"claims: expected different ids, found {twice} twice")
    return dict(sorted(by_id.items()))


def not_a_number(datasets: Datasets) -> str:
    """Return which measured variable contains NaN; empty if none does. NaN is never a result."""
    for run, one in datasets.items():
        for name, variable in one.variables.items():
            if variable.dtype.kind == "f" and (wrong := int(np.isnan(variable.values).sum())):
                return f"{run}: {wrong} of {variable.size} entries of {name} are not a number."
    return ""


def no_seed(datasets: Datasets) -> str:
    """Return which runs kept no seed; empty if all kept one."""
    empty = {name: counts for name, counts in counts_of(datasets).items() if datasets[name].sizes.get("seed", 1) == 0}
    return f"Expected a kept seed in each run, found counts {empty}." if empty else ""


def judged(
    experiment: Experiment, name: str, datasets: Datasets, key: PRNGKeyArray
) -> tuple[Datasets | None, list[tuple[Claim, Judgement]]]:
    """Return the estimates of what `measure` returned, and the claims of a configuration with their judgements.

    If a measured number is NaN, or a run kept no seed, nothing is estimated and no claim is decided.
    """
    if wrong := not_a_number(datasets) or ("" if experiment.empty_runs else no_seed(datasets)):
        return None, [(claim, Judgement.withheld(wrong)) for claim in experiment.of(name)]
    summaries = experiment.estimates(datasets, key)
    return summaries, [(claim, claim.judge(summaries)) for claim in experiment.of(name)]
