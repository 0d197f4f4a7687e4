"""Locks that allow one writer of a record at a time, and end with the writer's process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import filelock

from jaxattn.records.errors import RecordError, of_system

__all__ = ["HeldError", "held"]


class HeldError(RecordError):
    """Another process is writing the record; the message names it and when it started."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock `path` for writing, with a lock file beside it that names this process.

    The operating system holds the lock, so it ends with the process, even if that is killed.

    Raises:
        HeldError: another process, or another thread of this one, holds the lock.
        RecordError: the lock file cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from jaxattn.records import locks
        >>> with locks.held(Path("record.zarr")):
        ...     pass  # write it
    """
    file = path.with_name(path.name + ".lock")
    # A lock that is only a file would survive a killed process.
    lock = filelock.FileLock(file, blocking=False, fallback_to_soft=False, on_acquired=_sign)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        raise HeldError(f"{path.parent} is being written by {_holder(file)}; wait for it, or end it") from None
    except OSError as error:
        raise RecordError(f"cannot write {file}: {of_system(error)}") from error
    try:
        yield
    finally:
        lock.release()


def _sign(descriptor: int) -> None:
    """Write the process that holds a lock into its file."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    signed = {"process": os.getpid(), "host": socket.gethostname(), "started": started}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(signed).encode())


def _holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
        return f"process {holder['process']} on {holder['host']}, started {holder['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # Not written yet, or (on Windows) unreadable while locked.
        return "another process"
