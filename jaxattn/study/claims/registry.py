"""All experiments and claims, found in the folders of `jaxattn.experiments`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims.claim import Claim, Datasets, Judgement

EXPERIMENTS = "jaxattn.experiments"


class Experiment(NamedTuple):
    """The parts of an experiment, in the order in which data passes through them.

    Attributes:
        measure: `measure(record, solver=None)`, from a record to a dataset.
        summarize: `summarize(datasets, key)`, from the datasets of all runs to estimates with intervals.
        claims: the claims that it decides.
        draw: `draw(summaries)`, from the estimates to a figure; None if there is a table.
        table: `table(summaries)`, from the estimates to a `jaxattn.study.style.table.Table`; None if there is a figure.
        view: `view(datasets)`, from the datasets to what an interactive picture shows, as JSON values; None without
            one.
    """

    measure: Callable[..., xarray.Dataset]
    summarize: Callable[[Datasets, PRNGKeyArray], Datasets]
    claims: tuple[Claim, ...]
    draw: Callable[[Datasets], Any] | None = None
    table: Callable[[Datasets], Any] | None = None
    view: Callable[[Datasets], dict[str, Any]] | None = None

    def of(self, name: str) -> tuple[Claim, ...]:
        """Return the claims of one of the configurations that share this experiment, by its id."""
        return tuple(claim for claim in self.claims if claim.experiment == name)


def experiment(folder: str) -> Experiment:
    """Return the experiment in a folder with the modules measure, claims and either figure or table, and maybe view.

    Args:
        folder: a dotted path, for example `jaxattn.experiments.local.rate`.

    Raises:
        ValueError: there is no such folder, a module or function is missing, or there are both figure and table; the
            message names it.
    """
    rooms = {name: _module(f"{folder}.{name}") for name in ("measure", "claims", "figure", "table", "view")}
    for name in ("measure", "claims"):
        if rooms[name] is None:
            raise ValueError(f"experiment: expected a module {folder}.{name}, found none")
    if (rooms["figure"] is None) == (rooms["table"] is None):
        found = "none" if rooms["figure"] is None else "both"
        raise ValueError(f"experiment: expected one of the modules {folder}.figure and {folder}.table, found {found}")
    return Experiment(
        measure=_in(rooms["measure"], "measure"),
        summarize=_in(rooms["claims"], "summarize"),
        claims=_in(rooms["claims"], "CLAIMS"),
        draw=_in(rooms["figure"], "draw"),
        table=_in(rooms["table"], "table"),
        view=_in(rooms["view"], "view"),
    )


def _module(path: str) -> ModuleType | None:
    """Return a module; None if there is no such module, or no such folder."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        return None


def _in(module: ModuleType | None, name: str) -> Any:
    """Return what a module calls by a name; None without a module."""
    if module is not None and not hasattr(module, name):
        raise ValueError(f"experiment: expected {name} in {module.__name__}, found none")
    return getattr(module, name, None)


def folders() -> list[str]:
    """Return the folders of all experiments, as dotted paths."""
    package = importlib.import_module(EXPERIMENTS)
    topics = [one.name for one in pkgutil.iter_modules(package.__path__, f"{EXPERIMENTS}.") if one.ispkg]
    inside = [pkgutil.iter_modules(importlib.import_module(topic).__path__, f"{topic}.") for topic in topics]
    return sorted(one.name for modules in inside for one in modules if one.ispkg)


def registry() -> dict[str, Claim]:
    """Return all claims by id.

    Raises:
        ValueError: two claims have the same id.
    """
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


def judged(
    experiment: Experiment, name: str, datasets: Datasets, key: PRNGKeyArray
) -> tuple[Datasets | None, list[tuple[Claim, Judgement]]]:
    """Return the estimates of an experiment, and its claims with their judgements.

    If a measured number is NaN, nothing is estimated and no claim is decided.

    Args:
        experiment: the experiment.
        name: the id of the configuration whose claims are judged.
        datasets: the datasets returned by `measure`, by the name of their run.
        key: the random key of the bootstrap.

    Raises:
        ValueError: the datasets are not those of the experiment.
    """
    if wrong := not_a_number(datasets):
        return None, [(claim, Judgement.withheld(wrong)) for claim in experiment.of(name)]
    summaries = experiment.summarize(datasets, key)
    return summaries, [(claim, claim.judge(summaries)) for claim in experiment.of(name)]
