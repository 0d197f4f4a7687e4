"""Internal: check that a record matches its own statement: descriptions, arrays, and blocks of seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from jaxattn.records import layout
from jaxattn.records.errors import UNREADABLE, RecordError, of_system

# The advice for records that cannot be repaired.
_ASIDE = "nothing was changed: move {path} away, and run the same command again"


def opened(path: Path, mode: Any) -> Any:
    """Return the Zarr group of a record.

    Raises:
        RecordError: there is none, or its description cannot be read, is incomplete, or has another layout.
    """
    if not (path / "zarr.json").is_file():
        raise RecordError(f"no readable record at {path}: expected a folder with zarr.json, found none")
    try:
        group = zarr.open_group(path, mode=mode)
        attributes = dict(group.attrs)
    except PermissionError as error:
        raise RecordError(f"cannot read {path}: {of_system(error)}") from error
    except UNREADABLE as error:
        raise _unreadable(path, "zarr.json is damaged, or not of Zarr") from error
    number = attributes.get(layout.NUMBER, layout.LAYOUT)
    if number != layout.LAYOUT:
        raise _unreadable(path, f"expected a record of layout {layout.LAYOUT}, found {number!r}, of another version")
    lacking = [name for name in (layout.NAMES, "block") if name not in attributes]
    lacking += [name for name in (layout.CHECKSUM, layout.SECONDS, "seed") if not (path / name).is_dir()]
    if lacking and layout.DATASET in attributes:
        raise RecordError(f"no record at {path}: expected one, found a dataset, which `records.load_dataset` reads")
    if lacking:
        raise _unreadable(path, f"expected a record that jaxattn wrote, found a store without {', '.join(lacking)}")
    return group


def array_of(path: Path, group: Any, name: str) -> Any:
    """Return an array of a record, not read yet, after checking it against the record's statement.

    Raises:
        RecordError: its description cannot be read, or differs.
    """
    try:
        array = group[name]
        found = layout.described(array.metadata.dimension_names, array.shape, array.dtype)
    except UNREADABLE as error:
        raise _unreadable(path, f"{name}/zarr.json is missing, or damaged") from error
    stated = group.attrs.get(layout.ARRAYS, {}).get(name, found)
    if found != stated:
        raise _unreadable(path, f"{name}: expected {stated}, as zarr.json states, found {found}")
    return array


def differences(
    path: Path,
    group: Any,
    variables: Mapping[str, layout.Variable],
    coordinates: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
) -> list[str]:
    """Return how an unfinished record differs from one that would be laid out now, with expected and found values.

    Raises:
        RecordError: the description of one of its arrays cannot be read, or differs from the record's statement.
    """
    now = json.loads(json.dumps({**layout.statement(variables, coordinates), **attributes}))
    then = dict(group.attrs)
    found = [_unlike(name, now[name], then.get(name)) for name in attributes if then.get(name) != now[name]]
    if layout.ARRAYS not in then:
        return [*found, _unlike("what its arrays are", "a statement in zarr.json", None)]
    for name in sorted({*now[layout.ARRAYS], *then[layout.ARRAYS]}):
        one, other = (stated[layout.ARRAYS].get(name) for stated in (now, then))
        if one != other:
            found.append(_unlike(name, one, other))
    for name in then[layout.ARRAYS]:
        array_of(path, group, name)
    for name, proof in now[layout.COORDINATES].items():
        try:
            same = proof == then[layout.COORDINATES][name] == layout.checksum(np.asarray(group[name]))
        except UNREADABLE:
            same = False
        if not same:
            found.append(f"{name}: expected the values of this run, found others")
    return found


def _unlike(name: str, expected: Any, found: Any) -> str:
    said = ["none" if one is None else _shortened(str(one)) for one in (expected, found)]
    return f"{name}: expected {said[0]}, found {said[1]}"


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def refused(path: Path, found: list[str]) -> RecordError:
    """Return the error for an unfinished record that cannot be continued."""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return RecordError(
        f"the record {path} was begun with other settings and cannot be continued: {found[0]}{more}; {_aside(path)}"
    )


def cut_short(path: Path, group: Any, name: str, parts: list[slice]) -> Iterator[tuple[slice, Path]]:
    """Yield the blocks of an array whose file is missing or has the wrong length."""
    array = array_of(path, group, name)
    length = int(np.prod(array.chunks)) * array.dtype.itemsize
    for k, part in enumerate(parts):
        file = path / name / array.metadata.encode_chunk_key((k, *(0 for _ in array.shape[1:])))
        if not file.exists() or file.stat().st_size != length:
            yield part, file


def is_whole(group: Any, name: str, part: slice, proof: int) -> bool:
    """Return whether a block of an array is what was written."""
    return layout.checksum(np.asarray(group[name][part])) == proof


def damaged(path: Path, what: str) -> RecordError:
    """Return the error for a damaged finished record."""
    return RecordError(f"the record {path} is damaged: {what}; {_aside(path)}")


def _unreadable(path: Path, what: str) -> RecordError:
    return RecordError(f"no readable record at {path}: {what}; {_aside(path)}")


def _aside(path: Path) -> str:
    return _ASIDE.format(path=path)
