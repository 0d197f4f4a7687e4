"""Internal: the loop over steps, with snapshots and recorded series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxattn import checks


def checked(steps: int, record_every: int, snapshots: Sequence[int]) -> Int[Array, " snapshots"]:
    """Return the snapshots as an array.

    Raises:
        ValueError: steps or record_every < 1 or beyond 32 bits; snapshots that are not integers, out of order or out of
            range.
    """
    for name, number in (("steps", steps), ("record_every", record_every)):
        checks.count(name, number)
    try:
        kept = np.asarray(tuple(snapshots), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"snapshots: expected a list of whole numbers, found {snapshots!r}") from None
    if not np.all(kept == np.trunc(kept)):
        raise ValueError(f"snapshots: expected whole numbers, found {tuple(snapshots)}")
    if kept.ndim != 1 or np.any(np.diff(kept) <= 0) or np.any((kept < 0) | (kept > steps)):
        raise ValueError(f"snapshots: expected increasing steps within 0..{steps}, found {tuple(snapshots)}")
    return jax.device_put(kept.astype(int))


def through(
    one_step: Callable[[Int[Array, ""], Any], Any],
    begin: Any,
    snapshots: Int[Array, " snapshots"],
    steps: int,
    read: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Take `steps` steps; return the final state, and what is read at the snapshots, stacked along a leading axis.

    `one_step` maps the number of a step and the state to the next state. The snapshots are increasing step numbers
    within 0..steps, as `checked` returns them; the entry of k is read after k steps.
    """
    # One inner loop per snapshot interval: no step has to carry a buffer of snapshots.
    stops = jnp.concatenate([jnp.zeros(1, snapshots.dtype), snapshots, jnp.full(1, steps, snapshots.dtype)])

    def to_stop(now: Any, span: tuple[Array, Array]) -> tuple[Any, Any]:
        now = jax.lax.fori_loop(span[0], span[1], one_step, now)
        return now, read(now)

    now, kept = jax.lax.scan(to_stop, begin, (stops[:-1], stops[1:]))
    return now, jax.tree.map(itemgetter(slice(-1)), kept)


def noted(k: Int[Array, ""], every: int, series: Any, values: Callable[[], Any]) -> Any:
    """Return the series, a pytree of (entries, ...), with the values of step k added if it is to be recorded."""

    def written() -> Any:
        place = k // every
        return jax.tree.map(
            lambda one, value: jax.lax.dynamic_update_index_in_dim(one, value, place, 0), series, values()
        )

    # Values that are not recorded are not computed.
    return written() if every == 1 else jax.lax.cond(k % every == 0, written, lambda: series)
