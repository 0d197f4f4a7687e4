"""The distance of W from each predicted form, where an input selects several tokens."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int

from jaxattn import svm
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


def compared(runs: Runs, seeds: Int[np.ndarray, " kept"], solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve for the descriptions of some runs, none of them excluded by `unselected`, and compare the runs with them.

    Returns:
        With an axis `seed`: `reason`, "infeasible" or "unsolved" as an index into `claims.EXCLUDED`, or -1; at the
        snapshots `off`, 1 - cos with each solution, and `size`, the norm of W; `selected`, the selected tokens.
    """
    own = taken(runs, seeds)
    selected = selected_sets(own)
    described = describe(own.problems, own.W, selected, solver)
    off = distances(own.problems, own.logits, own.size, described.W)
    return xarray.Dataset(
        data_vars={
            "reason": (("seed",), failures(described.status)),
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


class Described(NamedTuple):
    """Each of SOLUTIONS, and the `svm.Status` of W_mm, W_fin and W_1token; unless all are solved, W has no meaning."""

    W: Float[np.ndarray, "seeds solutions d d"]
    status: Int[np.ndarray, "seeds problems"]


def describe(
    problems: Problem,
    W: Float[np.ndarray, "seeds d d"],
    selected: Bool[np.ndarray, "seeds n T"],
    solver: svm.Solver | None = None,
    logits: Float[np.ndarray, "seeds n T"] | None = None,
) -> Described:
    """Solve for W_mm and W_fin of the selected sets, W_1token of the likeliest tokens, and form W_SVMeq.

    `W_SVMeq = W_fin + C W_mm` with C the least-squares fit to W (2308.16898, eq. 9). W_fin has the smallest norm among
    matrices with the attention ratios of W inside the sets, so it is orthogonal to W_mm, which has no logit differences
    there. Therefore W_SVMeq is the projection of W on both, and never farther from W than W_mm is.

    Args:
        problems: with a leading axis of seeds.
        W: trained weights.
        selected: tokens of every input, at least one, and in every seed some input does not select all.
        solver: of the three problems; the default of the Frobenius norm if None.
        logits: which W_fin must match inside the sets; those of W if None.
    """
    d = problems.d
    if len(W) == 0:
        return Described(np.zeros((0, len(SOLUTIONS), d, d)), np.zeros((0, 3), int))
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
    return Described(np.stack([W_SVMeq, W_mm, W_1token, W_fin], axis=1), np.asarray(solution.status).reshape(-1, 3))


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
