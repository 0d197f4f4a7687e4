"""Which norm's max-margin problem each variant of attention obeys, compared with the predictions."""

from __future__ import annotations

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.bias import judging, ratios
from jaxattn.experiments.bias.variants import examples
from jaxattn.experiments.bias.variants.predictions import PREDICTIONS
from jaxattn.experiments.bias.variants.runs import OWN
from jaxattn.study.claims import Datasets


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the margin ratios of every run, and the norms that it obeys, in its own problem and in another.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        What `ratios.summarize` returns for each run; for runs also compared with another problem, once more under the
        names of run and problem. The attribute `about` is "its own problem" or the other one.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    own_key, other_key = jax.random.split(key)
    own = ratios.summarize(datasets, own_key)
    others = {
        f"{run}: {one.attrs['other']}": one.drop_vars("margin_ratio").rename(other="margin_ratio")
        for run, one in datasets.items()
        if "other" in one
    }
    found = ratios.summarize(others, other_key) if others else {}
    own = {run: one.assign_attrs(about=OWN) for run, one in own.items()}
    return own | {run: one.assign_attrs(about=one.attrs["other"]) for run, one in found.items()}


CLAIMS = tuple(
    claim
    for experiment, predictions in PREDICTIONS.items()
    for claim in judging.claims(experiment, predictions, examples.of_prediction)
)
