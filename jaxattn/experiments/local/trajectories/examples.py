"""Hand-built datasets for which the verdicts of the claims on either run are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from numpy.typing import ArrayLike

from jaxattn.study.claims.claim import Datasets, Verdict

NORMS = ["frobenius", "nuclear"]
COUNTS = {"attempted": 203, "kept": 200, "diverged": 1, "infeasible": 2, "unsolved": 0}
# Mean zero and standard deviation 0.001.
_WOBBLE = np.resize([-0.001, 0.001], COUNTS["kept"])


def trajectory(
    run: str,
    frobenius: ArrayLike,
    nuclear: ArrayLike,
    last: int = 2000,
    seeds: Sequence[int] = range(COUNTS["kept"]),
    tokens: int = 3,
    growth: float = 1.0,
) -> xarray.Dataset:
    """Return a run in the plane with these correlations at the last step, and 0.5 before.

    Args:
        run: "W" or "KQ", followed by ", exact" for the exact gradient direction.
        frobenius: final correlation with the Frobenius solution, one per seed or one for all.
        nuclear: the same with the nuclear solution.
        last: the last step; the other two snapshots are after a quarter and half of the steps.
        seeds: that were kept.
        tokens: of each of the two inputs.
        growth: the exponent p in ||W z|| ~ k^p.
    """
    steps = np.array([last // 4, last // 2, last])
    final = np.stack(np.broadcast_arrays(frobenius, nuclear, np.zeros(len(seeds)))[:2], axis=1)
    correlation = np.stack([np.full_like(final, 0.5)] * 2 + [final], axis=2)
    random = np.random.default_rng(0)
    exponents = growth + np.resize([-0.01, 0.01], len(seeds))
    directions = random.normal(size=(len(seeds), 2, 2))
    variables = {
        "correlation": (("seed", "norm", "snapshot"), correlation),
        "X": (("seed", "input", "token", "feature"), random.normal(size=(len(seeds), 2, tokens, 2))),
        "ray": (("seed", "norm", "input", "feature"), np.stack([directions] * 2, axis=1)),
        "path": (
            ("seed", "snapshot", "input", "feature"),
            (steps ** exponents[:, None])[:, :, None, None] * directions[:, None],
        ),
        "selected": (("seed", "input"), np.zeros((len(seeds), 2), int)),
    }
    coordinates = {"seed": list(seeds), "norm": np.array(NORMS, object), "snapshot": steps}
    return xarray.Dataset(variables, coordinates, {**COUNTS, "run": run})


def runs(
    tokens: int,
    W: ArrayLike,
    KQ: ArrayLike,
    exact: ArrayLike = 0.998,
    last: int = 2000,
    growth: float = 1.0,
    spread: ArrayLike = _WOBBLE,
) -> Datasets:
    """Return all runs with these correlations with their own solutions, and 0.5 with the other one.

    Args:
        tokens: of each of the two inputs.
        W: for each seed, or their mean, when training W by the published rule.
        KQ: the same when training (K, Q).
        exact: the same for both along the exact gradient direction, with ten times as many steps.
        last: the last step by the published rule.
        growth: the exponent p in ||W z|| ~ k^p.
        spread: added to the correlations.
    """
    more = {"tokens": tokens, "growth": growth}
    of_W, of_KQ, of_both = (np.asarray(one) + np.asarray(spread) for one in (W, KQ, exact))
    return {
        "W": trajectory("W", of_W, 0.5, last, **more),
        "KQ": trajectory("KQ", 0.5, of_KQ, last, **more),
        "W, exact": trajectory("W, exact", of_both, 0.5, 10 * last, **more),
        "KQ, exact": trajectory("KQ, exact", 0.5, of_both, 10 * last, **more),
    }


# The number of seeds in twenty that are parallel to their rays.
_MOST, _NEARLY, _FEW = (np.resize([0.999] * many + [0.6] * (20 - many), COUNTS["kept"]) for many in (16, 19, 4))


def of_run(run: str, tokens: int) -> dict[Verdict, Datasets]:
    """Nearly all seeds are parallel along the exact gradient direction; most; few; or near the threshold."""

    def ends(correlation: ArrayLike) -> Datasets:
        name = f"{run}, exact"
        return {**runs(tokens, 0.995, 0.995), name: runs(tokens, 0.995, 0.995, correlation)[name]}

    return {
        Verdict.HOLDS: ends(0.998),
        Verdict.CORRECTED: ends(_MOST),
        Verdict.FAILS: ends(_FEW),
        Verdict.OPEN: ends(_NEARLY),
    }
