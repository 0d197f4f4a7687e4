"""Measure what a new user waits for, at this commit and at an earlier one, in one run.

Each line describes one command in separate processes, with an empty program cache unless stated otherwise. The two
commits take turns, each from a fresh clone, so uncommitted changes do not count.
"""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.watched import Watched, watch
from jaxattn.study.configuration import composition

# The last commit where each size had its own program, and nothing was shown before the end of the first experiment.
EARLIER = "b67c6ca"

# A replacement for a package that the earlier commit uses and that is not installed any more: a progress bar, reduced
# to one point per redraw.
_TQDM = """
import sys


class tqdm:
    def __init__(self, *arguments, disable=False, **named):
        self._hidden = disable
        self._draw()

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def __getattr__(self, name):
        return self._draw

    def _draw(self, *arguments, **named):
        if not self._hidden:
            print(".", end="", file=sys.stderr, flush=True)
"""


def published() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures`, first with an empty program cache and then with a full one."""
    yield from _figures("size=published", again=True)


def small() -> Iterator[dict[str, Any]]:
    """Yield the measurements of `make figures size=small` with an empty program cache."""
    yield from _figures("size=small", again=False)


def sweep() -> Iterator[dict[str, Any]]:
    """Yield the measurements of a sweep over four dimensions with 1,000 seeds and an empty program cache."""
    with _clones() as roots, tempfile.TemporaryDirectory() as place:
        found = {}
        for commit, root in roots.items():
            runs = Path(place) / commit
            command = ["train", "--multirun", "data.d=4,8,16,32", "seeds=1000", f"runs={runs / 'runs'}"]
            found[commit] = _watched(root, command, runs)
            yield _line(commit, "train --multirun data.d=4,8,16,32 seeds=1000", found[commit])
        yield _ratios("train", *found.values())


def _figures(size: str, *, again: bool) -> Iterator[dict[str, Any]]:
    with _clones() as roots, tempfile.TemporaryDirectory() as place:
        for run in ("nothing compiled", *(["compiled programs kept"] if again else [])):
            found = {}
            for commit, root in roots.items():
                folders = [f"{name}={Path(place) / commit / run / name}" for name in ("runs", "figures")]
                found[commit] = _watched(root, ["figures", size, *folders], Path(place) / commit, run)
                yield _line(commit, f"figures {size}, {run}", found[commit])
            yield _ratios(run, *found.values())


def _watched(root: Path, command: list[str], place: Path, run: str = "") -> Watched:
    variables = {"JAX_COMPILATION_CACHE_DIR": str(place / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
    if find_spec("tqdm") is None:
        variables["PYTHONPATH"] = str(root.parent / "absent")
    figures = place / run / "figures"
    return watch(["-m", "jaxattn.study", *command], root=root, variables=variables, figures=figures)


def _line(commit: str, command: str, found: Watched) -> dict[str, Any]:
    return {"commit": commit, "command": command} | dataclasses.asdict(found)


def _ratios(of: str, earlier: Watched, now: Watched) -> dict[str, Any]:
    """Return the ratio of each number to the earlier commit's; None if that was zero."""
    pairs = {name: (getattr(earlier, name), getattr(now, name)) for name in dataclasses.asdict(now)}
    ratios = {name: after / before for name, (before, after) in pairs.items() if before and after is not None}
    return {"of the earlier commit": of} | ratios


@contextmanager
def _clones() -> Iterator[dict[str, Path]]:
    """Provide a clone of each of the two commits, by name.

    Raises:
        RuntimeError: the earlier commit does not exist, as in a shallow clone.
    """
    repository = composition.root()
    here = _git(repository, "rev-parse", "--short", "HEAD")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "absent").mkdir()
        (Path(place) / "absent" / "tqdm.py").write_text(_TQDM)
        roots = {}
        for commit in (EARLIER, here):
            roots[commit] = Path(place) / commit
            _git(repository, "clone", "--quiet", str(repository), str(roots[commit]))
            _git(roots[commit], "checkout", "--quiet", commit)
        yield roots


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"git {' '.join(arguments)}: expected status 0, found {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout.strip()
