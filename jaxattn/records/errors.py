"""Internal: errors and warnings about records."""

from __future__ import annotations

# Errors of Zarr and xarray for a description that is truncated or invalid.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, OSError)


class RecordError(RuntimeError):
    """A record is missing, unfinished, damaged, or cannot be written; the message names it and the reason."""


class RecordWarning(UserWarning):
    """A block of a record was half-written or damaged, and is computed again; the message names record and seeds."""


def of_system(error: OSError) -> str:
    """Return the operating system's text of an error, without its number."""
    return error.strerror or str(error)
