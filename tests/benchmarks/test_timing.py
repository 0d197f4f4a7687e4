"""Runs that are compared take turns."""

from benchmarks import timing


def test_runs_take_turns():
    calls = []
    seconds = timing.rounds(lambda: calls.append("a"), lambda: calls.append("b"))
    assert seconds.shape == (timing.ROUNDS, 2)
    assert calls == ["a", "b"] * (1 + timing.ROUNDS)
