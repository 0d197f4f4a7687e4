"""What one sees while experiments are made: a display that moves, and lines where the output is no terminal."""

import io
import threading
import time

import pytest
from rich.console import Console

from jaxattn.study import progress
from jaxattn.study.events import Compiling, Stage, Staged, Trained


@pytest.fixture
def now(monkeypatch):
    """The seconds of a clock that stands still until it is set."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def board_of(seconds: dict[str, float | None], processes: int = 2) -> progress.Board:
    board = progress.Board(shown=False)
    board.expect(seconds, processes)
    return board


def test_elsewhere_than_on_a_terminal_every_event_is_a_line(capsys):
    with progress.Board(shown=False) as board:
        board.phase("importing JAX")
        board.expect({"rate": 65.0, "sequence": None}, processes=2)
        board.begun("rate")
        board.begun("sequence")
        board.note("rate", Staged(Stage.TRAINING, 1))
        board.made("rate")
        board.say("rate: holds")
    assert capsys.readouterr().out.splitlines() == [
        "jaxattn: importing JAX",
        "rate: begun, 1:05 min when it was made before",
        "sequence: begun",
        "rate: holds",
    ]


def test_the_totals_say_how_many_stand_how_and_how_long_all_will_take(now):
    board = board_of({"rate": 60.0, "sequence": 30.0, "lipschitz": 10.0})
    assert board.totals() == "0 made, 0 running, 3 waiting; 0 s; about 1:00 min left"
    board.begun("rate")
    board.begun("sequence")
    now[0] += 20
    assert board.totals() == "0 made, 2 running, 1 waiting; 20 s; about 40 s left"
    board.made("rate")
    board.begun("lipschitz")
    now[0] += 15
    # Later than expected: nothing is left of it, rather than less than nothing.
    assert board.totals() == "1 made, 2 running, 0 waiting; 35 s; about 0 s left"


def test_an_experiment_shows_its_stage_seeds_steps_a_second_and_time_left(now):
    board = board_of({"rate": 60.0})
    board.begun("rate", runs=2, seeds=200)
    assert board.rows() == [("rate", "starting", "0/200", "", "0 s", "1:00 min")]
    now[0] += 8
    board.note("rate", Staged(Stage.TRAINING, 1))
    board.note("rate", Compiling(True))
    assert board.rows() == [("rate", "drawing problems, training 1/2, compiling", "0/200", "", "8 s", "52 s")]
    board.note("rate", Compiling(False))
    # Recorded earlier: counted as seeds, but not as steps.
    board.note("rate", Trained(40))
    board.note("rate", Trained(60, steps=2000, seconds=0.5))
    assert board.rows()[0][1:4] == ("drawing problems, training 1/2", "100/200", "240 k")
    board.note("rate", Staged(Stage.MEASURING, 2))
    assert board.rows()[0][1] == "solving, measuring 2/2"
    board.note("rate", Staged(Stage.DRAWING))
    assert board.rows()[0][1] == "drawing the figure"


def test_without_an_earlier_duration_the_time_left_follows_from_the_seeds(now):
    board = board_of({"rate": None})
    board.begun("rate", seeds=300)
    now[0] += 10
    assert board.rows()[0][-1] == ""
    board.note("rate", Trained(100, steps=10, seconds=1.0))
    assert board.rows()[0][-1] == "20 s"
    board.note("rate", Trained(200, steps=10, seconds=1.0))
    # What comes after the training is not known.
    assert board.rows()[0][-1] == ""


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 10)])
def test_the_display_fits_the_terminal(width, height):
    board = board_of(dict.fromkeys(map(str, range(30))), 30)
    board._console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    for name in map(str, range(30)):
        board.begun(name, runs=3, seeds=1000)
    lines = board._console.render_lines(board, pad=False)
    text = ["".join(part.text for part in line) for line in lines]
    assert len(text) < height
    assert max(map(len, text)) <= width
    assert text[0].split() == ["experiment", "stage", "seeds", "steps/s", "time", "left"]
    assert "more" in text[-2]
    assert "0 made, 30 running, 0 waiting" in text[-1]


def test_on_a_terminal_the_display_moves_and_is_gone_in_the_end(capsys):
    threads = set(threading.enumerate())
    with progress.Board(shown=True) as board:
        board.expect({"rate": 1.0}, 1)
        board.begun("rate", seeds=10)
        board.say("a line [that] stays")
        deadline = time.monotonic() + 20
        shown = ""
        while "1 s" not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown += capsys.readouterr().out
    assert "a line [that] stays" in shown
    assert "0/10" in shown
    assert "1 running" in shown
    # It ends when it looks next whether it should.
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_a_bar_hears_of_seeds_and_is_hidden_where_the_output_is_no_terminal(capsys):
    with progress.bar("training-0123", 10) as hear:
        hear(Trained(4))
        hear(Trained(6, steps=100, seconds=1.0))
    assert capsys.readouterr() == ("", "")
