"""A sweep's verdicts: each kind looks different, norms have their colours, and numbers stand in order of size."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from jaxattn import bias, descent
from jaxattn.study.measuring.stopped import Stopped
from jaxattn.study.points import Kind, Point, Table, write
from jaxattn.study.style import fitting, page, palette, phases
from tests import instances

VERDICTS = {
    "max": bias.Verdict(("max",), decided=True),
    "max and frobenius": bias.Verdict(("max", "frobenius"), decided=True),
    "max, or a norm near it": bias.Verdict(("max",), False, "max, or a norm near it: l_p with p from 9"),
    "none of these": bias.Verdict((), decided=True),
    "not decided": bias.Verdict((), False, "not saturated"),
}


@pytest.fixture(scope="module")
def ranking():
    given = {"optimizer": descent.steepest("max", 0.1), "steps": 300, "snapshots": (100, 150, 200, 300)}
    problems = instances.problems(8)
    return bias.rank(descent.train_batch(jnp.zeros((8, 5, 5)), problems, **given), problems, ["frobenius", "max"])


@pytest.fixture
def points(ranking):
    """One of each kind, over a key of numbers that are not in order, and a key of names."""
    made = [Point({"step": "0.1", "rule": "sign"}, Path("r"), reason="all of which diverged")]
    stopped = Stopped("no direction: the weights stopped growing at max norm 1", ("max",))
    made.append(Point({"step": "0.1", "rule": "adam"}, Path("r"), ranking, stopped))
    settings = [{"step": step, "rule": rule} for step in ("0.02", "1", "10") for rule in ("sign", "adam")]
    for setting, verdict in zip(settings, [*VERDICTS.values(), VERDICTS["max"]], strict=True):
        made.append(Point(setting, Path("r"), dataclasses.replace(ranking, verdict=verdict)))
    return made


def test_each_kind_has_a_cell_of_its_own_and_an_entry_in_the_legend(points):
    figure = phases.diagram(points)
    (axes,) = figure.axes
    cells = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    # One of the eight cells has two colours.
    assert len(cells) == 9
    looks = {(to_hex(cell.get_facecolor()), cell.get_hatch()) for cell in cells}
    colour, grey = palette.MAX.lower(), palette.EXCLUDED.lower()
    assert looks == {
        *((colour, hatch) for hatch in (None, "....", "////")),
        (palette.FROBENIUS.lower(), None),
        ("#ffffff", None),
        (grey, "////"),
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.02", "0.1", "1", "10"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sign", "adam"]
    (legend,) = (legend for part in figure.subfigs for legend in part.legends)
    said = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert sorted(said) == sorted([*VERDICTS, "not ranked", "no direction: stops on the ball of max"])
    title = " ".join(figure.get_suptitle().split())
    assert title.startswith("verdict: max at 2 of 8 settings; ")
    assert all(f"{one} at " in title for one in said)
    assert all(not line.cut and line.size >= page.SMALLEST for line in fitting.drawn_texts(figure))


def test_one_key_is_a_strip_and_many_values_have_fewer_labels_and_no_numbers(ranking):
    points = [Point({"step": f"{k / 10}"}, Path("r"), ranking) for k in range(30)]
    (axes,) = phases.diagram(points).axes
    assert len(axes.patches) == 30
    assert len(axes.get_xticklabels()) <= 12
    assert axes.get_yticks().size == 0
    assert not axes.texts
    (few,) = phases.diagram(points[:3]).axes
    best: Any = points[0].best
    assert {text.get_text() for text in few.texts} == {f"{min(best.limit[0], 0.999):.3f}"[1:]}


def test_a_norm_without_a_colour_of_its_own_has_one_that_stays(ranking):
    named = dataclasses.replace(ranking, verdict=bias.Verdict(("l_3",), decided=True))
    colours = {
        to_hex(phases.diagram([Point({"step": "1"}, Path("r"), named)]).axes[0].patches[0].get_facecolor())
        for _ in range(2)
    }
    assert len(colours) == 1
    assert colours <= {colour.lower() for colour in palette.OTHERS}


def test_a_row_says_what_the_file_says(points, tmp_path):
    table = Table([point.setting for point in points], ["frobenius", "max"])
    rows = [table.row(point) for point in points]
    assert len({len(row.removesuffix(point.verdict)) for row, point in zip(rows, points, strict=True)}) == 1
    assert rows[0].split(maxsplit=5) == ["0.1", "sign", "-", "-", "-", "not ranked: all of which diverged"]
    assert rows[1].endswith("no direction: the weights stopped growing at max norm 1")
    write(points, tmp_path / "table.csv")
    read = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["verdict"] for row in read] == [point.verdict for point in points]
    assert [row["decided"] for row in read].count("True") == 5
    assert (read[0]["best_norm"], read[0]["limit"], read[0]["kept"]) == ("", "", "")
    best: Any = points[2].best
    assert (read[2]["best_norm"], int(read[2]["obey"])) == (best.norm, best.obey)
    assert [float(read[2][name]) for name in ("limit", "limit_low", "limit_high")] == list(best.limit)


def test_what_is_not_known_of_where_weights_stop_stands_behind_the_verdict_on_their_direction(ranking):
    undecided = dataclasses.replace(ranking, verdict=VERDICTS["not decided"])
    point = Point({"step": "1"}, Path("r"), undecided, Stopped("not told: run: expected W", ()))
    assert point.verdict == "not decided: not saturated; where W stops: not told: run: expected W"
    assert point.kind == Kind("not decided")


def test_a_limit_that_is_not_known_is_not_a_number(ranking):
    still = dataclasses.replace(ranking, limit=ranking.limit._replace(low=ranking.limit.low - jnp.inf))
    for unknown in (still, dataclasses.replace(ranking, limit=None)):
        best: Any = Point({"step": "1"}, Path("r"), unknown).best
        assert best.limit is None
