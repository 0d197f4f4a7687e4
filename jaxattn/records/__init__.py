"""Records of runs: written block by block by one writer at a time, and read back with checksums."""

from jaxattn.records.datasets import check_folder, check_place, load_dataset, save_dataset
from jaxattn.records.errors import RecordError, RecordWarning
from jaxattn.records.store import Record, attributes, check_room, is_complete, load, write_json

__all__ = [
    "Record",
    "RecordError",
    "RecordWarning",
    "attributes",
    "check_folder",
    "check_place",
    "check_room",
    "is_complete",
    "load",
    "load_dataset",
    "save_dataset",
    "write_json",
]
