"""The tables of the page of commands, read off the program and the Makefile: `{commands}` and `{targets}`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jaxattn.study import usage

MAKEFILE = Path(__file__).parents[2] / "Makefile"
# A target that is no file, with what it does behind `##`.
_TARGET = re.compile(r"^([\w-]+):.*?## (.*)$", re.MULTILINE)


def commands() -> str:
    """Return the table of the commands of `jaxattn`, with the first lines of their help."""
    return _table("command", {f"jaxattn {name}": what for name, what in usage.commands().items()})


def targets() -> str:
    """Return the table of the targets of the Makefile."""
    return _table("target", {f"make {name}": what for name, what in _TARGET.findall(MAKEFILE.read_text())})


def _table(head: str, rows: dict[str, str]) -> str:
    return "\n".join(
        [f"| {head} | what it does |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in rows.items())]
    )


def setup(app: Any) -> dict[str, bool]:
    """Add the directives."""
    from sphinx.util.docutils import SphinxDirective

    def directive(text: Any) -> type:
        class Table(SphinxDirective):
            """A table whose text the program gives."""

            def run(self) -> list[Any]:
                self.env.note_dependency(str(MAKEFILE))
                return self.parse_text_to_nodes(text())

        return Table

    app.add_directive("commands", directive(commands))
    app.add_directive("targets", directive(targets))
    return {"parallel_read_safe": True}
