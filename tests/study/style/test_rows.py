"""Bars in rows beside a table: what is drawn where, and that nothing is cut off."""

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from jaxattn.study.style import fitting, page, palette
from jaxattn.study.style.rows import Column, Part, draw_rows


def drawn(rows: int):
    columns = (
        Column("loss", ["logistic", *[""] * (rows - 2), "printed"][:rows], -90),
        Column("d", [str(10 * k) for k in range(rows)], -30),
        Column("left in", [f"{k} of 9" for k in range(rows)], 6),
    )
    shares = np.arange(rows) / 9
    parts = (Part("arrived", palette.FROBENIUS, 1 - shares), Part("left", palette.WINE, shares))
    with page.style():
        figure = page.full(3.0)
        axes = figure.subplots()
        draw_rows(axes, columns, parts, title="(a) what was found", xlabel="share")
    return figure, axes


def test_each_row_has_its_bar_and_its_cells_from_above():
    figure, axes = drawn(4)
    bars = [one for one in axes.patches if isinstance(one, Rectangle)]
    found = np.array([[bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2] for bar in bars])
    np.testing.assert_allclose(found[:4, 1], 1 - np.arange(4) / 9)
    # The second part begins where the first one ends.
    np.testing.assert_allclose(found[4:, 0], found[:4, 1])
    np.testing.assert_allclose(found[:4, 2], range(4))
    bottom, top = axes.get_ylim()
    assert bottom > top
    cells = {one.get_text(): one.xy for one in axes.texts if isinstance(one, Annotation) and one.get_text()}
    assert [cells[f"{k} of 9"] for k in range(4)] == [(1.0, float(k)) for k in range(4)]
    assert cells["logistic"] == (0.0, 0.0)
    assert cells["printed"] == (0.0, 3.0)
    assert cells["loss"][1] < 0
    texts = fitting.drawn_texts(figure)
    assert [line for line in texts if line.size < page.SMALLEST or line.cut] == []
    assert {"arrived", "left", "share", "(a) what was found"} <= {line.text for line in texts}


def test_without_rows_the_panel_is_empty():
    axes = drawn(0)[1]
    assert len(axes.patches) == 0
    assert axes.get_legend() is None
