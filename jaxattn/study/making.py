"""The post-processing of one experiment: records in, measurements, claims and figure out."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import xarray
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

import jaxattn
from jaxattn import records
from jaxattn.records import locks
from jaxattn.study import composition
from jaxattn.study.style import page


def described(name: str) -> DictConfig:
    """Return what an experiment's file says of itself: `of`, `departs`, `place`, and whom its figure is made by."""
    return composition.compose([f"experiment={name}"]).study


def configurations(name: str, overrides: Sequence[str]) -> list[DictConfig]:
    """Compose the configurations of all runs that an experiment's figure needs."""
    base = [f"experiment={name}", *overrides]
    composed: dict[tuple[str, ...], DictConfig] = {(): composition.compose(base)}
    study = composed[()].study
    sweeps = (study.small if composed[()].size == "small" else None) or study.runs
    configs = []
    for sweep in sweeps:
        for combination in itertools.product(*sweep.values()):
            run = dict(zip(sweep, combination, strict=True))
            # Composing takes a tenth of a second: once for each choice of groups.
            chosen = tuple(f"{key}={value}" for key, value in run.items() if composition.is_group(key))
            if chosen not in composed:
                composed[chosen] = composition.compose([*base, *chosen])
            values = {key: value for key, value in run.items() if not composition.is_group(key)}
            configs.append(composition.with_values(composed[chosen], values))
    return configs


def measured(config: DictConfig) -> xarray.Dataset:
    """Return what is measured of a configuration's record, made anew only if solvers or record changed.

    Its attribute `seconds` is what both stages took, whenever that was.
    """
    # Before the training: a mistake in these should not wait for that.
    value, measure = instantiate(config.svm.solver), composition.named(config.study.measure)
    record = composition.run(config)
    solver = str(OmegaConf.to_container(config.svm, resolve=True))
    digest = _digest([solver, config.study.measure], _sources("svm", "language", "experiments"))
    path = record.parent / f"measured-{digest}.zarr"
    if path.exists():
        return records.load_dataset(path)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded, started = records.load(record), time.perf_counter()
        dataset = measure(loaded, solver=value)
        dataset.attrs["seconds"] = loaded.attrs["seconds"] + time.perf_counter() - started
        records.save_dataset(path, dataset)
    return dataset


def source(configs: Sequence[DictConfig]) -> str:
    """Return a hash of the configurations and the code that an experiment's figure and claims are made from."""
    return _digest([str(composition.folder(one)) + str(one.svm) for one in configs], _sources("."))


def is_made(name: str, configs: Sequence[DictConfig], folder: Path, known: Collection[str]) -> bool:
    """Whether records, figure and claims are there and were made from these configurations and this code.

    A clone has the figures but not the records, so there everything is run.
    """
    drawn = [folder / f"{name}{suffix}" for suffix in (".png", ".pdf")]
    recorded = all(map(composition.is_recorded, configs))
    return recorded and source(configs) in known and all(path.exists() for path in drawn)


def make(name: str, configs: Sequence[DictConfig], folder: Path) -> list[dict[str, Any]]:
    """Train and measure what is not there yet, draw an experiment's figure, and return the lines of its claims."""
    study = configs[0].study
    datasets = {dataset.attrs["run"]: dataset for dataset in map(measured, configs)}
    started = time.perf_counter()
    summaries, claims = composition.named(study.summarize)(datasets, jax.random.key(configs[0].key))
    page.save(composition.named(study.draw)(summaries), folder, name)
    seconds = time.perf_counter() - started + sum(dataset.attrs["seconds"] for dataset in datasets.values())
    return [{**replace(claim, seconds=seconds).as_json(), "made_from": source(configs)} for claim in claims]


def _sources(*packages: str) -> bytes:
    root = Path(jaxattn.__file__).parent
    kinds = {".py", ".mplstyle"}
    files = sorted(path for package in packages for path in (root / package).rglob("*") if path.suffix in kinds)
    return b"".join(path.read_bytes() for path in files)


def _digest(parts: Sequence[str], code: bytes) -> str:
    return hashlib.sha256("\n".join(parts).encode() + code).hexdigest()[:12]
