"""Write figures/README.md: each figure or table with its claims, for a reader who has the paper open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxattn.study.against import against
from jaxattn.study.claims import EXCLUDED, Kind, Setting, Verdict, doubts
from jaxattn.study.style import table

# The keys of an entry of claims.json that the page uses.
READ = (
    *("id", "source", "setting", "kind", "statement", "expected", "measured", "interval", "counts", "criteria"),
    *("criteria in numbers", "criteria of the correction", "intervals", "verdict", "note"),
    *("seconds", "made_from", "revision"),
)
# The probability that a 95 % interval misses the true number.
_MISSES = 0.05
# More numbers than this are folded, and the counts of more runs than this are added up.
_NUMBERS, _RUNS = 8, 4
# The form of arXiv identifiers.
_NUMBER = re.compile(r"\b\d{4}\.\d{5}\b")
# What the sources of one paper begin with; our own modules are one source.
_FIRST = re.compile(r"arXiv \d{4}\.\d{5}|jaxattn")
# How close a measurement is to the paper's setting.
_SETTINGS = {
    Setting.EXACT: "the paper's setting",
    Setting.PROXY: "in a setting that stands for the paper's",
    Setting.OURS: "our setting",
}
_PREFACE = """# Figures and claims

Written by `make figures` from its records, together with `claims.json`. Each figure or table comes with the claims
that it decides: what the paper says, what was expected (a published or predicted number, if there is one), what was
measured with its 95 % interval over seeds, which seeds were excluded and why, and a verdict. The letters are the
paper's: attention softmax(X W z), with W free or W = K Q^T.

A claim *holds* if the interval of every number that it asks for lies on the right side of a threshold. If one lies on
the wrong side, the claim *does not hold*, or *holds with a correction* if what that asks for is met. Otherwise it is
*not decided* by this many seeds and steps.
"""


def write(path: Path, studies: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the page.

    Args:
        path: the page, in the folder of the figures and tables.
        studies: the `study` part of each experiment's configuration, in any order.
        lines: the entries of claims.json, in any order.

    Raises:
        OSError: the page cannot be written.
    """
    lines = sorted(lines, key=lambda line: line["id"])
    of = {name: [line for line in lines if line["id"].partition(":")[0] == name] for name in studies}
    names = sorted((name for name in studies if of[name]), key=lambda name: (studies[name].place, name))
    shown = [line for name in names for line in of[name]]
    findings, checks = ([line for line in shown if line["kind"] == kind] for kind in Kind)
    sums = f"{summed(shown)}."
    if checks:
        sums += (
            f" There are also {len(checks)} checks of what is true by definition or by algebra, which test this "
            f"program and not a paper: {_summed(checks)}."
        )
    papers = by_paper(shown)
    parts = [_PREFACE, f"{sums}\n", f"{errors(findings)}\n", counted(shown)]
    parts += [_of_paper(paper, own) for paper, own in papers.items()]
    shows = {name: table.shown(path.parent, name) or f"![{name}]({name}.png)\n" for name in names}
    parts += [_section(name, studies[name], of[name], shows[name]) for name in names]
    path.write_text("\n".join(parts))


def counted(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the papers, in the order of their first claims, with their numbers of verdicts.

    Args:
        lines: the entries of claims.json; checks are not counted.
    """
    rows = [f"| paper | claims | {' | '.join(Verdict)} |", "|---|" + "---|" * (1 + len(Verdict))]
    for paper, own in by_paper([line for line in lines if line["kind"] != Kind.CHECK]).items():
        verdicts = Counter(line["verdict"] for line in own)
        rows.append(f"| {linked(paper)} | {len(own)} | {' | '.join(str(verdicts[verdict]) for verdict in Verdict)} |")
    return "\n".join(rows) + "\n"


def by_paper(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group claims by the paper that makes them, in the order of their first claims.

    A source names its paper before the first comma. Sources that begin with the same arXiv number count as one paper,
    under the shortest of their names.

    Args:
        lines: of claims.json.
    """
    papers: dict[str, list[Mapping[str, Any]]] = {}
    names: dict[str, str] = {}
    for line in lines:
        name = line["source"].partition(", ")[0]
        beginning = _FIRST.match(name)
        paper = beginning.group(0) if beginning else name
        papers.setdefault(paper, []).append(line)
        names[paper] = min(names.get(paper, name), name, key=len)
    return {names[paper]: own for paper, own in papers.items()}


def linked(paper: str) -> str:
    """Return a paper's name with its number on arXiv as a link."""
    return _NUMBER.sub(r"[\g<0>](https://arxiv.org/abs/\g<0>)", paper)


def _of_paper(paper: str, lines: Sequence[Mapping[str, Any]]) -> str:
    rows = [f"**{linked(paper)}**", "", "| figure | claim | verdict |", "|---|---|---|"]
    for line in lines:
        name, verdict = line["id"].partition(":")[0], line["verdict"]
        check = "check: " if line["kind"] == Kind.CHECK else ""
        rows.append(f"| [{name}](#{name}) | {plain(line['statement'])} | {check}{verdict} |")
    return "\n".join(rows) + "\n"


def summed(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of claims, with checks counted separately, and of each verdict.

    Args:
        lines: the entries of claims.json.
    """
    findings = [line for line in lines if line["kind"] != Kind.CHECK]
    return f"{len(findings)} claim{'s' * (len(findings) != 1)}: {_summed(findings)}"


def _summed(lines: Sequence[Mapping[str, Any]]) -> str:
    verdicts = Counter(line["verdict"] for line in lines)
    return ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in Verdict)


def errors(lines: Sequence[Mapping[str, Any]]) -> str:
    """Say how many intervals, and verdicts that depend on them, are expected to be wrong by chance."""
    intervals = sum(line["intervals"] for line in lines)
    resting = sum(line["intervals"] > 0 for line in lines)
    touched = sum(min(1.0, _MISSES * line["intervals"]) for line in lines)
    return (
        f"{resting} of these verdicts rest on {intervals} intervals of 95 %. About {_MISSES * intervals:.0f} of the "
        "intervals are expected to miss the true number by chance, and no more than about "
        f"{touched:.0f} verdicts to rest on one that does. Such a miss makes a verdict wrong only where the true "
        "number is within about the width of the interval from its threshold; the criteria under each claim show how "
        "far off it is."
    )


def _section(name: str, study: Any, lines: Sequence[Mapping[str, Any]], shown: str) -> str:
    text = [f"## {name}", "", shown, f"**In the paper:** {study.of}", ""]
    text += [f"**Departs from it:** {study.departs}", ""]
    for line in lines:
        check = "check, " if line["kind"] == Kind.CHECK else ""
        text += [f"### {line['id']}: {check}{line['verdict']}", "", *entry(line)]
    text.append(f"Made in {lines[0]['seconds']:.0f} s, beside others.\n")
    return "\n".join(text)


def entry(line: Mapping[str, Any]) -> list[str]:
    """Return what there is to say of a claim: Markdown, line by line.

    Args:
        line: of claims.json.
    """
    return [
        f"{plain(line['statement'])} ({line['source']}; {_SETTINGS[line['setting']]})",
        "",
        *_numbers(line),
        "",
        *_criteria(line),
        f"Strongest evidence against it: {plain(against(line['criteria'], line['criteria in numbers']))}.",
        "",
        plain(line["note"]),
        "",
        f"Counts: {_counts(line['counts'])}.",
        "",
    ]


def _criteria(line: Mapping[str, Any]) -> list[str]:
    """Return the criteria behind the verdict, folded."""
    text = ["<details><summary>What decides it</summary>", ""]
    for heading, key in (("As stated:", "criteria"), ("As corrected:", "criteria of the correction")):
        if line[key]:
            text += [heading, "", *(f"- {plain(criterion)}" for criterion in line[key]), ""]
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
    """Return attempted, kept and excluded seeds of each run; many runs are added up."""
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


def plain(text: str) -> str:
    """Return a text that neither ends its cell of a table nor holds markup."""
    return re.sub(r"[|*<$]", r"\\\g<0>", text)
