"""Every figure, drawn of what confirms its claims: two widths, no small or cut text, and fonts that can be edited."""

import warnings

import jax
import pytest

from jaxattn.study.claims import Verdict, experiment, folders, judged
from jaxattn.study.style import fitting, page

KEY = jax.random.key(0)
FOLDERS = list(folders())


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.rpartition(".")[2] for folder in FOLDERS])
def test_a_figure_has_the_width_of_a_page_legible_texts_and_truetype_fonts(folder, tmp_path):
    rooms = experiment(folder)
    claim = rooms.claims[0]
    summaries = judged(rooms, claim.experiment, claim.examples()[Verdict.HOLDS], KEY)[0]
    figure = rooms.draw(summaries)
    _, pdf = page.save(figure, tmp_path, "drawn")
    assert figure.get_figwidth() in (page.COLUMN, page.PAGE)
    assert f"/MediaBox [ 0 0 {72 * figure.get_figwidth():g} ".encode() in pdf.read_bytes()
    assert b"/Type3" not in pdf.read_bytes()
    texts = fitting.drawn_texts(figure)
    assert [line for line in texts if line.size < page.SMALLEST] == []
    assert [line for line in texts if line.cut] == []
