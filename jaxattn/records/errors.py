"""Internal: what is raised, and what is said, of records."""

from __future__ import annotations

# Whatever Zarr and xarray raise over a description that is cut short, or not theirs.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, OSError)


class RecordError(RuntimeError):
    """A record that is missing, unfinished, damaged, or cannot be written; names it and says why."""


class RecordWarning(UserWarning):
    """A block of a record that was half-written or damaged, and is computed anew; names the record and its seeds."""


def of_system(error: OSError) -> str:
    """Return what the operating system says of an error, without its number."""
    return error.strerror or str(error)
