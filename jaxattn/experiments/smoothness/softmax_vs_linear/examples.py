"""Hand-built datasets for which the verdicts of the claims on softmax and linear attention are known."""

from __future__ import annotations

import numpy as np
import xarray
from numpy.typing import ArrayLike

from jaxattn.experiments.smoothness.softmax_vs_linear.measure import ATTENTIONS, LOSSES, SCALES
from jaxattn.study.claims.claim import Datasets, Verdict

# Factors at every scale, in favour of softmax from scale 2; the second by more than the looseness of its bound.
FROM_TWO, PROVED_FROM_TWO = (np.where(SCALES >= 2, factor, 0.4) for factor in (3.0, 9.0))


def made(
    seeds: int = 30,
    smoother: ArrayLike = 10.0,
    larger: ArrayLike = 3.0,
    forked: int = 0,
    exceeds: tuple[ArrayLike, ArrayLike] = (0.0, 1.0),
    beyond: bool = False,
    loose: float = 5.0,
) -> xarray.Dataset:
    """Return what `measure` would return: softmax smoother, and its steps larger, by these factors at every loss.

    The first `forked` texts fork; for them the step with softmax is half of that with linear attention.

    Args:
        seeds: number of seeds.
        smoother: the curvature, linear over softmax, one number, or one per scale.
        larger: the largest step, softmax over linear, one number, or one per scale.
        forked: number of texts that fork.
        exceeds: with softmax and with linear attention, the share of texts that exceed their start: one number, or one
            per loss.
        beyond: whether all steps tried descend, with both.
        loose: the bound for softmax over what is found.
    """
    noise = np.random.default_rng(0).normal(0, 0.02, (seeds, 1, 1))
    shape = (seeds, len(SCALES), len(LOSSES))
    linear = (1 + noise) * SCALES[None, :, None] ** 6 * np.ones(len(LOSSES))
    # Symmetric, so that the mean logarithm of the ratio is exact.
    off = 1.02 ** np.linspace(-1, 1, seeds)[:, None, None]
    softmax = off * linear / (np.broadcast_to(smoother, SCALES.shape)[None, :, None])
    factor = np.broadcast_to(np.broadcast_to(larger, SCALES.shape)[None, :, None], shape).copy()
    factor[:forked] = 0.5
    steps = 2 / linear
    shares = [np.broadcast_to(share, len(LOSSES)) for share in exceeds]
    hits = [np.broadcast_to((np.arange(seeds)[:, None] < share * seeds)[:, None], shape) for share in shares]
    none = np.zeros((*shape, len(ATTENTIONS)), bool)
    values = {
        "at_zero": np.stack([softmax / 2, linear], -1),
        "drawn": np.stack([softmax, linear], -1),
        "path": np.stack([softmax / 2, linear], -1),
        "step": np.stack([steps if beyond else factor * steps, steps], -1),
        "beyond": none | beyond,
        "below": none,
        "again": none,
        "exceeds": np.stack(hits, -1),
    }
    dims = ("seed", "scale", "loss", "attention")
    return xarray.Dataset(
        {name: (dims, each) for name, each in values.items()}
        | {"bound": (dims[:3], loose * softmax), "forked": (("seed",), np.arange(seeds) < forked)},
        {
            "seed": np.arange(seeds),
            "scale": SCALES,
            "loss": np.array(list(LOSSES), dtype=object),
            "attention": np.array(list(ATTENTIONS), dtype=object),
        },
        {"attempted": seeds, "kept": seeds, "diverged": 0, "run": "texts", "words": 10},
    )


def _examples(
    holds: xarray.Dataset, corrected: xarray.Dataset, fails: xarray.Dataset, undecided: xarray.Dataset
) -> dict[Verdict, Datasets]:
    verdicts = (Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN)
    return {
        verdict: {one.attrs["run"]: one}
        for verdict, one in zip(verdicts, (holds, corrected, fails, undecided), strict=True)
    }


def of_steps() -> dict[Verdict, Datasets]:
    """Steps with softmax are larger; from scale 2; smaller; or all descend, so that it is undecided."""
    return _examples(made(), made(larger=FROM_TWO), made(larger=0.5), made(beyond=True))


def of_curvature() -> dict[Verdict, Datasets]:
    """Softmax is proved to have a smaller curvature; from scale 2; a larger one; or its bound is too loose."""
    return _examples(made(), made(smoother=PROVED_FROM_TWO), made(smoother=0.5), made(smoother=3.0))


def of_divergence() -> dict[Verdict, Datasets]:
    """Only linear attention exceeds its start; for the squared loss; softmax does too; or few texts do."""
    return _examples(
        made(),
        made(exceeds=((1.0, 0.0), 1.0)),
        made(exceeds=(1.0, 1.0)),
        made(exceeds=(0.3, 0.4)),
    )
