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
    """Compare every head with its Att-SVMs as `hierarchy` does.

    Decoders that have not learned their task are excluded; the attribute `unlearned` is their number, and they are
    among the unsolved. So are seeds with an optimum that is not certified, also in the spectral norm.

    Returns:
        As `hierarchy`, and `spectral`, the margin ratio in the spectral norm at the end, (seed, head).

    Raises:
        ValueError: a solver is given.
    """
    if "model.compared.angle" in record.attrs:
        record = rotary.unfolded(record)
    most = np.log(LEARNED) if "model.rates.readout" in record.attrs else np.inf
    # A decoder that diverged is counted as such.
    learned = ~(record["log_loss"].isel(snapshot=-1, drop=True) > most)
    unlearned = int((~learned).sum())
    record = record.isel(seed=np.flatnonzero(learned))
    measured = of_hierarchy(record, solver)
    spectral = _spectral(record.sel(seed=measured["seed"]))
    certified = np.isfinite(spectral).all(axis=1)
    lost = {"attempted": unlearned, "unsolved": unlearned + int((~certified).sum())}
    lost["kept"] = -int((~certified).sum())
    counts = {name: measured.attrs[name] + more for name, more in lost.items()}
    measured = measured.assign(spectral=(("seed", "head"), spectral)).isel(seed=np.flatnonzero(certified))
    return measured.assign_attrs(counts, unlearned=unlearned)


def _spectral(record: xarray.Dataset) -> Float[np.ndarray, "seeds heads"]:
    """Return the margin ratios in the spectral norm at the last snapshot; NaN where the optimum is not certified."""
    last = record.isel(snapshot=-1)
    layers, counts = record.sizes["layer"], record["counts"].values[0]
    places = np.arange(len(counts))
    found = []
    with jax.enable_x64(True):
        for read, W in zip(last["read"].values, last["W"].values, strict=True):
            ratios = []
            for layer in range(layers):
                queries = counts if layer == layers - 1 else places > 0
                shape = (read.shape[1], len(counts))
                heads = bias.heads(
                    read[layer],
                    np.broadcast_to(np.eye(W.shape[-1]), W[layer].shape),
                    W[layer],
                    queries=np.broadcast_to(queries, shape),
                    norms=("spectral",),
                )
                ratios.append(heads.margin_ratio[:, 0])
            found.append(np.concatenate(ratios))
    return np.stack(found)
