"""What one sees while experiments are made: the line that moves, and lines where the output is no terminal."""

import threading
import time

from jaxattn.study import progress


def test_elsewhere_than_on_a_terminal_every_event_is_a_line(capsys):
    with progress.Board({"rate": 65.0, "causal": None}, processes=2, shown=False) as board:
        board.begun("rate")
        board.begun("causal")
        board.made("rate")
        board.say("rate: holds")
    assert capsys.readouterr().out.splitlines() == [
        "rate: begun, 1:05 min when it was made before",
        "causal: begun",
        "rate: holds",
    ]


def test_the_line_names_what_is_being_made_and_how_long_all_will_take(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    board = progress.Board({"rate": 60.0, "causal": 30.0, "lipschitz": 10.0}, processes=2, shown=False)
    assert board.line() == "none begun yet; about 1:00 min left"
    board.begun("rate")
    board.begun("causal")
    now[0] += 20
    assert board.line() == "rate 20 s, causal 20 s; about 40 s left"
    board.made("rate")
    board.begun("lipschitz")
    now[0] += 15
    # Later than expected: nothing is left of it, rather than less than nothing.
    assert board.line() == "causal 35 s, lipschitz 15 s; about 0 s left"


def test_without_earlier_durations_nothing_is_said_of_the_time_left():
    board = progress.Board({"rate": 60.0, "causal": None}, processes=2, shown=False)
    assert board.line() == "none begun yet"


def test_on_a_terminal_the_line_moves_and_is_gone_in_the_end(capsys):
    threads = threading.active_count()
    with progress.Board({"rate": 1.0}, 1, shown=True) as board:
        board.begun("rate")
        deadline = time.monotonic() + 20
        shown = ""
        while "rate 1 s" not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown += capsys.readouterr().err
    assert "0/1" in shown
    assert "rate 1 s" in shown
    assert threading.active_count() == threads
