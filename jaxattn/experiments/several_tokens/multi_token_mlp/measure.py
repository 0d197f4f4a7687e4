"""From the record of a screening: the distance of each kept run from its descriptions, snapshot by snapshot."""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.experiments.several_tokens import descriptions, screening
from jaxattn.experiments.several_tokens.evidence import EXACT, PARTS
from jaxattn.experiments.several_tokens.prediction import held_against
from jaxattn.study.claims import EXCLUDED


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Describe the first 500 runs that the published selection keeps, and those of the first 500 that can be described.

    Args:
        record: of a `Screening`, as `recording.run` writes it.
        solver: of all problems; the default of the Frobenius norm if None.

    Returns:
        What `descriptions.compared` (without the solutions) and `prediction.held_against` return for both; `published`
        and `every` say to which of the two a run belongs. The counts of the former are attributes, those of the latter
        attributes with the prefix `every_`. The attribute `run` names the dimension, and says whether training followed
        the exact gradient direction, without the published floor and penalty.
    """
    runs = screening.runs_of(record)
    published, every = screening.attempts(runs, labels=screening.labels_of_one_kind(runs))
    seeds = np.union1d(np.flatnonzero(published < 0), np.flatnonzero(every < 0))
    compared = descriptions.compared(runs, seeds, solver).drop_vars("W_described")
    against, failed = held_against(runs, seeds, None, solver)
    failed = np.where(compared["reason"].values < 0, failed, compared["reason"].values)
    for reason in (published, every):
        here = seeds[seeds < len(reason)]
        reason[here] = np.where(reason[here] < 0, failed[: len(here)], reason[here])
    joined = compared.drop_vars("reason").merge(against.assign_coords(seed=seeds))
    described = np.isin(joined["whole_seed"].values, seeds[failed < 0])
    kept = joined.isel(seed=failed < 0, whole=described)
    for name, reason in zip(PARTS, (published, every), strict=True):
        kept[name] = (("seed",), screening.kept_of(kept["seed"].values, reason))
    d = runs.problems.d
    rule = json.loads(record.attrs["config"])["optimizer"]
    name = f"d = {d}" + (EXACT if rule["floor"] == rule["penalty"] == 0 else "")
    of_every = {f"every_{name}": count for name, count in screening.counts(every).items()}
    return kept.assign_attrs({"run": name, "d": d, **screening.counts(published, EXCLUDED), **of_every})
