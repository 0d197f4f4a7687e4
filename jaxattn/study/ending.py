"""How commands end on signals: SIGTERM becomes an interrupt, so that each process can report that it has stopped."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_AGAIN = 0.1
# Seconds between two looks at the parent process, and those that a worker without one has to report.
_LOOK, _LAST = 0.5, 5.0


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


@functools.cache
def with_parent(number: int = signal.SIGINT) -> None:
    """Send this process a signal once its parent has ended, and then end it: a worker would take up its next task."""
    threading.Thread(target=_watch, args=(os.getppid(), number), daemon=True).start()


def _watch(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), number)
    time.sleep(_LAST)
    os._exit(143)


class _Again:
    """Raise again an interrupt that Python has ignored; pass everything else to the previous hook."""

    def __init__(self, before: Callable[[Any], None]) -> None:
        self._before = before

    def __call__(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            return self._before(unraisable)
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        on_terminate()  # It was ignored from the first signal on.
        # Later and from another thread: exceptions raised here are ignored too. A signal also ends a sleep.
        main = threading.main_thread().ident
        assert main is not None  # It has been started.
        threading.Timer(_AGAIN, signal.pthread_kill, (main, number)).start()
        return None


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    # A second signal, as a pool sends it, would interrupt what the first one makes this process write.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated("asked to end by SIGTERM")
