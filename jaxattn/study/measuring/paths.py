"""Compare regularization paths with the max-margin solutions of the optimal tokens."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import attention, metrics, svm, tokens
from jaxattn.attention import Factored
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring import exclusions
from jaxattn.study.measuring.comparison import NORMS
from jaxattn.study.settings.parameters import weights_of


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the paths of a `Regularization` with the Att-SVM solutions of the optimal tokens, in each norm.

    A seed is kept if its path is solved on every radius and both solutions are certified optimal. Excluded seeds are
    counted by reason, and kept ones whose solution is not unique, or not known to be (`doubted`).

    Returns:
        A dataset with axes `seed`, `norm` and `radius`: `distance`, the Frobenius distance of W / R from the solution
            in each norm, normalized in the norm of the ball; `off`, 1 - cosine; whether the optimal tokens are
            `selected`; and, along the path, `apart`, `falling`, `residual` and `excess`. With axis `attempt`, for all
            seeds: what is `solved`, the `status` of each SVM, and whether its solution is `unique`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    weights = weights_of(arrays)
    problems = of_arrays(arrays)
    constraints = batch.over_seeds(_posed, problems)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in NORMS]
    status = np.stack([solution.status for solution in solutions], axis=1)
    infeasible = (status == svm.Status.INFEASIBLE).any(axis=1)
    kept = arrays["solved"].all(axis=1) & (status == svm.Status.OPTIMAL).all(axis=1)
    W = np.stack([solution.W for solution in solutions], axis=1)
    nuclear = isinstance(weights, Factored)
    lengths = np.linalg.svd(W, compute_uv=False).sum(axis=-1) if nuclear else np.linalg.norm(W, axis=(-1, -2))
    distance, off, selected = batch.over_seeds(
        _along,
        weights,
        problems,
        W / np.where(lengths > 0, lengths, 1.0)[..., None, None],
        shared=(record["radius"].values,),
    )
    per_radius = {name: (("seed", "radius"), arrays[name][kept]) for name in ("apart", "falling", "residual", "excess")}
    return xarray.Dataset(
        data_vars={
            "distance": (("seed", "norm", "radius"), distance[kept]),
            "off": (("seed", "norm", "radius"), off[kept]),
            "selected": (("seed", "radius"), selected[kept]),
            **per_radius,
            "status": (("attempt", "norm"), status),
            "unique": (("attempt", "norm"), np.stack([solution.unique for solution in solutions], axis=1)),
            "solved": (("attempt", "radius"), arrays["solved"]),
            "steps": (("attempt", "way"), arrays["steps"].sum(axis=2)),
        },
        coords={
            "attempt": record["seed"].values,
            "seed": record["seed"].values[kept],
            "norm": np.array([norm.name for norm in NORMS], dtype=object),
            "radius": record["radius"].values,
            "way": record["way"].values,
        },
        attrs={
            "run": "KQ" if nuclear else "W",
            **exclusions.count(kept, infeasible=infeasible),
            **exclusions.doubted(solutions, kept),
        },
    )


def _posed(problem: Problem) -> svm.Constraints:
    return svm.token_constraints(problem, tokens.optimal(problem))


def _along(
    weights: attention.Weights, problem: Problem, W: Float[Array, "norm d d"], radii: Float[Array, " radii"]
) -> tuple[Array, Array, Array]:
    """Return distances and 1 - cosines, (norm, radii), and whether all optimal tokens are selected, (radii)."""
    optimal = tokens.optimal(problem)

    def one(weights: attention.Weights, R: Array) -> tuple[Array, Array, Array]:
        along = attention.matrix(weights)
        distance = jax.vmap(lambda W: metrics.norm(along / R - W))(W)
        off = jax.vmap(lambda W: 1 - metrics.correlation(along, W))(W)
        return distance, off, (tokens.selected(weights, problem) == optimal).all()

    return jax.vmap(one, out_axes=(1, 1, 0))(weights, radii)
