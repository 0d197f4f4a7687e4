"""Records: what a training run left behind, written block by block and read back whole.

A record is a zarr store with named dimensions that xarray opens. It is laid out in full before the
first seed is trained; each block of seeds is one chunk of every array, a file each, written data first
and their checksums last. A block without checksums was never finished, one with a wrong one was damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
import zarr
from zarr.errors import GroupNotFoundError

from jaxattn.records import layout

__all__ = [
    "Record",
    "RecordError",
    "RecordWarning",
    "attributes",
    "is_complete",
    "load",
    "write_json",
]


class RecordError(RuntimeError):
    """A record that is missing, unfinished, damaged, or cannot be written; names it and says why."""


class RecordWarning(UserWarning):
    """A block of a record that was found half-written and is written anew; names the record and its seeds."""


class Record:
    """A record on disk that is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._group = _open_group(path, "r+")
        self._block = int(self._group.attrs["block"])

    @classmethod
    def create(
        cls,
        path: Path,
        variables: Mapping[str, layout.Variable],
        coordinates: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        block: int,
    ) -> Record:
        """Lay out an empty record at `path`, or open the one that was begun there.

        Of a begun one, blocks with a file that is missing or cut short, as a machine that stopped leaves them,
        count as unwritten again, with a `RecordWarning`.

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
                layout.lay_out(partial, variables, coordinates, {**attributes, "block": block}, block)
                partial.rename(path)
            except OSError as error:
                raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
            return cls(path)
        record = cls(path)
        try:
            record._mend()
        except OSError as error:
            raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
        return record

    def unwritten(self) -> list[slice]:
        """Return the blocks of seeds that are still to be written."""
        missing = np.any(np.asarray(self._group[layout.CHECKSUM]) == layout.UNWRITTEN, axis=1)
        return [part for part, one in zip(self.blocks(), missing, strict=True) if one]

    def blocks(self) -> list[slice]:
        """Return all blocks of seeds."""
        return layout.blocks(self._group["seed"].shape[0], self._block)

    def write(self, seeds: slice, arrays: Mapping[str, np.ndarray], seconds: float = 0.0) -> None:
        """Write one block of seeds and the seconds it took: the data first, their checksums last.

        Raises:
            RecordError: a full disk or another failure to write; what was written before stays.
        """
        k = seeds.start // self._block
        try:
            for name, array in arrays.items():
                self._group[name].with_config({"write_empty_chunks": True})[seeds] = array
            self._group[layout.SECONDS][k] = seconds
            self._group[layout.CHECKSUM][k] = [_checksum(arrays[name]) for name in self._group.attrs["variables"]]
        except OSError as error:
            raise RecordError(
                f"cannot write seeds {seeds.start} to {seeds.stop - 1} of {self.path}: {error.strerror or error}; "
                "the blocks before it are kept, and the same command goes on from there"
            ) from error

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def read(self, name: str, seeds: slice = slice(None)) -> np.ndarray:
        """Return an array of the record, or its part of some seeds."""
        return np.asarray(self._group[name][seeds])

    def finish(self, **attributes: Any) -> None:
        """Add attributes that are known at the end and the seconds of all blocks, and mark the record complete.

        Raises:
            RecordError: a full disk or another failure to write.
        """
        seconds = float(np.sum(self._group[layout.SECONDS]))
        try:
            self._group.attrs.update({**attributes, "seconds": seconds, "complete": True})
        except OSError as error:
            raise RecordError(f"cannot finish {self.path}: {error.strerror or error}") from error

    def _mend(self) -> None:
        """Forget the checksums of blocks that lack data, and what a killed write left behind."""
        for leftover in self.path.rglob("*.partial"):
            leftover.unlink()
        for name in (layout.CHECKSUM, layout.SECONDS):
            for _, file in self._cut_short(name):
                file.unlink(missing_ok=True)
        unwritten = self.unwritten()
        for name in self._group.attrs["variables"]:
            for part, file in self._cut_short(name):
                if part not in unwritten:
                    self._group[layout.CHECKSUM][part.start // self._block] = layout.UNWRITTEN
                    unwritten.append(part)
                    warnings.warn(
                        f"{self.path}: seeds {part.start} to {part.stop - 1} were half-written ({file} is missing or "
                        "cut short); they are computed anew",
                        RecordWarning,
                        stacklevel=2,
                    )

    def _cut_short(self, name: str) -> Iterator[tuple[slice, Path]]:
        """Yield the blocks of an array whose file is missing or has not the length it must have."""
        array = self._group[name]
        length = int(np.prod(array.chunks)) * array.dtype.itemsize
        for k, part in enumerate(self.blocks()):
            file = self.path / name / array.metadata.encode_chunk_key((k, *(0 for _ in array.shape[1:])))
            if not file.exists() or file.stat().st_size != length:
                yield part, file


def is_complete(path: Path) -> bool:
    """Whether a finished record stands at `path`.

    Example:
        >>> from pathlib import Path
        >>> records.is_complete(Path("nowhere.zarr"))
        False
    """
    return (path / "zarr.json").exists() and bool(_open_group(path, "r").attrs.get("complete", False))


def attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the record at `path`, without reading its arrays.

    Raises:
        RecordError: there is no readable record.

    Example:
        >>> from pathlib import Path
        >>> records.attributes(Path("nowhere.zarr"))
        Traceback (most recent call last):
        jaxattn.records.store.RecordError: ...
    """
    return dict(_open_group(path, "r").attrs)


def load(path: Path, names: Sequence[str] | None = None) -> xarray.Dataset:
    """Read a finished record, every block held against its checksums.

    Args:
        path: of the record.
        names: the arrays to read, with their coordinates; all if None.

    Raises:
        RecordError: no record, an unfinished one, a name it does not have (the known ones are listed), or a block
            that differs from what was written.

    Example:
        >>> from pathlib import Path
        >>> records.load(Path("nowhere.zarr"))
        Traceback (most recent call last):
        jaxattn.records.store.RecordError: ...
    """
    group = _open_group(path, "r")
    if not group.attrs.get("complete", False):
        unwritten = int(np.any(np.asarray(group[layout.CHECKSUM]) == layout.UNWRITTEN, axis=1).sum())
        raise RecordError(
            f"the record {path} is unfinished: {unwritten} of {group[layout.CHECKSUM].shape[0]} blocks of seeds are "
            "missing; the command that began it goes on from there"
        )
    known = list(group.attrs["variables"])
    names = known if names is None else list(names)
    if unknown := sorted(set(names) - set(known)):
        raise RecordError(f"the record {path} has no {unknown}; it has {known}")
    try:
        opened = xarray.open_zarr(path, chunks=None, consolidated=False)
        checksums = opened[layout.CHECKSUM].values
        dataset = opened[names].load()
    except (ValueError, OSError, RuntimeError) as error:
        raise RecordError(f"the record {path} is damaged: {error}") from error
    for k, part in enumerate(layout.blocks(dataset.sizes["seed"], int(dataset.attrs["block"]))):
        for name in names:
            if _checksum(dataset[name].values[part]) != checksums[k, known.index(name)]:
                raise RecordError(
                    f"the record {path} is damaged: {name} of seeds {part.start} to {part.stop - 1} differs from "
                    "what was written; delete the folder and run the command again"
                )
    return dataset


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that the file is there whole or as it was before.

    Raises:
        RecordError: the place cannot be written.

    Example:
        >>> from pathlib import Path
        >>> records.write_json(Path("status.json"), {"state": "running"})
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".new")
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def _open_group(path: Path, mode: Any) -> Any:
    try:
        return zarr.open_group(path, mode=mode)
    except (GroupNotFoundError, FileNotFoundError, ValueError, OSError) as error:
        raise RecordError(f"no readable record at {path}: {error}") from error


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data)


def _check_room(path: Path, needed: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
    if free < needed:
        raise RecordError(f"the record {path} needs {needed:,} bytes, and the disk has {free:,} left")
