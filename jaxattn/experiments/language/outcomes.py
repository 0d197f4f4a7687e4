"""How figures draw where starts end: at the hard margin, with prefixes unserved, or neither."""

from __future__ import annotations

from collections.abc import Sequence

import xarray

from jaxattn.experiments.language.arrival import NEAR
from jaxattn.study.style import palette
from jaxattn.study.style.rows import Part

__all__ = ["ARRIVED", "LOST", "parts"]

ARRIVED, LOST = palette.FROBENIUS, palette.WINE


def parts(runs: Sequence[xarray.Dataset], every: str, neither: str) -> list[Part]:
    """Return the parts of each run's bar.

    Args:
        runs: with the counts `arrived`, `left` and `moving`.
        every: the count that they are shares of.
        neither: what is said of those that are `moving`.
    """
    return [
        Part(label, colour, [int(one[name]) / int(one[every]) for one in runs])
        for name, colour, label in (
            ("arrived", ARRIVED, f"within {NEAR:g} of the hard margin"),
            ("left", LOST, "prefixes unserved"),
            ("moving", palette.EXCLUDED, neither),
        )
    ]
