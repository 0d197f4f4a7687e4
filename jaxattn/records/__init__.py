"""Records: what a run left behind, written block by block, held by one writer at a time, and read back whole."""

from jaxattn.records.datasets import check_place, load_dataset, save_dataset
from jaxattn.records.store import (
    Record,
    RecordError,
    RecordWarning,
    attributes,
    is_complete,
    load,
    write_json,
)

__all__ = [
    "Record",
    "RecordError",
    "RecordWarning",
    "attributes",
    "check_place",
    "is_complete",
    "load",
    "load_dataset",
    "save_dataset",
    "write_json",
]
