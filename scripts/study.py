"""The post-processing of one experiment: records in, measurements, claims and figure out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import composition
import jax
import xarray
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

import jaxattn
from jaxattn import locks, records
from jaxattn.experiments.claims import Claim
from jaxattn.plots import page


def configurations(name: str, overrides: Sequence[str]) -> list[DictConfig]:
    """Compose the configurations of all runs that an experiment's figure needs."""
    base = [f"experiment={name}", *overrides]
    config = composition.compose(base)
    sweeps = (config.study.small if config.size == "small" else None) or config.study.runs
    chosen = [[f"{key}={','.join(map(str, values))}" for key, values in sweep.items()] for sweep in sweeps]
    return [composition.compose(one) for sweep in chosen for one in composition.expand([*base, *sweep])]


def measured(config: DictConfig) -> xarray.Dataset:
    """Return what is measured of a configuration's record, made anew only if solvers or record changed.

    Its attribute `seconds` is what both stages took, whenever that was.
    """
    # Before the training: a mistake in these should not wait for that.
    value, measure = instantiate(config.svm.solver), composition.named(config.study.measure)
    record = composition.run(config)
    solver = str(OmegaConf.to_container(config.svm, resolve=True))
    digest = _digest([solver, config.study.measure], _sources("svm", "experiments"))
    path = record.parent / f"measured-{digest}.zarr"
    if path.exists():
        return records.load_dataset(path)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded, started = records.load(record), time.perf_counter()
        dataset = measure(loaded, solver=value)
        dataset.attrs["seconds"] = loaded.attrs["seconds"] + time.perf_counter() - started
        records.save_dataset(path, dataset)
    return dataset


def make(name: str, overrides: Sequence[str], folder: Path, known: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Draw an experiment's figure and return its claims.

    None if records, figure and claims are there and were made from the same configurations and code. A
    clone has the figures but not the records, so there everything is run.
    """
    configs = configurations(name, overrides)
    study = configs[0].study
    source = _digest([str(composition.folder(one)) + str(one.svm) for one in configs], _sources("."))
    drawn = [folder / f"{name}{suffix}" for suffix in (".png", ".pdf")]
    recorded = all(map(composition.is_recorded, configs))
    if recorded and source in known.get(name, ()) and all(path.exists() for path in drawn):
        return None
    datasets = {dataset.attrs["run"]: dataset for dataset in map(measured, configs)}
    started = time.perf_counter()
    summaries, claims = composition.named(study.summarize)(datasets, jax.random.key(configs[0].key))
    page.save(composition.named(study.draw)(summaries), folder, name)
    seconds = time.perf_counter() - started + sum(dataset.attrs["seconds"] for dataset in datasets.values())
    return [_line(replace(claim, seconds=seconds), source) for claim in claims]


def _line(claim: Claim, source: str) -> dict[str, Any]:
    return {**claim.as_json(), "made_from": source}


def _sources(*packages: str) -> bytes:
    root = Path(jaxattn.__file__).parent
    kinds = {".py", ".mplstyle"}
    files = sorted(path for package in packages for path in (root / package).rglob("*") if path.suffix in kinds)
    return b"".join(path.read_bytes() for path in files)


def _digest(parts: Sequence[str], code: bytes) -> str:
    return hashlib.sha256("\n".join(parts).encode() + code).hexdigest()[:12]
