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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from jaxattn.records import layout, whole
from jaxattn.records.errors import UNREADABLE, RecordError, RecordWarning, of_system

__all__ = ["Record", "attributes", "check_room", "is_complete", "load", "write_json"]


class Record:
    """A record on disk that is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._group = whole.opened(path, "r+")
        self._block = int(self._group.attrs["block"])

    @classmethod
    def create(
        cls,
        path: Path,
        variables: Mapping[str, layout.Variable],
        coordinates: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        block: int,
        notes: Mapping[str, Any] | None = None,
    ) -> Record:
        """Lay out an empty record at `path`, or open the one that was begun there.

        A begun one is gone on with if it states the same arrays, coordinates and attributes. Its blocks that are
        damaged, or have a file that is missing or cut short, as a machine that stopped leaves them, count as unwritten
        again, with a `RecordWarning`.

        Args:
            path: of the store; a begun record keeps its finished blocks.
            variables: every array, with its seed axis first.
            coordinates: values of the dimensions that have any.
            attributes: JSON values that its numbers depend on.
            block: seeds written at a time; a begun record keeps its own.
            notes: further attributes, JSON values; those of a begun record may be others, and stay.

        Raises:
            RecordError: the place cannot be written; a begun record cannot be read, or was begun otherwise. Nothing is
                deleted.
        """
        try:
            if not (path / "zarr.json").exists():
                partial = path.with_name(path.name + ".new")
                shutil.rmtree(partial, ignore_errors=True)
                layout.lay_out(partial, variables, coordinates, {**attributes, **(notes or {})}, block)
                partial.rename(path)
                return cls(path)
            record = cls(path)
            if found := whole.differences(path, record._group, variables, coordinates, attributes):
                raise whole.refused(path, found)
            record._mend()
        except OSError as error:
            raise RecordError(f"cannot write the record {path}: {of_system(error)}") from error
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
            self._group[layout.CHECKSUM][k] = [
                layout.checksum(arrays[name]) for name in self._group.attrs[layout.NAMES]
            ]
        except OSError as error:
            raise RecordError(
                f"cannot write seeds {seeds.start} to {seeds.stop - 1} of {self.path}: {of_system(error)}; "
                "the blocks before it are kept, and the same command goes on from there"
            ) from error

    @property
    def names(self) -> list[str]:
        """Its arrays, by name."""
        return sorted(self._group.array_keys())

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
            raise RecordError(f"cannot finish {self.path}: {of_system(error)}") from error

    def _mend(self) -> None:
        """Forget the checksums of blocks that are not whole, and what a killed write left behind."""
        for leftover in self.path.rglob("*.partial"):
            leftover.unlink()
        for name in (layout.CHECKSUM, layout.SECONDS):
            for _, file in whole.cut_short(self.path, self._group, name, self.blocks()):
                file.unlink(missing_ok=True)
        unwritten = self.unwritten()
        written = [part for part in self.blocks() if part not in unwritten]
        wrong: dict[int, str] = {}
        for name in self._group.attrs[layout.NAMES]:
            for part, file in whole.cut_short(self.path, self._group, name, self.blocks()):
                wrong.setdefault(part.start, f"half-written ({file} is missing or cut short)")
        proofs = np.asarray(self._group[layout.CHECKSUM])
        for part in written:
            for name, proof in zip(self._group.attrs[layout.NAMES], proofs[part.start // self._block], strict=True):
                if part.start not in wrong and not whole.is_whole(self._group, name, part, proof):
                    wrong[part.start] = f"damaged ({name} differs from what was written)"
            if part.start in wrong:
                self._group[layout.CHECKSUM][part.start // self._block] = layout.UNWRITTEN
                warnings.warn(
                    f"{self.path}: seeds {part.start} to {part.stop - 1} were {wrong[part.start]}; they are computed "
                    "anew",
                    RecordWarning,
                    stacklevel=2,
                )


def is_complete(path: Path) -> bool:
    """Whether a finished record stands at `path`.

    Example:
        >>> from pathlib import Path
        >>> records.is_complete(Path("nowhere.zarr"))
        False
    """
    return (path / "zarr.json").exists() and bool(whole.opened(path, "r").attrs.get("complete", False))


def attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the record at `path`, without reading its arrays.

    Raises:
        RecordError: there is no readable record.

    Example:
        >>> from pathlib import Path
        >>> records.attributes(Path("nowhere.zarr"))
        Traceback (most recent call last):
        jaxattn.records.errors.RecordError: ...
    """
    return dict(whole.opened(path, "r").attrs)


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
        jaxattn.records.errors.RecordError: ...
    """
    group = whole.opened(path, "r")
    if not group.attrs.get("complete", False):
        unwritten = int(np.any(np.asarray(group[layout.CHECKSUM]) == layout.UNWRITTEN, axis=1).sum())
        raise RecordError(
            f"the record {path} is unfinished: {unwritten} of {group[layout.CHECKSUM].shape[0]} blocks of seeds are "
            "missing; the command that began it goes on from there"
        )
    known = list(group.attrs[layout.NAMES])
    names = known if names is None else list(names)
    if unknown := sorted(set(names) - set(known)):
        raise RecordError(f"the record {path} has no {unknown}; it has {known}")
    for name in names:
        whole.array_of(path, group, name)
    try:
        opened = xarray.open_zarr(path, chunks=None, consolidated=False)
        checksums = opened[layout.CHECKSUM].values
        dataset = opened[names].load()
    except UNREADABLE as error:
        raise whole.damaged(path, str(error)) from error
    for name, proof in group.attrs.get(layout.COORDINATES, {}).items():
        if name in dataset.coords and layout.checksum(dataset[name].values) != proof:
            raise whole.damaged(path, f"{name} differs from what was written")
    for k, part in enumerate(layout.blocks(dataset.sizes["seed"], int(dataset.attrs["block"]))):
        for name in names:
            if layout.checksum(dataset[name].values[part]) != checksums[k, known.index(name)]:
                where = f"{name} of seeds {part.start} to {part.stop - 1}"
                raise whole.damaged(path, f"{where} differs from what was written")
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
        raise RecordError(f"cannot write {path}: {of_system(error)}") from error


def check_room(path: Path, needed: int) -> None:
    """Check that the disk has room for so many bytes at a path, whose folder may still have to be made.

    Raises:
        RecordError: it has not, or cannot be asked.

    Example:
        >>> from pathlib import Path
        >>> records.check_room(Path("record.zarr"), needed=1000)
    """
    above = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        free = shutil.disk_usage(above).free
    except OSError as error:
        raise RecordError(f"cannot write the record {path}: {of_system(error)}") from error
    if free < needed:
        raise RecordError(f"the record {path} needs {needed:,} bytes, and the disk has {free:,} left")
