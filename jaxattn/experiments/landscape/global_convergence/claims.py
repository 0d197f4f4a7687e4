"""The theorems on global convergence, judged by the shares of seeds that select the optimal tokens."""

from __future__ import annotations

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.landscape.global_convergence import basins, examples, far_examples, judging
from jaxattn.experiments.landscape.global_convergence.measure import STARTS
from jaxattn.experiments.landscape.global_convergence.shares import estimated, pooled
from jaxattn.statistics import derive_key
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Setting,
    Source,
    counts_of,
    total,
)

_PAPER, _LOCATOR = "arXiv 2308.16898", "sections 4 and 5.2, theorems on global convergence"
# Normalized descent stands in for the plain descent of the theorems; how the shares change is our question.
_PROXY, _OURS = (Source(_PAPER, _LOCATOR, setting) for setting in (Setting.PROXY, Setting.OURS))


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the shares of seeds that select their optimal tokens.

    Args:
        datasets: of `measure`, from W = 0, with a long first step, from random weights, and from wrong selections.
        key: of the bootstrap.

    Returns:
        For each start of `STARTS` a dataset with an axis `run`, and bins of the first step for starts at W = 0. The
        variables named like counts are those of each run; the attributes are their sums. For each run from far along a
        wrong selection, by its name, what `basins.shares` returns.

    Raises:
        ValueError: a run of which no seed was kept, or measured numbers that are impossible.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"global-convergence: expected a kept seed in each run, found counts {counts_of(datasets)}")
    summaries = {}
    for run, one in datasets.items():
        if one.attrs["start"] == "far":
            summaries[run] = basins.shares(one, derive_key(key, len(summaries)))
    for start, k in zip(STARTS, jax.random.split(key, len(STARTS)), strict=True):
        runs = {run: one for run, one in datasets.items() if one.attrs["start"] == start}
        if runs:
            parts = [
                estimated(one, each).assign(counts_of({"": one})[""])
                for one, each in zip(runs.values(), jax.random.split(k, len(runs)), strict=True)
            ]
            steps = min(one.attrs["steps"] for one in runs.values())
            summary = xarray.concat(parts, "run", coords="all").assign_attrs(total(runs) | {"steps": steps})
            summaries[start] = summary if start == "random" else summary.merge(pooled(list(runs.values())))
    return summaries


CLAIMS = (
    Claim(
        "global-convergence:first-gradient",
        _PROXY,
        "If the first gradient from W = 0 separates the optimal tokens from all others, descent with a long first "
        "step along it selects them.",
        judging.judge_first_gradient,
        examples.of_first_gradient,
    ),
    Claim(
        "global-convergence:alignment",
        _OURS,
        "The better the first gradient is aligned with W_mm, the more often descent selects the optimal tokens.",
        judging.judge_alignment,
        examples.of_alignment,
    ),
    Claim(
        "global-convergence:equal-scores",
        _PROXY,
        "If all non-optimal tokens of an input have equal scores, descent selects the optimal tokens from any start.",
        judging.judge_equal_scores,
        far_examples.of_equal_scores,
    ),
    Claim(
        "global-convergence:basins",
        _OURS,
        "From far along a wrong selection, the solutions of the inputs already served determine which inputs descent "
        "serves, and so whether it selects the optimal tokens. The next input served is the one whose optimal token "
        "is least behind along that solution, provided this is by at most the margin.",
        judging.judge_basins,
        far_examples.of_basins,
    ),
    Claim(
        "global-convergence:score-gap",
        _OURS,
        "The farther apart the scores of non-optimal tokens are, the less often descent selects the optimal ones.",
        judging.judge_score_gap,
        examples.of_score_gap,
    ),
)
