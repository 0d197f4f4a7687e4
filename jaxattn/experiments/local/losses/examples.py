"""Hand-built datasets for which the verdicts of the claims on the losses are known."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn.study.claims.claim import Datasets, Verdict

_LOSSES, _SEEDS, _STEPS = ("logistic", "exponential", "correlation", "heavy-tail"), 200, np.array([500, 1000, 2000])


def run(
    loss: str, parallel: float = 1.0, nuclear: float = 0.15, growth: float = 1.0, falling: float = 4.0
) -> xarray.Dataset:
    """Return a run under a loss.

    Args:
        loss: its name.
        parallel: share of seeds that end near the Frobenius solution; the others end far from it.
        nuclear: 1 - cos with the nuclear solution.
        growth: the exponent p in ||W z|| ~ k^p.
        falling: the factor by which the distances fall between snapshots; 1 if they do not change.
    """
    seeds = np.arange(_SEEDS)
    ends = np.where(seeds % 100 < 100 * parallel, 1e-3, 0.1) * (1 + 0.1 * np.resize([-1.0, 1.0], _SEEDS))
    off: Float[np.ndarray, "seed norm"] = np.stack([ends, np.full(_SEEDS, nuclear)], axis=1)
    along = falling ** np.array([2.0, 1.0, 0.0])
    path = np.ones((_SEEDS, 1, 2, 2)) * (_STEPS**growth)[:, None, None]
    counts = {"attempted": _SEEDS, "kept": _SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    return xarray.Dataset(
        {
            "off": (("seed", "norm", "snapshot"), np.minimum(off[:, :, None] * along, 1.0)),
            "path": (("seed", "snapshot", "input", "feature"), path),
        },
        {"seed": seeds, "norm": np.array(["frobenius", "nuclear"], object), "snapshot": _STEPS},
        {**counts, "run": loss},
    )


def runs(loss: str, **changes: float) -> Datasets:
    """Return all losses, one of them with changes."""
    return {one: run(one, **(changes if one == loss else {})) for one in _LOSSES}


def of_loss(loss: str) -> dict[Verdict, Datasets]:
    """All seeds end near the Frobenius solution; half of them; or a share close to the threshold."""
    return {
        Verdict.HOLDS: runs(loss),
        Verdict.FAILS: runs(loss, parallel=0.5),
        Verdict.OPEN: runs(loss, parallel=0.95),
    }


def of_joint() -> dict[Verdict, Datasets]:
    """All losses lead to the solution; only those with slow tails; only one of these; or one has not converged."""

    def runs(falling: float = 1.0, **shares: float) -> Datasets:
        fixed = {loss: run(loss) for loss in _LOSSES}
        joint = {loss: run(f"joint {loss}", shares.get(loss, 1.0), falling=falling) for loss in _LOSSES}
        return fixed | {f"joint {loss}": one for loss, one in joint.items()}

    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(logistic=0.4, exponential=0.4),
        Verdict.FAILS: runs(logistic=0.4, correlation=0.4),
        Verdict.OPEN: runs(falling=4.0, logistic=0.4),
    }
