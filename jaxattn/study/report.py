"""Write figures/README.md, an index of all claims with what does not hold first, and one page an experiment."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from jaxattn.study.claims import Kind, Setting, Verdict
from jaxattn.study.entries import RULE, described, entry, evidence, is_withheld, plain
from jaxattn.study.style import page, table

# The keys of an entry of claims.json that the pages use.
READ = (
    *("id", "source", "setting", "kind", "statement", "expected", "measured", "interval", "counts", "criteria"),
    *("criteria in numbers", "criteria of the correction", "intervals", "verdict", "note"),
    *("seconds", "made_from", "revision"),
)
# The probability that a 95 % interval misses the true number.
_MISSES = 0.05
_NUMBER = re.compile(r"\b\d{4}\.\d{5}\b")
# What the sources of one paper begin with; our own modules are one source.
_FIRST = re.compile(r"arXiv \d{4}\.\d{5}|jaxattn")
# The folder's file of verdicts that changed: `since`, a commit, and `claims`, each with its verdict `before` and `why`.
_CHANGES = "changes.yaml"
_ORDER = (Verdict.FAILS, Verdict.CORRECTED, Verdict.OPEN, Verdict.HOLDS)
# Longer results are shortened in the index.
_LONGEST = 130
# The first line of a page: only a file that begins with it is ever removed.
_OURS = "<!-- Written by `jaxattn figures`, which overwrites it. -->"
_PREFACE = """# Figures and claims

Each table begins with what does not hold. A link leads to the figure and to the claim's numbers, criteria, counts and
strongest evidence against it. Below the tables: [how a verdict is made](#how-a-verdict-is-made), and
[counts by paper](#counts).
"""
_EXACT = """## The papers' statements, in their own settings

Names that end in .ipynb are notebooks of the [authors of 2308.16898](https://github.com/umich-sota/TF-as-SVM/tree/568305a),
at commit 568305a.
"""
_PROXIES = """## The papers' statements, in settings that stand for theirs

The page of each figure says what differs. Here and below, claims of one source that hold, or are not decided, share a
row.
"""
_OWN = """## Experiments of our own

The papers' statements in a setting of ours, conjectures by analogy that they do not make, and questions of our own.
"""
_CHECKS = """## Checks

These are true by definition or by algebra: they test this program and not a paper.
"""
_ENDING = """`make figures` writes this page and those of the experiments from its records, together with
`claims.json`. The letters are the paper's: attention softmax(X W z), with W free or W = K Q^T.
"""


def write(folder: Path, studies: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], size: str) -> None:
    """Write the index and the pages of claims.json, and remove own pages of what has no claims any more."""
    of = by_experiment(studies, lines)
    pages = folder / "pages"
    pages.mkdir(exist_ok=True)
    for path in pages.glob("*.md"):
        if path.stem not in of and path.read_bytes().startswith(_OURS.encode()):
            path.unlink()
    for name, own in of.items():
        figures = [name, *([page.second(name)] if (folder / f"{page.second(name)}.png").exists() else [])]
        shown = table.shown(folder, name) or "\n".join(f"![{figure}](../{figure}.png)\n" for figure in figures)
        (pages / f"{name}.md").write_text(_page(name, studies[name], own, shown, size))
    lines = [line for own in of.values() for line in own]
    said = ""
    if (folder / _CHANGES).exists():
        changes = yaml.safe_load((folder / _CHANGES).read_text())
        (folder / "changes.md").write_text("\n".join(_changed(changes, lines)))
        said = f"{len(changes['claims'])} verdicts and claims are [others than before](changes.md), with the reasons.\n"
    (folder / "README.md").write_text(_index(studies, lines, said))


def by_experiment(studies: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the claims by experiment, in the order of the pages, and those of one experiment by their ids."""
    ordered = sorted(lines, key=lambda line: line["id"])
    names = sorted({*map(_experiment, lines)} & set(studies), key=lambda name: (studies[name].place, name))
    return {name: [line for line in ordered if _experiment(line) == name] for name in names}


def _index(studies: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], changes: str) -> str:
    findings, checks = ([line for line in lines if line["kind"] == kind] for kind in Kind)
    parts = [_PREFACE, f"{summed(lines)}.\n", changes]
    for heading, families in (
        (_EXACT, [[line] for line in findings if line["setting"] == Setting.EXACT]),
        (_PROXIES, _families([line for line in findings if line["setting"] == Setting.PROXY])),
        (_OWN, _families([line for line in findings if line["setting"] == Setting.OURS])),
        (_CHECKS, _families(checks)),
    ):
        if families:
            parts += [heading, *_table(studies, families), ""]
    parts += ["## How a verdict is made\n", RULE, f"{errors(findings)}\n", _ENDING, "## Counts\n", counted(lines)]
    numbers = dict.fromkeys(_NUMBER.findall(" ".join(line["source"] for line in lines)))
    return "\n".join([*parts, *(f"[{number}]: https://arxiv.org/abs/{number}" for number in numbers), ""])


def _families(lines: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the claims of one experiment and source that are not decided, or that hold; the others stand alone."""
    families: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        is_alone = line["verdict"] in (Verdict.FAILS, Verdict.CORRECTED)
        key = (line["id"],) if is_alone else (_experiment(line), line["source"], line["verdict"])
        families.setdefault(key, []).append(line)
    return list(families.values())


def _table(studies: Mapping[str, Any], families: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield from ("| paper | where in it | our figure | result | verdict |", "|---|---|---|---|---|")
    for family in sorted(families, key=lambda family: _rank(family[0])):
        line = family[0]
        name = _experiment(line)
        paper, _, where = line["source"].partition(", ")
        # A paper without a number is known by its first words; what follows a colon explains the place.
        paper = _NUMBER.sub(r"[\g<0>]", paper).removeprefix("arXiv ").partition(" on ")[0]
        where = plain(where.partition(": ")[0])
        if studies[name].notebook and line["setting"] != Setting.OURS:
            where += f"; {studies[name].notebook}"
        link = f"[{name}](pages/{name}.md{f'#{_anchor(line)}' * (len(family) == 1)})"
        result = _result(line) if len(family) == 1 else _common(family)
        verdict = f"**{line['verdict']}**" if line["verdict"] == Verdict.FAILS else line["verdict"]
        yield f"| {paper} | {where} | {link} | {plain(result)} | {verdict} |"


def _result(line: Mapping[str, Any]) -> str:
    statement = _shortened(_statement(line))
    if line["verdict"] == Verdict.HOLDS:
        return statement
    if line["verdict"] != Verdict.CORRECTED and not is_withheld(line):
        return f"{statement} Measured: {evidence(line).rpartition(' (')[0]}."
    reason = re.split(r"(?<=\.) (?=[A-Z])", line["note"])[0]
    return f"{statement} {_shortened(reason)}"


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    begun = text[:_LONGEST]
    clause = re.sub(r"[^\w)]*[,;:(][^,;:(]*$", "", begun)
    return f"{clause if clause != begun else begun.rpartition(' ')[0]} …"


def _common(family: Sequence[Mapping[str, Any]]) -> str:
    """Return the statements of several claims, with their common beginning once; if that is long, their names."""
    words = [_statement(line).removesuffix(".").split() for line in family]
    common = [*itertools.takewhile(lambda column: len({*column}) == 1, zip(*words, strict=False))]
    # One or two words, such as an article, are no beginning.
    start = len(common) * (len(common) > 2)
    text = " ".join([*words[0][:start], ("; " if start else ". ").join(" ".join(one[start:]) for one in words)])
    return f"{text}." if len(text) <= _LONGEST else f"{len(family)} claims: {', '.join(map(_short, family))}"


def _statement(line: Mapping[str, Any]) -> str:
    """Return a claim's statement without the remark that it is a conjecture of ours, which goes without saying."""
    return re.sub(r"; a conjecture\b.*", ".", line["statement"])


def _page(name: str, study: Any, lines: Sequence[Mapping[str, Any]], shown: str, size: str) -> str:
    text = [_OURS, "", f"# {name}", "", shown, *described(study)]
    command = f"make figures experiment={name}" + ("" if size == "published" else f" size={size}")
    made = f"Made by `{command}` in {lines[0]['seconds']:.0f} s, beside others."
    text += [f"{made} [All claims](../README.md).", ""]
    for verdict, own in itertools.groupby(sorted(lines, key=_rank), key=lambda line: line["verdict"]):
        text.append(f"- {verdict}: {', '.join(f'[{_short(line)}](#{_anchor(line)})' for line in own)}")
    for line in lines:
        check = "check, " if line["kind"] == Kind.CHECK else ""
        text += ["", f"## {_short(line)}", "", f"**{line['id']}: {check}{line['verdict']}**", "", *entry(line)]
    return "\n".join(text)


def _rank(line: Mapping[str, Any]) -> int:
    return _ORDER.index(line["verdict"])


def _experiment(line: Mapping[str, Any]) -> str:
    return line["id"].partition(":")[0]


def _short(line: Mapping[str, Any]) -> str:
    return line["id"].partition(":")[2]


def _anchor(line: Mapping[str, Any]) -> str:
    """Return the link target of a claim's heading, as GitHub makes it."""
    return re.sub(r"[^\w-]", "", _short(line).lower())


def _changed(changes: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    of = {line["id"]: line for line in lines}
    yield from (_OURS, "", "# What changed", "")
    yield f"Verdicts and claims that are others than at commit {changes['since']}. [All claims](README.md).\n"
    yield from ("| claim | before | now | why |", "|---|---|---|---|")
    for name, change in sorted(changes["claims"].items()):
        now = judged_as(of[name]) if name in of else "no claim"
        shown = f"[{name}](pages/{_experiment(of[name])}.md#{_anchor(of[name])})" if name in of else name
        yield f"| {shown} | {change['before']} | {now} | {plain(change['why'])} |"
    yield ""


def judged_as(line: Mapping[str, Any]) -> str:
    """Return a claim's verdict, and whether it is a check."""
    return f"{line['verdict']}{', a check' * (line['kind'] == Kind.CHECK)}"


def counted(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the papers, in the order of their first claims, with their verdicts by setting."""
    rows = [
        f"In each column: {', '.join(Verdict)}.\n",
        "| paper | in the paper's setting | in one that stands for it | in ours, or by analogy |",
        "|---|---|---|---|",
    ]
    for paper, own in by_paper([line for line in lines if line["kind"] != Kind.CHECK]).items():
        cells = (_verdicts([line for line in own if line["setting"] == setting]) for setting in Setting)
        linked = _NUMBER.sub(r"[\g<0>](https://arxiv.org/abs/\g<0>)", paper)
        rows.append(f"| {linked} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _verdicts(lines: Sequence[Mapping[str, Any]]) -> str:
    verdicts = Counter(line["verdict"] for line in lines)
    return ", ".join(str(verdicts[verdict]) for verdict in Verdict) if lines else ""


def by_paper(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group claims by the paper that makes them, in the order of their first claims.

    A source names its paper before the first comma. Sources that begin with the same arXiv number count as one paper,
    under the shortest of their names.
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


def summed(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of claims and of each verdict, without checks."""
    findings = [line for line in lines if line["kind"] != Kind.CHECK]
    verdicts = Counter(line["verdict"] for line in findings)
    counts = ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in Verdict)
    return f"{len(findings)} claim{'s' * (len(findings) != 1)}: {counts}"


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
