"""Internal: the layout of a record on disk: its arrays, and its statements about itself and each block of seeds."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

# For each block: the checksums of its arrays, and the seconds it took.
CHECKSUM, SECONDS = "checksum", "seconds"
UNWRITTEN = -1
# Incremented when the layout changes; a record without a number has the first layout.
LAYOUT = 1
# Attributes of each record: its layout, the names and descriptions of its arrays, and the checksums of its coordinates.
NUMBER, NAMES, ARRAYS, COORDINATES = "layout", "variables", "arrays", "coordinate_checksums"
# The attribute of a store that is no record but a dataset (`records.save_dataset`): a checksum for each array.
DATASET = "written_by_jaxattn"


@dataclass(frozen=True)
class Variable:
    """An array of a record.

    Attributes:
        dims: the names of its axes; the first is "seed".
        shape: their lengths.
        dtype: the type of its entries.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype


def lay_out(
    path: Path,
    variables: Mapping[str, Variable],
    coordinates: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    block: int,
) -> None:
    """Write a record of these arrays with all blocks unwritten; the arguments are those of `records.Record.create`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(variables)
    stated = statement(variables, coordinates)
    group = zarr.create_group(path, attributes={**attributes, "block": block, **stated}, zarr_format=3)
    for name, values in coordinates.items():
        group.create_array(name, data=np.asarray(values), dimension_names=(name,))
    for name, variable in variables.items():
        group.create_array(
            name,
            shape=variable.shape,
            dtype=variable.dtype,
            chunks=(min(block, variable.shape[0]), *variable.shape[1:]),
            dimension_names=variable.dims,
            compressors=None,  # Random digits do not compress.
        )
    count = len(blocks(len(coordinates["seed"]), block))
    group.create_array(
        SECONDS,
        shape=(count,),
        dtype=np.float64,
        chunks=(1,),
        fill_value=0.0,
        dimension_names=("block",),
        compressors=None,
    )
    group.create_array(
        CHECKSUM,
        shape=(count, len(names)),
        dtype=np.int64,
        chunks=(1, len(names)),
        fill_value=UNWRITTEN,
        dimension_names=("block", "variable"),
        compressors=None,
    )


def statement(variables: Mapping[str, Variable], coordinates: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a record's statement about these arrays, as JSON values."""
    return {
        NUMBER: LAYOUT,
        NAMES: sorted(variables),
        ARRAYS: {name: described(one.dims, one.shape, one.dtype) for name, one in sorted(variables.items())},
        COORDINATES: {name: checksum(np.asarray(values)) for name, values in sorted(coordinates.items())},
    }


def described(dims: Any, shape: Any, dtype: Any) -> str:
    """Describe an array, for example "float64 (seed: 300, input: 2)"."""
    axes = ", ".join(f"{name}: {length}" for name, length in zip(dims, shape, strict=True))
    return f"{np.dtype(dtype).name} ({axes})"


def checksum(array: np.ndarray) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def blocks(seeds: int, block: int) -> list[slice]:
    """Return the blocks of this many seeds, with `block` seeds in each except the last."""
    return [slice(start, min(start + block, seeds)) for start in range(0, seeds, block)]
