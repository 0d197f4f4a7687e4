"""Numbers of the pages, read from figures/claims.json and figures/bench.json when the site is built.

`` {measured}`rate:w / exponent` `` is a measured number with its interval, `` {verdict}`rate:w` `` a verdict, and
`` {counted}`holds` `` how many claims have it (`claims` counts all). `` {bench}`descent/W; plain/compilation s` `` is a
number of the benchmarks, rounded to two digits unless it is a count; its row is the only one with all these values.
What is not there is a warning, which `make docs` turns into an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[2] / "figures"


def rounded(number: float, digits: int = 2) -> str:
    """Return a number with so many significant digits, without an exponent where it is of ordinary size."""
    if number == 0:
        return "0"
    if not 1e-4 <= abs(number) < 1e7:
        return f"{number:.{digits - 1}e}"
    before = len(str(int(abs(number)))) if abs(number) >= 1 else 1 + math.floor(math.log10(abs(number)))
    return f"{round(number, digits - before):,.{max(digits - before, 0)}f}"


def claim(claims: list[dict[str, Any]], identity: str) -> dict[str, Any]:
    """Return the claim of this id; KeyError if there is none."""
    for line in claims:
        if line["id"] == identity.strip():
            return line
    raise KeyError(f"claims.json: no claim {identity.strip()!r}")


def measured(claims: list[dict[str, Any]], text: str) -> str:
    """Return a measured number with its 95 % interval, of a text such as `rate:w / exponent`."""
    identity, _, name = (part.strip() for part in text.partition(" / "))
    line = claim(claims, identity)
    if name not in line["measured"]:
        raise KeyError(f"{identity}: no number {name!r} among {', '.join(line['measured'])}")
    value, interval = line["measured"][name], line["interval"].get(name)
    return f"{value:.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")


def verdict(claims: list[dict[str, Any]], text: str) -> str:
    """Return the verdict on a claim."""
    return str(claim(claims, text)["verdict"])


def counted(claims: list[dict[str, Any]], text: str) -> str:
    """Return how many claims have a verdict, or how many there are; checks of algebra are not counted."""
    verdicts = [line["verdict"] for line in claims if line["kind"] != "check"]
    if text != "claims" and text not in verdicts:
        raise KeyError(f"claims.json: no verdict {text!r} among {', '.join(sorted(set(verdicts)))}")
    return str(len(verdicts) if text == "claims" else verdicts.count(text))


def bench(numbers: Any, text: str) -> str:
    """Return a number of the benchmarks by its path; ` * FACTOR` behind it changes the unit."""
    path, _, factor = (part.strip() for part in text.partition(" * "))
    for part in path.split("/"):
        try:
            numbers = _row(numbers, part.split("; ")) if isinstance(numbers, list) else numbers[part]
        except (KeyError, TypeError) as error:
            raise KeyError(f"bench.json: nothing at {path!r}, looking for {part!r}") from error
    is_exact = isinstance(numbers, str) or (isinstance(numbers, int) and not factor)
    return str(numbers) if is_exact else rounded(numbers * float(factor or 1))


def _row(rows: list[dict[str, Any]], words: list[str]) -> dict[str, Any]:
    """Return the only row with all these values."""
    matching = [row for row in rows if {*map(str, row.values())}.issuperset(words)]
    if len(matching) != 1:
        raise KeyError(words)
    return matching[0]


def setup(app: Any) -> dict[str, bool]:
    """Add the roles, and read the pages again where the numbers have changed."""
    from docutils import nodes
    from sphinx.util.docutils import SphinxRole

    def role(read: Callable[[Any, str], str], file: str) -> SphinxRole:
        class Number(SphinxRole):
            """A number or word read from a file of figures/."""

            def run(self) -> tuple[list[Any], list[Any]]:
                self.env.note_dependency(str(FIGURES / file))
                try:
                    text = read(json.loads((FIGURES / file).read_text()), self.text)
                except KeyError as error:
                    return [], [self.inliner.reporter.warning(error.args[0], line=self.lineno)]
                return [nodes.inline(text, text, classes=["evidence"])], []

        return Number()

    for read, file in ((measured, "claims"), (verdict, "claims"), (counted, "claims"), (bench, "bench")):
        app.add_role(read.__name__, role(read, f"{file}.json"))
    return {"parallel_read_safe": True}
