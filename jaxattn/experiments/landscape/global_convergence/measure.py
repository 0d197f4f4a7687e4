"""Which seeds select their optimal tokens in the end, and the quality of their first step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics, svm, tokens
from jaxattn.experiments.landscape.outcomes import lost_on
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring import exclusions, served
from jaxattn.study.measuring.optimum import optimum


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every seed whether its optimal tokens are selected, and the quality of its first step.

    The record is of a `Training` of W that keeps the weights after its first step; for one of `Basins` see `_basins`.

    Returns:
        For every kept seed whether it is `optimal` at the end; for its first step the `correlation` with W_mm and the
        smallest `margin` over the constraints, relative to the best possible (positive where the step separates the
        optimal tokens, and at most 1); `lost`, the share of the last gradient on the inputs that do not select their
        optimal token (0 if there are none).
    """
    if "alpha" in record:
        return _basins(record, solver)
    optima = optimum(record, solver)
    first = optima.of(record["W_snapshots"].sel(snapshot=1)) - optima.of(record["W_initial"])
    arrays = batch.over_seeds(_of_seed, first, optima.of(record["W"]), optima.W, optima.problems, optima.alpha)
    return xarray.Dataset(
        {name: (("seed",), array) for name, array in arrays.items()},
        {"seed": optima.of(record["seed"])},
        optima.counts,
    )


def _of_seed(
    first: Float[Array, "d d"],
    final: Float[Array, "d d"],
    W_mm: Float[Array, "d d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> dict[str, Array]:
    margins = svm.margins(svm.token_constraints(problem, alpha), first / metrics.norm(first))
    optimal, lost = lost_on(final, problem, alpha)
    margin = jnp.min(margins) * metrics.norm(W_mm)
    return {"optimal": optimal, "correlation": metrics.correlation(first, W_mm), "margin": margin, "lost": lost}


# An input is left unserved if its optimal token is behind by more than the margin 1 along the solution of the others.
MARGIN = 1 + 1e-6


def _basins(record: xarray.Dataset, solver: svm.Solver | None) -> xarray.Dataset:
    """Measure for every start of `Basins`, with equal scores of other tokens, where it ends, and what was predicted.

    Returns:
        For every kept seed: `optimal`, whether all optimal tokens are selected; `stays`, whether the tokens alpha still
        are; `unserved`, the number of inputs not served; `behind`, by how much the optimal token of an unserved input
        is behind at least along the solution of the served inputs (0 if all are served); `off_served`, 1 - cos of W
        with that solution; `elsewhere`, whether `predicted` says that the optimal tokens are not found; `apart`,
        whether the optimal token of some input is not a support vector of alpha. Selections that no W separates count
        as infeasible.
    """
    optima = optimum(record, solver)
    # Of the seeds that `optimum` keeps, those whose wrong selection was also separated.
    status = optima.of(record["status"])
    separated = status == svm.Status.OPTIMAL
    given = optima.problems, optima.alpha, *(optima.of(record[name]) for name in ("alpha", "W", "W_initial", "seed"))
    problems, best, alpha, final, initial, seeds = exclusions.only(separated, given)
    W_alpha = initial / record.attrs["weights.margin"]
    constraints = batch.over_seeds(svm.token_constraints, problems, best)
    right = batch.over_seeds(served.served, final, constraints)
    of_right, certain = _solved(constraints, right, solver)
    arrays = batch.over_seeds(_ended, final, of_right, constraints, right, problems, alpha, best)
    elsewhere, decided = predicted(W_alpha, constraints, solver)
    kept = certain & decided
    arrays |= {"elsewhere": elsewhere, "apart": np.any(_gaps(W_alpha, constraints) > MARGIN, axis=1)}
    infeasible = int((status == svm.Status.INFEASIBLE).sum())
    counts = dict(optima.counts)
    counts["infeasible"] += infeasible
    counts["unsolved"] += int((~separated).sum()) - infeasible + int((~kept).sum())
    counts["kept"] = int(kept.sum())
    return xarray.Dataset(
        {name: (("seed",), np.asarray(array)[kept]) for name, array in arrays.items()}, {"seed": seeds[kept]}, counts
    )


def predicted(
    W: Float[np.ndarray, "seeds d d"], constraints: svm.Constraints, solver: svm.Solver | None = None
) -> tuple[Bool[np.ndarray, " seeds"], Bool[np.ndarray, " seeds"]]:
    """Predict whether descent from far along W leaves inputs unserved, and for which seeds this is certain.

    For starts so far away that of two gradients only the larger one matters. The inputs served first are those whose
    optimal token leads along W, or is behind by at most the margin 1, so that their gradient is as large. W converges
    to the solution of the served inputs. The input whose optimal token is least behind along it is served next, if this
    is by at most the margin. If none is served at first, the one that is least behind is.

    Args:
        W: the direction of the start, with smallest margin 1 for the tokens that it selects.
        constraints: of the optimal tokens, for each seed.
        solver: of the max-margin problems.
    """
    gaps = _gaps(W, constraints)
    now = np.asarray(gaps <= MARGIN)
    certain = np.ones(len(W), bool)
    for _ in range(now.shape[1]):
        none = np.asarray(~now.any(axis=1))
        solution, solved = _solved(constraints, now, solver)
        certain &= solved | none
        ahead = np.where(none[:, None, None], W, solution)
        left = np.where(now, np.inf, _gaps(ahead, constraints))
        first, least = left.argmin(axis=1), left.min(axis=1)
        more = (least <= MARGIN) | (none & np.isfinite(least))
        if not more.any():
            break
        now[np.flatnonzero(more), first[more]] = True
    return np.asarray(~now.all(axis=1)), certain


def _gaps(W: Float[np.ndarray, "seeds d d"], constraints: svm.Constraints) -> Float[np.ndarray, "seeds n"]:
    every = np.ones(np.shape(constraints.differences)[:2], bool)
    return np.array(batch.over_seeds(served.behind, W, constraints, every))


def _solved(
    constraints: svm.Constraints, inputs: Bool[np.ndarray, "seeds n"], solver: svm.Solver | None
) -> tuple[Float[np.ndarray, "seeds d d"], Bool[np.ndarray, " seeds"]]:
    """Return the solution for some inputs only, and whether it is certified."""
    solution = svm.solve_batch(batch.over_seeds(served.alone, constraints, inputs), svm.frobenius, solver=solver)
    return np.asarray(solution.W), np.asarray(solution.status) == svm.Status.OPTIMAL


def _ended(
    W: Float[Array, "d d"],
    of_right: Float[Array, "d d"],
    constraints: svm.Constraints,
    right: Bool[Array, " n"],
    problem: Problem,
    alpha: Int[Array, " n"],
    best: Int[Array, " n"],
) -> dict[str, Array]:
    chosen = tokens.selected(W, problem)
    behind = jnp.min(served.behind(of_right, constraints, ~right))
    nothing = metrics.norm(of_right) == 0
    off = 1 - metrics.correlation(W, jnp.where(nothing, W, of_right))
    return {
        "optimal": jnp.all(chosen == best),
        "stays": jnp.all(chosen == alpha),
        "unserved": jnp.sum(~right),
        "behind": jnp.where(jnp.all(right), 0.0, behind),
        "off_served": jnp.where(nothing, 1.0, off),
    }
