"""From which starts along a wrong selection descent finds the optimal tokens, and what predicts it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring import served
from jaxattn.study.measuring.optimum import optimum

# An input is left unserved if its optimal token is behind by more than the margin 1 along the solution of the others.
MARGIN = 1 + 1e-6


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every start where descent has ended, and what was predicted.

    Args:
        record: of `Basins`, with equal scores of the non-optimal tokens, and the attribute `weights.margin`.
        solver: of the max-margin problems.

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
    separated = optima.of(record["status"]) == svm.Status.OPTIMAL

    def only(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[separated], tree)

    problems, best, alpha = only(optima.problems), only(optima.alpha), only(optima.of(record["alpha"]))
    final = only(optima.of(record["W"]))
    W_alpha = only(optima.of(record["W_initial"])) / record.attrs["weights.margin"]
    constraints = batch.over_seeds(svm.token_constraints, problems, best)
    right = batch.over_seeds(served.served, final, constraints)
    of_right, certain = _solved(constraints, right, solver)
    arrays = batch.over_seeds(_ended, final, of_right, constraints, right, problems, alpha, best)
    names = ("optimal", "stays", "unserved", "behind", "off_served")
    elsewhere, decided = predicted(W_alpha, constraints, solver)
    kept = certain & decided
    values = dict(zip(names, arrays, strict=True)) | {
        "elsewhere": elsewhere,
        "apart": np.any(_gaps(W_alpha, constraints) > MARGIN, axis=1),
    }
    infeasible = int((optima.of(record["status"]) == svm.Status.INFEASIBLE).sum())
    counts = dict(optima.counts)
    counts["infeasible"] += infeasible
    counts["unsolved"] += int((~separated).sum()) - infeasible + int((~kept).sum())
    counts["kept"] = int(kept.sum())
    return xarray.Dataset(
        {name: (("seed",), np.asarray(array)[kept]) for name, array in values.items()},
        {"seed": only(optima.of(record["seed"]))[kept]},
        counts,
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

    Returns:
        Whether inputs remain when no more are served, and whether all intermediate problems were solved.
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
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed, in its order."""
    chosen = tokens.selected(W, problem)
    behind = jnp.min(served.behind(of_right, constraints, ~right))
    nothing = metrics.norm(of_right) == 0
    off = 1 - metrics.correlation(W, jnp.where(nothing, W, of_right))
    return (
        jnp.all(chosen == best),
        jnp.all(chosen == alpha),
        jnp.sum(~right),
        jnp.where(jnp.all(right), 0.0, behind),
        jnp.where(nothing, 1.0, off),
    )
