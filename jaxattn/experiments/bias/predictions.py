"""Predictions of the norm that a run obeys, and how they are judged.

The rule, fixed before any run was ranked, is that of `bias.rank`. A prediction holds if the verdict on the run is
decided and names the predicted norm, alone or together with others whose intervals overlap. It does not hold if the
verdict is decided and does not name it. It is not decided if the verdict is not, for the same reason. That a run obeys
none of the norms is not predicted: whatever obeys a norm that is not compared would confirm it.

Predictions of one theorem on several runs are one claim: it holds if all do, and does not if one does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import xarray

from jaxattn.bias.verdict import CLOSE
from jaxattn.study.claims import TRAINED, Claim, Datasets, Judgement, Source, Verdict
from jaxattn.study.claims.criteria import Number, above
from jaxattn.study.estimates import number
from jaxattn.study.style.cells import half_width


class Prediction(NamedTuple):
    """The prediction for a run.

    Attributes:
        name: of the claim.
        run: its name in the YAML.
        norm: the norm that it obeys.
        source: where this is stated.
        statement: the statement.
        note: what a reader should know besides the verdict.
    """

    name: str
    run: str
    norm: str
    source: Source
    statement: str
    note: str = ""


class Together(NamedTuple):
    """One prediction for several runs, all of which must be as predicted.

    Attributes:
        name: of the claim.
        rows: the runs, by the names in the YAML, and the norm that each obeys.
        source: where this is stated.
        statement: the statement.
    """

    name: str
    rows: Mapping[str, str]
    source: Source
    statement: str


def claims_of(experiment: str, predictions: Sequence[Prediction | Together]) -> tuple[Claim, ...]:
    """Return a claim of an experiment for each prediction."""
    rules = {
        each.name: partial(judge_all, each) if isinstance(each, Together) else partial(judge, each)
        for each in predictions
    }
    return tuple(
        Claim(f"{experiment}:{each.name}", each.source, each.statement, rules[each.name], TRAINED)
        for each in predictions
    )


def judge_all(prediction: Together, runs: Datasets) -> Judgement:
    """Judge one prediction for several runs: one that is refuted refutes it, whatever the others leave open."""
    source, statement = prediction.source, prediction.statement
    found = {run: judge(Prediction("", run, norm, source, statement), runs) for run, norm in prediction.rows.items()}
    refuted = {run: one for run, one in found.items() if one.verdict is Verdict.FAILS}
    reasons = " ".join(f"{run}: {one.undecided}" for run, one in found.items() if one.undecided)
    return Judgement(
        [replace(each, quantity=f"{run}: {each.quantity}") for run, one in found.items() for each in one.stated],
        numbers={f"{run}: {label}": value for run, one in found.items() for label, value in one.numbers.items()},
        expected={f"{run}: {label}": value for run, one in found.items() for label, value in one.expected.items()},
        remark=" ".join(f"{run}: {one.remark}" for run, one in found.items()),
        undecided="" if refuted else reasons,
    )


def judge(prediction: Prediction, runs: Datasets) -> Judgement:
    """Judge a prediction: the verdict on the run must be decided, and name the predicted norm."""
    run, norm = runs[prediction.run], prediction.norm
    ratios = {str(name): number(run, "ratio", norm=name) for name in run["norm"].values}
    limit, obey = number(run, "limit", norm=norm), number(run, "obey", norm=norm)
    named = Number.exact(float(run["named"].sel(norm=norm)))
    reason = run.attrs["reason"]
    open_because = "" if run.attrs["decided"] else f"{reason[:1].upper()}{reason[1:]}. {prediction.note}".strip()
    return Judgement(
        [
            above(f"limit of the margin ratio, {norm}", limit, CLOSE),
            above(f"whether the verdict names the norm {norm} (1: it does)", named, 1.0),
        ],
        numbers={f"limit of the margin ratio, {norm}": limit, f"share of seeds that obey {norm}": obey}
        | {f"margin ratio, {name}": ratio for name, ratio in ratios.items()},
        expected={f"limit of the margin ratio, {norm}": 1.0},
        remark=f"The verdict at step {int(run['snapshot'][-1])}: {run.attrs['verdict']}. {prediction.note}".strip(),
        undecided=open_because,
    )


def finding(judgements: Iterable[Judgement]) -> str:
    """Return in words how many predicted limits are confirmed, refuted and not decided.

    Example:
        >>> from jaxattn.study.claims import Criterion, Number
        >>> finding([Judgement([Criterion("", Number.exact(1.0), least=0.0)])] * 4)
        'Predicted limits: 4 of 4 confirmed'
    """
    verdicts = Counter(judgement.verdict for judgement in judgements)
    words = {Verdict.FAILS: "refuted", Verdict.OPEN: "not decided"}
    others = "".join(f", {verdicts[verdict]} {word}" for verdict, word in words.items() if verdicts[verdict])
    return f"Predicted limits: {verdicts[Verdict.HOLDS]} of {verdicts.total()} confirmed{others}"


def usual_steps(summaries: Datasets) -> int:
    """Return the number of steps of most runs."""
    return Counter(int(run["snapshot"][-1]) for run in summaries.values()).most_common(1)[0][0]


def caption(steps: str, runs: Iterable[xarray.Dataset], framed: str = "predicted") -> str:
    """Explain a table of `style.cells` of runs after these steps, in which these norms are framed."""
    return (
        f"Mean margin ratio over the seeds after {steps}; 1: a solution of that norm's Att-SVM. Framed: {framed}. "
        f"Bold: named by the verdict, the limit above {CLOSE} in nine of ten seeds; near: not told from its "
        "neighbours; none: all limits below; open: not decided. Intervals of a row's largest "
        f"mean: at most +- {half_width(runs)}."
    )
