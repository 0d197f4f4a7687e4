"""The history of the benchmark's ratios: what is added, what is said to have fallen, and its figure."""

import json

import pytest

from benchmarks import history
from jaxattn.study.configuration.names import root

MACHINE = "a processor, 2 cores"


def solved(ms: float) -> dict:
    return {"norm": "nuclear", "shape": [6, 8, 10], "ms": ms, "others ms": {"Clarabel": 120.0}}


def trained(ratio: float) -> dict:
    return {"weights": "W", "rule": "plain", "ratios": {"one seed, PyTorch loop": ratio}}


def test_a_ratio_that_fell_is_told_with_the_one_before(tmp_path):
    path = tmp_path / "history.json"
    assert history.added(path, "a", MACHINE, [solved(1.0), trained(900.0)]) == []
    assert history.added(path, "b", MACHINE, [solved(1.29), trained(950.0)]) == []
    # The one before is that of the commit before, not that of an earlier round at the same commit.
    assert history.added(path, "c", MACHINE, [trained(940.0)]) == []
    (lost,) = history.added(path, "c", MACHINE, [solved(1.7), trained(940.0)])
    assert lost == "nuclear (6, 8, 10), Clarabel: 70.6 times as fast, 93 when it was measured before"
    assert [(entry["commit"], len(entry["ratios"])) for entry in history.read(path)] == [("a", 2), ("b", 2), ("c", 2)]


def test_other_machines_and_parts_without_a_peer_are_not_compared(tmp_path):
    path = tmp_path / "history.json"
    history.added(path, "a", "another processor", [solved(0.1)])
    assert history.added(path, "b", MACHINE, [solved(1.0)]) == []
    assert history.added(path, "b", MACHINE, [{"command": "jaxattn figures", "seconds": 1.0}]) == []
    assert len(history.read(path)) == 2


def test_the_recorded_history_has_the_rows_of_the_benchmark_and_is_drawn():
    entries = history.read(root() / "figures" / "bench-history.json")
    rows = json.loads((root() / "figures" / "bench.json").read_text())
    latest = {label: ratio for entry in entries for label, ratio in entry["ratios"].items()}
    for part in ("descent", "svm"):
        for label, ratio in history.ratios(rows[part]).items():
            assert latest[label] == pytest.approx(ratio), label
    figure = history.draw(entries)
    assert [len(axes.lines) > 2 for axes in figure.axes] == [True, True]
