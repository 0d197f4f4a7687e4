"""Datasets on disk, measured or gathered; saving never replaces anything that jaxattn did not write."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from jaxattn.records.errors import UNREADABLE, RecordError, of_system
from jaxattn.records.layout import DATASET

__all__ = ["check_folder", "check_place", "load_dataset", "save_dataset"]


def check_place(path: str | Path) -> None:
    """Check that `save_dataset` may write at `path`: nothing exists there, or a store that it wrote.

    A store to which other files have been added is not replaced.

    Raises:
        RecordError: there is something else, a symbolic link included, or the folder above cannot be written.

    Example:
        >>> from pathlib import Path
        >>> records.check_place(Path("own.zarr"))
        >>> Path("notes").mkdir()
        >>> records.check_place(Path("notes"))
        Traceback (most recent call last):
        jaxattn.records.errors.RecordError: ...
    """
    path = Path(path)
    try:
        if found := _not_ours(path):
            raise RecordError(
                f"{path}: expected nothing there, or a store that jaxattn wrote (it is replaced), found {found}; "
                "nothing was changed: name another place, or move away what is there"
            )
    except OSError as error:
        raise RecordError(f"cannot write {path}: {of_system(error)}") from error
    check_folder(path.parent)


def check_folder(folder: str | Path) -> None:
    """Check that files can be written in a folder, or that it can be created. A symbolic link to one is accepted.

    Raises:
        RecordError: it, or the nearest existing folder above it, is not a folder or cannot be written.

    Example:
        >>> from pathlib import Path
        >>> records.check_folder(Path("figures"))
    """
    folder = Path(folder).absolute()
    try:
        there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        if not there.is_dir():
            raise RecordError(f"cannot write in {folder}: expected a folder, but {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise RecordError(f"cannot write in {folder}: no permission to write in {there}")
    except OSError as error:
        raise RecordError(f"cannot write in {folder}: {of_system(error)}") from error


def save_dataset(path: str | Path, dataset: xarray.Dataset) -> None:
    """Write a whole dataset into a temporary folder beside `path`, then move it there.

    A store that an earlier call wrote at `path` is replaced, and is unchanged if this call fails. A killed process
    leaves the temporary folder behind, named like `path` with `.partial` at the end. If it is killed between the two
    renames of a replacement, that folder contains the complete earlier store as `old`.

    Raises:
        RecordError: `path` cannot be written, or contains anything but a store written by this function; no dataset; an
            array that xarray reads differently from what it wrote, such as one of objects, or with a slash in its name.

    Example:
        >>> from pathlib import Path
        >>> import xarray
        >>> records.save_dataset(Path("own.zarr"), xarray.Dataset({"x": ("seed", np.arange(3))}))
    """
    if not isinstance(dataset, xarray.Dataset):
        raise RecordError(f"dataset: expected an xarray.Dataset, found {type(dataset).__name__}")
    path = Path(path)
    check_place(path)
    plain = _with_plain_attributes(path, dataset)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A unique name: two writers do not mix, and no other file is in the way.
        partial = Path(tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise RecordError(f"cannot write {path}: {of_system(error)}") from error
    new, old = partial / "new", partial / "old"
    try:
        written = _checksums(plain)
        marked = plain.assign_attrs({DATASET: written})
        # Write chunks of fill values too: their NaNs may have other bits than the fill value.
        marked.to_zarr(new, mode="w", consolidated=False, zarr_format=3, write_empty_chunks=True)
        if changed := _changed(written, _opened(new)):
            raise RecordError(
                f"cannot write {path}: expected arrays that xarray reads as it wrote them, found others: "
                f"{', '.join(changed)}"
            )
        check_place(path)  # Writing takes time: something may have been created there.
        if path.exists():
            path.rename(old)
        new.rename(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {of_system(error)}") from error
    finally:
        _put_back(old, path)
        # The earlier store is deleted too, unless it could not be put back.
        if path.exists() or not old.exists():
            shutil.rmtree(partial, ignore_errors=True)


def load_dataset(path: str | Path) -> xarray.Dataset:
    """Read a dataset written by `save_dataset`, and check each array against its checksum.

    Raises:
        RecordError: it does not exist, cannot be read, was not written by this version, or differs from what was
            written.

    Example:
        >>> import xarray
        >>> records.save_dataset("sweep.zarr", xarray.Dataset({"x": ("seed", np.arange(3))}))
        >>> records.load_dataset("sweep.zarr")["x"].values.tolist()
        [0, 1, 2]
    """
    path = Path(path)
    if not (path / "zarr.json").is_file():
        raise RecordError(f"cannot read {path}: expected a store that jaxattn wrote, found none")
    aside = "nothing was changed: move it away, and run the command that wrote it again"
    try:
        dataset = _opened(path)
    except UNREADABLE as error:
        raise RecordError(f"cannot read {path}: it is damaged, or no dataset ({error}); {aside}") from error
    written = dataset.attrs.pop(DATASET, None)
    if not isinstance(written, dict):
        raise RecordError(
            f"cannot read {path}: expected a store that this version of jaxattn wrote, found one without checksums; "
            "`records.load` reads a record, and `xarray.open_zarr` any store as it is"
        )
    if changed := _changed(written, dataset):
        raise RecordError(f"{path} is damaged: {changed[0]} differs from what was written; {aside}")
    return dataset


def _opened(path: Path) -> xarray.Dataset:
    return xarray.open_zarr(path, chunks=None, consolidated=False).load()


def _changed(written: dict[str, int], dataset: xarray.Dataset) -> list[str]:
    """Return the names of the arrays of a dataset that differ from what was written."""
    found = _checksums(dataset)
    return [name for name in sorted({*written, *found}) if written.get(name) != found.get(name)]


def _with_plain_attributes(path: Path, dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a dataset whose attributes, and those of its arrays, are what JSON has."""
    plain = dataset.copy()
    for owner in (plain, *plain.variables.values()):
        try:
            owner.attrs = json.loads(json.dumps(owner.attrs, default=_plain))
        except TypeError as error:
            raise RecordError(
                f"cannot write {path}: expected attributes of numbers, texts and lists, {error}"
            ) from error
    return plain


def _plain(value: Any) -> Any:
    """Return the JSON form of an attribute that has one, for `json.dumps`."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"found {type(value).__name__}")


def _checksums(dataset: xarray.Dataset) -> dict[str, int]:
    """Return the CRC-32 of each array, including its axes and type."""
    return {str(name): _checksum(variable) for name, variable in sorted(dataset.variables.items())}


def _checksum(variable: xarray.Variable) -> int:
    values = variable.values
    if values.dtype.kind in "mM":
        # Times may be read back in another unit.
        kind, content = "time", _seconds_and_nanoseconds(values)
    elif values.dtype.kind in "biufc":
        kind, content = values.dtype.name, values.astype(values.dtype.newbyteorder("=")).tobytes()
    else:
        # Zarr returns texts with another type.
        kind, content = "text", json.dumps([str(one) for one in values.ravel().tolist()]).encode()
    # A name may be a NumPy string, whose representation differs.
    dims = tuple(map(str, variable.dims))
    return zlib.crc32(content, zlib.crc32(f"{kind} {dims} {variable.shape}".encode()))


def _seconds_and_nanoseconds(times: np.ndarray) -> bytes:
    """Return times or durations as whole seconds and the nanoseconds beyond."""
    kind = times.dtype.kind
    seconds = times.astype(f"{kind}8[s]")
    return seconds.astype(int).tobytes() + (times - seconds).astype("m8[ns]").astype(int).tobytes()


def _not_ours(path: Path) -> str:
    """Return what is at `path`, if it is anything but a store written by `save_dataset`; empty otherwise."""
    if path.is_symlink():
        return "a symbolic link"
    if not path.exists():
        return ""
    if not path.is_dir():
        return "a file"
    try:
        names: list[str] = json.loads((path / "zarr.json").read_text())["attributes"][DATASET]
        arrays = "|".join(re.escape(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return "a folder that is no such store"
    # Zarr's files of an array: a description, and chunks with numbers as names.
    own = re.compile(rf"zarr\.json|({arrays})/(zarr\.json|c(/\d+)*)")
    for folder, folders, files in os.walk(path):
        for name in (*files, *(one for one in folders if Path(folder, one).is_symlink())):
            inside = Path(folder, name).relative_to(path).as_posix()
            if Path(folder, name).is_symlink() or not own.fullmatch(inside):
                return f"such a store with a file of someone else in it, {inside}"
    return ""


def _put_back(old: Path, path: Path) -> None:
    """Move a store back to `path` after a failure, unless something exists there."""
    if old.exists() and not os.path.lexists(path):
        with contextlib.suppress(OSError):
            old.rename(path)
