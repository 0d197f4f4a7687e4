"""The exceptions that end a command with one message, known without importing what raises them."""

from __future__ import annotations

import sys

# Of packages that import JAX: while such a module is not imported, nothing can have raised its exception.
_HEAVY = (("jaxattn.records", "RecordError"), ("jaxattn.parallel.processes", "ProcessError"))


class UsageError(Exception):
    """A command line that cannot be run; its message says what was expected and found."""


def known() -> tuple[type[Exception], ...]:
    """Return the exceptions that are a mistake of the user's, or trouble with the machine, rather than a defect."""
    heavy = [getattr(sys.modules[module], name) for module, name in _HEAVY if module in sys.modules]
    return (UsageError, *heavy, ValueError, OSError, MemoryError)
