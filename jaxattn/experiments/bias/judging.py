"""Judging a prediction of the norm that a run obeys.

The rule, fixed before any run was ranked, is that of `bias.rank`. A prediction holds if the verdict on the run is
decided and names the predicted norm, alone or together with others whose intervals overlap. It does not hold if the
verdict is decided and does not name it. It is not decided if the verdict is not, for the same reason. A prediction of
no norm holds if the verdict is decided and names none.
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
    Verdict,
    above,
    below,
    counts_of,
    number,
    too_little,
)


class Predicted(Protocol):
    """How to find a run, the norm that it is predicted to obey, and the source; see `Prediction`."""

    @property
    def name(self) -> str:
        """The name of the claim."""
        ...

    @property
    def source(self) -> Source:
        """The source."""
        ...

    @property
    def statement(self) -> str:
        """The statement."""
        ...

    @property
    def row(self) -> Mapping[str, str]:
        """The attributes of the run."""
        ...

    @property
    def norm(self) -> str:
        """The norm that it obeys, or nothing."""
        ...


class Prediction(NamedTuple):
    """The prediction for a run.

    Attributes:
        name: of the claim.
        row: attributes of the run, by which it is found among the summaries.
        norm: the norm that it obeys; empty if it obeys none of those it is compared with.
        source: where this is stated.
        statement: the statement.
    """

    name: str
    row: Mapping[str, str]
    norm: str
    source: Source
    statement: str


def claims(experiment: str, predictions: Sequence[Predicted], examples: Callable[[Any], Any]) -> tuple[Claim, ...]:
    """Return a claim of an experiment for each prediction, with the datasets that `examples` builds for it."""
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
    """The verdict on the run must be decided, and name the predicted norm, or none."""
    one = run_of(summaries, **prediction.row)
    if one is None:
        return Judgement.withheld("This run is not made at this size.")
    ratios = {str(norm): number(one.sel(norm=norm), "ratio") for norm in one["norm"].values}
    undecided = too_little(one) or ("" if one.attrs["decided"] else f"{one.attrs['reason']}.")
    labels = {norm: f"margin ratio, {norm}" for norm in ratios}
    return Judgement(
        numbers={labels[norm]: value for norm, value in ratios.items()},
        expected={labels[prediction.norm]: 1.0} if prediction.norm else {},
        counts=counts_of({one.attrs["run"]: one}),
        stated=_criteria(prediction, one, ratios),
        undecided=undecided[:1].upper() + undecided[1:],
        remark=f"The verdict at step {int(one['snapshot'][-1])}: {one.attrs['verdict']}.",
    )


def told(verdicts: Mapping[Verdict, int]) -> str:
    """Return in words how many predicted limits are confirmed, refuted and not decided, without those that are none.

    Example:
        >>> told({Verdict.HOLDS: 4})
        'All 4 predicted limits are confirmed'
        >>> told({Verdict.HOLDS: 1, Verdict.FAILS: 2, Verdict.OPEN: 1})
        '1 of 4 predicted limits is confirmed, 2 are refuted, 1 is not decided'
    """
    every, held, failed = sum(verdicts.values()), verdicts.get(Verdict.HOLDS, 0), verdicts.get(Verdict.FAILS, 0)
    if held == every > 1:
        return f"All {every} predicted limits are confirmed"
    rest = {"refuted": failed, "not decided": every - held - failed}
    first = f"{held or 'None'} of {every} predicted limits {_is(held or 1)} confirmed"
    return ", ".join([first, *(f"{count} {_is(count)} {word}" for word, count in rest.items() if count)])


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


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
