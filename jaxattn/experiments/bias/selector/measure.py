"""Which tokens a selector selects, and how W compares with the max-margin problems of these tokens."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import xarray

from jaxattn import bias, models, svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.study.measuring.ranked import alone, model_of
from jaxattn.study.settings.parameters import weights_of


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the tokens that a selector selects, and compare W with the max-margin problems of these tokens.

    At inference it selects the argmax of its scores, so these are the tokens of largest logit at the end, without
    noise.

    Returns:
        What `ratios.compared` does; `selected`, (seed, input), and `optimal`, the share of inputs that select the token
        of the best score, (seed,). Of several heads, which follow one law, these are those of the first one; `joint`
        is the ratio in the joint problem of all, (seed, snapshot), in the Frobenius norm.
    """
    several = isinstance(model_of(record), models.Heads)
    first = alone(record, "0") if several else record
    run = ratios.compared(first, solver, bias.NORMS)
    kept = first.isel(seed=run["seed"].values)
    run = run.assign(_tokens(kept)).assign_coords(seed=kept["seed"].values)
    if not several:
        return run
    joint = ratios.compared(record, solver, ("frobenius",))
    joint = joint.assign_coords(seed=record["seed"].values[joint["seed"].values])["margin_ratio"]
    run = ratios.restricted(run, np.intersect1d(run["seed"].values, joint["seed"].values))
    return run.assign(joint=joint.sel(seed=run["seed"], norm="frobenius", drop=True))


def _tokens(record: xarray.Dataset) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return the tokens that the final weights select, and the share of inputs where it has the best score."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems, model = of_arrays(arrays), cast(Any, model_of(record))
    matrices = np.asarray(model.matrix(weights_of(arrays)))
    selected = batch.over_seeds(tokens.selected, matrices, batch.over_seeds(model.seen, problems))
    optimal = np.equal(selected, batch.over_seeds(tokens.optimal, problems)).mean(axis=1)
    return {"selected": (("seed", "input"), np.asarray(selected)), "optimal": (("seed",), optimal)}
