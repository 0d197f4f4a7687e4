"""Hand-built datasets for which the verdicts of the claims on the Lipschitz constant are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.experiments.smoothness.lipschitz.measure import RADII, RISKS
from jaxattn.study.claims.claim import Datasets, Verdict

# The growth of a constant like M: the exponent in `exp(c R^2)`. Floating-point numbers end at the exponent in the
# second.
_LIKE_M, _LARGEST = 13.0, 600.0


def made(
    power: float = 6.0,
    over: float = 0.5,
    seeds: int = 24,
    grows: float = 0.0,
    loosens: float = 0.0,
    residual: float = 1e-9,
) -> xarray.Dataset:
    """Return what `measure` would return for constants like `R^power exp(grows R^2)`, with a small spread over seeds.

    Args:
        power: the power of R in the largest second derivatives; its mean over the seeds.
        over: what is found over its bound, at R = 0; its mean over the seeds.
        seeds: number of seeds.
        grows: what is found also grows like the exponential of this times R^2.
        loosens: the bound additionally exceeds what is found by the exponential of this times R^2.
        residual: of the eigenvalues, over their size.
    """
    noise = np.random.default_rng(0).normal(0, 0.02, (seeds, 1, 1))
    # Symmetric, so that the means are exact.
    off = 0.02 * np.linspace(-1, 1, seeds)[:, None, None]
    R = RADII[None, :, None]
    bend = (1 + noise) * R ** (power + off) * _exponential(grows * R**2) * np.ones((1, 1, len(RISKS)))
    bound = bend / (over * (1 + off)) * _exponential(loosens * R**2)
    values = {"bend": bend, "residual": residual * bend, "ratio": bend / 3, "bound": bound}
    return xarray.Dataset(
        {name: (("seed", "radius", "risk"), each) for name, each in values.items()},
        {"seed": np.arange(seeds), "risk": np.array(list(RISKS), dtype=object), "radius": RADII},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "run": "texts", "n": 5, "draws": 64},
    )


def _exponential(x: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(x, _LARGEST))


def _examples(holds: xarray.Dataset, fails: xarray.Dataset, undecided: xarray.Dataset) -> dict[Verdict, Datasets]:
    named = {Verdict.HOLDS: holds, Verdict.FAILS: fails, Verdict.OPEN: undecided}
    return {verdict: {one.attrs["run"]: one} for verdict, one in named.items()}


def of_bound() -> dict[Verdict, Datasets]:
    """The derived bound is below M; what is found is above it; or M is between what is found and the bound."""
    return _examples(made(), made(grows=_LIKE_M + 1), made(loosens=_LIKE_M + 1))


def of_exponential() -> dict[Verdict, Datasets]:
    """What is found and the bound grow like powers; like M; or only the bound grows like M."""
    return _examples(made(), made(grows=_LIKE_M), made(loosens=_LIKE_M))


def of_derived() -> dict[Verdict, Datasets]:
    """All that is found is below the bound; some of it is above; or the eigenvalues are too inexact to decide."""
    return _examples(made(), made(over=1.01), made(over=0.9, residual=0.2))
