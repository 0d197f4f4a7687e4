"""Measure what a new user waits for: each of these commands in a fresh clone, with nothing compiled before.

The clone is of the last commit, so uncommitted changes do not count.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxattn.study.configuration.names import root

# Seconds between two looks for the first figure.
_PAUSE = 0.1
# As in the README.
WHICH = "which optimizer=adam optimizer.optimizer.b2=0.95 data.n=6 data.T=8 data.d=10 steps=40000"


def first() -> Iterator[dict[str, Any]]:
    """Yield the measurements of the installation, of one figure, of a ranking of norms and of a sweep."""
    with _clone() as (commit, root):
        started = time.perf_counter()
        _done(["make", "-C", str(root), "venv"])
        yield {"commit": commit, "command": "make venv", "seconds": time.perf_counter() - started}
    for command in ("figures rate", WHICH, "train --multirun data.d=4,8,16,32 seeds=1000"):
        yield _measured(command)


def small() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures size=small`."""
    yield _measured("figures size=small")


def published() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures`."""
    yield _measured("figures")


def _measured(command: str) -> dict[str, Any]:
    """Return the seconds of a command of jaxattn until its first figure and its end, in a clone of its own."""
    with _clone() as (commit, root):
        figures, first_figure = root / "made", None
        variables = {"JAX_COMPILATION_CACHE_DIR": str(root / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
        words = [sys.executable, "-m", "jaxattn.study", *shlex.split(command), f"figures={figures}"]
        environment = os.environ | variables | {"PYTHONPATH": str(root)}
        started = time.perf_counter()
        with subprocess.Popen(words, cwd=root, env=environment, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                time.sleep(_PAUSE)
                if first_figure is None and next(figures.rglob("*.png"), None):
                    first_figure = time.perf_counter() - started
        seconds = time.perf_counter() - started
        if process.returncode:
            raise RuntimeError(f"{shlex.join(words)}: expected status 0, found {process.returncode}")
    return {"commit": commit, "command": f"jaxattn {command}", "seconds": seconds, "first_figure": first_figure}


@contextmanager
def _clone() -> Iterator[tuple[str, Path]]:
    """Provide the short name of the last commit and a clone of it."""
    repository = str(root())
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "jaxattn"
        _done(["git", "clone", "--quiet", repository, str(clone)])
        yield _done(["git", "-C", repository, "rev-parse", "--short", "HEAD"]), clone


def _done(words: list[str]) -> str:
    """Run a command, and return what it printed.

    Raises:
        RuntimeError: it failed; the message has the end of its errors.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        wanted = f"{shlex.join(words)}: expected status 0, found {done.returncode}"
        raise RuntimeError(f"{wanted}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
