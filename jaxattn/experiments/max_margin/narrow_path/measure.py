"""Compare narrow regularization paths, and descent, with rank-constrained solutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import heads, losses, metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.regularization.objective import excess_of
from jaxattn.study.measuring import exclusions
from jaxattn.study.measuring.nearest import effort_of, nearest_of_rank
from jaxattn.study.settings.parameters import finite_seeds, weights_of

# Certificates of a problem with a rank constraint: W solves it if the constraint is inactive; otherwise W satisfies the
# first-order conditions.
_CERTIFIED = (svm.Status.OPTIMAL, svm.Status.STATIONARY)
# Finds the solution that the path is compared with; with a quarter of the starts it missed that of 1 seed in 186.
_SOLVER = svm.LowRank(starts=384)
_TOGETHER = 16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every path and every descent with the nuclear Att-SVM of the optimal tokens under the rank constraint.

    A seed is kept if its path is solved at every radius, its descent stayed finite, the nuclear solution (by `solver`)
    is certified optimal, and both rank-constrained solutions are certified: the best one that is found from starts of
    its own, and the stationary point reached from the end of descent, for the tokens selected there.

    Returns:
        A dataset with the axes `seed` (kept ones) and `radius`. For each seed: the `rank` of the nuclear solution;
        `bound`, the relative excess over its norm of the best solution of rank m; whether the path's last point is
        `missed`, no minimizer, as the best solution, scaled to the same ball, has a lower risk; for descent, whether it
        selects the `optimal` tokens, its `margin` for them (divided by its nuclear norm) over that of the path's last
        point, that of the stationary point, `ahead`, over the same, its `correlation` with that point, and with the
        stationary point `reached`. Along the radii: the path's `distance` from the best solution, both divided by their
        nuclear norms; its margin as a `share` of that of the best solution; `residual`, `minimum`, `agreeing` and
        `drawn`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    descended, problems, m = weights_of(arrays), of_arrays(arrays), record.sizes["width"]
    finite = finite_seeds(descended)
    path = arrays["K_path"] @ np.swapaxes(arrays["Q_path"], -1, -2)
    end = np.where(finite[:, None, None], descended.K @ np.swapaxes(descended.Q, -1, -2), 1.0)
    best_tokens, selected = batch.over_seeds(tokens.optimal, problems), batch.over_seeds(tokens.selected, end, problems)
    constraints = batch.over_seeds(svm.token_constraints, problems, best_tokens)
    nuclear = svm.solve_batch(constraints, svm.nuclear, solver=solver)
    found = svm.solve_batch(constraints, svm.nuclear_of_rank(m), solver=_SOLVER)
    reached = batch.over_seeds(nearest_of_rank(m), problems, selected, end, width=_TOGETHER, effort=effort_of(problems))
    R = record["radius"].values
    missed = batch.over_seeds(_is_lower, path[:, -1], np.nan_to_num(found.W), problems, shared=(R[-1],))
    certified = np.stack([np.isin(one.status, _CERTIFIED) for one in (found, reached)]).all(axis=0)
    infeasible = finite & (nuclear.status == svm.Status.INFEASIBLE)
    kept = finite & arrays["solved"].all(axis=1) & (nuclear.status == svm.Status.OPTIMAL) & certified
    with np.errstate(divide="ignore", invalid="ignore"):  # Unsolved seeds, which are not kept.
        seeds = {"bound": found.primal / nuclear.primal - 1, "missed": missed}
    lanes = (path, end, constraints, found.W, reached.W)
    names = ("distance", "along", "margin", "ahead", "correlation", "reached")
    compared = dict(zip(names, batch.over_seeds(_compare, *jax.tree.map(_harmless, lanes)), strict=True))
    radii = {name: arrays[name] for name in ("residual", "minimum", "agreeing", "drawn")}
    radii |= {"distance": compared.pop("distance"), "share": compared.pop("along") * found.primal[:, None]}
    seeds |= compared | {"rank": batch.over_seeds(metrics.rank, nuclear.W)}
    seeds["optimal"] = (selected == best_tokens).all(axis=1)
    return xarray.Dataset(
        {name: (("seed",), np.asarray(values)[kept]) for name, values in seeds.items()}
        | {name: (("seed", "radius"), np.asarray(values)[kept]) for name, values in radii.items()},
        {"seed": record["seed"].values[kept], "radius": R},
        exclusions.count(kept, diverged=~finite, infeasible=infeasible),
    )


def _harmless(leaf: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(leaf), leaf, 0.0) if np.asarray(leaf).dtype.kind == "f" else leaf


def _is_lower(
    path: Float[Array, "d d"], best: Float[Array, "d d"], problem: Problem, R: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether the best solution, scaled to the boundary of the ball of radius R, has a lower risk than the path."""
    length = jnp.linalg.svd(best, compute_uv=False).sum()
    there = best * (R / jnp.where(length > 0, length, 1.0))
    optimal = tokens.optimal(problem)
    of_there, of_path = (excess_of(W, problem, optimal, losses.logistic, heads.linear) for W in (there, path))
    return of_there < of_path


def _compare(
    path: Float[Array, "radius d d"],
    end: Float[Array, "d d"],
    constraints: svm.Constraints,
    best: Float[Array, "d d"],
    reached: Float[Array, "d d"],
) -> tuple[Array, Array, Array, Array, Array, Array]:
    # One decomposition for all: two of them could deadlock.
    stacked = jnp.concatenate([path, best[None], end[None], reached[None]])
    length = jnp.linalg.svd(stacked, compute_uv=False).sum(axis=-1)
    unit = stacked / jnp.where(length > 0, length, 1.0)[:, None, None]
    margins = jax.vmap(lambda W: jnp.min(svm.margins(constraints, W)))(unit)
    distance = jax.vmap(lambda W: metrics.norm(W - unit[-3]))(unit[:-3])
    last = jnp.where(margins[-4] != 0, margins[-4], 1.0)
    of_path, of_reached = metrics.correlation(end, path[-1]), metrics.correlation(end, reached)
    return distance, margins[:-3], margins[-2] / last, margins[-1] / last, of_path, of_reached
