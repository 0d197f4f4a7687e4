"""Hand-built datasets for which the verdicts of the claims on the finite part are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.experiments.several_tokens.evidence import PARTS
from jaxattn.study.claims.claim import Datasets, Verdict

_SEEDS, _INPUTS = 40, 3
# Differences of the trained log ratios from the predicted ones: on the line, off it, or scattered.
_ON, _BESIDE, _FAR = (0.0, 0.02), (0.4, 0.02), (0.0, 1.0)


def run(
    name: str, head: str, away: tuple[float, float] = _ON, determined: float = 0.9, drift: float = 1e-4
) -> xarray.Dataset:
    """Return a run in which every input selects two tokens.

    Args:
        name: of the run.
        head: a key of `claims.HEADS`.
        away: mean and spread of the trained log ratios minus the predicted ones.
        determined: share of the inputs with a unique best distribution that mixes both tokens.
        drift: of the log ratios in the second half of training, plus or minus half as much.
    """
    rng = np.random.default_rng(0)
    inputs = np.arange(_SEEDS * _INPUTS)
    kind = np.where(rng.permutation(len(inputs)) < determined * len(inputs), 0, 2)
    # Inputs of the first kind, and runs with only such inputs.
    pair, whole = inputs[kind == 0], np.flatnonzero((kind.reshape(_SEEDS, _INPUTS) == 0).all(axis=1))
    predicted = rng.normal(0, 1, len(inputs))
    descended = predicted + rng.normal(*away, len(inputs))
    foretold = 0.01 * rng.uniform(0.9, 1.1, _SEEDS)
    arrays = {
        "mixed": {"kind": kind, "drift": drift * rng.uniform(0.5, 1.5, len(inputs)), "seed": inputs // _INPUTS},
        "pair": {"predicted": predicted[pair], "descended": descended[pair], "pair_seed": pair // _INPUTS},
        "whole": {"fitted": 0.9 * foretold[whole], "foretold": foretold[whole], "whole_seed": whole},
    }
    for axis, own in arrays.items():
        prefix, size = "" if axis == "mixed" else f"{axis}_", len(next(iter(own.values())))
        own |= {prefix + part: np.ones(size, bool) for part in PARTS}
    counts = {"attempted": _SEEDS + 8, "kept": _SEEDS, "diverged": 0}
    failed = {"infeasible": 0, "unsolved": 0}
    every = {**counts, "finite": 8, **failed}
    return xarray.Dataset(
        {name: ((axis,), values) for axis, own in arrays.items() for name, values in own.items()},
        {"snapshot": [500, 1000, 1500, 2000]},
        {"head": head, "run": name, **counts, "labels": 0, "ambiguous": 6, "finite": 2, **failed}
        | {f"every_{reason}": count for reason, count in every.items()},
    )


def of_quadratic() -> dict[Verdict, Datasets]:
    """The ratios are those predicted; differ from them; or scatter so much that the line is undetermined."""
    return {
        verdict: _both(run("lambda = 0.2", "quadratic", away), run("d = 4", "ReLU"))
        for verdict, away in ((Verdict.HOLDS, _ON), (Verdict.FAILS, _BESIDE), (Verdict.OPEN, _FAR))
    }


def of_relu() -> dict[Verdict, Datasets]:
    """The problem determines the ratios of most inputs, of few, or of half of them."""
    return {
        verdict: _both(run("lambda = 0.2", "quadratic"), run("d = 4", "ReLU", determined=share))
        for verdict, share in ((Verdict.HOLDS, 0.9), (Verdict.FAILS, 0.1), (Verdict.OPEN, 0.5))
    }


def _both(*runs: xarray.Dataset) -> Datasets:
    return {one.attrs["run"]: one for one in runs}
