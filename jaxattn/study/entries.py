"""What the pages and the site say of one claim: statement, numbers, criteria, evidence against it, counts; Markdown."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxattn.study.claims import EXCLUDED, Outcome, Setting, Verdict, doubts

# The rule of the verdicts, for a reader of the index or of the site.
RULE = """A claim is judged by criteria: numbers with thresholds that were fixed before the runs. It *holds* if the 95 %
interval of each number lies on the right side of its threshold. If one lies on the wrong side, that criterion is
*broken*, and the claim *does not hold*, or *holds with a correction* if all that the correction asks for is met. A
claim is *not decided* in two cases. Either no criterion is broken, but an interval contains its threshold (*unclear*).
Or the runs cannot decide, whatever the criteria say, for example because seeds are too few or the weights still move.
Then the reason is given, and the outcome of each criterion is one *so far*.
"""
# More numbers than this are folded, and the counts of more runs than this are added up.
_NUMBERS, _RUNS = 8, 4
_SETTINGS = {
    Setting.EXACT: "the paper's setting",
    Setting.PROXY: "in a setting that stands for the paper's",
    Setting.OURS: "our setting",
}
# Outcomes, the strongest evidence against a claim first.
_ORDER = (Outcome.BROKEN, Outcome.UNCLEAR, Outcome.MET)
# A threshold that is a smaller part of its number stands for 0.
_ZERO = 1e-6


def described(study: Any) -> list[str]:
    """Return what an experiment reproduces, and where it differs: Markdown, line by line."""
    notebook = f" The authors' notebook: {study.notebook}." if study.notebook else ""
    return [f"**In the paper:** {study.of}{notebook}", "", f"**Differences from the paper:** {study.departs}", ""]


def entry(line: Mapping[str, Any]) -> list[str]:
    """Return what there is to say of a claim, an entry of claims.json: Markdown, line by line."""
    note = f"{'Why it is not decided: ' * is_withheld(line)}{plain(line['note'])}"
    return [
        f"{plain(line['statement'])} ({line['source']}; {_SETTINGS[line['setting']]})",
        "",
        *_numbers(line),
        "",
        *_criteria(line),
        f"Strongest evidence against it: {plain(evidence(line))}.",
        "",
        *([note, ""] if note else []),
        f"Counts: {_counts(line['counts'])}.",
    ]


def is_withheld(line: Mapping[str, Any]) -> bool:
    """Return whether a claim is not decided for a reason other than an unclear criterion; its note gives the reason."""
    outcomes = {criterion["outcome"] for criterion in line["criteria in numbers"]}
    is_measured = any(criterion["mean"] is not None for criterion in line["criteria in numbers"])
    decides = Outcome.UNCLEAR in outcomes and Outcome.BROKEN not in outcomes and is_measured
    return line["verdict"] == Verdict.OPEN and not decides


def evidence(line: Mapping[str, Any]) -> str:
    """Return the criterion that speaks most against a claim, in words."""
    return in_words(line, against(line["criteria"], line["criteria in numbers"]))


def in_words(line: Mapping[str, Any], criterion: str) -> str:
    """Return a criterion for a reader: its outcome is one so far if its claim is not decided whatever it says."""
    text = criterion.replace("nan [nan, nan]", "not known")
    return re.sub(r"\((met|broken|unclear)(?=[^()]*\)$)", r"(\1 so far", text) if is_withheld(line) else text


def plain(text: str) -> str:
    """Return a text that neither ends its cell of a table nor holds markup."""
    return re.sub(r"[|*<$]", r"\\\g<0>", text)


def _criteria(line: Mapping[str, Any]) -> list[str]:
    text = ["<details><summary>What decides it</summary>", ""]
    for heading, key in (("As stated:", "criteria"), ("As corrected:", "criteria of the correction")):
        if line[key]:
            text += [heading, "", *(f"- {plain(in_words(line, criterion))}" for criterion in line[key]), ""]
    return [*text, "</details>", ""]


def _numbers(line: Mapping[str, Any]) -> list[str]:
    """Return a table of expected and measured numbers, expected ones first; the rest of a long table is folded."""
    expected, measured, interval = line["expected"], line["measured"], line["interval"]
    labels = [*expected, *(label for label in measured if label not in expected)]
    shown = labels if len(labels) <= _NUMBERS else [label for label in labels if label in expected][:_NUMBERS]
    folded = [label for label in labels if label not in shown]

    def rows(chosen: Iterable[str]) -> list[str]:
        lines = ["| | expected | measured | 95 % interval |", "|---|---|---|---|"]
        for label in chosen:
            cells = [f"{numbers[label]:.4g}" if label in numbers else "" for numbers in (expected, measured)]
            cells.append(" to ".join(f"{bound:.4g}" for bound in interval.get(label, ())))
            lines.append(f"| {plain(label)} | {' | '.join(cells)} |")
        return lines

    text = rows(shown) if shown else []
    if folded:
        more = "all" if not shown else "the other"
        text += ["", f"<details><summary>{more} {len(folded)} numbers</summary>", "", *rows(folded), "", "</details>"]
    return text


def _counts(counts: Mapping[str, Mapping[str, int]]) -> str:
    if len(counts) > _RUNS:
        total = Counter()
        for count in counts.values():
            # Unlike a sum, this keeps reasons with a count of zero.
            total.update(count)
        counts = {f"{len(counts)} runs": total}
    return "; ".join(
        f"{plain(run)}: {count['kept']} of {count['attempted']} kept{doubts(count)}"
        + "".join(f", {count[reason]} {reason}" for reason in EXCLUDED if reason in count)
        for run, count in counts.items()
    )


def against(criteria: Sequence[str], numbers: Sequence[Mapping[str, Any]]) -> str:
    """Return the criterion that speaks most against a claim, as it is written in claims.json, and how near it comes.

    One that is broken comes first, then one that is not clear, then the one that is met with the least room: the
    distance from its threshold to the nearer end of the interval, over the size of the threshold (or of the number,
    where the threshold is 0). A yes or no, such as "1: it does", is at no distance from what is asked for: among equal
    outcomes it comes last.
    """
    ranked = [
        (_ORDER.index(Outcome(criterion["outcome"])), _margin(criterion), text)
        for text, criterion in zip(criteria, numbers, strict=True)
    ]
    order, margin, text = min(ranked, key=lambda entry: entry[:2])
    if _ORDER[order] is not Outcome.MET or not math.isfinite(margin):
        return text
    spare = f"{100 * margin:.2g} %" if margin < 0.995 else f"{100 * margin:,.0f} %"
    return text.removesuffix("(met)") + f"(met with {spare} to spare)"


def _margin(criterion: Mapping[str, Any]) -> float:
    """Return how far a criterion's interval is inside of what is asked for; infinite if there is no such number."""
    mean, margins = criterion["mean"], [math.inf]
    is_exact = criterion["low"] == criterion["high"]
    for smaller, larger, threshold in (("least", "low", criterion["least"]), ("high", "most", criterion["most"])):
        if criterion[smaller] is None or criterion[larger] is None or (is_exact and {mean, threshold} <= {0, 1}):
            continue
        size = abs(threshold) if abs(threshold) > _ZERO * abs(mean or 0) else abs(mean or 0)
        margins.append((criterion[larger] - criterion[smaller]) / (size or 1.0))
    return min(margins)
