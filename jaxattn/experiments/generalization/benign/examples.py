"""Hand-built runs on flipped labels for which the verdicts of the claims are known."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

_SEEDS, _STEPS = 300, np.array(Logarithmically(8)(1500))
_SIZES = ((20, 2000), (20, 1_000_000))


def runs(
    low: float = 0.99,
    rise: float = 0.0,
    found: float = 0.5,
    fit: float = 1.0,
    left: float = 0.0,
    weak: float = -0.2,
    seeds: int = _SEEDS,
) -> Datasets:
    """Return a run of d = 2,000 and one of a million, each with signals from weak to strong.

    Args:
        low: final test accuracy if the signal is strong and the ratio low.
        rise: its increase after all labels are fit.
        found: increase of the attention on the signal tokens of new inputs after that.
        fit: share of flipped labels that are fit at the end.
        left: share of flipped labels that are fit at all times if the ratio is high, in every fourth seed.
        weak: change of test accuracy if the signal is weak.
        seeds: per run.
    """
    return {f"n = {n}, d = {d:,}": _run(n, d, low, rise, found, fit, left, weak, seeds) for n, d in _SIZES}


def _run(
    n: int, d: int, low: float, rise: float, found: float, fit: float, left: float, weak: float, seeds: int
) -> xarray.Dataset:
    strength = np.geomspace(0.5, 20, seeds)
    ratio = strength**2 * (n / d) ** 0.5
    # Seeds also differ in their changes.
    spread = np.resize([-1.0, 1.0, -0.5, 0.5], seeds)[:, None]
    wiggle, rise_of, weak_of = 0.002 * spread, rise * (1 + 0.2 * spread), weak * (1 + 0.2 * spread)
    # From 0 to 1 while labels are fit, and from 0 to 1 after that.
    first, then = (
        np.interp(np.arange(len(_STEPS)), [a, b], [0.0, 1.0])[None] for a, b in ((8, 16), (17, len(_STEPS) - 1))
    )
    is_weak, is_low = (strength <= 1.2)[:, None], ((ratio <= 0.5) & (strength >= 4))[:, None]
    is_left = ((ratio >= 4) & (np.arange(seeds) % 4 == 0))[:, None]
    base = np.where(is_low, low - rise, 0.99)
    test = np.where(is_weak, 0.8 + weak_of * first, base + np.where(is_low, rise_of, 0.0) * then) + wiggle
    flipped: Float[np.ndarray, "seeds snapshots"] = np.where(first >= 1, fit, 0.0)
    along = {
        "clean": np.ones_like(test),
        "flipped": np.maximum(flipped, np.where(is_left, left, 0.0)),
        "attends": 0.125 + 0.8 * np.minimum(2 * first, 1) + wiggle,
        "test": test,
        "finds": 0.125 + found * then + wiggle,
        "time": np.broadcast_to(0.01 * _STEPS - 2.0, test.shape),
    }
    own = {"before": test[:, 0], "ratio": ratio, "strength": strength}
    return xarray.Dataset(
        {name: (("seed", "snapshot"), np.broadcast_to(values, test.shape)) for name, values in along.items()}
        | {name: (("seed",), values) for name, values in own.items()},
        {"seed": np.arange(seeds), "snapshot": _STEPS},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "n": n, "d": d, "run": f"n = {n}, d = {d:,}"},
    )


def of_low() -> dict[Verdict, Datasets]:
    """New inputs are classified correctly, or not, if the ratio is low; or close to the threshold."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(low=0.8), Verdict.OPEN: runs(low=0.95)}


def of_high() -> dict[Verdict, Datasets]:
    """Flipped labels are never fit; only later; always in some seeds; or there are too few seeds."""
    return {
        Verdict.HOLDS: runs(fit=0.0),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(left=0.5),
        Verdict.OPEN: runs(fit=0.0, seeds=6),
    }


def of_weak() -> dict[Verdict, Datasets]:
    """Test accuracy falls; does not change; or falls by about the amount asked for."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(weak=0.0), Verdict.OPEN: runs(weak=-0.05)}


def of_late() -> dict[Verdict, Datasets]:
    """Test accuracy rises late; only the attention does; neither does; or close to the threshold."""
    return {
        Verdict.HOLDS: runs(rise=0.2),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(found=0.0),
        Verdict.OPEN: runs(rise=0.05),
    }
