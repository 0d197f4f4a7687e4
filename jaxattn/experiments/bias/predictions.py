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
from typing import NamedTuple

import xarray

from jaxattn.bias.verdict import CLOSE
from jaxattn.study.claims import TRAINED, Claim, Datasets, Judgement, Source, Verdict
from jaxattn.study.claims.criteria import Number, above
from jaxattn.study.estimates import number
from jaxattn.study.style.cells import half_width


class Prediction(NamedTuple):
    """The norm that a run, by its name in the YAML, is predicted to obey; a note stands beside the verdict."""

    name: str
    run: str
    norm: str
    source: Source
    statement: str
    note: str = ""

    def judge(self, runs: Datasets) -> Judgement:
        """Judge whether the verdict on the run is decided, and names the norm."""
        run, norm = runs[self.run], self.norm
        ratios = {f"margin ratio, {name}": number(run, "ratio", norm=name) for name in map(str, run["norm"].values)}
        limit, label = number(run, "limit", norm=norm), f"limit of the margin ratio, {norm}"
        named = Number.exact(float(run["named"].sel(norm=norm)))
        reason = run.attrs["reason"]
        return Judgement(
            [above(label, limit, CLOSE), above(f"whether the verdict names the norm {norm} (1: it does)", named, 1.0)],
            numbers={label: limit, f"share of seeds that obey {norm}": number(run, "obey", norm=norm)} | ratios,
            expected={label: 1.0},
            remark=f"The verdict at step {int(run['snapshot'][-1])}: {run.attrs['verdict']}. {self.note}".strip(),
            undecided="" if run.attrs["decided"] else f"{reason[:1].upper()}{reason[1:]}. {self.note}".strip(),
        )


class Together(NamedTuple):
    """One prediction for several runs, by their names in the YAML, all of which must obey the norms in `rows`."""

    name: str
    rows: Mapping[str, str]
    source: Source
    statement: str

    def judge(self, runs: Datasets) -> Judgement:
        """Judge all runs: one that is refuted refutes the prediction, whatever the others leave open."""
        found = {
            run: Prediction("", run, norm, self.source, self.statement).judge(runs) for run, norm in self.rows.items()
        }
        is_refuted = any(one.verdict is Verdict.FAILS for one in found.values())
        reasons = " ".join(f"{run}: {one.undecided}" for run, one in found.items() if one.undecided)
        return Judgement(
            [replace(each, quantity=f"{run}: {each.quantity}") for run, one in found.items() for each in one.stated],
            numbers={f"{run}: {label}": value for run, one in found.items() for label, value in one.numbers.items()},
            expected={f"{run}: {label}": value for run, one in found.items() for label, value in one.expected.items()},
            remark=" ".join(f"{run}: {one.remark}" for run, one in found.items()),
            undecided="" if is_refuted else reasons,
        )


def claims_of(experiment: str, predictions: Sequence[Prediction | Together]) -> tuple[Claim, ...]:
    """Return a claim of an experiment for each prediction."""
    return tuple(
        Claim(f"{experiment}:{each.name}", each.source, each.statement, each.judge, TRAINED) for each in predictions
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
