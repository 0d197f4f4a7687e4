"""Make one experiment from its records: measurements, claims, and a figure or table."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import jax
import xarray
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from jaxattn import records
from jaxattn.records import locks
from jaxattn.study import claims, fingerprints, runs
from jaxattn.study.claims import Claim, Datasets, Judgement, experiment, line
from jaxattn.study.configuration import composition
from jaxattn.study.events import Report, Stage, Staged, unheard
from jaxattn.study.style import page, table, view

# The measurement of a record that belongs to no experiment.
_COMPARE = "jaxattn.study.measuring.comparison.compare"


def place(config: DictConfig) -> Path:
    """Return the folder of the figures for a configuration's size."""
    return Path(config.figures) / ("small" if config.size == "small" else "")


def configurations(name: str, overrides: Sequence[str]) -> list[DictConfig]:
    """Compose the configurations of all runs of an experiment's figure.

    Raises:
        UsageError: a mistake in them, or a folder without claims of this experiment.
    """
    base = [f"experiment={name}", *overrides]
    composed = composition.compose(base)
    rooms = experiment(composed.study.experiment)
    if not rooms.of(name):
        found = sorted({claim.experiment for claim in rooms.claims})
        raise composition.UsageError(
            f"{name}: expected claims {name}:... in {composed.study.experiment}.claims, found {found}"
        )
    sweeps: Any = OmegaConf.to_container(
        (composed.study.small if composed.size == "small" else None) or composed.study.runs
    )
    # Without the list of all runs, each of them composes faster.
    alone = {"study.runs": None, "study.small": None}
    return [
        composition.compose(base, dict(zip(sweep, combination, strict=True)) | alone)
        for sweep in sweeps
        for combination in itertools.product(*sweep.values())
    ]


def measured(config: DictConfig, report: Report = unheard, number: int = 0) -> xarray.Dataset:
    """Return the measurement of a configuration's record; recomputed only if solvers or record changed.

    Its attribute `seconds` is the time that both stages took when they were computed.

    Args:
        config: the configuration of the run.
        report: called when a stage begins, and when seeds are trained.
        number: the number of the run in its experiment, from 1.
    """
    # Before training, so that a mistake in these is found at once.
    value, measure = instantiate(config.svm.solver), composition.named(_measure(config))
    report(Staged(Stage.TRAINING, number))
    record = runs.run(config, report)
    report(Staged(Stage.MEASURING, number))
    solver = str(OmegaConf.to_container(config.svm, resolve=True))
    path = record.parent / f"measured-{_digest(solver, _measure(config), fingerprints.of(_measured_by(config)))}.zarr"
    if path.exists():
        return records.load_dataset(path)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded, started = records.load(record), time.perf_counter()
        dataset = measure(loaded, solver=value)
        dataset.attrs["seconds"] = loaded.attrs["seconds"] + time.perf_counter() - started
        records.save_dataset(path, dataset)
    return dataset


def source(configs: Sequence[DictConfig]) -> str:
    """Return a hash of the configurations and code that an experiment's figure or table, claims and view come from."""
    folder = configs[0].study.experiment
    found = experiment(folder)
    names = ("claims", "table" if found.table else "figure", *(("view",) if found.view else ()))
    rooms = [f"{folder}.{room}" for room in names]
    code = fingerprints.of([*rooms, *(path for config in configs for path in _measured_by(config))])
    return _digest(*(f"{runs.folder(config)}{config.svm}" for config in configs), code)


def files(name: str, configs: Sequence[DictConfig], folder: Path) -> list[Path]:
    """Return the files that show an experiment: its figure as PNG and PDF or its table, then its view if it has one."""
    rooms = experiment(configs[0].study.experiment)
    found = [table.place(folder, name)] if rooms.table else [folder / f"{name}{suffix}" for suffix in (".png", ".pdf")]
    return [*found, view.place(folder, name)] if rooms.view else found


def is_made(name: str, configs: Sequence[DictConfig], folder: Path, known: Collection[str]) -> bool:
    """Return whether records, figure or table, view and claims exist, made from these configurations and this code.

    A clone has the figures but not the records, so everything is run there.
    """
    recorded = all(map(runs.is_recorded, configs))
    return recorded and source(configs) in known and all(path.exists() for path in files(name, configs, folder))


def judged(
    name: str, configs: Sequence[DictConfig], report: Report = unheard
) -> tuple[Datasets | None, list[tuple[Claim, Judgement]], float]:
    """Return the estimates of an experiment, its claims with judgements, and the seconds that both stages took.

    Args:
        name: the experiment's configuration.
        configs: the configurations of its runs; missing records and measurements are made.
        report: called when a stage begins, and when seeds are trained.

    Raises:
        ValueError: `measure` gives two runs the same name.
    """
    datasets = _datasets(name, configs, report)
    report(Staged(Stage.JUDGING))
    rooms, started = experiment(configs[0].study.experiment), time.perf_counter()
    summaries, found = claims.judged(rooms, name, datasets, jax.random.key(configs[0].key))
    seconds = sum(dataset.attrs["seconds"] for dataset in datasets.values())
    return summaries, found, seconds + time.perf_counter() - started


def _datasets(name: str, configs: Sequence[DictConfig], report: Report) -> dict[str, xarray.Dataset]:
    """Return what is measured of every run, by their names."""
    datasets: dict[str, xarray.Dataset] = {}
    for number, config in enumerate(configs, start=1):
        dataset = measured(config, report, number)
        if (run := dataset.attrs["run"]) in datasets:
            raise ValueError(f"{name}: expected runs of different names, found two that `measure` calls {run!r}")
        datasets[run] = dataset
    return datasets


def make(name: str, configs: Sequence[DictConfig], folder: Path, report: Report = unheard) -> list[dict[str, Any]]:
    """Train and measure what is missing, write an experiment's figure or table, and return the entries of its claims.

    What its picture on the site shows is written beside the figure, if the experiment has a view.

    Args:
        name: the experiment's configuration.
        configs: the configurations of its runs.
        folder: the folder of the figures.
        report: called when a stage begins, and when seeds are trained.

    Raises:
        ValueError: a measured number is NaN, so that nothing can be drawn.
    """
    summaries, found, seconds = judged(name, configs, report)
    if summaries is None:
        raise ValueError(f"{name}: {found[0][1].note}")
    report(Staged(Stage.DRAWING))
    started, rooms = time.perf_counter(), experiment(configs[0].study.experiment)
    if rooms.draw:
        page.save(rooms.draw(summaries), folder, name)
        # Pages would show a table of an earlier version in place of the figure.
        table.place(folder, name).unlink(missing_ok=True)
    if rooms.table:
        table.save(rooms.table(summaries), folder, name)
    if rooms.view:
        view.save(rooms.view(_datasets(name, configs, unheard)), folder, name)
    seconds += time.perf_counter() - started
    made = {"seconds": float(f"{seconds:.6g}"), "made_from": source(configs), "revision": runs.revision(configs)}
    return [line(claim, judgement) | made for claim, judgement in found]


def _measure(config: DictConfig) -> str:
    folder = config.study.experiment
    return _COMPARE if folder is None else f"{folder}.measure.measure"


def _measured_by(config: DictConfig) -> list[str]:
    """Return the functions that make and measure a configuration's record, as dotted paths."""
    solver = OmegaConf.to_container(config.svm, resolve=True)
    return [_measure(config), *runs.code(config), *fingerprints.targets(solver)]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
