"""What `jaxattn which` asks of one setting: its defaults, its checks, and the ranking that it trains and keeps."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from jaxattn import bias, descent, records
from jaxattn.bias import limits
from jaxattn.bias import ranking as rankings
from jaxattn.records import locks
from jaxattn.study import fingerprints, progress, runs
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import key_of, named
from jaxattn.study.measuring.ranked import of_dataset, ranked, to_dataset
from jaxattn.study.measuring.stopped import Stopped, stopped
from jaxattn.study.mistakes import UsageError
from jaxattn.study.settings.training import Training
from jaxattn.study.style import page

# Defaults of this command: an optimizer that does not stall, and snapshots along decades of steps.
DEFAULTS = {
    "optimizer": "scale_free_gd",
    "weights": "free_zero",
    "steps": "20000",
    "snapshots": "logarithmically",
    "record_every": "100",
}
_CODE = (*(f"{code.__module__}.{code.__qualname__}" for code in (ranked, stopped)), "jaxattn.plots.alignment")
# What is said of the gradient that a kind of optimizer gets; the last kind is any.
_GRADIENTS = {
    descent.ScaleFree: "its direction in the log domain, which never underflows",
    descent.Exact: "exact to rounding until it underflows; the optimizer is not scale-free, or not known to be",
    object: "as the published code forms it, with its rounding errors",
}
# Attributes of a record that tell where its numbers come from.
_PROVENANCE = ("config", "fingerprint", "revision", "versions")


@dataclass(frozen=True)
class Question:
    """A setting that was checked, the norms to rank it by, and where its record and its ranking are."""

    config: DictConfig
    setting: Training
    norms: Sequence[Any]

    @functools.cached_property
    def folder(self) -> Path:
        """The folder of its run."""
        return runs.folder(self.config)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the norms, and of the code that ranks and draws."""
        norms = OmegaConf.to_container(self.config.norms, resolve=True)
        code = fingerprints.of([*_CODE, *fingerprints.targets(norms)])
        return hashlib.sha256(f"{norms}\n{code}".encode()).hexdigest()[:12]

    @property
    def gradient(self) -> str:
        """Which gradient its optimizer gets, in one line."""
        return next(text for kind, text in _GRADIENTS.items() if isinstance(self.setting.optimizer, kind))

    @property
    def path(self) -> Path:
        """Where its ranking is kept."""
        return self.folder / f"ranking-{self.digest}.zarr"

    def answer(self) -> tuple[bias.Ranking, Stopped | None] | None:
        """Return the ranking that is kept; None if there is none. RecordError: something else is in its place."""
        if os.path.lexists(self.path):
            dataset = records.load_dataset(self.path)
            found = json.loads(dataset.attrs["stopped"])
            return of_dataset(dataset), found and Stopped(found[0], tuple(found[1]))
        records.check_place(self.path)
        return None

    def train(self, name: str) -> Path:
        """Train what is not recorded yet, showing the progress under this name, and return the path of the record."""
        with progress.bar(name, self.config.seeds) as report:
            return runs.run(self.config, report)

    def rank(self, record: Path) -> tuple[bias.Ranking, Stopped | None]:
        """Rank a record, find where its weights stop if they do not grow, and keep both; ValueError: it has no seed."""
        count = len(self.norms)
        waiting = progress.waiting(f"solving the max-margin problems of {count} norm{'s' * (count != 1)}")
        with waiting, locks.held(self.path), jax.enable_x64(self.config.precision.name == "float64"):
            loaded = records.load(record)
            ranking = ranked(loaded, self.norms, jax.random.key(self.config.key))
            still = stopped(loaded, ranking, self.setting)
            dataset = to_dataset(ranking).assign_attrs(
                {name: loaded.attrs[name] for name in _PROVENANCE if name in loaded.attrs}, stopped=json.dumps(still)
            )
            records.save_dataset(self.path, dataset)
        return ranking, still


def with_defaults(overrides: Sequence[str]) -> list[str]:
    """Return a command line behind the defaults of this command, without those that it sets, or an experiment."""
    given = set(map(key_of, overrides))
    if "experiment" in given:
        return list(overrides)
    given |= {"steps"} if "size" in given else set()
    return [*(f"{key}={value}" for key, value in DEFAULTS.items() if key not in given), *overrides]


def checked(combinations: Sequence[Sequence[str]], names: Sequence[str] = ("",)) -> list[Question]:
    """Return what each combination of a sweep asks, before anything is trained; a single line is a sweep of one.

    An error of a combination's setting begins with its name. UsageError: a mistake, a setting whose record cannot be
    ranked, or snapshots that show no trend. ValueError: norms that cannot.
    """
    for argument in dict.fromkeys(itertools.chain(*combinations)):
        if argument.startswith("-"):
            raise UsageError(
                f"{argument}: expected key=value, such as seeds=100; the only option of `jaxattn which` is --multirun"
            )
        key = key_of(argument)
        if key.startswith("hydra"):
            raise UsageError(
                f"{argument}: expected none of Hydra's own settings, which `jaxattn train` takes, found one"
            )
        if key.partition(".")[0] == "svm":
            raise UsageError(f"{argument}: expected none, since each norm has its own certified solver, found one")
    configs, tried = composition.composed([*map(with_defaults, combinations)]), list[Any]()
    return [_question(config, tried, name) for config, name in zip(configs, names, strict=True)]


def _question(config: DictConfig, tried: list[Any], name: str) -> Question:
    norms = norms_of(config)
    rankings.named(norms)
    setting = composition.setting_of(config)
    if type(setting) is not Training:
        trained = f"{Training.__module__}.{Training.__qualname__}"
        raise UsageError(
            f"experiment: expected one that trains attention on problems (study.record={trained}), found "
            f"study.record={config.study.record}"
        )
    snapshots = np.asarray(setting.snapshots(setting.steps), int)
    if (recent := limits.window(snapshots).size if snapshots.size else 0) < limits.LEAST:
        shown = snapshots.tolist()
        shown = shown if len(shown) <= 5 else [*shown[:2], "...", *shown[-2:]]
        raise UsageError(
            f"snapshots: expected {limits.LEAST} in the last decade of steps, to tell where ratios end, found {recent} "
            f"among {shown}; snapshots=logarithmically has them"
        )
    composition.check_setting(config, setting, tried, name)
    records.check_folder(Path(config.runs))
    with page.with_own(config.style):
        pass  # A mistake in it is found at once.
    return Question(config, setting, norms)


def norms_of(config: DictConfig) -> list[Any]:
    """Return the norms of a configuration: names, or values made from a _target_."""
    given = OmegaConf.to_container(config.norms, resolve=True)
    assert isinstance(given, list)
    return [_instantiated(norm) if isinstance(norm, dict) else norm for norm in given]


def _instantiated(norm: dict[Any, Any]) -> Any:
    if not isinstance(path := norm.get("_target_"), str):
        raise UsageError(f"norms: expected names, or values with a _target_, found {norm}")
    named(path)
    try:
        return instantiate(norm)
    except HydraException as error:
        raise UsageError(f"norms: {path}: {error.__cause__ or error}") from error
