"""From which starts along a wrong selection descent finds the optimal tokens, and what predicts it."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxattn import metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.measuring import served
from jaxattn.study.measuring.optimum import optimum

# Fixed beforehand. A run has converged to a solution if 1 - cos with it is at most this.
NEAR = 0.05
# An input is left unserved if its optimal token is behind by more than the margin 1 along the solution of the others.
_MARGIN = 1 + 1e-6


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every start where descent has ended, and what was predicted.

    Args:
        record: of `Basins`, with equal scores of the non-optimal tokens.
        solver: of the max-margin problems.

    Returns:
        For every kept seed: `optimal`, whether all optimal tokens are selected; `stays`, whether the tokens alpha still
        are; `unserved`, the number of inputs not served; `behind`, by how much the optimal token of an unserved input
        is behind at least along the solution of the served inputs (0 if all are served); `off_served`, 1 - cos of W
        with that solution; `elsewhere`, whether `predicted` says that the optimal tokens are not found; `apart`,
        whether the optimal token of some input is not a support vector of alpha. Selections that no W separates count
        as infeasible.
    """
    found = optimum(record, solver)
    # Of the seeds that `optimum` keeps, those whose wrong selection was also separated.
    separated = found.of(record["status"]) == svm.Status.OPTIMAL

    def only(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[separated], tree)

    problems, best, alpha = only(found.problems), only(found.alpha), only(found.of(record["alpha"]))
    final = only(found.of(record["W"]))
    config = json.loads(record.attrs["config"])
    margin = float(config["weights"]["margin"])
    W_alpha = only(found.of(record["W_initial"])) / margin
    constraints = batch.over_seeds(svm.token_constraints, problems, best)
    right = batch.over_seeds(served.served, final, constraints)
    of_right, certain = _solved(constraints, right, solver)
    arrays = batch.over_seeds(_ended, final, of_right, constraints, right, problems, alpha, best)
    names = ("optimal", "stays", "unserved", "behind", "off_served")
    elsewhere, decided = predicted(W_alpha, constraints, solver)
    kept = certain & decided
    values = dict(zip(names, arrays, strict=True)) | {
        "elsewhere": elsewhere,
        "apart": np.any(_gaps(W_alpha, constraints) > _MARGIN, axis=1),
    }
    infeasible = int((found.of(record["status"]) == svm.Status.INFEASIBLE).sum())
    counts = dict(found.counts)
    counts["infeasible"] += infeasible
    counts["unsolved"] += int((~separated).sum()) - infeasible + int((~kept).sum())
    counts["kept"] = int(kept.sum())
    sizes = {"n": found.problems.n, "T": found.problems.T, "d": found.problems.d}
    run = f"from R W_alpha, n = {sizes['n']}, d = {sizes['d']}, R = {margin:g}"
    spread = float(config["data"].get("spread", 1.0))
    return xarray.Dataset(
        {name: (("seed",), np.asarray(one)[kept]) for name, one in values.items()},
        {"seed": only(found.of(record["seed"]))[kept]},
        {**counts, "run": run, "start": "far", **sizes, "spread": spread, "R": margin, "steps": int(config["steps"])},
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
    now = np.asarray(gaps <= _MARGIN)
    certain = np.ones(len(W), bool)
    for _ in range(now.shape[1]):
        none = np.asarray(~now.any(axis=1))
        solution, solved = _solved(constraints, now, solver)
        certain &= solved | none
        ahead = np.where(none[:, None, None], W, solution)
        left = np.where(now, np.inf, _gaps(ahead, constraints))
        first, least = left.argmin(axis=1), left.min(axis=1)
        more = (least <= _MARGIN) | (none & np.isfinite(least))
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


def shares(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return where the starts of one run have ended, and the accuracy of the prediction.

    Args:
        one: of `measure`.
        key: of the bootstrap.

    Returns:
        Shares of starts: `optimal`, `stays`, `elsewhere` (predicted); counts: `left`, with an input behind by more than
        the margin and W near the solution of the served inputs; `moving`, not yet converged to a solution; `explained`,
        the share that selects the optimal tokens or is in `left`. The mean of `off_served`; and `balanced` and
        `balanced_support`, the balanced accuracies (the mean of the shares of correct predictions among the starts that
        end elsewhere and among the rest) of the prediction and of the support vectors of alpha only.
    """
    optimal, unserved, behind = one["optimal"].values, one["unserved"].values > 0, one["behind"].values
    left = unserved & (behind > _MARGIN) & (one["off_served"].values <= NEAR)
    keys = jax.random.split(key, 3)
    estimates = {
        "optimal": ((), proportion(optimal)),
        "stays": ((), proportion(one["stays"].values)),
        "elsewhere": ((), proportion(one["elsewhere"].values)),
        "explained": ((), proportion(optimal | left)),
        "off_served": ((), bootstrap(one["off_served"].values, keys[0])),
        "balanced": ((), bootstrap(_balanced(optimal, one["elsewhere"].values), keys[1])),
        "balanced_support": ((), bootstrap(_balanced(optimal, one["apart"].values), keys[2])),
    }
    counts = {
        "starts": len(left),
        "staying": int(one["stays"].sum()),
        "left": int(left.sum()),
        "moving": int((~optimal & ~left).sum()),
    }
    return xarray.Dataset(variables(estimates) | {name: ((), value) for name, value in counts.items()}, attrs=one.attrs)


def _balanced(
    optimal: Bool[np.ndarray, " seeds"], elsewhere: Bool[np.ndarray, " seeds"]
) -> Float[np.ndarray, " seeds"]:
    """Return one number per seed whose mean is the balanced accuracy of a prediction: 1/2 if one outcome is missing.

    The numbers are centred at the accuracy itself, so that resampling the sizes of the two outcomes adds no spread.
    """
    hit = optimal != elsewhere
    parts = [np.mean(hit[outcome]) if outcome.any() else 0.5 for outcome in (optimal, ~optimal)]
    own = np.where(optimal, parts[0], parts[1])
    share = np.where(optimal, max(optimal.mean(), 1e-9), max(1 - optimal.mean(), 1e-9))
    return np.mean(parts) + (hit - own) / (2 * share)
