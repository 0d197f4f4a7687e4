"""Internal: refuse a process that was forked after JAX was used, since JAX's threads do not exist in it."""

from __future__ import annotations

import os

# JAX has no public function that says whether it has been used without using it.
from jax._src.xla_bridge import backends_are_initialized

# The process in which JAX had been used before the first fork.
_used_in: int | None = None


def check() -> None:
    """Raise RuntimeError in a process in which JAX's programs would never end."""
    if _used_in is not None and os.getpid() != _used_in:
        raise RuntimeError(
            "process: expected one in which JAX can compute, found one that was forked after JAX was used, where its "
            'programs never end; start processes by multiprocessing.get_context("spawn") or "forkserver"'
        )


def _note() -> None:
    global _used_in
    if _used_in is None and backends_are_initialized():
        _used_in = os.getpid()


if hasattr(os, "register_at_fork"):  # Unix alone has forks.
    os.register_at_fork(before=_note)
