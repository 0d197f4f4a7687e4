"""Internal: whether a run fits its problems, which one assembled by hand may not."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from jaxattn import attention, checks, descent
from jaxattn.attention import Weights
from jaxattn.parallel import batch
from jaxattn.problem import Problem, check_batch


def checked(run: descent.Run, problems: Problem) -> tuple[descent.Run, Int[np.ndarray, " snapshots"]]:
    """Check a run against its problems; return it in their precision, if that is exact, and the steps of its snapshots.

    Raises:
        ValueError: they do not fit, or there is no snapshot.
    """
    seeds = check_batch(problems)
    check_run(run)
    shapes = _shapes(run.weights)
    if {shape[:1] for shape in shapes} != {(seeds,)}:
        raise ValueError(
            f"run: expected one of a batch of {seeds} seeds, as train_batch returns it, found weights of {shapes}"
        )
    steps = _whole("snapshot_steps", run.snapshot_steps, (seeds, "snapshots"))
    rows = [(seeds, steps.shape[1], *shape[1:]) for shape in shapes]
    alike = jax.tree.structure(run.snapshots) == jax.tree.structure(run.weights)
    if not alike or _shapes(run.snapshots) != rows:
        found = _shapes(run.snapshots) if alike else jax.tree.structure(run.snapshots)
        raise ValueError(
            "run.snapshots: expected those of the weights, stacked at the snapshots along a second axis, "
            f"of shapes {rows}, found {found}"
        )
    if steps.size == 0:
        raise ValueError("run: expected snapshots, found none; train with snapshots=(100, 200, 500, 1000)")
    if (steps != steps[0]).any() or steps[0, 0] < 0 or (np.diff(steps[0]) <= 0).any():
        raise ValueError(
            f"run.snapshot_steps: expected increasing steps from 0 on, the same for each seed, found {steps.tolist()}"
        )
    _whole("stalled", run.stalled, (seeds,))
    dtype = np.dtype(problems.X.dtype)
    weights, snapshots = (
        jax.tree.map(lambda leaf: _converted(leaf, dtype), one) for one in (run.weights, run.snapshots)
    )
    return run._replace(weights=weights, snapshots=snapshots), steps[0]


def check_run(run: Any) -> None:
    """Raise ValueError unless this is a run."""
    if not isinstance(run, descent.Run):
        raise ValueError(  # noqa: TRY004
            f"run: expected the result of descent.train_batch, found {type(run).__name__}"
        )


def check_scale(scale: Any) -> Any:
    """Return the factor of the logits, or raise ValueError."""
    return checks.number("scale", scale, "a finite number other than 0", lambda scale: 0 < abs(scale) < math.inf)


def widened(array: np.ndarray) -> np.ndarray:
    """Return numbers in the precision that JAX computes in, if that is higher than theirs."""
    return array.astype(np.promote_types(array.dtype, jnp.result_type(float)))


def random_key(key: Any) -> PRNGKeyArray:
    """Return a random key, `jax.random.key(0)` for None, or raise ValueError for anything else."""
    if key is None:
        return jax.random.key(0)
    # A key of the older kind is an array of numbers.
    is_older = getattr(key, "dtype", None) == np.uint32
    if not (is_older or batch.is_key(key)) or np.ndim(key) != is_older:
        found = f"shape {key.shape} of {key.dtype}" if hasattr(key, "dtype") else repr(key)
        raise ValueError(f"key: expected one random key, as jax.random.key(0) gives it, found {found}")
    return key


def check_directions(snapshots: Weights, steps: Int[np.ndarray, " snapshots"]) -> None:
    """Raise ValueError if weights are zero at a snapshot."""
    zero = ~np.any(np.asarray(attention.matrix(snapshots)), axis=(0, 2, 3))
    if zero.any():
        raise ValueError(
            f"run: expected weights with a direction at every snapshot, found zeros at step {steps[zero][0]}; "
            "leave it out of the snapshots"
        )


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _whole(name: str, value: Any, shape: tuple[int | str, ...]) -> Int[np.ndarray, "..."]:
    """Return a field of whole numbers, or raise ValueError unless it has this shape, of seeds first."""
    found = np.asarray(value)
    fits = found.ndim == len(shape) and found.shape[0] == shape[0] and found.dtype.kind in "iuf"
    if not fits or (found != np.trunc(found)).any():
        wanted = str(shape).replace("'", "")
        never = ", -1 for a seed that never stalled" if name == "stalled" else ""
        shown = "None" if value is None else f"shape {found.shape} of {found.dtype}"
        raise ValueError(f"run.{name}: expected whole numbers of shape {wanted}{never}, found {shown}")
    return found.astype(int)


def _converted(leaf: Any, dtype: np.dtype) -> Any:
    """Return an array of weights in this precision; what is none of numbers as it is."""
    own = getattr(leaf, "dtype", dtype)
    if own == dtype or not jnp.issubdtype(own, jnp.floating):
        return leaf
    if not np.can_cast(own, dtype):
        raise ValueError(f"run: expected weights in the precision of the problems, {dtype}, found {own}")
    return np.asarray(leaf, dtype)
