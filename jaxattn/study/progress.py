"""What one sees while experiments are made: a line that moves on a terminal, else one line an event."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

from tqdm import tqdm

# Seconds between two looks of the line.
_PAUSE = 0.5


class Board:
    """How many experiments are made, which are being made and since when, and how long all will take.

    Args:
        seconds: what each experiment to be made took earlier; None where that is not known.
        processes: that make them side by side.
        shown: whether the line moves; if None, where the output is a terminal.
    """

    def __init__(self, seconds: Mapping[str, float | None], processes: int, shown: bool | None = None) -> None:
        self._seconds, self._processes = dict(seconds), processes
        self._began: dict[str, float] = {}
        self._waiting = set(seconds)
        hidden = None if shown is None else not shown
        layout = "{n_fmt}/{total_fmt} {elapsed}{postfix}"
        self._bar = tqdm(total=len(seconds), disable=hidden, bar_format=layout, leave=False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)

    def __enter__(self) -> Board:
        """Begin to move the line."""
        if not self._bar.disable:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the line away, also after a mistake or an interrupt."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._bar.close()

    def begun(self, name: str) -> None:
        """Note that an experiment is being made from now on."""
        self._waiting.discard(name)
        self._began[name] = time.monotonic()
        if self._bar.disable:
            known = self._seconds[name]
            self.say(f"{name}: begun" + ("" if known is None else f", {_minutes(known)} when it was made before"))

    def made(self, name: str) -> None:
        """Note that an experiment is made."""
        del self._began[name]
        self._bar.update()

    def say(self, line: str) -> None:
        """Print a line that stays, above the one that moves."""
        if self._bar.disable:
            print(line, flush=True)
        else:
            self._bar.write(line)

    def line(self) -> str:
        """Return what the line that moves says beside the number of experiments made."""
        now = time.monotonic()
        running = [f"{name} {_minutes(now - since)}" for name, since in self._began.items()]
        parts = [", ".join(running) or "none begun yet"]
        if (left := self._left(now)) is not None:
            parts.append(f"about {_minutes(left)} left")
        return "; ".join(parts)

    def _left(self, now: float) -> float | None:
        """Return for how many seconds more, by what the experiments took earlier; None if that is not known of all."""
        began = dict(self._began)
        known = {name: self._seconds[name] for name in (*self._waiting, *began)}
        left = [
            max(0.0, seconds - (now - began[name] if name in began else 0.0))
            for name, seconds in known.items()
            if seconds is not None
        ]
        if not left or len(left) < len(known):
            return None
        return max(max(left), sum(left) / self._processes)

    def _move(self) -> None:
        while not self._ended.wait(_PAUSE):
            self._bar.set_postfix_str(self.line())


def _minutes(seconds: float) -> str:
    """Return a duration as one reads it.

    Example:
        >>> _minutes(7.3), _minutes(190.0)
        ('7 s', '3:10 min')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"
