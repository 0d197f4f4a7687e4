"""Hand-built descents for which the verdicts of the claims on global convergence and its rates are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

STARTS = ("zero", "small", "large", "wrong")
STEPS = np.array(Logarithmically(8)(10_000))
# The dimensions for normalized steps; all rules are run in the last.
DIMENSIONS = (4, 128)
# The largest 1 - cos of a start: one that does not move.
_AWAY = 0.5


def run(
    rule: str,
    power: Sequence[float] = (-2.0,) * 4,
    arrived: Sequence[float] = (1.0,) * 4,
    fading: float = 0.0,
    slope: float = -1.0,
    d: int = 128,
    seeds: int = 100,
) -> xarray.Dataset:
    """Return a run whose starts approach W_mm like powers of the step.

    Args:
        rule: the name of its steps.
        power: of the step, for each start; 0 for no movement.
        arrived: share of the seeds of each start that do so; the others do not move.
        fading: at 1 the log probability of non-optimal tokens falls like the logarithm of the path length, at 0
            linearly in it.
        slope: of that logarithm along the path, at first.
        d: dimension.
        seeds: number of seeds.
    """
    place = (np.arange(seeds) + 0.5) / seeds
    wave = 1 + 0.02 * np.resize([-1.0, 1.0], seeds)
    exponents = np.where(place[:, None] < np.asarray(arrived), wave[:, None] * np.asarray(power), 0.0)
    off = np.minimum(STEPS ** exponents[:, :, None], _AWAY)
    path = np.broadcast_to(STEPS.astype(float), off.shape)
    rest = np.where(exponents[:, :, None] < 0, slope * path ** (1 - fading), -1e-3)
    size = {"attempted": seeds, "kept": seeds, "infeasible": 0, "unsolved": 0}
    dims = ("seed", "start", "snapshot")
    return xarray.Dataset(
        {
            "off": (dims, off),
            "log_rest": (dims, rest * wave[:, None, None]),
            "path": (dims, path.copy()),
            "selects": (dims[:2], off[:, :, -1] < 0.1),
            "overflowed": (dims[:2], np.zeros(off.shape[:2], bool)),
        },
        {"seed": np.arange(seeds), "start": np.array(STARTS, object), "snapshot": STEPS},
        {"run": f"{rule}, d = {d}", "rule": rule, "n": 4, "T": 4, "d": d, **size},
    )


def runs(
    normalized: xarray.Dataset | None = None,
    polyak: xarray.Dataset | None = None,
    plain: xarray.Dataset | None = None,
    small: xarray.Dataset | None = None,
) -> Datasets:
    """Return all runs of the experiment, as in the paper except for those given."""
    given = (
        run("plain", (-0.25,) * 4) if plain is None else plain,
        run("normalized") if normalized is None else normalized,
        run("Polyak") if polyak is None else polyak,
        run("normalized", arrived=(0.9, 0.9, 0.6, 0.6), d=DIMENSIONS[0]) if small is None else small,
    )
    return {one.attrs["run"]: one for one in given}


def of_any_start() -> dict[Verdict, Datasets]:
    """All starts converge; a third of the wrong ones do not; or a share close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(normalized=run("normalized", arrived=(1.0, 1.0, 1.0, 0.66))),
        Verdict.OPEN: runs(normalized=run("normalized", arrived=(1.0, 1.0, 1.0, 0.95))),
    }


def of_normalized() -> dict[Verdict, Datasets]:
    """Like k^-2; logarithmically slow from one start; or in between."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(normalized=run("normalized", (-2.0, -2.0, -0.2, -2.0))),
        Verdict.OPEN: runs(normalized=run("normalized", (-2.0, -2.0, -0.5, -2.0))),
    }


def of_polyak() -> dict[Verdict, Datasets]:
    """From all starts; from W = 0 and small weights; from none; or with a share close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(polyak=run("Polyak", arrived=(1.0, 1.0, 0.3, 0.5))),
        Verdict.FAILS: runs(polyak=run("Polyak", (-0.2,) * 4, arrived=(1.0, 0.5, 0.3, 0.5))),
        Verdict.OPEN: runs(polyak=run("Polyak", arrived=(1.0, 1.0, 1.0, 0.95))),
    }


def of_faster() -> dict[Verdict, Datasets]:
    """Both are faster than plain steps; Polyak's are as slow; or nearly."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(polyak=run("Polyak", (-0.25,) * 4)),
        Verdict.OPEN: runs(polyak=run("Polyak", (-0.35,) * 4)),
    }


def of_sparsity() -> dict[Verdict, Datasets]:
    """Linear in the path; like its logarithm; or in between."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(normalized=run("normalized", fading=0.9, slope=-5.0)),
        Verdict.OPEN: runs(normalized=run("normalized"), polyak=run("Polyak", seeds=10)),
    }


def of_condition() -> dict[Verdict, Datasets]:
    """In small dimensions starts end elsewhere; none does; or a share close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(small=run("normalized", d=DIMENSIONS[0])),
        Verdict.OPEN: runs(small=run("normalized", arrived=(1.0, 1.0, 0.95, 0.95), d=DIMENSIONS[0])),
    }
