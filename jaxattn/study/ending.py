"""How a command ends when it is told to: SIGTERM is an interrupt, so that what runs can say that it has stopped."""

from __future__ import annotations

import signal
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by a user, a scheduler, or a machine that shuts down."""


def on_terminate() -> None:
    """Raise `Terminated` in the main thread when the process is asked to end."""
    signal.signal(signal.SIGTERM, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated("asked to end by SIGTERM")
