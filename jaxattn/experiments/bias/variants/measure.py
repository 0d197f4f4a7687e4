"""From the record of a variant: its margin ratios in its own max-margin problem and in another one."""

from __future__ import annotations

import json

import jax
import numpy as np
import xarray

from jaxattn import bias, models, svm
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.variants.runs import described
from jaxattn.study.measuring.ranked import alone, model_of, ranked, to_dataset


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Att-SVMs of its own model, and with those of an alternative problem.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), in the problem of the model's keys and queries, for several heads the
        joint one; `probability`, the mean of the largest attention probabilities, (seed, snapshot). For several heads
        also `other`, (seed, norm, snapshot): the smallest ratio over the heads, each in the problem of its own tokens;
        for a model whose keys are not the tokens, the ratio in the problem of the tokens as given. Attributes: counts,
        and what `runs.described` returns for the run.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    model = model_of(record)
    with jax.enable_x64(True):
        own = to_dataset(ranked(record, bias.NORMS))
        others = [to_dataset(ranked(one, bias.NORMS)) for one in _others(record, model)]
    measured, counts = own[ratios.KEPT], ratios.counts(own.attrs)
    if others:
        kept = [np.isin(own["seed"], one["seed"]) for one in others]
        shared = own["seed"].values[np.all(kept, axis=0)]
        least = np.min([one["margin_ratio"].sel(seed=shared).values for one in others], axis=0)
        measured = measured.sel(seed=shared).assign(other=(("seed", "norm", "snapshot"), least))
        # A seed counts as unsolved if another problem of it has no certified optimum.
        lost = counts["kept"] - len(shared)
        counts |= {"kept": len(shared), "unsolved": counts["unsolved"] + lost}
    measured.attrs = counts | described(json.loads(record.attrs["config"]))
    return measured


def _others(record: xarray.Dataset, model: models.Model) -> list[xarray.Dataset]:
    """Return the record as if each head, or the attention without its positions, were alone."""
    if isinstance(model, models.Heads):
        return [alone(record, str(head)) for head in range(model.count)]
    return [] if isinstance(model, models.Valued) or model == models.plain else [alone(record)]
