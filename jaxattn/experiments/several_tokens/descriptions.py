"""The distance of W from each predicted form, where an input selects several tokens.

W_fin is defined by the ratios at the end of descent, so that W_SVMeq = W_fin + C W_mm is never farther from W than W_mm
(`describe`). The ratios of the best distribution (`stationary`), if it is unique and mixes the whole set, do not depend
on a run.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import svm
from jaxattn.experiments.several_tokens import stationary
from jaxattn.experiments.several_tokens.screening import Runs, first_reason, selected_sets, taken
from jaxattn.parallel import batch
from jaxattn.problem import Problem

# W is compared with these. W_fin is the part of W_SVMeq that is fitted to the run.
SOLUTIONS = ("W_SVMeq", "W_mm", "W_1token", "W_fin")
# The number of problems solved together, however many there are.
_TOGETHER = 64
# Problems of fewer dimensions are padded with zeros to this width, which changes no solution, so that they compile
# once.
_WIDTH = 10
# The best distribution on a set of several tokens: unique, on all its tokens or on fewer; or not unique.
KINDS = ("mixes the set", "mixes fewer", "not unique")


def compared(runs: Runs, seeds: Int[np.ndarray, " kept"], solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve for the descriptions of some runs, none of them excluded by `unselected`, and compare the runs with them.

    Returns:
        With an axis `seed`: `reason`, "infeasible" or "unsolved" as an index into `claims.EXCLUDED`, or -1; at the
        snapshots `off`, 1 - cos with each solution, and `size`, the norm of W; `selected`, the selected tokens.
    """
    own = taken(runs, seeds)
    selected = selected_sets(own)
    W, status = describe(own.problems, own.W, selected, solver)
    off = distances(own.problems, own.logits, own.size, W)
    return xarray.Dataset(
        data_vars={
            "reason": (("seed",), failures(status)),
            "off": (("seed", "solution", "snapshot"), off),
            "size": (("seed", "snapshot"), own.size),
            "selected": (("seed", "input", "token"), selected),
        },
        coords={"seed": seeds, "solution": np.array(SOLUTIONS, dtype=object), "snapshot": runs.steps},
    )


def failures(status: Int[np.ndarray, "seeds problems"]) -> Int[np.ndarray, " seeds"]:
    """Return "infeasible" or "unsolved", as an index into `claims.EXCLUDED`, if a problem of a run is, or -1."""
    infeasible, optimal = status == svm.Status.INFEASIBLE, status == svm.Status.OPTIMAL
    return first_reason({"infeasible": infeasible.any(axis=1), "unsolved": ~optimal.all(axis=1)})


def describe(
    problems: Problem,
    W: Float[np.ndarray, "seeds d d"],
    selected: Bool[np.ndarray, "seeds n T"],
    solver: svm.Solver | None = None,
    logits: Float[np.ndarray, "seeds n T"] | None = None,
) -> tuple[Float[np.ndarray, "seeds solutions d d"], Int[np.ndarray, "seeds problems"]]:
    """Solve for W_mm and W_fin of the selected sets, W_1token of the likeliest tokens, and form W_SVMeq.

    `W_SVMeq = W_fin + C W_mm` with C the least-squares fit to W (2308.16898, eq. 9). W_fin has the smallest norm among
    matrices with the attention ratios of W inside the sets, so it is orthogonal to W_mm, which has no logit differences
    there. Therefore W_SVMeq is the projection of W on both, and never farther from W than W_mm is.

    Every input must select a token, and in each seed some input not all. W_fin matches `logits`, by default those of W,
    inside the sets. Also returned is the `svm.Status` of W_mm, W_fin and W_1token; unless all are solved, the solutions
    have no meaning.
    """
    d = problems.d
    if len(W) == 0:
        return np.zeros((0, len(SOLUTIONS), d, d)), np.zeros((0, 3), int)
    missing = max(0, _WIDTH - d)
    X, Z, W_wide = (
        np.pad(array, [(0, 0)] * (array.ndim - axes) + [(0, missing)] * axes)
        for array, axes in ((np.asarray(problems.X), 1), (np.asarray(problems.Z), 1), (W, 2))
    )
    logits = np.einsum("sntd,sde,sne->snt", X, W_wide, Z, optimize=True) if logits is None else logits
    posed = batch.over_seeds(_posed, X, Z, logits, selected, width=_TOGETHER)
    joined = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), posed)
    solution = svm.solve_batch(joined, svm.frobenius, solver=solver)
    W_mm, W_fin, W_1token = np.moveaxis(np.asarray(solution.W)[:, :d, :d].reshape(-1, 3, d, d), 1, 0)
    square = np.sum(W_mm**2, axis=(1, 2))
    C = np.divide(np.sum((W - W_fin) * W_mm, axis=(1, 2)), square, out=np.zeros_like(square), where=square > 0)
    W_SVMeq = W_fin + C[:, None, None] * W_mm
    return np.stack([W_SVMeq, W_mm, W_1token, W_fin], axis=1), np.asarray(solution.status).reshape(-1, 3)


def distances(
    problems: Problem,
    logits: Float[np.ndarray, "seeds snapshots n T"],
    size: Float[np.ndarray, "seeds snapshots"],
    W: Float[np.ndarray, "seeds solutions d d"],
) -> Float[np.ndarray, "seeds solutions snapshots"]:
    """Return 1 - cos of a run at its snapshots with solutions in the span of all `(x_it - x_iu) z_i^T`.

    Such a solution B is `sum_it c_it (x_it - x_i0) z_i^T`, and `<W, B>` is c times the logits of W relative to those of
    the first tokens. A zero solution, such as W_fin for single tokens, has correlation 0 with everything. The size is
    the Frobenius norm of the run.
    """
    X, Z = np.asarray(problems.X), np.asarray(problems.Z)
    D = X[:, :, 1:] - X[:, :, :1]
    rows = D.shape[1] * D.shape[2]
    of_run = (logits[..., 1:] - logits[..., :1]).reshape(*logits.shape[:2], rows)
    of_solutions = np.einsum("sntd,skde,sne->sknt", D, W, Z, optimize=True).reshape(*W.shape[:2], rows)
    gram = np.einsum("sntd,smud,sne,sme->sntmu", D, D, Z, Z, optimize=True).reshape(-1, rows, rows)
    inner = of_solutions @ np.linalg.pinv(gram, hermitian=True) @ np.swapaxes(of_run, 1, 2)
    lengths = np.linalg.norm(W, axis=(2, 3))[:, :, None] * size[:, None, :]
    return 1 - np.divide(inner, lengths, out=np.zeros_like(inner), where=lengths > 0)


def _posed(
    X: Float[Array, "n T d"], Z: Float[Array, "n d"], logits: Float[Array, "n T"], selected: Bool[Array, "n T"]
) -> svm.Constraints:
    """Stack the problems of W_mm, W_fin and W_1token; none of them uses labels or head."""
    problem = Problem(X, Z, jnp.ones(len(X)), jnp.zeros(X.shape[-1]))
    single = jnp.argmax(logits, axis=1)[:, None] == jnp.arange(problem.T)[None, :]
    three = (
        svm.set_constraints(problem, selected),
        svm.finite_constraints(problem, selected, logits),
        svm.set_constraints(problem, single),
    )
    every = jnp.ones((problem.n, problem.T - 1), bool)
    alike = (one._replace(present=every if one.present is None else one.present) for one in three)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)


def predict(
    problems: Problem, selected: Bool[np.ndarray, "seeds n T"], penalty: float | None
) -> tuple[Float[np.ndarray, "seeds n T"], Int[np.ndarray, "seeds n"], Bool[np.ndarray, "seeds n"]]:
    """Return the best distribution on every selected set, its kind, and which inputs select several tokens.

    The penalty is lambda of `heads.Quadratic` on orthonormal tokens, or None for `heads.mlp`.
    """
    best, unique = (
        stationary.relu(problems, selected) if penalty is None else stationary.quadratic(problems, penalty, selected)
    )
    kind = np.where(~unique, 2, np.where(((best > 0) == selected).all(axis=2), 0, 1))
    return best, kind, selected.sum(axis=2) > 1


def described(
    runs: Runs, seeds: Int[np.ndarray, " kept"], penalty: float | None, solver: svm.Solver | None
) -> tuple[xarray.Dataset, Int[np.ndarray, " kept"]]:
    """Return `compared` and `held_against`, for the runs that both can solve.

    Also returned are the reasons why the others are excluded, as by `held_against`.
    """
    own = compared(runs, seeds, solver)
    against, failed = held_against(runs, seeds, penalty, solver)
    failed = np.where(own["reason"].values < 0, failed, own["reason"].values)
    joined = own.drop_vars("reason").merge(against.assign_coords(seed=seeds))
    solved = np.isin(joined["whole_seed"].values, seeds[failed < 0])
    return joined.isel(seed=failed < 0, whole=solved), failed


def held_against(
    runs: Runs, seeds: Int[np.ndarray, " kept"], penalty: float | None, solver: svm.Solver | None
) -> tuple[xarray.Dataset, Int[np.ndarray, " kept"]]:
    """Compare some runs with W_SVMeq with the predicted finite part, where all of it is determined.

    None of them may be excluded by `screening.unselected`; the penalty is as in `predict`.

    Returns:
        With an axis `seed`, `several`, the runs that select several tokens in some input; with an axis `whole`, for
        those of them whose ratios are determined in all such inputs: `fitted` and `foretold`, final 1 - cos with
        W_SVMeq, its finite part fitted to the run or predicted, and `whole_seed`, the numbers of the runs. Also, for
        each seed, the reason why its solution is missing, an index into `claims.EXCLUDED`, or -1.
    """
    own = taken(runs, seeds)
    selected = selected_sets(own)
    best, kind, several = predict(own.problems, selected, penalty)
    whole = np.flatnonzero(several.any(axis=1) & ((kind == 0) | ~several).all(axis=1))
    with np.errstate(divide="ignore"):
        logits = np.where(selected[whole], np.log(best[whole]), 0.0)
    ends = taken(own, whole)
    both = [describe(ends.problems, ends.W, selected[whole], solver, of) for of in (None, logits)]
    fitted, foretold = (distances(ends.problems, ends.logits, ends.size, W)[:, 0, -1] for W, _ in both)
    failed = failures(np.concatenate([status for _, status in both], axis=1))
    reason = np.full(len(seeds), -1)
    reason[whole] = failed
    of_whole = {"fitted": fitted, "foretold": foretold, "whole_seed": seeds[whole]}
    solved = {name: (("whole",), values[failed < 0]) for name, values in of_whole.items()}
    return xarray.Dataset(solved | {"several": (("seed",), several.any(axis=1))}), reason
