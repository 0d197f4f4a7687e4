"""Log what JAX compiles, one line per event; every Python process with this folder on its path imports this file.

The events go to one file per process, in the folder given by JAXATTN_EVENTS. Nothing of jaxattn is used, so that all of
its commits are counted in the same way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_WATCHED = "jax._src.monitoring"


def _noted(event: str, seconds: float = 0.0, **_: object) -> None:
    # Opened each time, since a forked process needs its own file.
    with (Path(os.environ["JAXATTN_EVENTS"]) / str(os.getpid())).open("a") as file:
        file.write(f"{event} {seconds}\n")


class _Listening(Loader):
    """Loads the module as usual, and then listens to its events."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.register_event_listener(_noted)
        module.register_event_duration_secs_listener(_noted)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _WATCHED else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Listening(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
