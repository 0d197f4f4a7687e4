"""Make one experiment from its records: measurements, claims, and a figure or table."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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
from jaxattn.study.kept import kept
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
    arguments = name, tuple(overrides), composition.sources(name)
    # What a target of the user's own accepts may change between two commands.
    is_kept = not any("_target_" in override for override in overrides)
    configs: list[DictConfig] = pickle.loads(kept(_composed, *arguments) if is_kept else _composed(*arguments))
    module = configs[0].study.experiment
    if not experiment(module).of(name):
        found = sorted({claim.experiment for claim in experiment(module).claims})
        raise composition.UsageError(f"{name}: expected claims {name}:... in {module}.claims, found {found}")
    return configs


def _composed(name: str, overrides: Sequence[str], sources: str) -> bytes:
    """Compose the configurations of all runs.

    Args:
        name: the experiment.
        overrides: of its configurations.
        sources: what else decides the result, so that it is kept under this as well.

    Returns:
        A list of configurations, pickled: joblib's own unpickling is five times slower.
    """
    del sources
    base = [f"experiment={name}", *overrides]
    composed: dict[tuple[str, ...], DictConfig] = {(): composition.compose(base)}
    study = composed[()].study
    sweeps = (study.small if composed[()].size == "small" else None) or study.runs
    configs = []
    for template, settings in sweeps.items():
        choices = {key: value if OmegaConf.is_list(value) else [value] for key, value in settings.items()}
        for combination in itertools.product(*choices.values()):
            values = dict(zip(choices, combination, strict=True))
            # Composing takes a tenth of a second, so it is done once per choice of groups.
            chosen = tuple(f"{key}={value}" for key, value in values.items() if composition.is_group(key))
            if chosen not in composed:
                composed[chosen] = composition.compose([*base, *chosen])
            config = composition.with_values(
                composed[chosen], {key: value for key, value in values.items() if not composition.is_group(key)}
            )
            config.study.name, config.study.settings = _filled(template, values), values
            configs.append(config)
    names = [config.study.name for config in configs]
    if twice := sorted({run for run in names if names.count(run) > 1}):
        raise composition.UsageError(f"{name}: expected runs of different names in study.runs, found {twice} twice")
    return pickle.dumps(configs)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    """Fill a run's settings into its name.

    Example:
        >>> _filled("n = {data.n}, R = {weights.margin:g}", {"data.n": 4, "weights.margin": 10.0})
        'n = 4, R = 10'
    """
    return re.sub(r"\{([^{}:]+):?([^{}]*)\}", lambda match: format(values[match[1]], match[2]), template)


def measured(config: DictConfig, report: Report = unheard, number: int = 0) -> xarray.Dataset:
    """Return the measurement of a configuration's record; recomputed only if solvers or record changed.

    Its attribute `seconds` is the time that both stages took when they were computed.

    Args:
        config: the configuration of the run.
        report: called when a stage begins, and when seeds are trained.
        number: the number of the run in its experiment, from 1.
    """
    # Before training, so that a mistake in these is found at once.
    value, measure = instantiate(config.svm.solver), _measures(config)
    report(Staged(Stage.TRAINING, number))
    record = runs.run(config, report)
    report(Staged(Stage.MEASURING, number))
    solver = str(OmegaConf.to_container(config.svm, resolve=True))
    made_by = _digest(solver, str(_settings(config)), _measure(config), fingerprints.of(_measured_by(config)))
    path = record.parent / f"measured-{made_by}.zarr"
    about = {"run": config.study.name, "steps": config.steps, **_settings(config)} if config.study.name else {}
    if path.exists():
        return records.load_dataset(path).assign_attrs(about)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded, started = records.load(record).assign_attrs(about), time.perf_counter()
        dataset = measure(loaded, solver=value)
        dataset.attrs["seconds"] = loaded.attrs["seconds"] + time.perf_counter() - started
        records.save_dataset(path, dataset)
    return dataset.assign_attrs(about)


def source(configs: Sequence[DictConfig]) -> str:
    """Return a hash of the configurations and code that an experiment's figure or table, claims and view come from."""
    parts = [configs[0].study.experiment, *(path for config in configs for path in _measured_by(config))]
    code = fingerprints.of(parts)
    return _digest(*(f"{runs.folder(config)}{config.svm}{config.study.name}" for config in configs), code)


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
    return judged_from(name, configs, _datasets(name, configs, report), report)


def judged_from(
    name: str, configs: Sequence[DictConfig], datasets: Datasets, report: Report = unheard
) -> tuple[Datasets | None, list[tuple[Claim, Judgement]], float]:
    """Return what `judged` does, from what was measured."""
    report(Staged(Stage.JUDGING))
    started = time.perf_counter()
    key = jax.random.key(configs[0].key)
    summaries, found = claims.judged(experiment(configs[0].study.experiment), name, datasets, key)
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
    datasets = _datasets(name, configs, report)
    summaries, found, seconds = judged_from(name, configs, datasets, report)
    if summaries is None:
        raise ValueError(f"{name}: {found[0][1].note}")
    report(Staged(Stage.DRAWING))
    started, rooms = time.perf_counter(), experiment(configs[0].study.experiment)
    judgements = {claim.id: judgement for claim, judgement in found}
    if rooms.draw:
        page.save(rooms.draw(summaries, judgements), folder, name)
        # Pages would show a table of an earlier version in place of the figure.
        table.place(folder, name).unlink(missing_ok=True)
    if rooms.table:
        table.save(rooms.table(summaries, judgements), folder, name)
    if rooms.view:
        view.save(rooms.view(datasets), folder, name)
    seconds += time.perf_counter() - started
    made = {"seconds": float(f"{seconds:.6g}"), "made_from": source(configs), "revision": runs.revision(configs)}
    return [line(claim, judgement) | made for claim, judgement in found]


def _settings(config: DictConfig) -> dict[str, Any]:
    """Return the settings of a run in the YAML: what distinguishes it from the others of its experiment."""
    settings = OmegaConf.to_container(config.study.settings, resolve=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def _measures(config: DictConfig) -> Callable[..., xarray.Dataset]:
    """Return the function that measures a record: that of the experiment, else `compare`."""
    folder = config.study.experiment
    return composition.named(_COMPARE) if folder is None else experiment(folder).measure


def _measure(config: DictConfig) -> str:
    measure = _measures(config)
    return f"{measure.__module__}.{measure.__qualname__}"


def _measured_by(config: DictConfig) -> list[str]:
    """Return the functions that make and measure a configuration's record, as dotted paths."""
    solver = OmegaConf.to_container(config.svm, resolve=True)
    return [_measure(config), *runs.code(config), *fingerprints.targets(solver)]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
