"""One writer at a time: a record is held while it is written, and let go however its process ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from jaxattn.records.store import RecordError


class HeldError(RecordError):
    """A record that another process is writing; names the process and when it started."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold what is written at `path`, by a lock on a file beside it that names this process.

    The lock is the kernel's: it ends with the process, also one that is killed. The file stays.

    Raises:
        HeldError: another process, or another thread of this one, holds it.
        RecordError: the file cannot be written.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RecordError(f"cannot write {lock}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_this_process()).encode(), 0)
        except BlockingIOError:
            raise HeldError(f"{path.parent} is being written by {_holder(lock)}; wait for it, or end it") from None
        except OSError as error:
            raise RecordError(f"cannot write {lock}: {error.strerror or error}") from error
        yield
    finally:
        os.close(descriptor)


def _this_process() -> dict[str, str | int]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"process": os.getpid(), "host": socket.gethostname(), "started": started}


def _holder(lock: Path) -> str:
    try:
        holder = json.loads(lock.read_text())
    except ValueError:  # Between taking the lock and writing who has it.
        return "a process that has just begun"
    return f"process {holder['process']} on {holder['host']}, started {holder['started']}"
