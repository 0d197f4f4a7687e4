"""From the record of descents from four starts: distance from W_mm, and the probability of non-optimal tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import metrics, svm, tokens
from jaxattn.experiments.rates.ngd_global.record import Starts
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring import exclusions

# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve the Att-SVM of the optimal tokens, and compare every descent of a record of `Rates` with it.

    A seed is kept if W_mm and the wrong selection's solution are certified.

    Returns:
        For every start and snapshot `off`, 1 - cos of W and W_mm; `log_rest`, the natural logarithm of `1 - s`, s the
        probability of the optimal token, for the input where it is largest; `size`, `||W||_F`, and `path`, the length
        of the path so far, both divided by `||W_mm||_F`. For every start whether all optimal tokens are selected at the
        end, `selects`, and whether a step became too long to be taken, `overflowed`.
    """
    problems = of_arrays({str(name): record[name].values for name in record.data_vars})
    alpha, constraints = batch.over_seeds(_posed, problems)
    solution = svm.solve_batch(constraints, svm.frobenius, solver=solver)
    both = np.stack([np.asarray(solution.status), record["status"].values])
    kept = (both == svm.Status.OPTIMAL).all(axis=0)
    infeasible = (both == svm.Status.INFEASIBLE).any(axis=0)
    series = (record[f"{name}_snapshots"].values for name in ("logits", "size", "path"))
    duals, length = np.asarray(solution.duals), np.asarray(solution.primal)
    *curves, selects = batch.over_seeds(_along, *series, constraints, duals, length, alpha)
    values = dict(zip(("off", "log_rest", "size", "path"), curves, strict=True))
    return xarray.Dataset(
        {name: (("seed", "start", "snapshot"), np.asarray(array)[kept]) for name, array in values.items()}
        | {"selects": (("seed", "start"), np.asarray(selects)[kept])}
        | {"overflowed": (("seed", "start"), record["overflowed"].values[kept])},
        {
            "seed": record["seed"].values[kept],
            "start": np.array(Starts.NAMES, object),
            "snapshot": record["snapshot"].values,
        },
        exclusions.count(kept, infeasible=infeasible),
    )


def _posed(problem: Problem) -> tuple[Int[Array, " n"], svm.Constraints]:
    alpha = tokens.optimal(problem)
    return alpha, svm.token_constraints(problem, alpha)


def _along(
    logits: Float[Array, "start k n T"],
    size: Float[Array, "start k"],
    path: Float[Array, "start k"],
    constraints: svm.Constraints,
    duals: Float[Array, "n others"],
    length: Float[Array, ""],
    alpha: Int[Array, " n"],
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed, in its order.

    W_mm is a combination of the rows of the constraints, so its inner product with W follows from W's margins.
    """
    W_mm = svm.combination(constraints, duals)
    T = logits.shape[-1]
    others = jnp.arange(T - 1)[None, :]
    others = others + (others >= alpha[:, None])
    of_best = jnp.take_along_axis(logits, alpha[None, None, :, None], axis=3)
    of_others = jnp.take_along_axis(logits, jnp.broadcast_to(others[None, None], (*logits.shape[:-1], T - 1)), axis=3)
    product = jnp.sum(duals[None, None] * (of_best - of_others), axis=(2, 3))
    # W is nonzero after the first step.
    off = 1 - product / jnp.maximum(size * metrics.norm(W_mm), jnp.finfo(size.dtype).tiny)
    top = jnp.max(logits, axis=3, keepdims=True)
    rest, whole = (jax.nn.logsumexp(one - top, axis=3) for one in (of_others, logits))
    log_rest = jnp.max(rest - whole, axis=2)
    selects = jnp.all(of_best[:, -1, :, 0] > jnp.max(of_others[:, -1], axis=2), axis=1)
    return jnp.maximum(off, _ROUNDING), log_rest, size / length, path / length, selects
