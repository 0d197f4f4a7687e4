"""Several processes of one run (`jax.distributed`): the first begins and ends the work, and all take a part of it.

They communicate through the key-value store of JAX's coordinator, which also ends all of them when one dies. Collective
operations would suffice on an accelerator; on the CPU they time out after half a minute of waiting. JAX has no public
access to that store (`jax.experimental.multihost_utils` only has the collectives); `_store` is the one place that
accesses it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import jax
from jax._src import distributed

__all__ = ["ProcessError", "Team"]

Item = TypeVar("Item")

# The number of each team; all processes make the same teams in the same order.
_teams = count()
# Seconds between two checks of the other processes' messages.
_PAUSE = 0.05


class ProcessError(RuntimeError):
    """Another process of this run has failed; the message names it and the reason."""


class Team:
    """All processes of a run during one piece of work; a single process is a team too."""

    def __init__(self) -> None:
        self._name = f"jaxattn/{next(_teams)}"
        self._steps = count()

    @property
    def leads(self) -> bool:
        """Whether this process begins and ends the work."""
        return jax.process_index() == 0

    def told(self, make: Callable[[], Any]) -> Any:
        """Return the JSON value of `make`; only the first process calls it, and the others receive the value.

        Raises:
            ProcessError: in the other processes: `make` failed. The first process raises the original error.
        """
        if jax.process_count() == 1:
            return make()
        key = f"{self._name}/told/{next(self._steps)}"
        if not self.leads:
            answer = json.loads(_awaited(key))
            _check(0, answer["failed"])
            return answer["value"]
        try:
            value = make()
        except BaseException as error:
            _store().key_value_set(key, json.dumps({"failed": _described(error)}))
            raise
        _store().key_value_set(key, json.dumps({"failed": "", "value": value}))
        return value

    @contextmanager
    def working(self, parts: Sequence[Item]) -> Iterator[Iterator[Item]]:
        """Give this process its share of the parts, and leave when all processes have finished theirs.

        Raises:
            ProcessError: another process failed; raised before the next part, or at the end.
        """
        if jax.process_count() == 1:
            yield iter(parts)
            return
        own = f"{self._name}/done/{jax.process_index()}"
        try:
            yield self._own(parts)
        except BaseException as error:
            _store().key_value_set(own, _described(error))
            raise
        _store().key_value_set(own, "")
        for index in range(jax.process_count()):
            _check(index, _awaited(f"{self._name}/done/{index}"))

    def _own(self, parts: Sequence[Item]) -> Iterator[Item]:
        for part in parts[jax.process_index() :: jax.process_count()]:
            for key, failed in _said(f"{self._name}/done/").items():
                _check(int(key.rpartition("/")[2]), failed)
            yield part


def _said(folder: str) -> dict[str, str]:
    return dict(_store().key_value_dir_get(folder))


def _awaited(key: str) -> str:
    """Wait indefinitely, but allow interrupts; if a process dies, the coordinator ends this one too."""
    while key not in (said := _said(key.rpartition("/")[0] + "/")):
        time.sleep(_PAUSE)
    return said[key]


def _check(index: int, failed: str) -> None:
    if failed:
        raise ProcessError(f"process {index} of {jax.process_count()} has stopped: {failed}")


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _store() -> Any:
    """Return the coordinator's key-value store.

    Raises:
        ProcessError: this version of JAX keeps it elsewhere.
    """
    client = getattr(getattr(distributed, "global_state", None), "client", None)
    if client is None:
        raise ProcessError(f"expected JAX's coordinator, found none; jax {jax.__version__} may keep it elsewhere")
    return client
