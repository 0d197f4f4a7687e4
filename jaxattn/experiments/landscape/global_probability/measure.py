"""From the record of a training: which seeds have selected tokens, and which of these the optimal ones."""

from __future__ import annotations

import xarray
from jaxtyping import Array, Bool

from jaxattn import svm, tokens
from jaxattn.attention import Weights
from jaxattn.experiments.landscape.outcomes import read
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.settings.parameters import finite_seeds


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read from the final weights of every seed whether the softmax is saturated, and on the optimal tokens.

    Args:
        record: of a `Training`.
        solver: not used; nothing is solved.

    Returns:
        A dataset with the axis `seed`, for the seeds that stayed finite. Kept are those that saturated; the others
        count as `ambiguous` or `diverged`.
    """
    del solver
    final, problems = read(record)
    finite = finite_seeds(final)
    saturated, globally = batch.over_seeds(_read_off, final, problems, finite)
    counts = {
        "attempted": finite.size,
        "kept": int((finite & saturated).sum()),
        "diverged": int((~finite).sum()),
        "ambiguous": int((finite & ~saturated).sum()),
    }
    return xarray.Dataset(
        {"saturated": (("seed",), saturated[finite]), "globally": (("seed",), globally[finite])},
        {"seed": record["seed"].values[finite]},
        counts,
    )


def _read_off(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    saturated = finite & (tokens.saturation(weights, problem) >= tokens.SATURATED)
    return saturated, tokens.is_globally_optimal(tokens.scores(problem), tokens.selected(weights, problem))
