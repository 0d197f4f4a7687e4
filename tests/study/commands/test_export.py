"""The numbers behind a figure, as CSV."""

import csv

import numpy as np
import pytest
import xarray

from jaxattn.study import command, making, runs
from jaxattn.study.commands import export


def test_every_number_has_its_place_and_none_loses_a_digit():
    off = xarray.DataArray(np.array([[1 / 3, 1e-300], [0.5, 2]]), {"norm": ["max", "l_1.5"], "snapshot": [1, 10]})
    summaries = {
        "W, 1": xarray.Dataset({"off": off, "holds": True}, attrs={"attempted": 9, "kept": 8, "revision": "x"}),
        "KQ": xarray.Dataset({"steps": ("seed", [3, 4])}),
    }
    text = export.as_csv(summaries)
    read = [tuple(line.values()) for line in csv.DictReader(text.splitlines())]
    assert text.splitlines()[0] == "run,quantity,norm,snapshot,seed,value"
    assert read == [
        ("W, 1", "attempted", "", "", "", "9"),
        ("W, 1", "kept", "", "", "", "8"),
        ("W, 1", "off", "max", "1", "", repr(1 / 3)),
        ("W, 1", "off", "max", "10", "", "1e-300"),
        ("W, 1", "off", "l_1.5", "1", "", "0.5"),
        ("W, 1", "off", "l_1.5", "10", "", "2.0"),
        ("W, 1", "holds", "", "", "", "True"),
        ("KQ", "steps", "", "", "0", "3"),
        ("KQ", "steps", "", "", "1", "4"),
    ]


@pytest.fixture
def _made(tmp_path, monkeypatch):
    """An empty working folder, and an experiment whose records and estimates are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "is_recorded", lambda config: True)
    monkeypatch.setattr(making, "datasets", lambda name, configs: {})
    summaries = {"W": xarray.Dataset({"off": ("snapshot", [0.25])}, {"snapshot": [7]}, {"kept": 8})}
    monkeypatch.setattr(making, "judged", lambda name, configs, measurements: (summaries, []))


@pytest.mark.usefixtures("_made")
def test_it_is_written_once_and_no_file_is_replaced(tmp_path, capsys):
    line = ["export", "rate", "--to", "rate.csv", "size=small"]
    command.main(line)
    assert capsys.readouterr().out == "rate.csv\n"
    assert (tmp_path / "rate.csv").read_text() == "run,quantity,snapshot,value\nW,kept,,8\nW,off,7,0.25\n"
    (tmp_path / "rate.csv").write_text("of years")
    with pytest.raises(SystemExit) as ended:
        command.main(line)
    assert ended.value.code == 2
    assert (tmp_path / "rate.csv").read_text() == "of years"
