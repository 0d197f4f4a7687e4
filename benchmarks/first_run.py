"""What who tries jaxattn for the first time waits for, at this commit and at an earlier one, in one run.

Every line is of one command in processes of their own, with no programs compiled before unless it says so. The two
commits take turns, each from a fresh clone, so what is not committed does not count.
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

# The last commit at which every size had a program of its own, and nothing was shown before the first experiment's end.
EARLIER = "b67c6ca"

# What the earlier commit uses of a package that is not installed any more: a bar of progress, of which only a point for
# each time it would be drawn is left.
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
    """Yield what `make figures` takes, nothing compiled before, and then again with compiled programs kept."""
    yield from _figures("size=published", again=True)


def small() -> Iterator[dict[str, Any]]:
    """Yield what `make figures size=small` takes, nothing compiled before."""
    yield from _figures("size=small", again=False)


def sweep() -> Iterator[dict[str, Any]]:
    """Yield what a sweep over four dimensions of 1,000 seeds takes, nothing compiled before."""
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
    """Return what is left of each number; where that was nothing before, none."""
    pairs = {name: (getattr(earlier, name), getattr(now, name)) for name in dataclasses.asdict(now)}
    ratios = {name: after / before for name, (before, after) in pairs.items() if before and after is not None}
    return {"of the earlier commit": of} | ratios


@contextmanager
def _clones() -> Iterator[dict[str, Path]]:
    """Give a clone of each of the two commits, by its name.

    Raises:
        RuntimeError: the earlier commit is not there, as in a shallow clone.
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
