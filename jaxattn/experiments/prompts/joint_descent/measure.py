"""From the record of training W, or a prompt, together with v: its distance from three max-margin problems."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import attention, metrics, svm
from jaxattn.experiments.prompts import joint
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.settings.parameters import finite_seeds, weights_of

# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare W and v at every snapshot with the certified solutions for the tokens that the run selects.

    A seed is kept if its weights stayed finite and the problems of v and W are certified optimal.

    Args:
        record: of a `Training` with `model=tempered_values`, with one query for all inputs or one each.
        solver: of all problems.

    Returns:
        `off`, 1 - cos of W and the solution of each problem of `joint.PROBLEMS`, (seed, problem, snapshot); `off_v`,
        the same of v; `margin_ratio` of W in the unrelaxed problem, (seed, snapshot); whether an input is a `support`
        vector of v, (seed, input); and `growing`, `||v|| / ||W||` at the end, (seed,), from which the offsets are
        computed.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    config = json.loads(record.attrs["config"])
    about = described(config)
    final, snapshots = weights_of(arrays), weights_of(arrays, "_snapshots")
    finite = finite_seeds(final)
    given = of_arrays(arrays)
    problems = Problem(X=given.X, Z=given.Z / about["tau"], Y=given.Y, v=given.v)
    W, v = (_or_ones(one, finite) for one in (final.attention, final.readout))
    alpha = batch.over_seeds(_selected, W, problems)
    growing = np.linalg.norm(v, axis=1) / np.maximum(np.linalg.norm(W, axis=(1, 2)), np.finfo(float).tiny)
    found = joint.solve(problems, alpha, growing, solver)
    kept = finite & found.solved
    lanes = jax.tree.map(
        lambda leaf: np.asarray(leaf)[kept], (snapshots.attention, snapshots.readout, found.W, found.v, problems, alpha)
    )
    off, off_v, ratio = batch.over_seeds(_held_against, *lanes)
    infeasible = finite & found.infeasible
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "snapshot"), np.maximum(off, _SAME)),
            "off_v": (("seed", "snapshot"), np.maximum(off_v, _SAME)),
            "margin_ratio": (("seed", "snapshot"), ratio),
            "support": (("seed", "input"), found.support[kept]),
            "growing": (("seed",), growing[kept]),
        },
        {
            "seed": record["seed"].values[kept],
            "problem": np.array(joint.PROBLEMS, object),
            "snapshot": record["snapshot"].values,
        },
        {
            **about,
            "attempted": kept.size,
            "kept": int(kept.sum()),
            "diverged": int((~finite).sum()),
            "infeasible": int(infeasible.sum()),
            "unsolved": int((finite & ~infeasible & ~kept).sum()),
        },
    )


def described(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is trained (p or W), the temperature of the logits, and the name of the run."""
    trained = "p" if config["data"]["_target_"].endswith("shared_query") else "W"
    tau = float(config["model"]["model"]["tau"])
    return {"run": f"{trained} and v, tau = {tau:g}", "trained": trained, "tau": tau}


def _or_ones(leaf: Any, finite: np.ndarray) -> np.ndarray:
    """Replace a diverged seed's weights by ones; it is excluded from all comparisons."""
    return np.where(finite.reshape(-1, *[1] * (np.ndim(leaf) - 1)), leaf, 1.0)


def _selected(W: Float[Array, "d d"], problem: Problem) -> Int[Array, " n"]:
    return jnp.argmax(attention.logits(W, problem), axis=1)


def _held_against(
    W: Float[Array, "snapshot d d"],
    heads: Float[Array, "snapshot d"],
    solutions: Float[Array, "problem d d"],
    v: Float[Array, " d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> tuple[Array, Array, Array]:
    """Return direction errors of W and v, and the margin ratios in the unrelaxed problem, whose margin is 1."""
    off, off_v = joint.along(W, heads, solutions, v)
    rows = svm.token_constraints(problem, alpha)
    smallest = jax.vmap(lambda one: jnp.min(svm.margins(rows, one)) / metrics.norm(one))(W)
    return off, off_v, smallest * metrics.norm(solutions[0])
