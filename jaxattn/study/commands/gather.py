"""Gather the records of a sweep into one dataset, with certificates, margin ratios and cosines.

usage: jaxattn gather [KEY=VALUE ...] [--norms NAMES] --to DIR

  KEY=VALUE       the sweep, as given to `jaxattn train --multirun`; all its runs must be finished
  --to DIR        Zarr store to write; a store written by jaxattn is replaced, anything else is refused
  --norms NAMES   norms of the max-margin problems, separated by commas; default: frobenius,nuclear;
                  an unknown name is an error that lists the known ones

Examples:
  jaxattn gather data.d=4,8,16 weights=free,factored seeds=1000 --to sweep.zarr
  jaxattn gather data.n=4,6 --norms frobenius,spectral --to sweep.zarr

Read it with `jaxattn.records.load_dataset("sweep.zarr")`: it has an axis `run`, with the swept values as coordinates.
`margin_ratio` says how close the margins of W come to the largest possible ones in each norm; `correlation` is the
cosine with one max-margin solution, meaningful only where `unique` is 0, that is, where this solution is the only one.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from jaxattn import norms as matrix_norms
from jaxattn import records
from jaxattn.norms import Norm
from jaxattn.records import locks
from jaxattn.study import fingerprints, making, runs
from jaxattn.study.claims import counts_of
from jaxattn.study.configuration import composition
from jaxattn.study.measuring import comparison
from jaxattn.study.mistakes import UsageError
from jaxattn.study.tuning import tune

# Variables whose shape does not depend on the sizes of a run. The last three are missing if nothing was trained.
_GATHERED = ("status", "unique", "primal", "gap", "rank", "margin_ratio", "correlation", "probability")
_ATTRIBUTES = {
    "margin_ratio": {"units": "1", "long_name": "normalized margin of W as a share of the largest possible one"},
    "correlation": {"units": "1", "long_name": "cosine of W with one max-margin solution"},
}
# Attributes of a record that tell where its numbers come from.
_PROVENANCE = ("fingerprint", "revision", "versions")
_COMPARE = f"{comparison.compare.__module__}.{comparison.compare.__qualname__}"


def gather(overrides: Sequence[str], norms: Sequence[Norm] | None = None) -> xarray.Dataset:
    """Return one dataset with an axis `run` and the swept values as coordinates on it.

    Swept numbers are stored as numbers; choices of a group, lists and other values as strings. The variables `record`
    (the record's folder), `fingerprint`, `revision` and `versions` (JSON) give the provenance of each run. The
    attributes are `overrides` (JSON, the sweep), `config` (JSON, the common part of the runs' configurations) and
    `norms` (JSON, their names). `margin_ratio` is missing for norms with a bound on the rank. A seed is kept if the
    problem is solved in all norms. Default: those of the measurement of the runs' experiment.

    RecordError: runs of the sweep are missing or unfinished; the message lists all of them. UsageError: a mistake in
    the overrides, or norms for an experiment that has its own measurement.
    """
    combinations = composition.expand(overrides)
    configs = list(composition.composed(combinations))
    if norms is not None and (own := next((c.study.experiment for c in configs if c.study.experiment), None)):
        raise UsageError(f"--norms: expected a sweep without an experiment, which has its norms, found {own}")
    if missing := [line for line, one in zip(combinations, configs, strict=True) if not runs.is_recorded(one)]:
        raise records.RecordError(f"{len(missing)} of {len(configs)} runs are not there: {missing}")
    parts: list[xarray.Dataset] = []
    for config in configs:
        measured = making.measured(config) if norms is None else _measured(config, norms)
        part = measured[[name for name in _GATHERED if name in measured]]
        record = runs.record_path(config)
        attributes = records.attributes(record)
        provenance = {"record": record.parent} | {name: attributes[name] for name in _PROVENANCE if name in attributes}
        part.update(counts_of({"run": part})["run"])
        parts.append(part.assign({name: ((), np.array(str(text), object)) for name, text in provenance.items()}))
    gathered = xarray.concat(parts, dim="run", join="outer", combine_attrs="drop")
    for name in _ATTRIBUTES.keys() & gathered.keys():
        gathered[name].attrs.update(_ATTRIBUTES[name])
    shared = _shared([_described(config) for config in configs])
    return gathered.assign_coords(_swept(combinations, configs)).assign_attrs(
        overrides=json.dumps(list(overrides)),
        config=json.dumps(shared, sort_keys=True),
        norms=json.dumps([str(name) for name in gathered["norm"].values] if "norm" in gathered.coords else []),
    )


def _measured(config: DictConfig, norms: Sequence[Norm]) -> xarray.Dataset:
    """Return the comparison in these norms; it is recomputed only if solver, norms or record changed."""
    names = [norm.name for norm in norms]
    if set(names) == {norm.name for norm in comparison.NORMS}:
        # `jaxattn figures` keeps this measurement.
        return making.measured(config).sel(norm=names)
    record = runs.record_path(config)
    solver = OmegaConf.to_container(config.svm, resolve=True)
    code = fingerprints.of([_COMPARE, *runs.code(config), *fingerprints.targets(solver)])
    path = record.parent / f"compared-{making.digest(str(solver), *names, code)}.zarr"
    if path.exists():
        return records.load_dataset(path)
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        dataset = comparison.compare(records.load(record), norms=norms, solver=instantiate(config.svm.solver))
        records.save_dataset(path, dataset)
    return dataset


def _swept(combinations: Sequence[Sequence[str]], configs: Sequence[DictConfig]) -> dict[str, Any]:
    """Return the swept keys, each with its values as a coordinate on the axis `run`."""
    written = composition.varied(combinations)
    return {
        key: ("run", _numbers([OmegaConf.select(config, key) for config in configs], [one[key] for one in written]))
        for key in written[0]
    }


def _numbers(values: Sequence[Any], written: Sequence[str]) -> np.ndarray:
    """Return values as integers, booleans or floats if all of them are, else as they were written."""
    types = {type(value) for value in values}
    largest = max((abs(value) for value in values if type(value) is int), default=0)
    if types in ({bool}, {float}) or (types == {int} and largest < 2**63):
        return np.array(values)
    if types == {int, float} and largest <= 2**53:
        return np.array(values, float)
    # Of variable length, since Zarr has no type for texts of fixed length.
    return np.array([text.strip("\"'") for text in written], object)


def _described(config: DictConfig) -> dict[str, Any]:
    content = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(content, dict)
    return {name: content[name] for name in (*composition.config_keys(config).values(), "precision", "svm")}


def _shared(described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = described
    shared = {}
    for key in set(first).intersection(*others):
        values = [one[key] for one in described]
        if all(isinstance(value, Mapping) for value in values):
            if (inner := _shared(values)) or not values[0]:
                shared[key] = inner
        elif all(value == values[0] for value in values):
            shared[key] = values[0]
    return shared


def norms_of(text: str) -> list[Norm]:
    """Return the norms of a list with commas, each once, such as "2,inf" and "max" of "2,inf,max,2,inf"."""
    # Two kinds of names have a comma: "2,inf" and "2,1".
    names = (name.strip() for name in re.split(r",(?!\s*(?:inf|1)\b)", text))
    return list(dict.fromkeys(map(matrix_norms.named, names)))


def main(arguments: list[str]) -> None:
    """Gather and write; destination and norms are checked first."""
    tune()
    parser = argparse.ArgumentParser(prog="jaxattn gather", add_help=False)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--norms", metavar="NAMES")
    given = parser.parse_intermixed_args(arguments)
    norms = None if given.norms is None else norms_of(given.norms)
    records.check_place(given.to)
    records.save_dataset(given.to, gather(given.overrides, norms))
    print(given.to)
