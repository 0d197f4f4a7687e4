"""Tables: GitHub Markdown with the note below, in a file beside the figures."""

import pytest

from jaxattn.study.style import table
from jaxattn.study.style.table import Table

ONE = Table(("solver", r"$\sigma_2/\sigma_1$"), (("a", r"$2\times10^{-16}$"), ("b", "")), "9 problems, all kept.")


def test_a_table_is_markdown_with_its_note_below():
    assert table.markdown(ONE) == (
        "| solver | $\\sigma_2/\\sigma_1$ |\n|---|---|\n| a | $2\\times10^{-16}$ |\n| b |  |\n\n9 problems, all kept.\n"
    )


def test_a_table_is_written_beside_the_figures_and_read_again(tmp_path):
    assert table.shown(tmp_path, "rate") == ""
    path = table.save(ONE, tmp_path, "rate")
    assert path == table.place(tmp_path, "rate") == tmp_path / "tables" / "rate.md"
    assert table.shown(tmp_path, "rate") == path.read_text() == table.markdown(ONE)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("a",), r"table: expected 2 cells in each row, found 1 in \('a',\)"),
        (("a", "|x|"), r"table: expected cells without \| and line breaks .*, found '\|x\|'"),
        (("a\nb", "c"), r"table: expected cells without \| and line breaks .*, found 'a\\nb'"),
    ],
)
def test_what_is_no_table_is_refused_and_nothing_is_written(tmp_path, row, told):
    with pytest.raises(ValueError, match=told):
        table.save(ONE._replace(rows=(row,)), tmp_path, "rate")
    assert list(tmp_path.iterdir()) == []
