"""Hand-built datasets for which the verdicts of the claims on the lemma are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.svm import Status

N, NORMS = 2, ("frobenius", "nuclear")


def separated(
    solver: str = "",
    seeds: int = 24,
    d: int = 5,
    beyond: float = 0.0,
    outside: float = 0.0,
    unsolved: int = 0,
) -> xarray.Dataset:
    """Return solutions of rank n with rows in the span of the queries, except for two relative parts.

    Args:
        solver: an external solver; none if empty.
        seeds: problems.
        d: their dimension.
        beyond: a further singular value, whose row is within the span only if `outside` is 0.
        outside: sine of the angle between the first row and the span.
        unsolved: problems whose nuclear solution is not certified.
    """
    rng = np.random.default_rng(d)
    Q = np.linalg.qr(rng.normal(size=(seeds, 1, 2, d, d)))[0]
    P = np.linalg.qr(rng.normal(size=(seeds, 1, 2, d, d)))[0]
    values = np.zeros(d)
    values[:N], values[N] = 4.0, 4.0 * beyond
    Z = np.swapaxes(Q[:, :, 0, :, :N], -1, -2) * np.array([1.0, 3.0])[:, None]
    Q[:, :, 1] = Q[:, :, 0]
    if outside:
        # The angle between the first row direction and the span.
        Q[..., 0] = np.sqrt(1 - outside**2) * Q[..., 0] + outside * Q[..., d - 1]
    W = np.einsum("sdnak,k,sdnbk->sdnab", P, values, Q)
    status = np.full((seeds, 1, 2), Status.OPTIMAL)
    status[:unsolved, :, 1] = Status.NOT_CONVERGED
    arrays = {
        "status": (("seed", "d", "norm"), status),
        "gap": (("seed", "d", "norm"), np.full(status.shape, -2e-16)),
        "W_svm": (("seed", "d", "norm", "feature", "query_feature"), W),
        "singular_values": (("seed", "d", "norm", "direction"), np.linalg.svd(W, compute_uv=False)),
        "Z": (("seed", "d", "input", "query_feature"), Z),
    }
    attrs = {"run": f"n={N} T=3" + (f" by {solver}" if solver else ""), "solver": solver, "n": N, "T": 3}
    attrs |= {"attempted": seeds, "kept": seeds - unsolved, "infeasible": 0, "unsolved": unsolved}
    coordinates = {"seed": np.arange(seeds), "d": [d], "norm": np.array(NORMS, dtype=object)}
    return xarray.Dataset(arrays, coordinates, attrs)


def runs(own: Mapping[str, Any] | None = None, witness: Mapping[str, Any] | None = None) -> Datasets:
    """Return a run of this package's solvers and one of an external solver.

    Args:
        own: arguments of `separated` to change for the first.
        witness: the same for the second, which has three problems with d = 4.
    """
    found = [separated(**(own or {})), separated(**({"solver": "CLARABEL", "d": 4, "seeds": 3} | dict(witness or {})))]
    return {one.attrs["run"]: one for one in found}


def lemma() -> dict[Verdict, Datasets]:
    """Rank and span are exact; the rank is n + 1 and the rows leave the span; or no external solution was certified."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({"beyond": 1e-3, "outside": 1e-3}, {"beyond": 1e-3}),
        Verdict.OPEN: runs(witness={"unsolved": 3}),
    }
