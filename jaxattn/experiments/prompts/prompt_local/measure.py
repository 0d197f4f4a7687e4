"""The choices of tokens at which the starts end, and which of these are locally optimal."""

from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays

# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve the token SVM of every choice of tokens, and compare every end with that of the tokens it selects.

    A problem is kept if all ends are finite, every choice is certified optimal or infeasible, and those at which a
    start ends are optimal.

    Args:
        record: of `Grids`.
        solver: of the token SVM.

    Returns:
        For each kept problem and start: `choice`, the number of the choice of tokens that the end selects; `off`, 1 -
        cos of the end and that choice's solution; and `moved`, the distance between the prompts at the end and halfway,
        over the norm at the end: about 1/2 if the prompt grows, about 0 if it stays at a point. For each choice its
        `solution`, (seed, choice, feature), and whether it is `feasible` and `locally` optimal. In addition the tokens,
        their scores, and the starts.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    seeds, n, T = len(arrays["p"]), problems.n, problems.T
    choices = np.array(list(itertools.product(range(T), repeat=n)))
    each: Problem = jax.tree.map(lambda leaf: np.repeat(leaf, len(choices), axis=0), problems)
    constraints = batch.over_seeds(_posed, each, np.tile(choices, (seeds, 1)))
    found = svm.solve_batch(constraints, solver=solver)
    status = np.asarray(found.status).reshape(seeds, -1)
    locally = batch.over_seeds(_locally, each, np.tile(choices, (seeds, 1)), constraints, found.W).reshape(seeds, -1)
    solution = np.asarray(found.W).reshape(seeds, len(choices), -1)
    finite = np.asarray(np.isfinite(arrays["p"]).all(axis=(1, 2)))
    ends = np.where(finite[:, None, None], arrays["p"], 1.0)
    lengths = np.maximum(np.linalg.norm(ends, axis=2), np.finfo(float).tiny)
    moved = np.linalg.norm(ends - np.where(finite[:, None, None], arrays["p_halfway"], 1.0), axis=2) / lengths
    choice, off = batch.over_seeds(_ends, ends, problems, solution)
    reached = np.take_along_axis(status, choice, axis=1) == svm.Status.OPTIMAL
    known = (status != svm.Status.NOT_CONVERGED).all(axis=1) & reached.all(axis=1)
    kept = finite & known
    config = json.loads(record.attrs["config"])
    return xarray.Dataset(
        {
            "choice": (("seed", "start"), choice[kept]),
            "off": (("seed", "start"), np.maximum(off, _SAME)[kept]),
            "moved": (("seed", "start"), moved[kept]),
            "solution": (("seed", "choice_number", "feature"), solution[kept]),
            "feasible": (("seed", "choice_number"), (status == svm.Status.OPTIMAL)[kept]),
            "locally": (("seed", "choice_number"), (locally & (status == svm.Status.OPTIMAL))[kept]),
            "alpha": (("choice_number", "input"), choices),
            "X": (("seed", "input", "token", "feature"), arrays["X"][kept]),
            "score": (("seed", "input", "token"), batch.over_seeds(tokens.scores, problems)[kept]),
            "p_initial": (("seed", "start", "feature"), arrays["p_initial"][kept]),
        },
        {"seed": record["seed"].values[kept]},
        {
            "run": f"n = {n}, {ends.shape[1]:,} starts",
            "inputs": n,
            "steps": int(config["steps"]),
            "attempted": seeds,
            "kept": int(kept.sum()),
            "diverged": int((~finite).sum()),
            "unsolved": int((finite & ~known).sum()),
        },
    )


def _posed(problem: Problem, alpha: Int[Array, " n"]) -> svm.Constraints:
    return svm.prompt_constraints(problem.X, alpha)


def _locally(problem: Problem, alpha: Int[Array, " n"], constraints: svm.Constraints, p: Float[Array, "d 1"]) -> Array:
    neighbours = tokens.support_neighbours(svm.margins(constraints, p), alpha)
    return tokens.is_locally_optimal(tokens.scores(problem), alpha, neighbours)


def _ends(
    ends: Float[Array, "start d"], problem: Problem, solution: Float[Array, "choice d"]
) -> tuple[Int[Array, " start"], Float[Array, " start"]]:
    """Return the number of the choice that each end selects, and 1 - cos with its solution."""
    selected = jnp.argmax(jnp.einsum("ntd,sd->snt", problem.X, ends), axis=2)
    weights = problem.T ** jnp.arange(problem.n - 1, -1, -1)
    choice = selected @ weights
    off = 1 - jax.vmap(metrics.correlation)(ends[:, :, None], solution[choice][:, :, None])
    return choice, off
