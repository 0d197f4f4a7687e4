"""Hand-built datasets for which the verdicts of the claims on several tokens against lambda are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.experiments.several_tokens.descriptions import SOLUTIONS
from jaxattn.study.claims.claim import Datasets, Verdict

_LAMBDAS, _SEEDS, _FEW = (0.0, 0.1, 0.4), 60, 6
# Selected tokens per input, by lambda.
_RISING, _TURNING, _FLAT = (1.0, 1.5, 2.5), (1.0, 2.5, 1.5), (1.0, 1.5, 1.5)
# Final 1 - cos with W_SVMeq, W_mm and W_1token.
_ORDERED = (0.01, 0.05, 0.3)


def runs(
    tokens: Sequence[float] = _RISING,
    end: Sequence[float] = _ORDERED,
    seeds: int = _SEEDS,
    last: int = 20_000,
    predicted: float = 1.1,
    determined: int = 16,
    growth: float = 0.5,
    power: float = 1.5,
) -> Datasets:
    """Return runs for three values of lambda; at lambda = 0 single tokens are selected, so that W_SVMeq is W_mm.

    Args:
        tokens: selected per input, by lambda; varies by up to a half over seeds, except where it is one.
        end: final 1 - cos with W_SVMeq, W_mm and W_1token, for lambda > 0.
        seeds: number of seeds; each differs by a tenth.
        last: number of the last step.
        predicted: factor by which W_SVMeq is farther with the predicted finite part.
        determined: number of seeds that have a prediction.
        growth: the exponent p in ||W|| ~ k^p.
        power: the exponent of 1 / ||W|| with which 1 - cos falls.
    """
    made, steps = {}, last * np.arange(1, 5) // 4
    grown = (steps / last) ** growth
    for place, penalty in enumerate(_LAMBDAS):
        rng = np.random.default_rng(place)
        ends = np.outer(1 + 0.1 * np.resize([1.0, -1.0], seeds), [*(end if penalty else np.full(3, 0.01)), 0.9])
        selected = tokens[place] + (rng.uniform(-0.5, 0.5, seeds) if tokens[place] > 1 else np.zeros(seeds))
        whole = np.arange(determined if penalty else 0)
        counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "finite": 0, "infeasible": 0, "unsolved": 0}
        made[f"lambda = {penalty:g}"] = xarray.Dataset(
            {
                "off": (("seed", "solution", "snapshot"), ends[:, :, None] / grown**power),
                "size": (("seed", "snapshot"), np.full((seeds, 1), 20.0) * grown),
                "several": (("seed",), np.full(seeds, penalty > 0)),
                "whole_seed": (("whole",), whole),
                "foretold": (("whole",), predicted * ends[whole, 0]),
                "fitted": (("whole",), ends[whole, 0]),
                "tokens": (("attempt",), selected),
                "best": (("attempt",), np.full(seeds, tokens[place])),
                "diverged": (("attempt",), np.zeros(seeds, bool)),
            },
            {"seed": np.arange(seeds), "solution": np.array(SOLUTIONS, object), "snapshot": steps},
            {"run": f"lambda = {penalty:g}", "penalty": penalty, **counts},
        )
    return made


def of_tokens() -> dict[Verdict, Datasets]:
    """More tokens for every larger lambda; fewer for the largest; or equally many for two of them."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(_TURNING),
        Verdict.OPEN: runs(_FLAT),
    }


def of_order() -> dict[Verdict, Datasets]:
    """W_SVMeq with the predicted finite part is nearer than W_mm; farther; or few runs have a prediction."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(predicted=6.0),
        Verdict.OPEN: runs(determined=_FEW),
    }


def of_norm() -> dict[Verdict, Datasets]:
    """The norm grows; it does not; or there are few runs."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(growth=0.01), Verdict.OPEN: _few()}


def of_direction() -> dict[Verdict, Datasets]:
    """The distance falls faster than 1 / ||W||; slower; or there are few runs."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(power=0.5), Verdict.OPEN: _few()}


def _few() -> Datasets:
    return runs(seeds=_FEW, determined=_FEW)
