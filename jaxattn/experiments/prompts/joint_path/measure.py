"""From the record of joint regularization paths to their distance from three max-margin problems."""

from __future__ import annotations

import json

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float

from jaxattn import svm
from jaxattn.experiments.prompts import joint
from jaxattn.experiments.prompts.joint_path.record import SOLVED
from jaxattn.problem import Problem, of_arrays

# What double precision leaves of 1 - cos where two directions are the same, and of margins that are equal.
_SAME, _EQUAL = 1e-16, 1e-9


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold the path of lowest risk at the largest radii against the certified solutions for its tokens.

    A seed is kept if that path is solved on every radius, and its other paths on the largest; if no other token of an
    input has a label margin as large as the smallest one of the tokens chosen (then "ambiguous": the theorem excludes
    it); and if all max-margin problems are certified optimal.

    Args:
        record: of `JointPaths`.
        solver: of all max-margin problems.

    Returns:
        `off`, 1 - cos of p and the solution of each problem of `joint.PROBLEMS`, (seed, problem, radius), that with
        offsets for the ratio of the largest radii; `off_v`, the same of v, `residual`, and whether the path is the
        `lowest` found, (seed, radius); whether an input is a `support` vector of v, (seed, input); and whether the
        path's tokens are those of `largest` label margin of all, (seed,). With axis `attempt` what is `solved`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    growth = json.loads(record.attrs["config"])["ball"]["exponent"]
    seeds = np.arange(len(arrays["X"]))
    solved = arrays["residual"] <= SOLVED
    risk = np.where(solved, arrays["log_risk"], np.inf)
    path = risk[:, :, -1].argmin(axis=1)
    alpha, p, head = (arrays[name][seeds, path] for name in ("alpha", "p", "head"))
    problems = of_arrays(arrays)
    ratio = np.linalg.norm(head[:, -1], axis=1) / np.linalg.norm(p[:, -1], axis=1)
    usable = np.isfinite(ratio) & (ratio > 0)
    found = joint.solve(problems, alpha, np.where(usable, ratio, 1.0), solver)
    solutions = np.einsum("spij,sj->spi", np.nan_to_num(found.W), arrays["Z"][:, 0])
    complete = solved[seeds, path].all(axis=1) & solved[:, :, -1].all(axis=1)
    ambiguous = found.solved & complete & _ambiguous(problems, alpha, np.nan_to_num(found.v))
    kept = found.solved & complete & ~ambiguous
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "radius"), _off(p[:, None], solutions[:, :, None])[kept]),
            "off_v": (("seed", "radius"), _off(head, np.nan_to_num(found.v)[:, None])[kept]),
            "residual": (("seed", "radius"), arrays["residual"][seeds, path][kept]),
            "lowest": (("seed", "radius"), (risk.argmin(axis=1) == path[:, None])[kept]),
            "support": (("seed", "input"), found.support[kept]),
            "largest": (("seed",), (path == 0)[kept]),
            "solved": (("attempt", "radius"), solved[seeds, path]),
        },
        {
            "seed": record["seed"].values[kept],
            "attempt": record["seed"].values,
            "problem": np.array(joint.PROBLEMS, object),
            "radius": record["radius"].values,
        },
        {
            "run": f"r ~ R^{growth:g}",
            "growth": float(growth),
            "attempted": kept.size,
            "kept": int(kept.sum()),
            "ambiguous": int(ambiguous.sum()),
            "infeasible": int(found.infeasible.sum()),
            "unsolved": int((~kept & ~ambiguous & ~found.infeasible).sum()),
        },
    )


def _ambiguous(problems: Problem, alpha: np.ndarray, v: Float[np.ndarray, "seed d"]) -> Bool[np.ndarray, " seed"]:
    """Whether another token of an input has at least the smallest label margin of the tokens chosen, 1."""
    X, Y = jax.tree.map(np.asarray, (problems.X, problems.Y))
    margins = Y[:, :, None] * np.einsum("sntd,sd->snt", X, v)
    others = np.arange(X.shape[2]) != alpha[:, :, None]
    return (others & (margins >= 1 - _EQUAL)).any(axis=(1, 2))


def _off(a: Float[np.ndarray, "... d"], b: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "..."]:
    """Return the direction error 1 - cos, formed without cancellation."""

    def unit(x: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / np.where(length > 0, length, 1.0)

    return np.maximum(np.sum((unit(a) - unit(b)) ** 2, axis=-1) / 2, _SAME)
