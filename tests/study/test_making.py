"""One experiment from its configuration to its lines: its files, and what cannot be made."""

import importlib
import json

import pytest
import xarray
from omegaconf import OmegaConf

from jaxattn.study import claims, command, making, regenerating, report, runs
from jaxattn.study.claims import Experiment
from jaxattn.study.commands import figures
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import experiments, published, root
from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import page
from jaxattn.study.style.table import Table


def test_experiments_are_named_bare_or_by_their_key():
    assert figures.chosen(["rate", "size=small"]) == (["rate"], ["size=small"])
    assert figures.chosen(["experiment=rate,kq-penalty"]) == (["rate", "kq-penalty"], [])
    assert figures.chosen(["steps=7"]) == ([], ["steps=7"])


@pytest.mark.parametrize(("given", "made"), [([], published()), (["--all"], experiments()), (["rate"], ["rate"])])
def test_the_figures_of_the_papers_are_made_unless_others_are_asked_for(monkeypatch, given, made):
    asked = []
    monkeypatch.setattr(regenerating, "regenerate", lambda names, overrides, board: asked.append(names) or [])
    figures.main([*given, "size=small"])
    assert asked == [made]
    assert 0 < len(published()) < len(experiments())


def test_all_experiments_and_one_of_them_is_a_contradiction():
    with pytest.raises(UsageError, match="--all: expected no experiment beside it, found rate"):
        figures.main(["rate", "--all"])


def test_two_runs_of_one_name_are_named(monkeypatch):
    one = xarray.Dataset(attrs={"run": "W", "seconds": 1.0})
    monkeypatch.setattr(making, "measured", lambda config, report, number: one)
    with pytest.raises(ValueError, match="rate: expected runs of different names, found two that `measure` calls 'W'"):
        making.datasets("rate", making.configurations("rate", ["size=small"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("rate", ["rate.png", "rate.pdf"]),
        ("svm-rank", ["svm-rank.png", "svm-rank.pdf", "views/svm-rank.json"]),
        ("tensor-trick", ["tables/tensor-trick.md"]),
    ],
)
def test_an_experiment_is_made_if_its_figure_or_table_and_view_are_there(tmp_path, monkeypatch, name, shown):
    configs = making.configurations(name, ["size=small"])
    assert making.files(name, configs, tmp_path) == [tmp_path / one for one in shown]
    monkeypatch.setattr(runs, "is_recorded", lambda config: True)
    known = {making.source(configs)}
    for one in making.files(name, configs, tmp_path):
        assert not making.is_made(name, configs, tmp_path, known)
        one.parent.mkdir(exist_ok=True)
        one.touch()
    assert making.is_made(name, configs, tmp_path, known)
    assert not making.is_made(name, configs, tmp_path, {"other"})


def made(monkeypatch, folder, **functions):
    """Make an experiment of these functions from runs that are measured already, and return its files."""
    run = xarray.Dataset(attrs={"run": "W", "seconds": 1.0})
    monkeypatch.setattr(making, "measured", lambda config, report, number: run)
    monkeypatch.setattr(making, "source", lambda configs: "abc")
    monkeypatch.setattr(runs, "revision", lambda configs: "abc")
    experiment = Experiment(lambda record: record, (), **functions)
    monkeypatch.setattr(claims, "experiment", lambda path: experiment)
    configs = [composition.compose(["experiment=rate"])]
    making.make("rate", configs, folder)
    return making.files("rate", configs, folder)


def of_runs(summaries, judgements):
    return Table(("run",), tuple((run,) for run in summaries), "All.")


def drawn(summaries, judgements):
    figure = page.column(2.0)
    figure.subplots().set(title=", ".join(summaries))
    return figure


def test_a_table_or_a_figure_is_written_and_a_table_of_an_earlier_version_is_gone(tmp_path, monkeypatch):
    paths = made(monkeypatch, tmp_path, table=of_runs)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == paths == [tmp_path / "tables" / "rate.md"]
    assert paths[0].read_text() == "| run |\n|---|\n| W |\n\nAll.\n"
    paths = made(monkeypatch, tmp_path, draw=drawn)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(paths)
    assert [path.suffix for path in paths] == [".png", ".pdf"]


def test_a_second_figure_is_written_beside_the_first(tmp_path, monkeypatch):
    paths = made(monkeypatch, tmp_path, draw=drawn, second=drawn)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(paths)
    assert [path.name for path in paths] == ["rate.png", "rate.pdf", "rate-2.png", "rate-2.pdf"]
    with pytest.raises(ValueError, match="expected a figure before a second one, found none"):
        Experiment(lambda record: record, (), table=of_runs, second=drawn)


OWN = """
def estimate(run, key):
    raise ValueError("operands could not be broadcast together")
"""


def test_an_error_names_the_experiment_and_the_line_of_its_code(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    configs = [OmegaConf.create({"study": {"experiment": "mine"}})]

    def judge():
        with making.located("large-step", configs):
            importlib.import_module("mine").estimate(None, None)

    with pytest.raises(SystemExit):
        command.guarded(judge)
    where = f"(in large-step at {tmp_path / 'mine.py'}, line 3)"
    assert capsys.readouterr().err == f"jaxattn: operands could not be broadcast together {where}\n"


def test_the_code_of_a_table_is_part_of_what_it_is_made_from(monkeypatch):
    asked = set()
    monkeypatch.setattr(making.fingerprints, "of", lambda named: asked.update(named) or "abc")
    making.source(making.configurations("tensor-trick", ["size=small"]))
    module = "jaxattn.experiments.smoothness.tensor_trick"
    assert {module, f"{module}.measure"} <= asked


def test_claims_of_an_experiment_that_is_gone_are_removed_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(making, "is_made", lambda *given: True)
    (tmp_path / "small").mkdir()
    path = tmp_path / "small" / "claims.json"
    path.write_text(json.dumps([{"id": "gone:one", "verdict": "holds", "made_from": "abc", "seconds": 1.0}]))
    figures.main(["experiment=rate", "size=small", f"figures={tmp_path}", f"runs={tmp_path}"])
    assert f"gone: no such experiment any more; its claims are removed from {path}\n" in capsys.readouterr().out
    assert json.loads(path.read_text()) == []


def test_claims_of_another_version_are_named_before_anything_runs(tmp_path):
    (tmp_path / "small").mkdir()
    line = dict.fromkeys(report.READ, "") | {"id": "svm-rank:nuclear", "made_from": "abc", "seconds": 1.0}
    del line["setting"]
    (tmp_path / "small" / "claims.json").write_text(json.dumps([line]))
    with pytest.raises(UsageError, match=r"claims\.json: written by another version; make svm-rank again"):
        figures.main(["rate", "size=small", f"figures={tmp_path}", f"runs={tmp_path}"])
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_the_page_reads_what_the_repository_holds():
    lines = json.loads((root() / "figures" / "claims.json").read_text())
    assert {line["id"].partition(":")[0] for line in lines} == set(experiments())
    assert all(set(report.READ) <= set(line) for line in lines)
