"""Shared by the claims on a single run of texts: the run, and how many texts decide a claim."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.study.claims import Criterion, Datasets, Judgement, Number, counts_of, too_few


def only(experiment: str, datasets: Datasets) -> tuple[str, xarray.Dataset]:
    """Return the single run of an experiment, with its name.

    Args:
        experiment: its id, for the message.
        datasets: as measured, or estimates from these.

    Raises:
        ValueError: there is not one run, or none of its seeds was kept.
    """
    if len(datasets) != 1:
        raise ValueError(f"{experiment}: expected one run, found {sorted(datasets)}")
    ((run, one),) = datasets.items()
    if not one.sizes.get("seed", 1):
        raise ValueError(f"{experiment}: expected a kept seed, found counts {counts_of(datasets)}")
    return run, one


def judgement(
    summary: xarray.Dataset,
    measured: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    expected: Mapping[str, float] | None = None,
    remark: str = "",
) -> Judgement:
    """Return the judgement on a run; with few texts it is not decided.

    Args:
        summary: estimates with the counts of the run among their attributes.
        measured: numbers by their labels; only those whose bounds differ have an interval.
        stated: as in `Judgement`, like all following arguments.
        corrected: criteria of the correction.
        correction: the correction in a sentence.
        expected: published numbers.
        remark: for the reader.
    """
    return Judgement(
        numbers=measured,
        expected=expected or {},
        counts=counts_of({summary.attrs["run"]: summary}),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=too_few(int(summary.attrs["kept"])),
        remark=remark,
    )
