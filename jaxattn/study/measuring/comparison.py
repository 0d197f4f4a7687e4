"""Compare the trained weights of a record with certified max-margin solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import attention, metrics, svm, tokens
from jaxattn.attention import Weights
from jaxattn.norms import OfRank
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds, weights_of

NORMS = (svm.frobenius, svm.nuclear)


def compare(
    record: xarray.Dataset, norms: Sequence[svm.Norm] = NORMS, solver: svm.Solver | None = None
) -> xarray.Dataset:
    """Solve the Att-SVM for each seed's selected tokens, and compute the cosine of the trained weights with it.

    The selected tokens are those of the final weights. A seed is kept if its weights stayed finite and the solution in
    every norm is certified optimal (stationary, if the norm has a rank bound). Excluded seeds are counted by reason,
    and kept ones whose solution is not unique, or not known to be (`doubted`).

    Returns:
        A dataset with axis `attempt` for all seeds (their status and certificates) and axis `seed` for the kept ones:
            solutions and their ranks, cosines at the snapshots, the paths `W(k) z_i` and rays `W_svm z_i`, the selected
            tokens, and the margin ratios at the snapshots. Margin ratios are missing if a norm has a rank bound, since
            no solution is then certified optimal.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    final, snapshots = weights_of(arrays), weights_of(arrays, "_snapshots")
    finite = finite_seeds(final)
    problems = of_arrays(arrays)
    selected, constraints = batch.over_seeds(_posed, final, problems, finite)

    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    status = np.stack([solution.status for solution in solutions], axis=1)
    infeasible = (status == svm.Status.INFEASIBLE).any(axis=1)
    # With a rank bound, at best a stationary point can be certified.
    kept = finite & np.isin(status, (svm.Status.OPTIMAL, svm.Status.STATIONARY)).all(axis=1)
    counts = exclusions.count(kept, diverged=~finite, infeasible=infeasible) | exclusions.doubted(solutions, kept)

    W = np.stack([solution.W[kept] for solution in solutions], axis=1)
    correlation, rank = _held_against(_lanes(snapshots, kept), W)
    margins = {}
    if not any(isinstance(norm, OfRank) for norm in norms):
        along, rows = _lanes((snapshots, constraints), kept)
        ratios = [_margins(along, rows, norm, _lanes(one, kept)) for norm, one in zip(norms, solutions, strict=True)]
        margins["margin_ratio"] = (("seed", "norm", "snapshot"), np.stack(ratios, axis=1))
    evidence = {
        name: (("attempt", "norm"), np.stack([getattr(one, name) for one in solutions], axis=1))
        for name in ("unique", "primal", "dual", "gap", "violation", "iterations")
    }
    return xarray.Dataset(
        data_vars={
            "status": (("attempt", "norm"), status),
            **evidence,
            **margins,
            "X": (("seed", "input", "token", "feature"), arrays["X"][kept]),
            "W_svm": (("seed", "norm", "feature", "query_feature"), W),
            "ray": (("seed", "norm", "input", "feature"), np.einsum("snde,sie->snid", W, arrays["Z"][kept])),
            "path": (("seed", "snapshot", "input", "feature"), _paths(_lanes(snapshots, kept), arrays["Z"][kept])),
            "selected": (("seed", "input"), selected[kept]),
            "correlation": (("seed", "norm", "snapshot"), correlation),
            "rank": (("seed", "norm"), rank),
            "probability": (("seed", "step"), arrays["probability"][kept]),
        },
        coords={
            "attempt": record["seed"].values,
            "seed": record["seed"].values[kept],
            "norm": np.array([norm.name for norm in norms], dtype=object),
            "snapshot": record["snapshot"].values,
            "step": record["step"].values,
        },
        attrs={**counts, "run": "W" if "W" in arrays else "KQ"},
    )


def _lanes(tree: Any, kept: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)


def _paths(snapshots: Weights, Z: np.ndarray) -> np.ndarray:
    """Return `W(k) z_i` at the snapshots of each seed, (seed, snapshot, input, d)."""
    if not isinstance(snapshots, attention.Factored):
        return np.einsum("skde,sie->skid", snapshots, Z, optimize=True)
    K, Q = snapshots
    return np.einsum("skdm,skim->skid", K, np.einsum("skem,sie->skim", Q, Z, optimize=True), optimize=True)


def _posed(final: Weights, problem: Problem, finite: Bool[Array, ""]) -> tuple[Int[Array, " n"], svm.Constraints]:
    """Return a seed's selected tokens, and the constraints that select them.

    Diverged weights select nothing: their lane is posed for token 0, and excluded from the comparison.
    """
    selected = jnp.where(finite, tokens.selected(final, problem), 0)
    return selected, svm.token_constraints(problem, selected)


def _held_against(snapshots: Weights, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines of seeds' snapshots, (seed, norm, snapshot), and the solutions' ranks, (seed, norm)."""
    seeds, norms = W.shape[:2]
    if seeds == 0:
        return np.zeros((0, norms, jax.tree.leaves(snapshots)[0].shape[1])), np.zeros((0, norms), int)
    return batch.over_seeds(_along_run, snapshots, W)


def _margins(snapshots: Weights, constraints: svm.Constraints, norm: svm.Norm, solutions: svm.Solution) -> np.ndarray:
    if len(solutions.status) == 0:
        return np.zeros((0, jax.tree.leaves(snapshots)[0].shape[1]))
    return batch.over_seeds(_margins_in(norm), snapshots, constraints, solutions)


@lru_cache(maxsize=16)
def _margins_in(norm: svm.Norm) -> Callable[..., Array]:
    """Return a function of snapshots, constraints and solution; one object per norm, so that it compiles once."""
    ratio = jax.vmap(metrics.margin_ratio, in_axes=(0, None, None, None))
    return lambda snapshots, rows, solution: ratio(attention.matrix(snapshots), rows, norm, solution)


def _along_run(snapshots: Weights, W: Float[Array, "norm d d"]) -> tuple[Array, Array]:
    against_norms = jax.vmap(metrics.correlation, in_axes=(None, 0))
    correlation = jax.vmap(against_norms, in_axes=(0, None), out_axes=1)(attention.matrix(snapshots), W)
    return correlation, jax.vmap(metrics.rank)(W)
