"""Records: what a training run left behind, written block by block and read back whole.

A record is a zarr store with named dimensions that xarray opens. It is laid out in full before the
first seed is trained; each block of seeds is one chunk of every array, written data first and its
checksum last. A block without checksum was never finished, one with a wrong checksum was damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray
import zarr
from zarr.errors import GroupNotFoundError

# Of each block: what proves it whole, and the seconds it took.
_CHECKSUM, _SECONDS = "checksum", "seconds"
_UNWRITTEN = -1


class RecordError(RuntimeError):
    """A record that is missing, unfinished, damaged, or cannot be written; names it and says why."""


@dataclass(frozen=True)
class Variable:
    """An array of a record.

    Attributes:
        dims: names of its axes; the first is "seed".
        shape: their lengths.
        dtype: of its entries.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype


class Record:
    """A record on disk that is being written."""

    def __init__(self, path: Path, block: int) -> None:
        self.path = path
        self._group = _open_group(path, "r+")
        self._block = block

    @classmethod
    def create(
        cls,
        path: Path,
        variables: Mapping[str, Variable],
        coordinates: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        block: int,
    ) -> Record:
        """Lay out an empty record at `path`, or open the one that was begun there.

        Args:
            path: of the store; a begun record is resumed, its attributes and finished blocks kept.
            variables: every array, with its seed axis first.
            coordinates: values of the dimensions that have any.
            attributes: JSON values.
            block: seeds written at a time.

        Raises:
            RecordError: the place cannot be written, or has too little room for the whole record.
        """
        begun = path / "zarr.json"
        if not begun.exists():
            _check_room(path, sum(int(np.prod(v.shape)) * v.dtype.itemsize for v in variables.values()))
            try:
                partial = path.with_name(path.name + ".new")
                shutil.rmtree(partial, ignore_errors=True)
                _lay_out(partial, variables, coordinates, {**attributes, "block": block}, block)
                partial.rename(path)
            except OSError as error:
                raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
        return cls(path, int(_open_group(path, "r").attrs["block"]))

    def unwritten(self) -> list[slice]:
        """Return the blocks of seeds that are still to be written."""
        checksums = np.asarray(self._group[_CHECKSUM])
        seeds = self._group["seed"].shape[0]
        return [
            slice(k * self._block, min((k + 1) * self._block, seeds)) for k in np.flatnonzero(checksums == _UNWRITTEN)
        ]

    def write(self, seeds: slice, arrays: Mapping[str, np.ndarray], seconds: float = 0.0) -> None:
        """Write one block of seeds and the seconds it took: the data first, its checksum last.

        Raises:
            RecordError: a full disk or another failure to write; what was written before stays.
        """
        try:
            for name, array in arrays.items():
                self._group[name][seeds] = array
            self._group[_SECONDS][seeds.start // self._block] = seconds
            self._group[_CHECKSUM][seeds.start // self._block] = _checksum(arrays)
        except OSError as error:
            raise RecordError(
                f"cannot write seeds {seeds.start} to {seeds.stop - 1} of {self.path}: {error.strerror or error}; "
                "the blocks before it are kept, and the same command goes on from there"
            ) from error

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def read(self, name: str) -> np.ndarray:
        """Return an array of the record."""
        return np.asarray(self._group[name])

    def finish(self, **attributes: Any) -> None:
        """Add attributes that are known at the end and the seconds of all blocks, and mark the record complete."""
        seconds = float(np.sum(self._group[_SECONDS]))
        self._group.attrs.update({**attributes, "seconds": seconds, "complete": True})


def is_complete(path: Path) -> bool:
    """Whether a finished record stands at `path`."""
    return (path / "zarr.json").exists() and bool(_open_group(path, "r").attrs.get("complete", False))


def load(path: Path) -> xarray.Dataset:
    """Read a finished record, every block held against its checksum.

    Raises:
        RecordError: no record, an unfinished one, or a block that differs from what was written.
    """
    group = _open_group(path, "r")
    if not group.attrs.get("complete", False):
        unwritten = int((np.asarray(group[_CHECKSUM]) == _UNWRITTEN).sum())
        raise RecordError(
            f"the record {path} is unfinished: {unwritten} of {group[_CHECKSUM].shape[0]} blocks of seeds are "
            "missing; the command that began it goes on from there"
        )
    try:
        dataset = xarray.open_zarr(path, chunks=None, consolidated=False).load()
    except (ValueError, OSError, RuntimeError) as error:
        raise RecordError(f"the record {path} is damaged: {error}") from error
    block, seeds = dataset.attrs["block"], dataset.sizes["seed"]
    names = [str(name) for name in dataset.data_vars if "seed" in dataset[name].dims]
    for k, expected in enumerate(dataset[_CHECKSUM].values):
        part = slice(k * block, min((k + 1) * block, seeds))
        if _checksum({name: dataset[name].values[part] for name in names}) != expected:
            raise RecordError(
                f"the record {path} is damaged: seeds {part.start} to {part.stop - 1} differ from what was written; "
                "delete the folder and run the command again"
            )
    return dataset.drop_vars([_CHECKSUM, _SECONDS])


def save_dataset(path: Path, dataset: xarray.Dataset) -> None:
    """Write a whole dataset beside `path`, then move it there, so that it is there whole or not at all.

    Raises:
        RecordError: the place cannot be written.
    """
    partial = path.with_name(path.name + ".new")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        dataset.to_zarr(partial, mode="w", consolidated=False, zarr_format=3)
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def load_dataset(path: Path) -> xarray.Dataset:
    """Read a dataset that `save_dataset` wrote.

    Raises:
        RecordError: it is not there or cannot be read.
    """
    try:
        return xarray.open_zarr(path, chunks=None, consolidated=False).load()
    except (ValueError, OSError, RuntimeError) as error:
        raise RecordError(f"cannot read {path}: {error}") from error


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that the file is there whole or as it was before.

    Raises:
        RecordError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".new")
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def _lay_out(
    path: Path,
    variables: Mapping[str, Variable],
    coordinates: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    block: int,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    group = zarr.create_group(path, attributes=dict(attributes), zarr_format=3)
    for name, values in coordinates.items():
        group.create_array(name, data=np.asarray(values), dimension_names=(name,))
    for name, variable in variables.items():
        group.create_array(
            name,
            shape=variable.shape,
            dtype=variable.dtype,
            chunks=(min(block, variable.shape[0]), *variable.shape[1:]),
            dimension_names=variable.dims,
            compressors=None,  # Random mantissas do not compress.
        )
    blocks = -(-len(coordinates["seed"]) // block)
    group.create_array(
        _SECONDS, shape=(blocks,), dtype=np.float64, chunks=(1,), fill_value=0.0, dimension_names=("block",)
    )
    group.create_array(
        _CHECKSUM, shape=(blocks,), dtype=np.int64, chunks=(1,), fill_value=_UNWRITTEN, dimension_names=("block",)
    )


def _open_group(path: Path, mode: Any) -> Any:
    try:
        return zarr.open_group(path, mode=mode)
    except (GroupNotFoundError, FileNotFoundError, ValueError, OSError) as error:
        raise RecordError(f"no readable record at {path}: {error}") from error


def _checksum(arrays: Mapping[str, np.ndarray]) -> int:
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), checksum)
    return checksum


def _check_room(path: Path, needed: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
    if free < needed:
        raise RecordError(f"the record {path} needs {needed:,} bytes, and the disk has {free:,} left")
