"""How a prediction of the norm that a run obeys is judged.

The rule, fixed before any run was ranked, is that of `bias.rank`: a prediction holds if the verdict on the run is
decided and names the predicted norm, alone or together with others whose intervals overlap; it does not hold if the
verdict is decided and does not name it; it is not decided if the verdict is not, for the same reason. That none is
obeyed holds if the verdict is decided and names none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import xarray

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias.ratios import run_of
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)


class Predicted(Protocol):
    """Where a run is found, which norm it is said to obey, and where that is said; as `Prediction` says."""

    @property
    def name(self) -> str:
        """Of the claim."""
        ...

    @property
    def source(self) -> Source:
        """Where it is said."""
        ...

    @property
    def statement(self) -> str:
        """What is said."""
        ...

    @property
    def row(self) -> Mapping[str, str]:
        """Attributes of the run."""
        ...

    @property
    def norm(self) -> str:
        """That it obeys, or nothing."""
        ...


class Prediction(NamedTuple):
    """What is predicted of a run.

    Attributes:
        name: of the claim.
        row: attributes of the run, by which it is found among the summaries.
        norm: that it obeys; empty if it obeys none of those it is held against.
        source: where that is said.
        statement: what is said.
    """

    name: str
    row: Mapping[str, str]
    norm: str
    source: Source
    statement: str


def claims(experiment: str, predictions: Sequence[Predicted], examples: Callable[[Any], Any]) -> tuple[Claim, ...]:
    """Return a claim of an experiment for each prediction, with the datasets that `examples` builds of it."""
    return tuple(
        Claim(
            f"{experiment}:{prediction.name}",
            prediction.source,
            prediction.statement,
            partial(judge, prediction),
            partial(examples, prediction),
        )
        for prediction in predictions
    )


def judge(prediction: Predicted, summaries: Datasets) -> Judgement:
    """The verdict of the run has to be decided, and to name the predicted norm, or none."""
    one = run_of(summaries, **prediction.row)
    if one is None:
        return Judgement.withheld("This run is not made at this size.")
    ratios = {str(norm): number(one.sel(norm=norm), "ratio") for norm in one["norm"].values}
    undecided = too_little(one) or ("" if one.attrs["decided"] else f"{one.attrs['reason']}.")
    labels = {norm: f"margin ratio, {norm}" for norm in ratios}
    return Judgement(
        measured={labels[norm]: value.mean for norm, value in ratios.items()},
        interval={labels[norm]: (value.low, value.high) for norm, value in ratios.items()},
        expected={labels[prediction.norm]: 1.0} if prediction.norm else {},
        counts=counts_of({one.attrs["run"]: one}),
        stated=_criteria(prediction, one, ratios),
        undecided=undecided[:1].upper() + undecided[1:],
        remark=f"The verdict at step {int(one['snapshot'][-1])}: {one.attrs['verdict']}.",
    )


def _criteria(prediction: Predicted, one: xarray.Dataset, ratios: Mapping[str, Number]) -> tuple[Criterion, Criterion]:
    if prediction.norm:
        named = Number.exact(float(one["named"].sel(norm=prediction.norm)))
        return (
            above(f"mean margin ratio, {prediction.norm}", ratios[prediction.norm], CLOSE),
            above(f"whether the verdict names the norm {prediction.norm} (1: it does)", named, 1.0),
        )
    largest = max(ratios, key=lambda norm: ratios[norm].mean)
    return (
        below(f"largest mean margin ratio ({largest})", ratios[largest], CLOSE),
        below("norms that the verdict names", Number.exact(float(one["named"].sum())), 0.0),
    )
