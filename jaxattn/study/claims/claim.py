"""Claims as values: the paper's statement, and a rule that judges it from measured numbers alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import xarray

from jaxattn.statistics import LEAST_SEEDS
from jaxattn.study.claims.counts import LEAST_DRAWN, LEAST_STEPS, counts_of
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, together

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
    """What a verdict tests: a finding of the paper, or, in a check of what is true by definition, this program."""

    FINDING = "finding"
    CHECK = "check"


@dataclass(frozen=True)
class Source:
    """Where a claim is made: the paper's number or name, and a theorem, figure, panel or section in it."""

    paper: str
    locator: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.paper}, {self.locator}"


@dataclass(frozen=True)
class Judgement:
    """The evidence on a claim. The verdict follows from the criteria and from `undecided`.

    A claim holds if every criterion in `stated` is met. If one of them is broken, the claim holds with a correction if
    all those in `corrected` are met, and does not hold otherwise. If none is broken but not all are met, it is not
    decided. Nor is it, whatever the criteria, if `undecided` gives a reason.

    `correction` and `remark` are sentences made from the numbers. `numbers` are what was measured, by label; a float
    has no interval. `expected` are the published or predicted ones, with the same labels. Default: the numbers of the
    criteria, and the counts of the runs that were read.
    """

    stated: Sequence[Criterion]
    corrected: Sequence[Criterion] = ()
    correction: str = ""
    remark: str = ""
    numbers: Mapping[str, Number | float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    undecided: str = ""

    def __post_init__(self) -> None:
        if not self.stated:
            raise ValueError("stated: expected at least one criterion, found none")
        if bool(self.corrected) != bool(self.correction):
            raise ValueError("correction: expected a sentence and criteria for it, or neither")

    @classmethod
    def withheld(cls, reason: str) -> Judgement:
        """Return the judgement on data that cannot be judged, with the reason."""
        return cls([Criterion("what was measured", Number.exact(math.nan))], undecided=reason)

    @property
    def measured(self) -> dict[str, float]:
        """The numbers by label, means over the kept seeds."""
        return {label: _mean(value) for label, value in self.numbers.items()}

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
        if self.verdict is Verdict.OPEN and math.isfinite(times := max(one.more_seeds for one in self.stated)):
            parts.append(f"With the same means, about {times:.2g} times as many seeds would decide.")
        return " ".join(part for part in parts if part)


class MissingRunError(KeyError):
    """A run that a rule reads was not made."""

    def __str__(self) -> str:
        return f"The run {self.args[0]!r} is missing."


class Runs(Mapping[str, xarray.Dataset]):
    """The estimates of an experiment's runs by name; remembers which were read. MissingRunError: no such run."""

    def __init__(self, summaries: Datasets) -> None:
        self._summaries = summaries
        self._read: set[str] = set()

    def __getitem__(self, run: str) -> xarray.Dataset:
        if run not in self._summaries:
            raise MissingRunError(run)
        self._read.add(run)
        return self._summaries[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def __len__(self) -> int:
        return len(self._summaries)

    @property
    def unread(self) -> Datasets:
        """All runs; none of them counts as read for being looked up here."""
        return self._summaries

    @property
    def read(self) -> dict[str, xarray.Dataset]:
        """The runs that were read, in the order of the YAML."""
        return {run: summary for run, summary in self._summaries.items() if run in self._read}


def family(runs: Datasets, settings: Mapping[str, Any]) -> dict[str, xarray.Dataset]:
    """Return the runs with these settings in the YAML, such as `{"data.spread": 0.0}`; only these count as read."""
    summaries = runs.unread if isinstance(runs, Runs) else runs
    names = [name for name, run in summaries.items() if settings.items() <= run.attrs.items()]
    if not names:
        raise MissingRunError(", ".join(f"{key} = {value}" for key, value in settings.items()))
    return {name: runs[name] for name in names}


@dataclass(frozen=True)
class Needs:
    """What every run that a rule reads must have, so that the claim can be decided.

    These are the smallest numbers of kept seeds and of steps (0 for problems that are not trained), and the steps at
    which the verdict compares with the paper.
    """

    seeds: int = LEAST_DRAWN
    steps: int = 0
    snapshots: tuple[int, ...] = ()

    def missing(self, runs: Datasets) -> str:
        """Return why these runs cannot decide a claim; empty if they can."""
        for run, summary in runs.items():
            if self.steps and (steps := int(summary.attrs["steps"])) < self.steps:
                return f"{run}: {steps} steps are too few to decide; at least {self.steps} are needed."
            if self.seeds and (kept := int(summary.attrs["kept"])) < self.seeds:
                return f"{run}: {kept} kept seeds are too few to decide; at least {self.seeds} are needed."
            if self.snapshots and (absent := sorted({*self.snapshots} - {*summary["snapshot"].values.tolist()})):
                return f"{run}: no weights were kept at the steps {absent} that the paper is compared at."
        return ""


# Trained runs, and problems that are only drawn and solved, which are cheaper, so that more are required.
TRAINED, DRAWN = Needs(LEAST_SEEDS, LEAST_STEPS), Needs(LEAST_DRAWN)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: its id (the experiment, a colon, and a name), its source, and what it says, not narrowed.

    The rule is a pure function from the estimates of the runs to criteria, fixed before the numbers were seen. If the
    runs that it reads lack what it needs, the claim is not decided.
    """

    id: str
    source: Source
    statement: str
    rule: Callable[[Datasets], Judgement] = field(repr=False)
    needs: Needs = field(default=DRAWN, repr=False)
    kind: Kind = Kind.FINDING

    @property
    def experiment(self) -> str:
        """The id of the experiment that decides the claim."""
        return self.id.partition(":")[0]

    def judge(self, summaries: Datasets) -> Judgement:
        """Return the evidence on the claim. A run that is missing, too short or has too few seeds decides nothing."""
        runs = Runs(summaries)
        try:
            judgement = self.rule(runs)
        except MissingRunError as error:
            return Judgement.withheld(str(error))
        numbers = judgement.numbers or {one.quantity: one.value for one in (*judgement.stated, *judgement.corrected)}
        return dataclasses.replace(
            judgement,
            # What too short a run does not give is no result.
            numbers={label: value for label, value in numbers.items() if not math.isnan(_mean(value))},
            counts=judgement.counts or counts_of(runs.read),
            undecided=self.needs.missing(runs.read) or judgement.undecided,
        )


def claim(
    id: str, source: Source, statement: str, needs: Needs = DRAWN, kind: Kind = Kind.FINDING
) -> Callable[[Callable[[Datasets], Judgement]], Claim]:
    """Make a rule into a claim: `@claim("rate:W", SOURCE, "W converges ...", needs=TRAINED)`; see `Claim`."""
    return lambda rule: Claim(id, source, statement, rule, needs, kind)


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


def _mean(value: Number | float) -> float:
    return value.mean if isinstance(value, Number) else value


def _rounded(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
