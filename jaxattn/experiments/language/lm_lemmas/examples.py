"""Hand-built measurements for which the verdicts of the claims on the lemmas are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.experiments.language.lm_lemmas.measure import BOUNDS, DISTANCES, LABELS, RADII
from jaxattn.study.claims.claim import Datasets, Verdict


def texts(
    printed: float = 1e-15, mended: float = 1e-15, slope: float = 0.09, share: float = -3.0, seeds: int = 24
) -> Datasets:
    """Return one run.

    Args:
        printed: relative difference of the printed gradient for labels other than +-1; for +-1 it is `mended`.
        mended: relative difference of the corrected gradient.
        slope: largest ratio, at the smallest distance.
        share: logarithm of the ratio of the first basic function to its bound; the others are smaller by decades.
        seeds: number of seeds, all kept.
    """
    noise = 1 + 0.01 * np.random.default_rng(0).uniform(-1, 0, (seeds, 1))
    of_label = np.where(np.abs(LABELS) == 1, mended, printed)
    lower = share - np.arange(len(BOUNDS))
    variables = {
        "printed": (("seed", "label"), noise * of_label),
        "mended": (("seed", "label"), noise * np.full(len(LABELS), mended)),
        "slope": (("seed", "distance"), noise * slope / (1 + DISTANCES)),
        "share": (("seed", "radius", "bound"), noise[:, :, None] * np.stack([lower] * len(RADII))),
    }
    axes = {"label": LABELS, "distance": DISTANCES, "radius": RADII, "bound": np.array(BOUNDS, dtype=object)}
    attrs = {"attempted": seeds, "kept": seeds, "labels": 0, "run": "texts", "n": 5}
    return {"texts": xarray.Dataset(variables, {"seed": np.arange(seeds), **axes}, attrs)}


def of_gradient() -> dict[Verdict, Datasets]:
    """Both forms are right; the printed one only for labels +-1; neither is; or there are too few texts."""
    return {
        Verdict.HOLDS: texts(),
        Verdict.CORRECTED: texts(printed=0.3),
        Verdict.FAILS: texts(printed=0.3, mended=0.1),
        Verdict.OPEN: texts(seeds=10),
    }


def of_slope() -> dict[Verdict, Datasets]:
    """The slope is below 1; it is above; or there are too few texts."""
    return {Verdict.HOLDS: texts(), Verdict.FAILS: texts(slope=1.2), Verdict.OPEN: texts(seeds=10)}


def of_bounds() -> dict[Verdict, Datasets]:
    """All are below their bounds; one is above; or there are too few texts."""
    return {Verdict.HOLDS: texts(), Verdict.FAILS: texts(share=0.1), Verdict.OPEN: texts(seeds=10)}
