"""Solve the Att-SVM of every drawn problem without any descent, and count the solved ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray

from jaxattn import metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring import exclusions
from jaxattn.study.measuring.comparison import NORMS
from jaxattn.study.measuring.exclusions import doubted

_EVIDENCE = ("status", "unique", "primal", "dual", "gap", "violation", "iterations")


def separate(
    record: xarray.Dataset, norms: Sequence[svm.Norm] = NORMS, solver: svm.Solver | None = None
) -> xarray.Dataset:
    """Solve, for every seed and dimension of a `Drawing`, the Att-SVM that selects the recorded tokens.

    A problem counts as kept if the solution in every norm is certified optimal. A solver's proposal for an unsolved
    problem stays in the dataset, so that inexact solvers can be examined.

    Returns:
        A dataset with axes `seed`, `d` and `norm`: status and certificates, the solutions with their singular values
        and ranks, and the queries. Attributes in addition to the counts: the sizes `n` and `T`, and the name of the
        `solver` if one was given, else "".
    """
    arrays = {name: record[name].values for name in ("X", "Z", "Y", "v")}
    seeds, dimensions, n, T = arrays["X"].shape[:4]
    lanes = Problem(**{name: _joined(array) for name, array in arrays.items()})
    constraints = batch.over_seeds(svm.token_constraints, lanes, _joined(record["alpha"].values))
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in norms]
    solution = jax.tree.map(
        lambda *leaves: np.stack([leaf.reshape(seeds, dimensions, *leaf.shape[1:]) for leaf in leaves], axis=2),
        *solutions,
    )
    values, axes = np.linalg.svd(solution.W, compute_uv=False), ("seed", "d", "norm")
    optimal = (solution.status == svm.Status.OPTIMAL).all(axis=2)
    infeasible = (solution.status == svm.Status.INFEASIBLE).any(axis=2)
    return xarray.Dataset(
        data_vars={
            **{name: (axes, getattr(solution, name)) for name in _EVIDENCE},
            "W_svm": ((*axes, "feature", "query_feature"), solution.W),
            "singular_values": ((*axes, "direction"), values),
            "rank": (axes, metrics.rank_of(values)),
            "Z": (("seed", "d", "input", "query_feature"), arrays["Z"]),
        },
        coords={
            "seed": record["seed"].values,
            "d": record["d"].values,
            "norm": np.array([norm.name for norm in norms], dtype=object),
        },
        attrs={
            "solver": "" if solver is None else str(getattr(solver, "solver", type(solver).__name__)),
            "n": n,
            "T": T,
            **exclusions.count(optimal.ravel(), infeasible=infeasible.ravel()),
            **doubted(solutions, optimal.ravel()),
        },
    )


def _joined(array: Any) -> Any:
    return array.reshape(-1, *array.shape[2:])
