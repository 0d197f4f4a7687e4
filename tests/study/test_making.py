"""One experiment from its configuration to its lines: what cannot be made is named, before training where it can be."""

import json

import pytest
import xarray

from jaxattn.study import making, report
from jaxattn.study.commands import figures
from jaxattn.study.configuration import composition


def test_experiments_are_named_bare_or_by_their_key():
    assert figures.chosen(["rate", "size=small"]) == (["rate"], ["size=small"])
    assert figures.chosen(["experiment=rate,kq-penalty"]) == (["rate", "kq-penalty"], [])
    assert figures.chosen(["steps=7"]) == (composition.experiments(), ["steps=7"])
    with pytest.raises(composition.UsageError, match=r"experiment: expected some of .*rate.*, found \['rat'\]"):
        figures.chosen(["rat"])


def test_an_experiment_without_a_claim_is_named_before_anything_runs():
    other = "study.experiment=jaxattn.experiments.local.kq_penalty"
    with pytest.raises(composition.UsageError, match=r"rate: expected claims rate:\.\.\. in .*found \['kq-penalty'\]"):
        making.configurations("rate", [other])


def test_two_runs_of_one_name_are_named(monkeypatch):
    one = xarray.Dataset(attrs={"run": "W", "seconds": 1.0})
    monkeypatch.setattr(making, "measured", lambda config, report, number: one)
    with pytest.raises(ValueError, match="rate: expected runs of different names, found two that `measure` calls 'W'"):
        making.judged("rate", making.configurations("rate", ["size=small"]))


def test_claims_of_another_version_are_named_before_anything_runs(tmp_path):
    (tmp_path / "small").mkdir()
    line = dict.fromkeys(report.READ, "") | {"id": "svm-rank:nuclear", "made_from": "abc", "seconds": 1.0}
    del line["setting"]
    (tmp_path / "small" / "claims.json").write_text(json.dumps([line]))
    with pytest.raises(composition.UsageError, match=r"claims\.json: written by another version; make svm-rank again"):
        figures.main(["rate", "size=small", f"figures={tmp_path}", f"runs={tmp_path}"])
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_the_page_reads_what_the_repository_holds():
    lines = json.loads((composition.root() / "figures" / "claims.json").read_text())
    assert {line["id"].partition(":")[0] for line in lines} == set(composition.experiments())
    assert all(set(report.READ) <= set(line) for line in lines)
