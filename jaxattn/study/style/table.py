"""Tables in place of figures, for checks whose few numbers are read better than drawn: Markdown beside the figures.

The pages in figures/pages and the site show the same text.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Table(NamedTuple):
    """What an experiment shows in place of a figure: heads, cells as they are printed, and sentences below."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def markdown(table: Table) -> str:
    """Return a table as GitHub Markdown, with its note below; ValueError for rows and cells that would break it."""
    for row in (table.heads, *table.rows):
        if len(row) != len(table.heads):
            raise ValueError(f"table: expected {len(table.heads)} cells in each row, found {len(row)} in {row}")
        if wrong := [cell for cell in row if "|" in cell or "\n" in cell]:
            raise ValueError(f"table: expected cells without | and line breaks (TeX has \\lVert), found {wrong[0]!r}")
    lines = [f"| {' | '.join(row)} |" for row in (table.heads, *table.rows)]
    return "\n".join([lines[0], "|---" * len(table.heads) + "|", *lines[1:], "", table.note]) + "\n"


def place(folder: Path, name: str) -> Path:
    """Return where the table of an experiment stands, in the folder of the figures."""
    return folder / "tables" / f"{name}.md"


def save(table: Table, folder: Path, name: str) -> Path:
    """Write a table, which must be one for `markdown`, and return its path."""
    text, path = markdown(table), place(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def shown(folder: Path, name: str) -> str:
    """Return the table of an experiment as Markdown; empty if it has a figure instead."""
    path = place(folder, name)
    return path.read_text() if path.exists() else ""
