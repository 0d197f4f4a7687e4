"""From the record of mirror descent: its distances from the max-margin solutions of several entrywise norms."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray
from jaxtyping import Float

from jaxattn import norms, svm
from jaxattn.experiments.bias.ratios import native
from jaxattn.study.measuring.comparison import compare

# The exponents of the paper's experiment, and a smaller and a larger one.
NORMS = ("l_1.1", "l_1.75", "frobenius", "l_3", "l_10")
PLAIN, NORMALIZED = "l_p-AttGD", "normalized"
_RULES = {"lp_gd": PLAIN, "mirror": NORMALIZED}
# The rounding error of the divergence in double precision for equal directions.
_SAME = 1e-16


def norm_of(p: float) -> str:
    """Return the name of the entrywise l_p norm."""
    return "frobenius" if p == 2 else f"l_{p:g}"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the l_p Att-SVM solutions of its selected tokens, for every p of NORMS.

    Args:
        record: of a `Training` of a free W by `lp_gd` or `mirror`, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        `correlation` and `margin_ratio`, (seed, norm, snapshot); `divergence`, the Bregman divergence of the potential
        from the run's direction to the solution of its own p, both of l_p norm 1, (seed, snapshot); and `probability`,
        the mean over inputs of the largest attention probability, (seed, snapshot). Attributes: counts; `run`, in
        words; its `rule`, PLAIN or NORMALIZED; `p`; `norm`, that of its own p; and `steps`.

    Raises:
        ValueError: a solver is given; a p that is not among NORMS.
    """
    native(solver)
    optimizer = json.loads(record.attrs["config"])["optimizer"]
    p, rule = float(optimizer["p"]), _RULES[str(optimizer["_target_"]).rpartition(".")[2]]
    own, steps = norm_of(p), int(record["snapshot"][-1])
    if own not in NORMS:
        raise ValueError(f"p: expected one whose norm is among {list(NORMS)}, found {p:g}")
    one = compare(record, [norms.named(norm) for norm in NORMS])
    # Entrywise norms have their own names.
    one = one.assign_coords(norm=np.array(NORMS, object))
    kept = np.isin(record["seed"].values, one["seed"].values)
    W = record["W_snapshots"].values[kept]
    solution = one["W_svm"].sel(norm=own).values[:, None]
    one["divergence"] = (("seed", "snapshot"), np.maximum(divergence(solution, W, p), _SAME))
    one["probability"] = (("seed", "snapshot"), _probability(W, record, kept))
    said = {"rule": rule, "p": f"{p:g}", "norm": own, "steps": steps}
    names = ["correlation", "margin_ratio", "divergence", "probability"]
    return one[names].assign_attrs(run=f"{rule}, p = {p:g}, {steps:,} steps", **said)


def divergence(
    A: Float[np.ndarray, "*shape d e"], B: Float[np.ndarray, "*shape d e"], p: float
) -> Float[np.ndarray, "*shape"]:
    """Return the Bregman divergence of `||.||_p^p / p` from B to A, both scaled to l_p norm 1.

    This is `psi(A) - psi(B) - <grad psi(B), A - B>`, here equal to `1 - <grad psi(B), A>`.
    """
    A, B = _scaled(A, p), _scaled(B, p)
    return 1 - (np.sign(B) * np.abs(B) ** (p - 1) * A).sum(axis=(-1, -2))


def _scaled(W: np.ndarray, p: float) -> np.ndarray:
    W = W / np.abs(W).max(axis=(-1, -2), keepdims=True)
    return W / (np.abs(W) ** p).sum(axis=(-1, -2), keepdims=True) ** (1 / p)


def _probability(W: np.ndarray, record: xarray.Dataset, kept: np.ndarray) -> Any:
    """Return the mean over inputs of the largest attention probability at every snapshot, (seed, snapshot)."""
    X, Z = record["X"].values[kept], record["Z"].values[kept]
    images = np.einsum("skde,sie->skid", W, Z, optimize=True)
    logits = np.einsum("sitd,skid->skit", X, images, optimize=True)
    return (1 / np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1)).mean(axis=-1)
