"""How figures draw where starts end: near the hard margin, with prefixes unserved, on the way, or turned away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.experiments.language.arrival import NEAR
from jaxattn.study.style import palette
from jaxattn.study.style.rows import Part

__all__ = ["ARRIVED", "LOST", "parts"]

ARRIVED, LOST = palette.FROBENIUS, palette.WINE


def parts(runs: Sequence[xarray.Dataset], every: str) -> list[Part]:
    """Return the parts of each run's bar; the last two only if there are such starts.

    Args:
        runs: with the counts `arrived`, `left`, `moving` and, among these, `opposed`.
        every: the count that they are shares of.
    """
    counts = {
        name: np.array([int(one[name]) for one in runs]) for name in ("arrived", "left", "moving", "opposed", every)
    }
    kinds = (
        (f"1 - cos at most {NEAR:g}", ARRIVED, counts["arrived"]),
        ("prefixes unserved", LOST, counts["left"]),
        ("on the way", palette.EXCLUDED, counts["moving"] - counts["opposed"]),
        ("turned away", palette.AMBER, counts["opposed"]),
    )
    return [Part(label, colour, count / counts[every]) for label, colour, count in kinds if count.any()]
