"""The reproduction: a page for each experiment and a table of all claims, written from claims.json when a build starts.

What is said of a claim is what figures/pages say of it (`jaxattn.study.entries`); the pages add how it is made.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from api_pages import write

from jaxattn.study import entries, report
from jaxattn.study.claims import Kind, Verdict
from jaxattn.study.configuration import names
from jaxattn.study.style import page as style
from jaxattn.study.style.table import shown

ROOT = Path(__file__).parents[2]
Line = Mapping[str, Any]

_INDEX = f"""# The reproduction

Every claim that jaxattn checks, with its verdict and the evidence for and against it. *Exact* is the setting of the
paper, *proxy* one that stands for it, *ours* a setting of our own.

{entries.RULE}"""


def topic(study: Any) -> str:
    """Return the topic of an experiment, which is the folder that its own is in."""
    return str(study.experiment).split(".")[-2].replace("_", " ")


def anchor(line: Line) -> str:
    """Return the label of a claim's entry."""
    return "claim-" + re.sub(r"[^a-z0-9]+", "-", line["id"].lower())


def page(name: str, study: Any, lines: Sequence[Line]) -> str:
    """Return the page of an experiment: its figure or table, how it is made, and its claims."""
    written = shown(ROOT / "figures", name)
    second = style.second(name)
    figures = [name, *([second] if (ROOT / "figures" / f"{second}.png").exists() else [])]
    results = [f":::{{result}} {figure}\n:alt: {study.of}\n:::\n" for figure in figures]
    made = (
        f"`make figures experiment={name}` makes this {'table' if written else 'figure'} and judges the claims below."
    )
    text = [f"# {name}", "", *([written] if written else results), *entries.described(study), made, ""]
    text += [f"<details><summary>The configuration, conf/experiment/{name}.yaml</summary>", ""]
    text += [f"```{{literalinclude}} ../../conf/experiment/{name}.yaml", ":language: yaml", "```", "", "</details>", ""]
    text += ["## Claims", ""]
    for line in lines:
        check = "check, " if line["kind"] == Kind.CHECK else ""
        text += [f"({anchor(line)})=", f"### {line['id']}: {check}{line['verdict']}", "", *entries.entry(line), ""]
        text += [
            f"Made by `make figures experiment={name}` from `conf/experiment/{name}.yaml` in {line['seconds']:.0f} s,",
            f"beside other experiments; recorded at commit `{line['revision']}`, hash of configurations and code",
            f"`{line['made_from']}`.\n",
        ]
    return "\n".join(text)


def index(studies: Mapping[str, Any], lines: Sequence[Line]) -> str:
    """Return the front page: counts, what is not decided, and the table of all claims, in the order of the pages."""
    findings, checks = ([line for line in lines if line["kind"] == kind] for kind in Kind)
    undecided = [line for line in lines if line["verdict"] == Verdict.OPEN]
    of_program = f"{len(checks)} check{' tests' if len(checks) == 1 else 's test'} this program and not a paper."
    text = [_INDEX, f"{report.summed(lines)}. {of_program}", ""]
    text += [report.counted(lines), report.errors(findings), "", "## All claims", "", "```{raw} html"]
    text += [table(studies, lines), "```", "", f"## Not decided: {len(undecided)}", ""]
    text += ["What these seeds and steps leave open, and why:", ""]
    text += [f"- {{ref}}`{line['id']} <{anchor(line)}>`: {entries.plain(line['note'])}" for line in undecided]
    return "\n".join([*text, "", "```{toctree}", ":hidden:", "", *studies, "```", ""])


def table(studies: Mapping[str, Any], lines: Sequence[Line]) -> str:
    """Return the table of all claims as HTML; its rows say what filters.js chooses them by."""
    rows = []
    for line in lines:
        name = line["id"].partition(":")[0]
        paper = line["source"].partition(", ")[0]
        keys = {"paper": paper, "topic": topic(studies[name]), "verdict": line["verdict"]}
        data = "".join(f' data-{key}="{html.escape(value)}"' for key, value in keys.items())
        # The id of a label's target, as docutils makes it.
        link = f'<a href="{name}.html#{anchor(line)}">{html.escape(line["id"]).replace(":", ":<wbr>")}</a>'
        stated = f"{html.escape(line['statement'])} <small>({html.escape(line['source'])})</small>"
        look = line["verdict"].replace(" ", "-")
        shown_verdict = f"check: {line['verdict']}" if line["kind"] == Kind.CHECK else line["verdict"]
        # On a narrow screen a row is a card, which has no heads.
        cells = f'<td>{stated}</td><td data-label="topic">{keys["topic"]}</td>'
        cells += f'<td data-label="setting">{line["setting"]}</td>'
        cells += f'<td><span class="verdict {look}">{shown_verdict}</span></td>'
        rows.append(f'<tr{data}><th scope="row">{link}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("claim", "statement", "topic", "setting", "verdict"))
    body = "\n".join(rows)
    return f'<table class="claims" id="claims"><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>'


def pages() -> dict[str, str]:
    """Return the text of every page by its file name; ValueError if claims.json was written by another version."""
    lines = json.loads((ROOT / "figures" / "claims.json").read_text())
    if lacking := sorted({key for line in lines for key in report.READ if key not in line}):
        raise ValueError(f"figures/claims.json: expected lines with {', '.join(lacking)}; `make figures` writes them")
    studies = {name: names.described(name) for name in names.experiments()}
    of = report.by_experiment(studies, lines)
    texts = {f"{name}.md": page(name, studies[name], own) for name, own in of.items()}
    return texts | {"index.md": index({name: studies[name] for name in of}, [*itertools.chain(*of.values())])}


def _write(app: Any) -> None:
    folder = Path(app.srcdir) / "reproduction"
    texts = pages()
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    write(folder, texts)


def _scripts(app: Any, pagename: str, templatename: str, context: Any, doctree: Any) -> None:
    del templatename, context, doctree
    if pagename.startswith("reproduction/"):
        app.add_css_file("pictures/claims.css")
    if pagename == "reproduction/index":
        app.add_js_file("pictures/filters.js", loading_method="defer")


def setup(app: Any) -> dict[str, bool]:
    """Write the pages when the build starts."""
    app.connect("builder-inited", _write)
    app.connect("html-page-context", _scripts)
    return {"parallel_read_safe": True}
