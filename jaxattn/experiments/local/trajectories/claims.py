"""Trajectories in the plane (2308.16898, figure 1): each path turns parallel to its own ray."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims import Claim, Verdict, counts_of, too_little
from jaxattn.study.statistics import bootstrap

# The max-margin problem that each parameterization is claimed to solve.
OWN_NORM = {"W": "frobenius", "KQ": "nuclear"}


def summarize(
    comparisons: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Choose the instance to draw, and judge the final direction over all kept seeds.

    The figure shows the first seed that was kept in both runs; the claims are over all of them.

    Args:
        comparisons: of the runs "W" and "KQ", with the paths `W(k) z_i`.
        key: of the bootstrap.

    Returns:
        For each run what the figure draws of that seed; the claims.

    Raises:
        ValueError: no seed was kept in both runs.
    """
    W_seeds, KQ_seeds = (comparisons[run]["seed"].values for run in OWN_NORM)
    shared = np.intersect1d(W_seeds, KQ_seeds)
    if shared.size == 0:
        raise ValueError(f"trajectories: no seed was kept in both runs, counts {counts_of(comparisons)}")
    drawn = {run: comparison.sel(seed=shared[0]) for run, comparison in comparisons.items()}
    keys = jax.random.split(key, len(comparisons))
    claims = [_claim(run, comparison, keys[k]) for k, (run, comparison) in enumerate(comparisons.items())]
    return drawn, claims


def _claim(run: str, comparison: xarray.Dataset, key: PRNGKeyArray) -> Claim:
    T = comparison.sizes["token"]
    last = int(comparison["snapshot"].values[-1])
    final = comparison["correlation"].isel(snapshot=-1)
    estimate = bootstrap(final.values, key)
    norms = [str(norm) for norm in final["norm"].values]
    names = {norm: f"{norm} at step {last}" for norm in norms}
    own = norms.index(OWN_NORM[run])
    factored = run == "KQ"
    undecided = too_little(comparison)
    if undecided or estimate.low[own] <= 0.99 < estimate.high[own]:
        verdict = Verdict.OPEN
    elif estimate.low[own] > 0.99:
        verdict = Verdict.CORRECTED if factored else Verdict.HOLDS
    else:
        verdict = Verdict.FAILS
    share = float((final.values[:, own] > 0.99).mean())
    return Claim(
        id=f"trajectories-{T}:{run}",
        source="arXiv 2308.16898, trajectories figure",
        statement=f"The paths of {'K Q^T' if factored else 'W'} z_i turn parallel to the rays of the "
        f"{OWN_NORM[run]} Att-SVM solution.",
        expected={names[norms[own]]: 1.0},
        measured={names[norm]: float(estimate.mean[k]) for k, norm in enumerate(norms)}
        | {"share of seeds above 0.99": share},
        interval={names[norm]: (float(estimate.low[k]), float(estimate.high[k])) for k, norm in enumerate(norms)},
        counts=counts_of({run: comparison}),
        verdict=verdict,
        note="Holds if the 95 % interval of the mean final correlation lies above 0.99, not decided if 0.99 is in it"
        + (", under the published penalty of 2.2e-16." if factored else ".")
        + (f" {undecided}" if undecided else ""),
    )
