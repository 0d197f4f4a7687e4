"""The exceptions that end a command with one message, available without importing the modules that raise them."""

from __future__ import annotations

import sys

# Exceptions of packages that import JAX. A module that has not been imported cannot have raised its exception.
_HEAVY = (("jaxattn.records", "RecordError"), ("jaxattn.parallel.processes", "ProcessError"))


class UsageError(Exception):
    """A command line that cannot be run; the message says what was expected and what was found."""


def known() -> tuple[type[Exception], ...]:
    """Return the exceptions that mean a user's mistake, or trouble with the machine, rather than a defect."""
    heavy = [getattr(sys.modules[module], name) for module, name in _HEAVY if module in sys.modules]
    return (UsageError, *heavy, ValueError, OSError, MemoryError)
