"""Hand-built datasets for which the verdicts of the claims on the selector are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.bias.selector.measure import GUMBEL, HEADS, ONE_HOT, PLAIN, RANDOM, ROTARY, entropy
from jaxattn.study.claims.claim import Datasets, Verdict

_SEEDS, _INPUTS, _STEPS = 200, 5, np.array([100, 1000, 2000, 5000, 10000])
_NORMS = ("frobenius", "nuclear", "spectral", "max", "l1")
WEIGHTS = (0.01, 0.1, 1.0)
RUNS = (PLAIN, *map(entropy, WEIGHTS), GUMBEL, RANDOM, HEADS, ROTARY, ONE_HOT)


def run(name: str, same: float = 1.0, ratio: float = 0.99, rival: float = 0.8, spread: float = 0.004) -> xarray.Dataset:
    """Return a run.

    Args:
        name: of it.
        same: the share of inputs for which it selects token 0.
        ratio: its mean Frobenius margin ratio over seeds, at every snapshot.
        rival: the same for the other norms.
        spread: of every ratio around its mean.
    """
    seeds = np.arange(_SEEDS)
    means = np.array([ratio if norm == "frobenius" else rival for norm in _NORMS])
    around = spread * np.resize([-1.0, 1.0, 0.5, -0.5], _SEEDS)
    selected = (np.arange(_SEEDS * _INPUTS) * 7 % 100 >= 100 * same).reshape(_SEEDS, _INPUTS).astype(int)
    joint = {"joint": (("seed", "snapshot"), np.full((_SEEDS, _STEPS.size), ratio - 0.005))} if name == HEADS else {}
    return xarray.Dataset(
        {
            **joint,
            "optimal": (("seed",), np.full(_SEEDS, 0.8)),
            "margin_ratio": (
                ("seed", "norm", "snapshot"),
                np.tile((means + around[:, None])[..., None], _STEPS.size),
            ),
            "probability": (("seed", "snapshot"), np.full((_SEEDS, _STEPS.size), 0.9999)),
            "selected": (("seed", "input"), selected),
        },
        {"seed": seeds, "norm": np.array(_NORMS, object), "snapshot": _STEPS},
        {"attempted": _SEEDS, "kept": _SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0, "run": name},
    )


def runs(**changes: dict[str, Any]) -> Datasets:
    """Return all runs, with changes by the name of the run."""
    return {name: run(name, **changes.get(name, {})) for name in RUNS}


def of_entropy_tokens() -> dict[Verdict, Datasets]:
    """All weights select the same tokens; only the smallest; none of them; or close to the threshold."""
    first, *others = map(entropy, WEIGHTS)
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(**{one: {"same": 0.6} for one in others}),
        Verdict.FAILS: runs(**{one: {"same": 0.6} for one in (first, *others)}),
        Verdict.OPEN: runs(**{first: {"same": 0.95}}),
    }


def of_gumbel_tokens() -> dict[Verdict, Datasets]:
    """It selects the same tokens; others; or a share close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**{GUMBEL: {"same": 0.6}}),
        Verdict.OPEN: runs(**{GUMBEL: {"same": 0.95}}),
    }


def of_entropy_norm() -> dict[Verdict, Datasets]:
    """The Frobenius norm is obeyed for every weight; not for the largest; or there it is undecided."""
    largest = entropy(WEIGHTS[-1])
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**{largest: {"ratio": 0.7}}),
        Verdict.OPEN: runs(**{largest: {"ratio": 0.97}}),
    }


def of_gumbel_norm() -> dict[Verdict, Datasets]:
    """The Frobenius norm is obeyed; none is; or it is undecided."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**{GUMBEL: {"ratio": 0.7}}),
        Verdict.OPEN: runs(**{GUMBEL: {"ratio": 0.97}}),
    }


def of_gain(name: str) -> dict[Verdict, Datasets]:
    """Its ratios are nearer to 1 than without the change; farther; or nearer by about the amount asked for."""
    return {
        Verdict.HOLDS: runs(**{name: {"ratio": 0.995, "spread": 0.002}}),
        Verdict.FAILS: runs(**{name: {"ratio": 0.985, "spread": 0.002}}),
        Verdict.OPEN: runs(**{name: {"ratio": 0.9912, "spread": 0.002}}),
    }
