"""From the record of decoders to what `hierarchy` measures, in one more norm, and only where the task is learned."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Float

from jaxattn import bias, svm
from jaxattn.experiments.beyond.decoders import rotary
from jaxattn.experiments.beyond.hierarchy.measure import measure as of_hierarchy

# A decoder with a trained readout has learned its task if its last cross entropy per prediction, on the sequences that
# are measured, is at most this, in nats. A fixed readout bounds the loss from below.
LEARNED = 0.1


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return what `hierarchy` does, and `spectral`, the margin ratio in the spectral norm at the end, (seed, head).

    Seeds that have not learned their task, `unlearned` of them, count as unsolved, as do those with an optimum that is
    not certified.

    Raises:
        ValueError: a solver is given.
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
    last = record.isel(snapshot=-1)
    # In all but the last layer every query counts that sees another token.
    counts = np.tile(np.arange(record.sizes["token"]) > 0, (record.sizes["layer"], 1))
    counts[-1] = record["counts"].values[0]

    def ratios(read: np.ndarray, W: np.ndarray, counts: np.ndarray) -> np.ndarray:
        keys, queries = np.broadcast_to(np.eye(W.shape[-1]), W.shape), np.broadcast_to(counts, read.shape[:2])
        return bias.heads(read, keys, W, queries=queries, norms=("spectral",)).margin_ratio[:, 0]

    with jax.enable_x64(True):
        seeds = zip(last["read"].values, last["W"].values, strict=True)
        return np.stack([np.concatenate([*map(ratios, read, W, counts)]) for read, W in seeds])
