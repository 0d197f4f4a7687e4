"""Results that depend on nothing but their arguments, kept in the user's cache folder from one command to the next."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from joblib import Memory

_Result = TypeVar("_Result")
# Beyond this size, what was used least recently is removed.
_MOST = "200M"


def cache_folder() -> Path:
    """Return the folder of all that may be lost: XDG_CACHE_HOME/jaxattn, by default ~/.cache/jaxattn."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxattn"


def kept(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return what a function gives for these arguments, computed unless an earlier command did.

    The arguments must say all that the result depends on, for example with `digest` of the files that are read. A
    function whose own text changed is called again; one that it calls must be in a digest.
    """
    return cast(_Result, _memory(cache_folder()).cache(function)(*arguments))


def trim() -> None:
    """Remove what was used least recently, if too much is kept."""
    _memory(cache_folder()).reduce_size(bytes_limit=_MOST)


@functools.cache
def _memory(folder: Path) -> Memory:
    try:
        return Memory(folder, verbose=0)
    except OSError:  # The folder cannot be written: nothing is kept.
        return Memory(None)


def digest(files: Iterable[Path]) -> str:
    """Return a hash of the paths and contents of files."""
    contents = hashlib.sha256()
    for file in sorted(files):
        contents.update(f"{file}\0".encode() + file.read_bytes() + b"\0")
    return contents.hexdigest()
