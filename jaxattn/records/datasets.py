"""Whole datasets on disk: measured ones, and what a user gathers; nothing of anyone else's is ever replaced."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import xarray

from jaxattn.records.store import RecordError

__all__ = ["check_place", "load_dataset", "save_dataset"]

# The attribute that marks a store that `save_dataset` wrote; its value is the names of the store's arrays.
_MARK = "written_by_jaxattn"


def check_place(path: Path) -> None:
    """Check that `save_dataset` may write at `path`: nothing is there, or a store that `save_dataset` wrote.

    Such a store is one as long as it holds its own files only: a store with notes put into it is not replaced.

    Raises:
        RecordError: something else is there, a symbolic link included, or the folder above cannot be written.

    Example:
        >>> from pathlib import Path
        >>> records.check_place(Path("own.zarr"))
        >>> Path("notes").mkdir()
        >>> records.check_place(Path("notes"))
        Traceback (most recent call last):
        jaxattn.records.store.RecordError: ...
    """
    try:
        if found := _not_ours(path):
            raise RecordError(
                f"{path}: expected nothing there, or a store that jaxattn wrote (it is replaced), found {found}; "
                "nothing was changed: name another place, or move away what is there"
            )
        above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
        if not above.is_dir():
            raise RecordError(f"cannot write {path}: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise RecordError(f"cannot write {path}: no permission to write in {above}")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def save_dataset(path: Path, dataset: xarray.Dataset) -> None:
    """Write a whole dataset into a temporary folder beside `path`, then move it there.

    A store that an earlier call wrote at `path` is replaced, and stays as it was if this call fails. A process that is
    killed leaves the temporary folder behind; its name is that of `path` with `.partial` at the end. One killed between
    the two renames of the replacement leaves the earlier store whole in there, as `old`.

    Raises:
        RecordError: the place cannot be written, or holds anything but a store that this function wrote.

    Example:
        >>> from pathlib import Path
        >>> import xarray
        >>> records.save_dataset(Path("own.zarr"), xarray.Dataset({"x": ("seed", np.arange(3))}))
    """
    check_place(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: two writers do not mix, and nothing of anyone else's is in the way.
        partial = Path(tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    new, old = partial / "new", partial / "old"
    try:
        marked = dataset.assign_attrs({_MARK: sorted(map(str, dataset.variables))})
        marked.to_zarr(new, mode="w", consolidated=False, zarr_format=3)
        check_place(path)  # Writing takes time: something may have been put there.
        if path.exists():
            path.rename(old)
        new.rename(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        _put_back(old, path)
        # The earlier store goes with it, but not if it could not be put back.
        if path.exists() or not old.exists():
            shutil.rmtree(partial, ignore_errors=True)


def load_dataset(path: Path) -> xarray.Dataset:
    """Read a dataset that `save_dataset` wrote.

    Raises:
        RecordError: it is not there or cannot be read.

    Example:
        >>> from pathlib import Path
        >>> import xarray
        >>> records.save_dataset(Path("sweep.zarr"), xarray.Dataset({"x": ("seed", np.arange(3))}))
        >>> records.load_dataset(Path("sweep.zarr"))["x"].values.tolist()
        [0, 1, 2]
    """
    try:
        dataset = xarray.open_zarr(path, chunks=None, consolidated=False).load()
    except (ValueError, OSError, RuntimeError) as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    dataset.attrs.pop(_MARK, None)
    return dataset


def _not_ours(path: Path) -> str:
    """Say what is at `path`, if it is anything but a store that `save_dataset` wrote; empty if not."""
    if path.is_symlink():
        return "a symbolic link"
    if not path.exists():
        return ""
    if not path.is_dir():
        return "a file"
    try:
        names: list[str] = json.loads((path / "zarr.json").read_text())["attributes"][_MARK]
        arrays = "|".join(re.escape(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return "a folder that is no such store"
    # As Zarr lays out an array: a description, and chunks with numbers for names.
    own = re.compile(rf"zarr\.json|({arrays})/(zarr\.json|c(/\d+)*)")
    for folder, folders, files in os.walk(path):
        for name in (*files, *(one for one in folders if Path(folder, one).is_symlink())):
            inside = Path(folder, name).relative_to(path).as_posix()
            if Path(folder, name).is_symlink() or not own.fullmatch(inside):
                return f"such a store with a file of someone else in it, {inside}"
    return ""


def _put_back(old: Path, path: Path) -> None:
    """Move a store back to `path` after a failure, unless something is there."""
    if old.exists() and not os.path.lexists(path):
        with contextlib.suppress(OSError):
            old.rename(path)
