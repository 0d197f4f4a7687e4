"""Gather a sweep into one Dataset: the sweep's own overrides, then `--to FILE`."""

import argparse
from pathlib import Path

import xarray

from jaxattn import records
from jaxattn.study import composition, making, runs
from jaxattn.study.claims import counts_of

# What has one shape whatever the sizes of a run; where nothing descended the last two are not there.
_GATHERED = ("status", "primal", "gap", "rank", "correlation", "probability")


def gather(overrides: list[str]) -> xarray.Dataset:
    """Return one dataset with an axis `run`, and the swept values as coordinates on it.

    Raises:
        RecordError: a run of the sweep is missing or unfinished; all of them are listed.
    """
    combinations = composition.expand(overrides)
    configs = [composition.compose(one) for one in combinations]
    missing = [one for one, c in zip(combinations, configs, strict=True) if not runs.is_recorded(c)]
    if missing:
        raise records.RecordError(f"{len(missing)} of {len(configs)} runs are not there: {missing}")
    swept = [key for key in dict.fromkeys(_key(o) for c in combinations for o in c) if _varies(key, combinations)]
    measured = [making.measured(config) for config in configs]
    parts = [one[[name for name in _GATHERED if name in one]] for one in measured]
    for part in parts:
        part.update(counts_of({"run": part})["run"])
    labels = [{key: _value(key, one) for key in swept} for one in combinations]
    return xarray.concat(parts, dim="run", join="outer", combine_attrs="drop").assign_coords(
        {key: ("run", [label[key] for label in labels]) for key in swept}
    )


def _key(override: str) -> str:
    return override.partition("=")[0]


def _value(key: str, overrides: list[str]) -> str:
    return next(override.partition("=")[2] for override in overrides if _key(override) == key)


def _varies(key: str, combinations: list[list[str]]) -> bool:
    return len({_value(key, one) for one in combinations}) > 1


def main(arguments: list[str]) -> None:
    """Gather and write."""
    parser = argparse.ArgumentParser(prog="jaxattn gather", description=__doc__)
    parser.add_argument(
        "overrides", nargs="*", help="the overrides of the sweep, as given to `jaxattn train --multirun`"
    )
    parser.add_argument("--to", type=Path, required=True, help="zarr store to write")
    parsed = parser.parse_args(arguments)
    records.save_dataset(parsed.to, gather(parsed.overrides))
    print(parsed.to)
