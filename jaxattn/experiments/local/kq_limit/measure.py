"""Compare a run on (K, Q) with its max-margin solutions, and fit what remains of a distance in the limit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import metrics, svm
from jaxattn.experiments.local import limits
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.statistics import Estimate

# The exponents that are tried, and how often seeds are resampled.
_EXPONENTS, _SAMPLES = np.linspace(0.05, 2.0, 79), 400


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with its max-margin solutions, and measure how close the nuclear one is to degenerate.

    The factors of the record's `Training` are as wide as the tokens.

    Returns:
        The dataset of `limits.measure` with `turned`, 1 - cos of the factor that turned more, K or Q, from a hundredth
        of the steps to a tenth and from there to the last, (seed, decade). And two numbers per seed, both for the
        nuclear solution and zero where that is degenerate: `room`, 1 minus the largest singular value of `M = sum_k a_k
        A_k` that W does not use (those that it uses are 1); and `complementarity`, the minimum over the rows of the
        multiplier (relative to the largest) plus the margin in excess of 1.
    """
    measured = limits.measure(record, solver)
    kept = record.sel(seed=measured["seed"].values)
    arrays = {str(name): kept[name].values for name in kept.data_vars}
    steps = measured["snapshot"].values
    at = [int(np.argmin(np.abs(np.log(steps * share / steps[-1])))) for share in (100, 10, 1)]
    turned = []
    for name in ("K_snapshots", "Q_snapshots"):
        factor = arrays[name][:, at]
        factor = factor / np.linalg.norm(factor, axis=(-2, -1), keepdims=True)
        # 1 - cos, without the rounding of a difference of numbers near 1.
        turned.append(((factor[:, 1:] - factor[:, :-1]) ** 2).sum(axis=(-2, -1)) / 2)
    room = complementarity = np.zeros(0)
    if kept.sizes["seed"]:
        constraints = batch.over_seeds(svm.token_constraints, of_arrays(arrays), measured["selected"].values)
        solutions = svm.solve_batch(constraints, svm.nuclear, solver=solver)
        room, complementarity = batch.over_seeds(_degeneracy, constraints, solutions.W, solutions.duals)
    return measured.assign(
        turned=(("seed", "decade"), np.max(turned, axis=0)),
        room=("seed", room),
        complementarity=("seed", complementarity),
    )


def _degeneracy(
    constraints: svm.Constraints, W: Float[Array, "d d"], duals: Float[Array, "n m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = jnp.linalg.svd(svm.combination(constraints, duals), compute_uv=False)
    unused = jnp.arange(len(values)) >= metrics.rank(W)
    room = 1 - jnp.max(jnp.where(unused, values, 0.0)) / values[0]
    rows = duals / jnp.max(duals) + svm.margins(constraints, W) - 1
    present = jnp.ones(rows.shape, bool) if constraints.present is None else constraints.present
    least = jnp.min(jnp.where(present, rows, jnp.inf))
    return jax.tree.map(lambda value: jnp.maximum(value, 0.0), (room, least))


def remaining(
    size: Float[np.ndarray, "seeds snapshots"], off: Float[np.ndarray, "seeds snapshots"], key: PRNGKeyArray
) -> Estimate:
    """Return the share a / off(end) of a distance that remains as the norm goes to infinity, if off = a + b size^-q.

    The fit is to the geometric means over the seeds, with a and b at least 0 and least squares of the relative error,
    and its interval of 95 % from fits to resampled seeds. `size` must grow, and `off` be positive.

    Example:
        >>> size = np.geomspace(1, 1e3, 30)[None]
        >>> round(float(remaining(size, 0.2 + 1 / size, key).mean), 2)
        1.0
    """
    seeds = len(off)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    times = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=_SAMPLES)
    # The first row is the mean over all seeds.
    weights = np.concatenate([np.ones((1, seeds)), times]) / seeds
    share = _share(np.exp(weights @ np.log(size)), np.exp(weights @ np.log(off)))
    low, high = np.quantile(share[1:], [0.025, 0.975])
    return Estimate(share[0], np.minimum(low, share[0]), np.maximum(high, share[0]), share[1:].std(ddof=1))


def _share(
    x: Float[np.ndarray, "curves points"], y: Float[np.ndarray, "curves points"]
) -> Float[np.ndarray, " curves"]:
    """Return a / y(end) of the best fit y = a + b x^-q to each curve."""
    best, share = np.full(len(y), np.inf), np.zeros(len(y))
    one = 1 / y
    for q in _EXPONENTS:
        power = (x / x[:, -1:]) ** -q / y
        # Least squares of a / y + b power = 1; where one of both would be negative the other is fitted alone.
        aa, ab, bb = ((left * right).sum(axis=1) for left, right in ((one, one), (one, power), (power, power)))
        a1, b1 = one.sum(axis=1), power.sum(axis=1)
        a, b = (bb * a1 - ab * b1) / (aa * bb - ab**2), (aa * b1 - ab * a1) / (aa * bb - ab**2)
        a, b = np.where(b < 0, a1 / aa, np.where(a < 0, 0.0, a)), np.where(a < 0, b1 / bb, np.where(b < 0, 0.0, b))
        error = ((a[:, None] * one + b[:, None] * power - 1) ** 2).sum(axis=1)
        better = error < best
        best, share = np.where(better, error, best), np.where(better, a / (a + b), share)
    return share
