"""Hand-built datasets for which the verdict of the claim on the tensor trick is known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.experiments.smoothness.tensor_trick.measure import LOSSES
from jaxattn.study.claims.claim import Datasets, Verdict

# Words per sequence and dimension of an embedding.
SIZES = ((9, 4), (9, 8), (9, 16), (5, 8), (17, 8))


def made(n: int, d: int, seeds: int = 24, **wrong: float) -> xarray.Dataset:
    """Return what `measure` would return for texts of this size.

    Args:
        n: words per sequence.
        d: dimension.
        seeds: number of seeds.
        wrong: differences of `risk` or `gradient` to insert for one seed and loss.
    """
    spread = np.linspace(0.5, 1.0, seeds)[:, None] * np.ones(len(LOSSES))
    values = {name: np.array(2e-15 * spread) for name in ("risk", "gradient")}
    for name, number in wrong.items():
        values[name][5, 1] = number
    attrs = {"attempted": seeds, "kept": seeds, "labels": 0, "run": f"n={n} d={d}", "m": 3, "n": n, "d": d, "V": 4}
    coordinates = {"seed": np.arange(seeds), "loss": np.array(list(LOSSES), dtype=object)}
    return xarray.Dataset({name: (("seed", "loss"), one) for name, one in values.items()}, coordinates, attrs)


def runs(seeds: int = 24, **wrong: float) -> Datasets:
    """Return the runs of several sizes, with wrong differences in the second."""
    of_sizes = [made(n, d, seeds, **(wrong if (n, d) == SIZES[1] else {})) for n, d in SIZES]
    return {one.attrs["run"]: one for one in of_sizes}


def of_identity() -> dict[Verdict, Datasets]:
    """All texts agree; the gradient of one does not; or there are few texts."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(gradient=2e-12), Verdict.OPEN: runs(seeds=8)}
