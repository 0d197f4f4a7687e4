"""From the record of all starts: at which of them descent stayed, and which of their tokens are locally optimal."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import attention, metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays

# A run has stayed if it selects alpha at the end and its direction is this close to W_alpha.
STAYED = 0.99


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every run with the solution along which it started, solved and certified again.

    Args:
        record: of a `Directions`.
        solver: of the Att-SVM; this package's own if None.

    Returns:
        A dataset with axes `start`, a kept choice of tokens of the problem of one `seed` in dimension `d`, and
        `radius`. (start, radius): whether descent `stayed`, and its final `correlation` with W_alpha. (start): whether
        alpha is locally optimal (`locally`); its smallest lead in score over a support neighbour (`gap`); the `slack`
        of the tokens that outscore alpha but are not support neighbours: the excess of their smallest margin over 1
        (inf if there are none); the `length` of W_alpha. Choices whose Att-SVM is not solved count as `infeasible` or
        `unsolved`, solved ones with a non-finite run as `diverged`.
    """
    seeds, dimensions, choices = record["alpha"].shape[:3]
    arrays = {str(name): record[name].values.reshape(-1, *record[name].shape[2:]) for name in record.data_vars}
    problems = of_arrays({name: np.repeat(arrays[name], choices, axis=0) for name in ("X", "Z", "Y", "v")})
    alpha, final = (arrays[name].reshape(-1, *arrays[name].shape[2:]) for name in ("alpha", "W"))
    solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, problems, alpha), solver=solver)
    of_start, of_run = batch.over_seeds(_held_against, problems, alpha, solution.W, final)
    solved, infeasible = (solution.status == status for status in (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    kept = solved & np.isfinite(final).all(axis=(1, 2, 3))
    diverged = int((solved & ~kept).sum())
    variables = {name: (("start",), values[kept]) for name, values in of_start.items()}
    variables |= {name: (("start", "radius"), values[kept]) for name, values in of_run.items()}
    variables["d"] = (("start",), np.tile(np.repeat(record["d"].values, choices), seeds)[kept])
    variables["seed"] = (("start",), np.repeat(record["seed"].values, dimensions * choices)[kept])
    return xarray.Dataset(
        variables,
        {"radius": record["radius"].values},
        attrs={
            "run": "all starts",
            "steps": int(json.loads(record.attrs["config"])["steps"]),
            "attempted": kept.size,
            "kept": int(kept.sum()),
            **({"diverged": diverged} if diverged else {}),
            "infeasible": int(infeasible.sum()),
            "unsolved": int((~solved & ~infeasible).sum()),
        },
    )


def _held_against(
    problem: Problem, alpha: Int[Array, " n"], W: Float[Array, "d d"], final: Float[Array, "radii d d"]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what is known about a choice of tokens with solution W, and about the runs that started along W."""
    scores = tokens.scores(problem)
    margins = svm.margins(svm.token_constraints(problem, alpha), W)
    neighbours = tokens.support_neighbours(margins, alpha)
    lead = jnp.take_along_axis(scores, alpha[:, None], axis=1) - scores
    logits = attention.logits(W, problem)
    above = jnp.take_along_axis(logits, alpha[:, None], axis=1) - logits
    correlation = jax.vmap(metrics.correlation, in_axes=(0, None))(final, W)
    selects = (jax.vmap(tokens.selected, in_axes=(0, None))(final, problem) == alpha[None, :]).all(axis=1)
    of_start = {
        "locally": tokens.is_locally_optimal(scores, alpha, neighbours),
        "gap": jnp.min(jnp.where(neighbours, lead, jnp.inf)),
        "slack": jnp.min(jnp.where((lead < 0) & ~neighbours, above - 1, jnp.inf)),
        "length": metrics.norm(W),
    }
    return of_start, {"correlation": correlation, "stayed": selects & (correlation > STAYED)}
