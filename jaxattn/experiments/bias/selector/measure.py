"""Which tokens a selector selects, and how W compares with the max-margin problems of these tokens."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import xarray

from jaxattn import bias, models, svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring.ranked import alone, model_of, ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of


class _Linear(Protocol):
    def seen(self, problem: Problem) -> Problem: ...

    def matrix(self, weights: Any) -> Any: ...


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the tokens that a selector selects, and compare W with the max-margin problems of these tokens.

    At inference it selects the argmax of its scores, so these are the tokens of largest logit at the end, without
    noise.

    Returns:
        For the kept seeds `margin_ratio`, (seed, norm, snapshot), and `probability`, the smallest over inputs of the
        largest one, (seed, snapshot), as `bias.rank` returns them; `selected`, (seed, input), and `optimal`, the share
        of inputs that select the token of the best score, (seed,). Of several heads, which follow one law, these are
        those of the first one; `joint` is the ratio in the joint problem of all, (seed, snapshot), in the Frobenius
        norm.

    Raises:
        ValueError: a solver; else as `ranked`.
    """
    ratios.native(solver)
    several = isinstance(model_of(record), models.Heads)
    first = alone(record, "0") if several else record
    run = _ranked(ranked(first), record)
    selected, optimal = _tokens(first)
    kept = np.isin(record["seed"].values, run["seed"].values)
    run["selected"] = (("seed", "input"), selected[kept])
    run["optimal"] = (("seed",), (selected == optimal).mean(axis=1)[kept])
    return _with_joint(run, record) if several else run


def _ranked(ranking: bias.Ranking, record: xarray.Dataset) -> xarray.Dataset:
    """Return the ratios and probabilities of a ranking at the seeds of a record, with its counts."""
    run = to_dataset(ranking)[ratios.KEPT].assign_coords(seed=record["seed"].values[ranking.seeds])
    run.attrs = ratios.counts(to_dataset(ranking).attrs)
    return run


def _with_joint(run: xarray.Dataset, record: xarray.Dataset) -> xarray.Dataset:
    """Add the ratio in the joint problem of all heads, on the seeds for which both problems are certified."""
    joint = _ranked(ranked(record, ("frobenius",)), record)
    kept = np.intersect1d(run["seed"].values, joint["seed"].values)
    lost = run.attrs["kept"] - len(kept)
    counts = {"kept": len(kept), "unsolved": run.attrs["unsolved"] + lost}
    joined = run.sel(seed=kept).assign_attrs(counts)
    return joined.assign(joint=joint["margin_ratio"].sel(seed=kept, norm="frobenius", drop=True))


def _tokens(record: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that the final weights select, and those with the best score, (seed, input) each."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems, model = of_arrays(arrays), cast(_Linear, model_of(record))
    matrices = np.asarray(model.matrix(weights_of(arrays)))
    selected = np.asarray(batch.over_seeds(tokens.selected, matrices, batch.over_seeds(model.seen, problems)))
    return selected, np.asarray(batch.over_seeds(tokens.optimal, problems))
