"""Hand-built prompts for which the verdicts of the claims are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([10, 100, 1000, 10_000])
_KEYS, _RULES = ("keys X", "keys X A"), ("exact direction", "published rule")


def run(
    trained: str = "W",
    keys: str = "keys X",
    rule: str = "exact direction",
    seeds: int = 100,
    off: float = 1e-6,
    ratio: float = 0.998,
    locally: float = 1.0,
    growth: float = 1.0,
    apart: float = 0.0,
    beside: float = 1e-14,
    posed: float = 1e-12,
) -> xarray.Dataset:
    """Return a run.

    Args:
        trained: "W" or "p".
        keys: from which the logits are computed.
        rule: of descent.
        seeds: number of seeds.
        off: final 1 - cos, the mean over seeds.
        ratio: final margin ratio, the mean over seeds.
        locally: share of the seeds that select locally optimal tokens.
        growth: the exponent p in ||p|| ~ k^p.
        apart: relative distance of the prompts from those of a run with 0.
        beside: the part of W other than `p z^T`.
        posed: distance of the two solutions.
    """
    seed = np.arange(seeds)
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], seeds)[:, None]
    falling = np.minimum(off * (STEPS[-1] / STEPS), 1.0)
    p = np.ones((seeds, len(STEPS), 10)) * (0.1 * STEPS**growth)[None, :, None] * (1 + apart)
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    axes = ("seed", "snapshot")
    return xarray.Dataset(
        {
            "off": (axes, spread * falling),
            "margin_ratio": (axes, 1 - spread * (1 - ratio) * np.ones(len(STEPS))),
            "p": ((*axes, "feature"), p),
            "beside": (axes, np.full((seeds, len(STEPS)), beside)),
            "posed": (("seed",), np.full(seeds, posed)),
            "locally": (("seed",), seed < locally * seeds),
            "globally": (("seed",), seed < 0.4 * seeds),
        },
        {"seed": seed, "snapshot": STEPS},
        {"run": f"{trained}, {keys}, {rule}", "trained": trained, "keys": keys, "rule": rule, **counts},
    )


def runs(trained: str = "W", **changes: Any) -> Datasets:
    """Return all runs, with changes for those of W or of p."""
    every = [run(keys=keys, rule=rule, **(changes if trained == "W" else {})) for keys in _KEYS for rule in _RULES]
    every.append(run("p", **(changes if trained == "p" else {})))
    return {one.attrs["run"]: one for one in every}


def of_limit() -> dict[Verdict, Datasets]:
    """All seeds end at the solution; far from it; or there are too few."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(off=0.1), Verdict.OPEN: runs(seeds=5)}


def of_published() -> dict[Verdict, Datasets]:
    """At step 1,000 the prompts are near the solution, or far from it; or there are too few."""
    return {Verdict.HOLDS: runs(off=1e-4), Verdict.FAILS: runs(off=0.01), Verdict.OPEN: runs(seeds=5)}


def of_equivalence() -> dict[Verdict, Datasets]:
    """The descents agree, or differ; or there are too few seeds."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(apart=1e-3), Verdict.OPEN: runs(seeds=5)}
