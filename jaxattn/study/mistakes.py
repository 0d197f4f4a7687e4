"""The exceptions that end a command with one message, available without importing the modules that raise them."""

from __future__ import annotations

import sys


class UsageError(Exception):
    """A command line that cannot be run; the message says what was expected and what was found."""


class ProcessError(RuntimeError):
    """A process of this command has ended without finishing its work."""


def known() -> tuple[type[Exception], ...]:
    """Return the exceptions that mean a user's mistake, or trouble with the machine, rather than a defect."""
    # Records import JAX. If they have not been imported, none of their errors was raised.
    heavy = [sys.modules["jaxattn.records"].RecordError] if "jaxattn.records" in sys.modules else []
    return (UsageError, ProcessError, *heavy, ValueError, OSError, MemoryError)
