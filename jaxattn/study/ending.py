"""How a command ends when it is told to: SIGTERM is an interrupt, so that what runs can say that it has stopped."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Seconds until an interrupt that was lost is raised again.
_AGAIN = 0.1


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by a user, a scheduler, or a machine that shuts down."""


def on_terminate() -> None:
    """Raise `Terminated` in the main thread when the process is asked to end, and lose no interrupt.

    The garbage collector calls a Python function of JAX, often the first to run after a long computation, so that an
    interrupt is raised there. Python ignores an exception there; an interrupt is raised once more.
    """
    signal.signal(signal.SIGTERM, _raise)
    if not isinstance(sys.unraisablehook, _Again):
        sys.unraisablehook = _Again(sys.unraisablehook)


class _Again:
    """Raises once more an interrupt that Python has ignored, and leaves all else to the hook before it."""

    def __init__(self, before: Callable[[Any], None]) -> None:
        self._before = before

    def __call__(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            return self._before(unraisable)
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        # From another thread and later: what is raised here is ignored, too.
        threading.Timer(_AGAIN, _thread.interrupt_main, (number,)).start()
        return None


def _raise(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated("asked to end by SIGTERM")
