"""Records of training runs, written block by block and checked when they are read.

A record is a Zarr store with named dimensions that xarray opens. It is laid out in full before the first seed is
trained. Each block of seeds is one chunk (one file) of every array; data are written first and checksums last. A block
without checksums was never finished; one with a wrong checksum is damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from jaxattn.records import integrity, layout
from jaxattn.records.errors import UNREADABLE, RecordError, RecordWarning, of_system

__all__ = ["Record", "attributes", "check_room", "is_complete", "load", "write_json"]


class Record:
    """A record on disk that is being written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._group = integrity.opened(self.path, "r+")
        self._block = int(self._group.attrs["block"])

    @classmethod
    def create(
        cls,
        path: str | Path,
        variables: Mapping[str, layout.Variable],
        coordinates: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        block: int,
        notes: Mapping[str, Any] | None = None,
    ) -> Record:
        """Lay out an empty record at `path`, or open an unfinished one.

        An unfinished record is continued if it has the same arrays, coordinates and attributes. Its damaged blocks, and
        those with a missing or truncated file, as a machine that stops may leave them, count as unwritten again, with a
        `RecordWarning`.

        Args:
            path: the store; an unfinished record keeps its finished blocks.
            variables: all arrays, with their seed axis first.
            coordinates: the values of the dimensions that have any.
            attributes: JSON values that its numbers depend on.
            block: the number of seeds written at a time; an unfinished record keeps its own.
            notes: further attributes, JSON values; those of an unfinished record may differ, and are kept.

        Raises:
            RecordError: `path` cannot be written; an unfinished record cannot be read, or was begun differently.
                Nothing is deleted.
        """
        path = Path(path)
        try:
            if not (path / "zarr.json").exists():
                partial = path.with_name(path.name + ".new")
                shutil.rmtree(partial, ignore_errors=True)
                layout.lay_out(partial, variables, coordinates, {**attributes, **(notes or {})}, block)
                partial.rename(path)
                return cls(path)
            record = cls(path)
            if found := integrity.differences(path, record._group, variables, coordinates, attributes):
                raise integrity.refused(path, found)
            record._mend()
        except OSError as error:
            raise RecordError(f"cannot write the record {path}: {of_system(error)}") from error
        return record

    def unwritten(self) -> list[slice]:
        """Return the blocks of seeds that are not written yet."""
        missing = np.any(np.asarray(self._group[layout.CHECKSUM]) == layout.UNWRITTEN, axis=1)
        return [part for part, one in zip(self.blocks(), missing, strict=True) if one]

    def blocks(self) -> list[slice]:
        """Return all blocks of seeds."""
        return layout.blocks(self._group["seed"].shape[0], self._block)

    def write(self, seeds: slice, arrays: Mapping[str, np.ndarray], seconds: float = 0.0) -> None:
        """Write one block of seeds and the seconds it took: data first, checksums last.

        Raises:
            RecordError: a full disk or another failure to write; earlier blocks are kept.
        """
        k = seeds.start // self._block
        try:
            for name, array in arrays.items():
                self._group[name].with_config({"write_empty_chunks": True})[seeds] = array
            self._group[layout.SECONDS][k] = seconds
            self._group[layout.CHECKSUM][k] = [
                layout.checksum(arrays[name]) for name in self._group.attrs[layout.NAMES]
            ]
        except OSError as error:
            raise RecordError(
                f"cannot write seeds {seeds.start} to {seeds.stop - 1} of {self.path}: {of_system(error)}; "
                "the blocks before it are kept, and the same command continues from there"
            ) from error

    @property
    def names(self) -> list[str]:
        """The names of its arrays."""
        return sorted(self._group.array_keys())

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def read(self, name: str, seeds: slice = slice(None)) -> np.ndarray:
        """Return an array of the record, or its part for some seeds."""
        return np.asarray(self._group[name][seeds])

    def finish(self, **attributes: Any) -> None:
        """Add final attributes and the seconds of all blocks, and mark the record as complete.

        Raises:
            RecordError: a full disk or another failure to write.
        """
        seconds = float(np.sum(self._group[layout.SECONDS]))
        try:
            self._group.attrs.update({**attributes, "seconds": seconds, "complete": True})
        except OSError as error:
            raise RecordError(f"cannot finish {self.path}: {of_system(error)}") from error

    def _mend(self) -> None:
        """Discard the checksums of blocks that are not whole, and files that a killed process left behind."""
        for leftover in self.path.rglob("*.partial"):
            leftover.unlink()
        for name in (layout.CHECKSUM, layout.SECONDS):
            for _, file in integrity.cut_short(self.path, self._group, name, self.blocks()):
                file.unlink(missing_ok=True)
        unwritten = self.unwritten()
        written = [part for part in self.blocks() if part not in unwritten]
        wrong: dict[int, str] = {}
        for name in self._group.attrs[layout.NAMES]:
            for part, file in integrity.cut_short(self.path, self._group, name, self.blocks()):
                wrong.setdefault(part.start, f"half-written ({file} is missing or cut short)")
        proofs = np.asarray(self._group[layout.CHECKSUM])
        for part in written:
            for name, proof in zip(self._group.attrs[layout.NAMES], proofs[part.start // self._block], strict=True):
                if part.start not in wrong and not integrity.is_whole(self._group, name, part, proof):
                    wrong[part.start] = f"damaged ({name} differs from what was written)"
            if part.start in wrong:
                self._group[layout.CHECKSUM][part.start // self._block] = layout.UNWRITTEN
                warnings.warn(
                    f"{self.path}: seeds {part.start} to {part.stop - 1} were {wrong[part.start]}; they are computed "
                    "again",
                    RecordWarning,
                    stacklevel=2,
                )


def is_complete(path: str | Path) -> bool:
    """Return whether there is a finished record at `path`.

    Example:
        >>> from pathlib import Path
        >>> records.is_complete(Path("nowhere.zarr"))
        False
    """
    path = Path(path)
    return (path / "zarr.json").exists() and bool(integrity.opened(path, "r").attrs.get("complete", False))


def attributes(path: str | Path) -> dict[str, Any]:
    """Return the attributes of the record at `path`, without reading its arrays.

    Raises:
        RecordError: there is no readable record.

    Example:
        >>> from pathlib import Path
        >>> records.attributes(Path("nowhere.zarr"))
        Traceback (most recent call last):
        jaxattn.records.errors.RecordError: ...
    """
    return dict(integrity.opened(Path(path), "r").attrs)


def load(path: str | Path, names: Sequence[str] | None = None) -> xarray.Dataset:
    """Read a finished record, and check each block against its checksums.

    Args:
        path: the record.
        names: the arrays to read, with their coordinates. Default: all.

    Raises:
        RecordError: no record, an unfinished one, names that are no list, an unknown name (the message lists the known
            ones), or a block that differs from what was written.

    Example:
        >>> from pathlib import Path
        >>> records.load(Path("nowhere.zarr"))
        Traceback (most recent call last):
        jaxattn.records.errors.RecordError: ...
    """
    path = Path(path)
    if isinstance(names, str):
        raise RecordError(f"names: expected a list of names, found {names!r}")
    group = integrity.opened(path, "r")
    if not group.attrs.get("complete", False):
        unwritten = int(np.any(np.asarray(group[layout.CHECKSUM]) == layout.UNWRITTEN, axis=1).sum())
        raise RecordError(
            f"the record {path} is unfinished: {unwritten} of {group[layout.CHECKSUM].shape[0]} blocks of seeds are "
            "missing; run the command that began it again to continue"
        )
    known = list(group.attrs[layout.NAMES])
    names = known if names is None else list(names)
    if unknown := sorted(set(names) - set(known)):
        raise RecordError(f"the record {path} has no {unknown}; it has {known}")
    for name in names:
        integrity.array_of(path, group, name)
    try:
        opened = xarray.open_zarr(path, chunks=None, consolidated=False)
        checksums = opened[layout.CHECKSUM].values
        dataset = opened[names].load()
    except UNREADABLE as error:
        raise integrity.damaged(path, str(error)) from error
    for name, proof in group.attrs.get(layout.COORDINATES, {}).items():
        if name in dataset.coords and layout.checksum(dataset[name].values) != proof:
            raise integrity.damaged(path, f"{name} differs from what was written")
    for k, part in enumerate(layout.blocks(dataset.sizes["seed"], int(dataset.attrs["block"]))):
        for name in names:
            if layout.checksum(dataset[name].values[part]) != checksums[k, known.index(name)]:
                where = f"{name} of seeds {part.start} to {part.stop - 1}"
                raise integrity.damaged(path, f"{where} differs from what was written")
    return dataset


def write_json(path: str | Path, content: Any) -> None:
    """Write JSON such that the file is either complete or unchanged.

    Raises:
        RecordError: the file cannot be written.

    Example:
        >>> from pathlib import Path
        >>> records.write_json(Path("status.json"), {"state": "running"})
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".new")
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {of_system(error)}") from error


def check_room(path: str | Path, needed: int) -> None:
    """Check that the disk has room for this many bytes at a path, whose folder may not exist yet.

    Raises:
        RecordError: it has not, or its free space cannot be read.

    Example:
        >>> from pathlib import Path
        >>> records.check_room(Path("record.zarr"), needed=1000)
    """
    above = next(folder for folder in Path(path).absolute().parents if folder.exists())
    try:
        free = shutil.disk_usage(above).free
    except OSError as error:
        raise RecordError(f"cannot write the record {path}: {of_system(error)}") from error
    if free < needed:
        raise RecordError(f"the record {path} needs {needed:,} bytes, and the disk has {free:,} left")
