"""What the interactive pictures of the site show: JSON values with the digits that are drawn, beside the figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# A page holds its view: it has to open from a disk at once.
LARGEST = 300_000


def rounded(values: ArrayLike, digits: int = 4) -> Any:
    """Return numbers as nested lists, each with so many significant digits."""
    array = np.asarray(values)
    if array.ndim:
        return [rounded(one, digits) for one in array]
    return float(f"{array:.{digits}g}") if array.dtype.kind == "f" else array.item()


def place(folder: Path, name: str) -> Path:
    """Return where the view of an experiment stands, in the folder of the figures."""
    return folder / "views" / f"{name}.json"


def save(content: Mapping[str, Any], folder: Path, name: str) -> Path:
    """Write a view, JSON values, and return its path; ValueError for NaN, or for more than `LARGEST` bytes."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    if len(text) > LARGEST:
        raise ValueError(f"{name}: expected a view of at most {LARGEST:,} bytes, found {len(text):,}")
    path = place(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path
