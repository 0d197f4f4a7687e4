"""Measured datasets built by hand: what the claims on several tokens against lambda have to say of them is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.experiments.several_tokens.descriptions import SOLUTIONS
from jaxattn.study.claims.claim import Datasets, Verdict

_LAMBDAS, _SEEDS, _FEW = (0.0, 0.1, 0.4), 24, 6
# Selected tokens of an input, by lambda.
_RISING, _TURNING, _FLAT = (1.0, 1.5, 2.5), (1.0, 2.5, 1.5), (1.0, 1.5, 1.5)
# 1 - correlation with W_SVMeq, W_mm and W_1token, at the end and at half the steps.
_ORDERED, _REVERSED = (0.01, 0.05, 0.3), (0.05, 0.01, 0.3)


def runs(
    tokens: Sequence[float] = _RISING,
    half: Sequence[float] = _ORDERED,
    end: Sequence[float] = _ORDERED,
    seeds: int = _SEEDS,
    last: int = 20_000,
) -> Datasets:
    """Return a run of each of three lambdas; where lambda is 0 single tokens are selected, so that W_SVMeq is W_mm.

    Args:
        tokens: selected in an input, by lambda; in every seed up to a half more or less, but where it is one.
        half: 1 - correlation with W_SVMeq, W_mm and W_1token up to half the steps, where lambda is not 0.
        end: and after that.
        seeds: number of them; each is a tenth nearer or farther.
        last: number of the last step.
    """
    made = {}
    for place, penalty in enumerate(_LAMBDAS):
        rng = np.random.default_rng(place)
        alike = np.full(3, 0.01)
        both = [[*(one if penalty else alike), 0.9] for one in (half, half, end, end)]
        factors = 1 + 0.1 * np.resize([1.0, -1.0], seeds)
        selected = tokens[place] + (rng.uniform(-0.5, 0.5, seeds) if tokens[place] > 1 else np.zeros(seeds))
        counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "finite": 0, "infeasible": 0, "unsolved": 0}
        made[f"lambda = {penalty:g}"] = xarray.Dataset(
            {
                "off": (("seed", "solution", "snapshot"), factors[:, None, None] * np.transpose(both)),
                "tokens": (("attempt",), selected),
                "best": (("attempt",), np.full(seeds, tokens[place])),
                "diverged": (("attempt",), np.zeros(seeds, bool)),
            },
            {
                "seed": np.arange(seeds),
                "solution": np.array(SOLUTIONS, object),
                "snapshot": last * np.arange(1, 5) // 4,
            },
            {"run": f"lambda = {penalty:g}", "penalty": penalty, **counts},
        )
    return made


def of_tokens() -> dict[Verdict, Datasets]:
    """More tokens with every lambda; fewer under the largest; or as many under two of them."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(_TURNING),
        Verdict.OPEN: runs(_FLAT),
    }


def of_order() -> dict[Verdict, Datasets]:
    """W_SVMeq is nearer all along; only where it is fitted; or there are few runs."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(half=_REVERSED),
        Verdict.OPEN: runs(seeds=_FEW),
    }
