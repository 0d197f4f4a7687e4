"""Which seeds select their optimal tokens in the end, and the quality of their first step."""

from __future__ import annotations

import jax.numpy as jnp
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import metrics, svm
from jaxattn.experiments.landscape.global_convergence import basins
from jaxattn.experiments.landscape.outcomes import lost_on
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring.optimum import optimum


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every seed whether its optimal tokens are selected, and the quality of its first step.

    A record of `Basins` is measured by `basins.measure`.

    Args:
        record: of a `Training` of W that keeps the weights after its first step.
        solver: of the max-margin problems.

    Returns:
        For every kept seed whether it is `optimal` at the end; for its first step the `correlation` with W_mm and the
        smallest `margin` over the constraints, relative to the best possible (positive where the step separates the
        optimal tokens, and at most 1); `lost`, the share of the last gradient on the inputs that do not select their
        optimal token (0 if there are none).
    """
    if "alpha" in record:
        return basins.measure(record, solver)
    optima = optimum(record, solver)
    first = optima.of(record["W_snapshots"].sel(snapshot=1)) - optima.of(record["W_initial"])
    arrays = batch.over_seeds(_of_seed, first, optima.of(record["W"]), optima.W, optima.problems, optima.alpha)
    names = ("optimal", "correlation", "margin", "lost")
    return xarray.Dataset(
        {name: (("seed",), array) for name, array in zip(names, arrays, strict=True)},
        {"seed": optima.of(record["seed"])},
        optima.counts,
    )


def _of_seed(
    first: Float[Array, "d d"],
    final: Float[Array, "d d"],
    W_mm: Float[Array, "d d"],
    problem: Problem,
    alpha: Int[Array, " n"],
) -> tuple[Array, ...]:
    margins = svm.margins(svm.token_constraints(problem, alpha), first / metrics.norm(first))
    optimal, lost = lost_on(final, problem, alpha)
    return optimal, metrics.correlation(first, W_mm), jnp.min(margins) * metrics.norm(W_mm), lost
