"""Pictures that move: figures/views/NAME.json in the page, with a table of its numbers for who reads without scripts.

A page shows one by the directive `{picture} NAME`, whose option `kind` says what draws it in pictures.js::

    :::{picture} trajectories-5
    :kind: trajectories
    :::
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from panels import KEYS, PANELS

VIEWS = Path(__file__).parents[2] / "figures" / "views"
Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


def shown(value: Any) -> str:
    """Return an entry of a table."""
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: Rows) -> str:
    """Return a table, folded away, whose columns and rows have heads."""
    heads, entries = rows
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
    body = ""
    for first, *rest in entries:
        cells = "".join(f"<td>{html.escape(shown(value))}</td>" for value in rest)
        body += f'<tr><th scope="row">{html.escape(shown(first))}</th>{cells}</tr>'
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    # What scrolls must be reached by the keyboard.
    box = f'<div class="scrolls" role="region" aria-label="The numbers" tabindex="0">{inside}</div>'
    return f"<details><summary>The numbers as a table</summary>{box}</details>"


def _trajectories(view: Any) -> Rows:
    heads = ("seed", "place among all seeds", "training", "step", "1 - cos, Frobenius", "1 - cos, nuclear")
    rows = []
    for seed in view["seeds"]:
        for run, series in seed["runs"].items():
            off = [series["off"][norm][-1] for norm in ("frobenius", "nuclear")]
            rows.append((str(seed["seed"]), seed["place"], run.replace("KQ", "(K, Q)"), view["steps"][run][-1], *off))
    return heads, rows


def _trap(view: Any) -> Rows:
    def points(xs: Sequence[float]) -> str:
        return ", ".join(f"({x:.2f}, 0)" for x in xs) or "none"

    rows = [(drawn["name"], points(drawn["minima"]), points(drawn["saddles"])) for drawn in view["landscapes"]]
    return ("instance", "local minima, W z", "saddles, W z"), rows


def _ranks(view: Any) -> Rows:
    def rank(problems: Sequence[Sequence[float]], least: float) -> float:
        return sum(value > least for problem in problems for value in problem) / len(problems)

    rows = [
        (setting["name"], f"1e{least}", rank(setting["certified"], least), rank(setting["inexact"], least))
        for setting in view["settings"]
        for least in range(-12, 0)
    ]
    return ("problems", "tolerance", "mean nuclear rank, certified", f"by {view['settings'][0]['solver']}"), rows


def _margins(view: Any) -> Rows:
    rows = []
    for text in view["texts"]:
        for kind, margins in zip(view["kinds"], text["margins"], strict=True):
            for k, step in enumerate(view["steps"]):
                if margins:
                    at = [margin[k] for margin in margins]
                    positive = f"{sum(value > 0 for value in at)} of {len(at)}"
                    rows.append((str(text["seed"]), kind, step, positive, float(min(at)), float(max(at))))
    return ("seed of the text", "margins over", "step", "positive", "smallest", "largest"), rows


def _paths(view: Any) -> Rows:
    def mean(seeds: Sequence[Sequence[float]], k: int) -> float:
        return math.exp(sum(math.log(seed[k]) for seed in seeds) / len(seeds))

    rows = []
    for path in view["paths"]:
        for k, R in enumerate(view["radii"]):
            distances = [mean(path["distance"][norm], k) for norm in ("frobenius", "nuclear")]
            shares = [f"{path[name][k]:.0%}" for name in ("selected", "apart")]
            rows.append((f"{R:.4g}", path["name"].replace("KQ", "(K, Q)"), *distances, *shares))
    heads = ("radius R", "path of", "mean distance from the Frobenius solution", "from the nuclear solution")
    return (*heads, "seeds at the optimal tokens", "seeds with two minima"), rows


def _heads(view: Any) -> Rows:
    rows = []
    for head in view["heads"]:
        for k, step in enumerate(head["steps"]):
            ratios = [float(head[name][k]) for name in ("ratio", "low", "high", "mean")]
            rows.append((head["name"], step, *ratios, f"{head['carrying'][k]} of {head['rows']}"))
    untrained = [f"untrained, {name}" for name in ("5 %", "95 %", "mean of the rows")]
    return ("head", "step", "margin ratio", *untrained, "rows that carry the optimum"), rows


def _atlas(view: Any) -> str:
    """Return the table of the last margin ratios, whose cells the script listens to."""
    heads = "".join(f'<th scope="col">{norm}</th>' for norm in ("rule and schedule", *view["norms"]))
    body = ""
    for k, row in enumerate(view["rows"]):
        said = f"{'W' if row['weights'] == 'W' else '(K, Q)'}: {row['name']}"
        cells = ""
        for j, (norm, ratio) in enumerate(zip(view["norms"], row["ratio"], strict=True)):
            look = ' class="predicted"' if norm == row["predicted"] else ""
            # Nothing is rounded up to 1.
            cells += f'<td data-row="{k}" data-norm="{j}"{look}>{min(ratio[-1], 0.999):.3f}</td>'
        body += f'<tr><th scope="row">{html.escape(said)}</th>{cells}</tr>'
    return (
        f'<div class="scrolls atlas" role="region" aria-label="Margin ratios" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


# The tables below the pictures, by their kinds; that of the atlas is a part of it.
ROWS: dict[str, Callable[[Any], Rows]] = {
    kind.__name__[1:]: kind for kind in (_trajectories, _trap, _ranks, _margins, _paths, _heads)
}


def markup(name: str, kind: str) -> str:
    """Return a picture as HTML: the view as JSON, where the script draws, and the table."""
    text = (VIEWS / f"{name}.json").read_text().strip()
    view = json.loads(text)
    panels = json.dumps(PANELS[kind](view), separators=(",", ":"))
    data = f'{{"panels":{panels},"view":{text}}}'.replace("</", "<\\/")
    entries = "".join(f'<li><span class="swatch {look}"></span> {said}</li>' for look, said in KEYS[kind].items())
    inside = f'<script type="application/json">{data}</script><ul class="key">{entries}</ul>'
    shown, folded = (_atlas(view), "") if kind == "atlas" else ("", table(ROWS[kind](view)))
    return f'<div class="picture" id="picture-{name}" data-kind="{kind}">{inside}{shown}</div>\n{folded}'


def setup(app: Any) -> dict[str, bool]:
    """Add the directive, and script and style to the pages with pictures."""
    from docutils import nodes
    from docutils.parsers.rst import directives
    from sphinx.util.docutils import SphinxDirective

    class Picture(SphinxDirective):
        """A picture that moves, by the name of its experiment."""

        required_arguments = 1
        option_spec = {"kind": lambda kind: directives.choice(kind, tuple(PANELS))}  # noqa: RUF012

        def run(self) -> list[Any]:
            name = self.arguments[0]
            self.env.note_dependency(str(VIEWS / f"{name}.json"))
            try:
                text = markup(name, self.options["kind"])
            except FileNotFoundError:
                said = f"figures/views/{name}.json: not there; `make figures experiment={name}` writes it"
                return [self.state.document.reporter.warning(said, line=self.lineno)]
            return [nodes.raw("", text, format="html", classes=["moves"])]

    def scripts(app: Any, pagename: str, templatename: str, context: Any, doctree: Any) -> None:
        del pagename, templatename, context
        if doctree is not None and any("moves" in node["classes"] for node in doctree.findall(nodes.raw)):
            app.add_js_file("pictures/pictures.js", loading_method="defer")
            app.add_css_file("pictures/pictures.css")

    app.add_directive("picture", Picture)
    app.connect("html-page-context", scripts)
    return {"parallel_read_safe": True}
