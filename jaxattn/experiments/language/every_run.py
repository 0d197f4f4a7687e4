"""The same numbers and criteria for every run, by labels that end with the name of the run."""

from __future__ import annotations

from collections.abc import Mapping

from jaxattn.study.claims import Datasets
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import number


def labelled(runs: Datasets, labels: Mapping[str, str]) -> dict[str, Number]:
    """Return estimates of every run by their labels, in which `{}` is the last step; curves at their last snapshot."""
    return {
        f"{label.format(run.attrs['steps'])}, {name}": number(run, estimate, at=-1)
        for name, run in runs.items()
        for label, estimate in labels.items()
    }


def all_below(label: str, runs: Datasets, estimate: str, most: float) -> list[Criterion]:
    """Ask that an estimate of every run is at most the threshold."""
    return [below(f"{what},", value, most) for what, value in labelled(runs, {label: estimate}).items()]


def all_above(label: str, runs: Datasets, estimate: str, least: float) -> list[Criterion]:
    """Ask that an estimate of every run is at least the threshold."""
    return [above(f"{what},", value, least) for what, value in labelled(runs, {label: estimate}).items()]
