"""Compute the record of a setting: draw many seeds, train them if the setting does, and write the arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Int, UInt32

from jaxattn.parallel import batch
from jaxattn.records import Record, check_room, is_complete
from jaxattn.records.layout import Variable
from jaxattn.records.locks import held

# A block is written at once, and lost if the run is killed: some seconds of work, and files that are not too small.
BLOCK_SEEDS = 1024
BLOCK_BYTES = 2**27
# The packages that compute the numbers: a record requires one version of each.
_COMPUTING = ("jax", "jaxlib", "numpy", "optax")


class Setting(Protocol):
    """What a record is made from; the record depends on its fields."""

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        ...

    @property
    def key(self) -> int:
        """The root key; seed s draws from `fold_in(key, s)`, whatever the number of seeds."""
        ...

    @property
    def coordinates(self) -> Mapping[str, np.ndarray]:
        """The coordinates of axes, except "seed"."""
        ...

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array of this name."""
        ...

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; traced for their shapes."""
        ...

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Compute the arrays of some seeds, each with a leading seed axis."""
        ...

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds by their outcome."""
        ...


def run(
    setting: Setting,
    path: Path,
    attributes: Mapping[str, Any],
    progress: Callable[[int], None] = lambda seeds: None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Compute all seeds of a setting, and write the record at `path` block by block, with a lock beside it.

    A finished record is left unchanged. An unfinished one is continued if it has the same arrays and attributes, and
    was begun with the same versions of JAX, NumPy and optax on the same kind of device; the notes may differ. Versions,
    device, seconds and the setting's outcome are added to the attributes. `progress` is called with the number of seeds
    that are already recorded, and then after each block.

    Raises:
        RecordError: the record cannot be written, is being written by another run, or was begun differently.
        ValueError: a law or weights that do not fit; raised before anything is computed.
    """
    root = _root(setting)
    one = shapes(setting)
    if is_complete(path):
        progress(setting.seeds)
        return
    with held(path):
        if is_complete(path):  # Another run has just finished it.
            progress(setting.seeds)
            return
        if not path.exists():
            check_room(path, _bytes(one, setting.seeds))
        variables = {
            name: Variable(("seed", *setting.dims(name)), (setting.seeds, *leaf.shape), np.dtype(leaf.dtype))
            for name, leaf in one.items()
        }
        coordinates = {"seed": np.arange(setting.seeds), **setting.coordinates}
        conditions = {**attributes, **_conditions()}
        record = Record.create(path, variables, coordinates, conditions, _block(one, setting.seeds), notes)
        unwritten = record.unwritten()
        progress(setting.seeds - sum(part.stop - part.start for part in unwritten))
        for part in unwritten:
            started = time.perf_counter()
            arrays = setting.block(np.arange(part.start, part.stop), root)
            record.write(part, arrays, seconds=time.perf_counter() - started)
            progress(part.stop - part.start)
        record.finish(**setting.outcome(record))


def _conditions() -> dict[str, str]:
    return {name: version(name) for name in _COMPUTING} | {"device": str(jax.local_devices()[0].device_kind)}


def _block(one: Any, seeds: int) -> int:
    """Return the number of seeds per block: the same in all blocks except the last, which is not much shorter."""
    most = max(1, min(BLOCK_SEEDS, BLOCK_BYTES // batch.size(one)))
    blocks = -(-seeds // batch.lanes((), one, most=most))
    return -(-seeds // blocks)


def _bytes(one: Any, seeds: int) -> int:
    return seeds * (batch.size(one) + 8)


def shapes(setting: Setting) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of one seed's arrays by name, without computing anything."""
    return jax.eval_shape(setting.one_seed, jax.ShapeDtypeStruct((), int), _root(setting))


def check_size(setting: Setting, path: Path) -> None:
    """Check that a seed fits into memory (else MemoryError) and the record on the disk (else RecordError)."""
    one = shapes(setting)
    _block(one, setting.seeds)
    check_room(path, _bytes(one, setting.seeds))


def keys(seed: Int[Array, ""], root: UInt32[Array, " words"]) -> tuple[UInt32[Array, " words"], ...]:
    """Return the words of a seed's two keys: for its problem, and for what is drawn for that problem."""
    both = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(root), seed))
    return tuple(jax.random.key_data(both))


def noise_key(seed: Int[Array, ""], root: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
    """Return the words of the key of a seed's training noise."""
    own = jax.random.fold_in(jax.random.wrap_key_data(root), seed)
    # `keys` splits the seed's key; folding in a number gives a different one.
    return jax.random.key_data(jax.random.fold_in(own, 2))


@lru_cache(maxsize=64)
def from_words(law: Callable[..., Any], *sizes: int) -> Callable[..., Any]:
    """Return a law as a function of its key's words; the same object per law, so that it compiles once."""

    def drawn(words: UInt32[Array, " words"], *given: Any) -> Any:
        return law(jax.random.wrap_key_data(words), *given, *sizes)

    return drawn


def _root(setting: Setting) -> np.ndarray:
    return np.asarray(jax.random.key_data(jax.random.key(setting.key)))
