"""Make one experiment from its records: measurements, claims, and a figure or table."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import itertools
import pickle
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import xarray
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from jaxattn import records
from jaxattn.records import locks
from jaxattn.study import claims, fingerprints, mistakes, runs
from jaxattn.study.claims import Claim, Datasets, Judgement
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import is_group, not_by_name, sources
from jaxattn.study.events import Report, Stage, Staged, unheard
from jaxattn.study.kept import kept
from jaxattn.study.measuring import comparison
from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import page, table, view


def figures_folder(config: DictConfig) -> Path:
    """Return the folder of the figures for a configuration's size."""
    return Path(config.figures) / ("" if config.size == "published" else config.size)


def configurations(name: str, overrides: Sequence[str]) -> list[DictConfig]:
    """Compose the configurations of all runs of an experiment's figure; UsageError if it has no claims."""
    arguments = name, tuple(overrides), sources(name)
    # What a target of the user's own accepts may change between two commands.
    is_kept = not any("_target_" in override for override in overrides)
    configs: list[DictConfig] = pickle.loads(kept(_composed, *arguments) if is_kept else _composed(*arguments))
    if configs[0].study.experiment is None:
        raise UsageError(f"{name}: expected a module with an EXPERIMENT as study.experiment, found none")
    experiment = _experiment(configs)
    if not experiment.of(name):
        names = sorted({claim.experiment for claim in experiment.claims})
        module = configs[0].study.experiment
        raise UsageError(f"{name}: expected claims {name}:... in {module}.claims, found {names}")
    return configs


def _composed(name: str, overrides: Sequence[str], sources: str) -> bytes:
    """Return the configurations of all runs, pickled: joblib's own unpickling is five times slower."""
    del sources
    base = [f"experiment={name}", *overrides]
    composed: dict[tuple[str, ...], DictConfig] = {(): composition.compose(base)}
    study = composed[()].study
    own = {"small": study.small or study.runs, "large": study.large}
    sweeps = own.get(composed[()].size, study.runs)
    if sweeps is None and study.runs:
        raise UsageError(f"size=large: expected an experiment with runs of this size, found {name}, which has none")
    if not (OmegaConf.is_dict(sweeps) and sweeps and all(map(OmegaConf.is_dict, sweeps.values()))):
        raise not_by_name(name, sweeps)
    configs = []
    for template, settings in sweeps.items():
        choices = {key: value if OmegaConf.is_list(value) else [value] for key, value in settings.items()}
        for combination in itertools.product(*choices.values()):
            values = dict(zip(choices, combination, strict=True))
            # Composing takes a tenth of a second, so it is done once per choice of groups.
            groups = {key: value for key, value in values.items() if is_group(key)}
            chosen = tuple(f"{key}={value}" for key, value in groups.items())
            if chosen not in composed:
                composed[chosen] = composition.compose([*base, *chosen])
            others = {key: value for key, value in values.items() if key not in groups}
            config = composition.with_values(composed[chosen], others)
            config.study.name, config.study.settings = _filled(template, values), values
            configs.append(config)
    names = [config.study.name for config in configs]
    if twice := sorted({run for run in names if names.count(run) > 1}):
        raise UsageError(f"{name}: expected runs of different names in study.runs, found {twice} twice")
    return pickle.dumps(configs)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    """Fill a run's settings into its name, for example "n = {data.n}, R = {weights.margin:g}"."""
    try:
        return re.sub(r"\{([^{}:]+):?([^{}]*)\}", lambda match: format(values[match[1]], match[2]), template)
    except KeyError as error:
        raise UsageError(f"{template}: expected keys that this run sets, {list(values)}, found {error}") from error


def measured(config: DictConfig, report: Report = unheard, number: int = 0) -> xarray.Dataset:
    """Return the measurement of a configuration's record; recomputed only if solvers or record changed.

    Its attribute `seconds` is the time that both stages took when they were computed. The number counts the runs of an
    experiment from 1.
    """
    # Before training, so that a mistake in these is found at once.
    solver, measure, code = instantiate(config.svm.solver), _measure(config), _code(config)
    report(Staged(Stage.TRAINING, number))
    record = runs.run(config, report)
    report(Staged(Stage.MEASURING, number))
    # What distinguishes the run from the others of its experiment.
    settings: Any = OmegaConf.to_container(config.study.settings, resolve=True)
    described = str(OmegaConf.to_container(config.svm, resolve=True))
    path = record.parent / f"measured-{digest(described, str(settings), code[0], fingerprints.of(code))}.zarr"
    about = {"run": config.study.name, "steps": config.steps, **settings} if config.study.name else {}
    if path.exists():
        return records.load_dataset(path).assign_attrs(about)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded, started = records.load(record).assign_attrs(about), time.perf_counter()
        dataset = measure(loaded, solver=solver)
        dataset.attrs["seconds"] = loaded.attrs["seconds"] + time.perf_counter() - started
        records.save_dataset(path, dataset)
    return dataset.assign_attrs(about)


def source(configs: Sequence[DictConfig]) -> str:
    """Return a hash of the configurations and code that an experiment's figure or table, claims and view come from."""
    code = [configs[0].study.experiment, *itertools.chain.from_iterable(map(_code, configs))]
    described = [f"{runs.folder(config)}{config.svm}{config.study.name}" for config in configs]
    style = configs[0].style
    return digest(*described, fingerprints.of(code), *([style, fingerprints.contents(style)] if style else []))


def files(name: str, configs: Sequence[DictConfig], folder: Path) -> list[Path]:
    """Return the files that show an experiment: figures as PNG and PDF or a table, then its view if it has one."""
    experiment = _experiment(configs)
    figures = [name, page.second(name)] if experiment.second else [name]
    drawn = [folder / f"{figure}.{kind}" for figure in figures for kind in ("png", "pdf")]
    paths = [table.place(folder, name)] if experiment.table else drawn
    return [*paths, view.place(folder, name)] if experiment.view else paths


def is_made(name: str, configs: Sequence[DictConfig], folder: Path, known: Collection[str]) -> bool:
    """Return whether all of an experiment's records and files exist, made from these configurations and this code."""
    recorded = all(map(runs.is_recorded, configs))
    return recorded and source(configs) in known and all(path.exists() for path in files(name, configs, folder))


def datasets(name: str, configs: Sequence[DictConfig], report: Report = unheard) -> dict[str, xarray.Dataset]:
    """Return what is measured of every run, by their different names; missing records and measurements are made."""
    measurements: dict[str, xarray.Dataset] = {}
    for number, config in enumerate(configs, start=1):
        dataset = measured(config, report, number)
        if (run := dataset.attrs["run"]) in measurements:
            raise ValueError(f"{name}: expected runs of different names, found two that `measure` calls {run!r}")
        measurements[run] = dataset
    return measurements


def judged(
    name: str, configs: Sequence[DictConfig], measurements: Datasets
) -> tuple[Datasets | None, list[tuple[Claim, Judgement]]]:
    """Return the estimates of an experiment, and its claims with judgements, from what `datasets` returns."""
    return claims.judged(_experiment(configs), name, measurements, jax.random.key(configs[0].key))


def make(name: str, configs: Sequence[DictConfig], folder: Path, report: Report = unheard) -> list[dict[str, Any]]:
    """Train and measure what is missing, write figure or table and view, and return the entries of the claims."""
    measurements = datasets(name, configs, report)
    report(Staged(Stage.JUDGING))
    started, experiment = time.perf_counter(), _experiment(configs)
    summaries, judged_claims = judged(name, configs, measurements)
    if summaries is None:
        raise ValueError(f"{name}: {judged_claims[0][1].note}")
    report(Staged(Stage.DRAWING))
    judgements = {claim.id: judgement for claim, judgement in judged_claims}
    for draw, figure in ((experiment.draw, name), (experiment.second, page.second(name))):
        if draw is not None:
            with page.with_own(configs[0].style):
                page.save(draw(summaries, judgements), folder, figure)
    if experiment.draw:
        # Pages would show a table of an earlier version in place of the figure.
        table.place(folder, name).unlink(missing_ok=True)
    if experiment.table:
        table.save(experiment.table(summaries, judgements), folder, name)
    if experiment.view:
        view.save(experiment.view(measurements), folder, name)
    seconds = sum(dataset.attrs["seconds"] for dataset in measurements.values()) + time.perf_counter() - started
    made = {"seconds": float(f"{seconds:.6g}"), "made_from": source(configs), "revision": runs.revision(configs)}
    return [claims.line(claim, judgement) | made for claim, judgement in judged_claims]


@contextlib.contextmanager
def located(name: str, configs: Sequence[DictConfig]) -> Iterator[None]:
    """Note on an error that ends a command in one message which experiment raised it, and at which line of its code."""
    file = Path(inspect.getfile(importlib.import_module(configs[0].study.experiment)))
    own = file.parent if file.stem == "__init__" else file
    try:
        yield
    except mistakes.known() as error:
        passed = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in passed if Path(frame.filename).is_relative_to(own)]
        error.add_note(" at ".join([name, *(f"{frame.filename}, line {frame.lineno}" for frame in frames[-1:])]))
        raise


def _experiment(configs: Sequence[DictConfig]) -> claims.Experiment:
    return claims.experiment(configs[0].study.experiment)


def _measure(config: DictConfig) -> Callable[..., xarray.Dataset]:
    return comparison.compare if config.study.experiment is None else _experiment([config]).measure


def _code(config: DictConfig) -> list[str]:
    measure, solver = _measure(config), OmegaConf.to_container(config.svm, resolve=True)
    return [f"{measure.__module__}.{measure.__qualname__}", *runs.code(config), *fingerprints.targets(solver)]


def digest(*parts: str) -> str:
    """Return a short hash of some texts, for the name of a file."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
