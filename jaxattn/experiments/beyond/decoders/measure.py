"""From the record of decoders to what `hierarchy` measures, in one more norm, and only where the task is learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import norms, svm
from jaxattn.bias import nulls
from jaxattn.experiments.beyond.decoders import rotary
from jaxattn.experiments.beyond.hierarchy import single
from jaxattn.experiments.beyond.hierarchy.measure import measure as of_hierarchy
from jaxattn.parallel import batch

# A decoder with a trained readout has learned its task if its last cross entropy per prediction, on the sequences that
# are measured, is at most this, in nats. A fixed readout bounds the loss from below.
LEARNED = 0.1


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return what `hierarchy` does, and `spectral`, the margin ratio in the spectral norm at the end, (seed, head).

    Seeds that have not learned their task, `unlearned` of them, count as unsolved, as do those with an optimum that is
    not certified.

    Raises:
        ValueError: a solver is given, or no seed is left to measure.
    """
    if "model.compared.angle" in record.attrs:
        record = rotary.unfolded(record)
    most = np.log(LEARNED) if "model.rates.readout" in record.attrs else np.inf
    # A decoder that diverged is counted as such.
    fails = (record["log_loss"].isel(snapshot=-1) > most).values
    record, unlearned = record.isel(seed=~fails), int(fails.sum())
    measured = of_hierarchy(record, solver)
    spectral = _spectral(record.sel(seed=measured["seed"]))
    certified = np.isfinite(spectral).all(axis=1)
    unsolved = int((~certified).sum())
    lost = {"attempted": unlearned, "unsolved": unlearned + unsolved, "kept": -unsolved}
    counts = {name: measured.attrs[name] + more for name, more in lost.items()}
    measured = measured.assign(spectral=(("seed", "head"), spectral)).isel(seed=certified)
    return measured.assign_attrs(counts, unlearned=unlearned)


def _spectral(record: xarray.Dataset) -> Float[np.ndarray, "seeds heads"]:
    """Return the margin ratios in the spectral norm at the last snapshot; NaN where the optimum is not certified."""
    read, W = (record[name].isel(snapshot=-1).values for name in ("read", "W"))
    ratios = []
    with jax.enable_x64(True):
        for layer, head, positions in single.heads(record):
            matrices = W[:, layer, head]
            rows = batch.over_seeds(_posed(positions), read[:, layer], matrices)
            solution = svm.solve_batch(rows, norms.spectral)
            ratio = nulls.held(rows, matrices[:, None], norms.spectral, solution)[:, 0]
            ratios.append(np.where(solution.status == svm.Status.OPTIMAL, ratio, np.nan))
    return np.stack(ratios, axis=1)


@lru_cache(maxsize=16)
def _posed(positions: tuple[int, ...]) -> Callable[..., svm.Constraints]:
    """Return the posing of one head's rows, of the tokens that its queries select; one object per positions."""

    def rows(read: Float[Array, "n T d"], W: Float[Array, "d d"]) -> svm.Constraints:
        selected = jnp.argmax(single.logits(read[None], W[None], positions)[0], axis=-1)
        return single.rows(read, selected, positions)

    return rows
