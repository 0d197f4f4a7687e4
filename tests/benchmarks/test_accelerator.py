"""The rows of the accelerator's benchmark are those that the pages name, and without an accelerator it says so."""

import json

import pytest

from benchmarks import accelerator, timing
from benchmarks.all import RESULTS
from jaxattn.study.mistakes import UsageError


def test_without_an_accelerator_it_says_so():
    with pytest.raises(UsageError, match="expects a GPU or TPU, found only the CPU"):
        next(accelerator.table())


@pytest.mark.slow
def test_its_rows_are_those_of_the_recorded_benchmark(monkeypatch):
    for name, value in {"SEEDS": (2, 4), "PROBLEMS": (2, 4), "COMPARED_STEPS": 2}.items():
        monkeypatch.setattr(accelerator, name, value)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    found = [*accelerator.training(), *accelerator.solving()]
    recorded = json.loads(RESULTS.read_text())["accelerator"]
    assert [(row["what"], row["on"], sorted(row)) for row in found] == [
        (row["what"], row["on"], sorted(row)) for row in recorded
    ]
    # Both are the same processor here.
    assert all(row["largest difference"] == 0 for row in found if row["on"] == "both")
