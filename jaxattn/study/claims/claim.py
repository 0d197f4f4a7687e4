"""Claims as values: the paper's statement, and a rule that judges it from measured numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import xarray

from jaxattn.study.claims.criteria import Criterion, Number, Outcome, together

# Datasets by the name of their run.
Datasets = Mapping[str, xarray.Dataset]


class Verdict(StrEnum):
    """The verdict of a measurement on a claim."""

    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    FAILS = "does not hold"
    OPEN = "not decided"


class Setting(StrEnum):
    """How close a measurement is to the paper's: in the same setting, in one that represents it, or in one of ours."""

    EXACT = "exact"
    PROXY = "proxy"
    OURS = "ours"


class Kind(StrEnum):
    """What a verdict tests: a finding of the paper, which numbers may refute, or this program.

    A check states what is true by definition or by algebra. It can fail only if the program is wrong, so checks are
    listed separately and not counted for any paper.
    """

    FINDING = "finding"
    CHECK = "check"


@dataclass(frozen=True)
class Source:
    """Where a claim is made.

    Attributes:
        paper: its number or name.
        locator: theorem, figure, panel or section.
        setting: how close the measurement is to the paper's setting.
    """

    paper: str
    locator: str
    setting: Setting

    def __str__(self) -> str:
        """Name paper and place."""
        return f"{self.paper}, {self.locator}"


@dataclass(frozen=True)
class Judgement:
    """The evidence on a claim. The verdict follows from the criteria, and from nothing else.

    A claim holds if every criterion in `stated` is met. If one of them is broken, the claim holds with a correction if
    all those in `corrected` are met, and does not hold otherwise. If none is broken but not all are met, it is not
    decided.

    Attributes:
        numbers: what was measured, by label; a float has no interval.
        expected: the published or predicted numbers, with the same labels.
        counts: for each run: seeds attempted, kept, and excluded by reason.
        stated: the criteria of the statement.
        corrected: the criteria of the corrected statement, if there is one.
        correction: the correction, a sentence made from the numbers.
        undecided: why the data cannot decide (too few seeds, too few steps); empty if they can.
        remark: what a reader should know besides the verdict, made from the numbers.
    """

    numbers: Mapping[str, Number | float]
    expected: Mapping[str, float]
    counts: Mapping[str, Mapping[str, int]]
    stated: tuple[Criterion, ...]
    corrected: tuple[Criterion, ...] = ()
    correction: str = ""
    undecided: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        if not self.stated:
            raise ValueError("stated: expected at least one criterion, found none")
        if bool(self.corrected) != bool(self.correction):
            raise ValueError("correction: expected a sentence and criteria for it, or neither")

    @classmethod
    def withheld(cls, reason: str) -> Judgement:
        """Return the judgement on data that cannot be judged, with the reason."""
        nothing = Criterion("what was measured", Number.exact(math.nan))
        return cls({}, {}, {}, stated=(nothing,), undecided=reason)

    @property
    def measured(self) -> dict[str, float]:
        """The numbers by label, means over the kept seeds."""
        return {label: one.mean if isinstance(one, Number) else one for label, one in self.numbers.items()}

    @property
    def interval(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals, (low, high), of the numbers that are not exact."""
        found = {label: one for label, one in self.numbers.items() if isinstance(one, Number)}
        return {label: (one.low, one.high) for label, one in found.items() if one.low < one.high}

    @property
    def verdict(self) -> Verdict:
        """The verdict that the criteria imply."""
        stated = together(self.stated)
        if self.undecided or stated is Outcome.UNCLEAR:
            return Verdict.OPEN
        if stated is Outcome.MET:
            return Verdict.HOLDS
        # A refuted statement stays refuted even if its correction is not decided.
        return Verdict.CORRECTED if self._correction is Outcome.MET else Verdict.FAILS

    @property
    def _correction(self) -> Outcome:
        return together(self.corrected) if self.corrected else Outcome.BROKEN

    @property
    def intervals(self) -> int:
        """The number of different 95 % intervals behind the verdict: those of its criteria that are not exact."""
        return len({one.value for one in (*self.stated, *self.corrected) if one.value.low < one.value.high})

    @property
    def note(self) -> str:
        """The reason for the verdict, in words made from the numbers."""
        if self.undecided:
            return self.undecided
        parts = [self.remark]
        if self.verdict is Verdict.CORRECTED:
            parts.insert(0, f"Correction: {self.correction}")
        if self.verdict is Verdict.FAILS and self._correction is Outcome.UNCLEAR:
            parts.insert(0, f"Whether a correction holds is not decided: {self.correction}")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        id: the experiment, a colon, and a name of the claim within it.
        source: where the paper makes it.
        statement: what the paper says, in one sentence, without narrowing it.
        judge: a pure function from the result of the experiment's `summarize` to a judgement.
        examples: measured datasets, built by hand, for each verdict that can be reached. Those that confirm, correct
            and refute differ only in measured numbers.
        kind: a finding, or a check of what is true by definition or algebra.
    """

    id: str
    source: Source
    statement: str
    judge: Callable[[Datasets], Judgement] = field(repr=False)
    examples: Callable[[], Mapping[Verdict, Datasets]] = field(repr=False)
    kind: Kind = Kind.FINDING

    @property
    def experiment(self) -> str:
        """The id of the experiment that decides the claim."""
        return self.id.partition(":")[0]


def refuted(claims: Iterable[Claim], summaries: Datasets) -> set[str]:
    """Return the ids of the claims that do not hold as stated, whether or not they hold with a correction."""
    return {claim.id for claim in claims if claim.judge(summaries).verdict in (Verdict.FAILS, Verdict.CORRECTED)}


def line(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """Return the entry of claims.json: JSON values, numbers to six digits."""
    return {
        "id": claim.id,
        "source": str(claim.source),
        "setting": str(claim.source.setting),
        "kind": str(claim.kind),
        "statement": claim.statement,
        "expected": _rounded(judgement.expected),
        "measured": _rounded(judgement.measured),
        "interval": _rounded(judgement.interval),
        "counts": _rounded(judgement.counts),
        "criteria": [*map(str, judgement.stated)],
        "criteria in numbers": [_rounded(one.numbers) for one in judgement.stated],
        "criteria of the correction": [*map(str, judgement.corrected)],
        "criteria of the correction in numbers": [_rounded(one.numbers) for one in judgement.corrected],
        "intervals": judgement.intervals,
        "verdict": str(judgement.verdict),
        "note": judgement.note,
    }


def _rounded(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
