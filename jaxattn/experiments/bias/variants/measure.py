"""From the record of a variant to its margin ratios, against its own max-margin problem and against another one."""

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
    """Hold a run against the Att-SVMs of its own model, and against those that one might take for them.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: none but those of each norm.

    Returns:
        `margin_ratio`, (seed, norm, snapshot), against the problem that the model's keys and queries pose, of several
        heads the joint one; `probability`, the mean of the largest attention probabilities, (seed, snapshot). Of
        several heads also `other`, (seed, norm, snapshot): the least of the ratios that the heads have, each against
        the problem of its own tokens; of a model that sees other keys than the tokens, the ratio against the
        problem of the tokens as they are given. Attributes: counts, and what `runs.described` says of the run.

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
        # As unsolved counts a seed of which another problem has no certified optimum.
        lost = counts["kept"] - len(shared)
        counts |= {"kept": len(shared), "unsolved": counts["unsolved"] + lost}
    measured.attrs = counts | described(json.loads(record.attrs["config"]))
    return measured


def _others(record: xarray.Dataset, model: models.Model) -> list[xarray.Dataset]:
    """Return the record as if each head, or the attention without its positions, stood alone."""
    if isinstance(model, models.Heads):
        return [alone(record, str(head)) for head in range(model.count)]
    return [] if isinstance(model, models.Valued) or model == models.plain else [alone(record)]
