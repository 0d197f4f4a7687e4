"""How commands end on signals: SIGTERM becomes an interrupt, so that each process can report that it has stopped."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Seconds until a lost interrupt is raised again.
_AGAIN = 0.1


class Terminated(KeyboardInterrupt):
    """The process was asked to end by a user, a scheduler, or a machine that shuts down."""


def on_terminate() -> None:
    """Raise `Terminated` in the main thread on SIGTERM, and make sure that no interrupt is lost.

    The garbage collector calls a Python function of JAX, often the first Python code to run after a long computation,
    so an interrupt is likely to be raised there, where Python ignores exceptions. Such an interrupt is raised again.
    """
    signal.signal(signal.SIGTERM, _raise)
    if not isinstance(sys.unraisablehook, _Again):
        sys.unraisablehook = _Again(sys.unraisablehook)


class _Again:
    """Raise again an interrupt that Python has ignored; pass everything else to the previous hook."""

    def __init__(self, before: Callable[[Any], None]) -> None:
        self._before = before

    def __call__(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            return self._before(unraisable)
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        # Later and from another thread: exceptions raised here are ignored too. A signal also ends a sleep.
        main = threading.main_thread().ident
        assert main is not None  # It has been started.
        threading.Timer(_AGAIN, signal.pthread_kill, (main, number)).start()
        return None


def _raise(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated("asked to end by SIGTERM")
