"""Measure what a new user waits for: each of these commands in a fresh clone, with nothing compiled before.

The clone is of a commit, so uncommitted changes do not count.
"""

from __future__ import annotations

import os
import resource
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
# The last commit at which `jaxattn figures` made all experiments, measured beside the present one.
_BEFORE = "98b720d"


def first() -> Iterator[dict[str, Any]]:
    """Yield the measurements of the installation, of one figure, of a ranking of norms and of a sweep."""
    with _clone() as (commit, root):
        started = time.perf_counter()
        _done(["make", "-C", str(root), "venv"])
        yield {"commit": commit, "command": "make venv", "seconds": time.perf_counter() - started}
    for command in ("figures rate", WHICH, "train --multirun data.d=4,8,16,32 seeds=1000"):
        yield _measured(command)


def small() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures all=yes size=small`, now and before."""
    yield _measured("figures --all size=small")
    yield _measured("figures size=small", _BEFORE)


def published() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures`, and of `make figures all=yes` now and before."""
    yield _measured("figures")
    yield _measured("figures --all")
    yield _measured("figures", _BEFORE)


def _measured(command: str, revision: str = "HEAD") -> dict[str, Any]:
    """Return the seconds of a command of jaxattn until its first figure and its end, in a clone of a revision."""
    with _clone(revision) as (commit, root):
        figures, first_figure = root / "made", None
        variables = {"JAX_COMPILATION_CACHE_DIR": str(root / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
        # Composed configurations are kept there.
        variables |= {"PYTHONPATH": str(root), "XDG_CACHE_HOME": str(root / "cache")}
        words = [sys.executable, "-m", "jaxattn.study", *shlex.split(command), f"figures={figures}"]
        started, before = time.perf_counter(), _process_seconds()
        with subprocess.Popen(words, cwd=root, env=os.environ | variables, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                time.sleep(_PAUSE)
                if first_figure is None and next(figures.rglob("*.png"), None):
                    first_figure = time.perf_counter() - started
        seconds, spent = time.perf_counter() - started, _process_seconds() - before
        if process.returncode:
            raise RuntimeError(f"{shlex.join(words)}: expected status 0, found {process.returncode}")
    line = {"commit": commit, "command": f"jaxattn {command}", "seconds": seconds, "process_seconds": spent}
    return line | {"first_figure": first_figure}


def commit_of(revision: str = "HEAD") -> str:
    """Return the short name of a commit of the checkout."""
    return _done(["git", "-C", str(root()), "rev-parse", "--short", revision])


def _process_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _clone(revision: str = "HEAD") -> Iterator[tuple[str, Path]]:
    """Provide the short name of a commit and a clone of it."""
    repository = str(root())
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "jaxattn"
        commit = commit_of(revision)
        _done(["git", "clone", "--quiet", repository, str(clone)])
        _done(["git", "-C", str(clone), "checkout", "--quiet", commit])
        yield commit, clone


def _done(words: list[str]) -> str:
    """Run a command, and return what it printed; RuntimeError with the end of its errors if it failed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        wanted = f"{shlex.join(words)}: expected status 0, found {done.returncode}"
        raise RuntimeError(f"{wanted}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
