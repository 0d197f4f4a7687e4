"""From the record of training p, or W with one query for all inputs: its distance from the token SVM's solution."""

from __future__ import annotations

import json
from typing import Any

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
    """Compare the prompt `p = W z` at every snapshot with the certified solution for the tokens that it selects.

    The max-margin problem is posed twice: for p, and for W. A seed is kept if its weights stayed finite and both
    solutions are certified optimal.

    Args:
        record: of a `Training` of W on inputs with one query z, or of `Prompts`.
        solver: of both problems.

    Returns:
        `off`, 1 - cos of p and p_mm, and `margin_ratio`, (seed, snapshot); `p`, (seed, snapshot, feature); `beside`,
        `||W - p z^T|| / ||W||`, (seed, snapshot), zero for a trained p; `posed`, `||W_mm - p_mm z^T|| / ||W_mm||`,
        (seed,); and whether the selected tokens are `locally` and `globally` optimal, (seed,).
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    trains_p = arrays["W"].shape[-1] == 1
    p, beside = batch.over_seeds(_prompts, arrays["W_snapshots"], problems)
    finite = np.isfinite(arrays["W"]).all(axis=(1, 2)) & np.isfinite(p).all(axis=(1, 2))
    alpha = batch.over_seeds(_selected, np.where(finite[:, None], p[:, -1], 0.0), problems)
    of_prompt, of_W = batch.over_seeds(_posed, problems, alpha)
    solutions = [svm.solve_batch(one, solver=solver) for one in (of_prompt, of_W)]
    status = np.stack([one.status for one in solutions], axis=1)
    infeasible = finite & (status == svm.Status.INFEASIBLE).any(axis=1)
    kept = finite & (status == svm.Status.OPTIMAL).all(axis=1)
    lanes = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], (p, problems, alpha, of_prompt, *solutions))
    along = batch.over_seeds(_held_against, *lanes)
    config = json.loads(record.attrs["config"])
    return xarray.Dataset(
        {
            "off": (("seed", "snapshot"), np.maximum(along["off"], _SAME)),
            "margin_ratio": (("seed", "snapshot"), along["margin_ratio"]),
            "p": (("seed", "snapshot", "feature"), p[kept]),
            "beside": (("seed", "snapshot"), beside[kept]),
            **{name: (("seed",), along[name]) for name in ("posed", "locally", "globally")},
        },
        {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values},
        {
            **described(config, trains_p),
            "attempted": kept.size,
            "kept": int(kept.sum()),
            "diverged": int((~finite).sum()),
            "infeasible": int(infeasible.sum()),
            "unsolved": int((finite & ~infeasible & ~kept).sum()),
        },
    )


def described(config: dict[str, Any], trains_p: bool) -> dict[str, str]:
    """Return what is trained, on which keys and by which rule, and the name of the run."""
    rule = "published rule" if config["optimizer"].get("penalty") else "exact direction"
    keys = "keys X A" if config["data"]["_target_"].endswith("keyed") else "keys X"
    trained = "p" if trains_p else "W"
    return {"run": f"{trained}, {keys}, {rule}", "trained": trained, "keys": keys, "rule": rule}


def _prompts(W: Float[Array, "snapshot d e"], problem: Problem) -> tuple[Array, Array]:
    """Return `W z`, or the prompt itself, and the relative norm of the part of W other than `p z^T`."""
    if W.shape[-1] == 1:
        return W[..., 0], jnp.zeros(W.shape[0])
    z = problem.Z[0]
    p = W @ z
    length = jnp.sqrt(jnp.sum(W**2, axis=(1, 2)))
    apart = jnp.sqrt(jnp.sum((W - p[:, :, None] * z[None, None]) ** 2, axis=(1, 2)))
    return p, apart / jnp.where(length > 0, length, 1.0)


def _selected(p: Float[Array, " d"], problem: Problem) -> Int[Array, " n"]:
    return jnp.argmax(problem.X @ p, axis=1)


def _posed(problem: Problem, alpha: Int[Array, " n"]) -> tuple[svm.Constraints, svm.Constraints]:
    return svm.prompt_constraints(problem.X, alpha), svm.token_constraints(problem, alpha)


def _held_against(
    p: Float[Array, "snapshot d"],
    problem: Problem,
    alpha: Int[Array, " n"],
    constraints: svm.Constraints,
    of_prompt: svm.Solution,
    of_W: svm.Solution,
) -> dict[str, Array]:
    def ratio(one: Array) -> Array:
        return metrics.margin_ratio(one, constraints, "frobenius", of_prompt)

    columns, scores = p[:, :, None], tokens.scores(problem)
    neighbours = tokens.support_neighbours(svm.margins(constraints, of_prompt.W), alpha)
    return {
        "off": 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(columns, of_prompt.W),
        "margin_ratio": jax.vmap(ratio)(columns),
        "posed": metrics.norm(of_W.W - of_prompt.W * problem.Z[:1]) / metrics.norm(of_W.W),
        "locally": tokens.is_locally_optimal(scores, alpha, neighbours),
        "globally": tokens.is_globally_optimal(scores, alpha),
    }
