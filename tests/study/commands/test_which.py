"""A variant is trained, ranked and drawn by one line; what is there is found again, a user's files stay."""

import re

import pytest

from jaxattn import bias, records
from jaxattn.study import command, runs
from jaxattn.study.commands import which
from jaxattn.study.configuration import composition
from jaxattn.study.measuring.ranked import of_dataset
from jaxattn.study.settings import recording

TINY = ["data.n=3", "data.T=4", "data.d=5", "seeds=8", "steps=2000"]


def said(capsys, *line: str) -> tuple[str, dict[str, str]]:
    """What a line prints, and its paths by what they are of."""
    command.main(["which", *line])
    printed = capsys.readouterr().out
    return printed, dict(re.findall(r"^(record|ranking|figure): (.*)$", printed, re.MULTILINE))


def files(folder):
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_norms_of_the_configuration_are_those_of_the_library():
    assert tuple(composition.compose([]).norms) == bias.NORMS


def test_one_line_says_which_and_a_second_finds_it_again(tmp_path, capsys, monkeypatch):
    line = [*TINY, "norms=[frobenius,max]", f"runs={tmp_path}"]
    printed, paths = said(capsys, *line)
    assert "verdict: frobenius\n" in printed
    folder = runs.folder(composition.compose(which.with_defaults(line)))
    assert paths["record"] == str(folder / "record.zarr")
    png, pdf = paths["figure"].split(" ")
    assert records.load(folder / "record.zarr").sizes["seed"] == 8
    ranking = of_dataset(records.load_dataset(tmp_path / paths["ranking"]))
    assert printed.startswith(ranking.table())
    assert ranking.norms == ("frobenius", "max")
    assert (tmp_path / png).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / pdf).read_bytes().startswith(b"%PDF")
    before = files(tmp_path)

    def refuse(*given, **more):
        raise AssertionError("expected what is there to be found")

    monkeypatch.setattr(recording, "run", refuse)
    monkeypatch.setattr(which, "ranked", refuse)
    assert said(capsys, *line)[0] == printed
    assert files(tmp_path) == before


@pytest.mark.slow
def test_what_a_user_put_in_the_place_of_a_figure_stays(tmp_path, capsys):
    line = [*TINY, "norms=[frobenius]", f"runs={tmp_path}"]
    png, pdf = said(capsys, *line)[1]["figure"].split(" ")
    (tmp_path / png).write_text("of years")
    (tmp_path / pdf).unlink()
    said(capsys, *line)
    assert (tmp_path / png).read_text() == "of years"
    assert (tmp_path / pdf).read_bytes().startswith(b"%PDF")
    assert not list(tmp_path.rglob("*.partial"))


def test_what_stands_in_the_place_of_the_ranking_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    config, _ = which.checked([*TINY, f"runs={tmp_path}"])
    place = runs.folder(config) / f"ranking-{which._digest(config)}.zarr"
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("of years")
    monkeypatch.setattr(recording, "run", None)
    with pytest.raises(SystemExit) as ended:
        said(capsys, *TINY, f"runs={tmp_path}")
    assert ended.value.code == 2
    assert re.search("cannot read .*ranking-.*expected a store that jaxattn wrote", capsys.readouterr().err)
    assert (place / "notes.txt").read_text() == "of years"


@pytest.mark.slow
def test_the_published_rule_stalls_and_is_not_decided_which_is_no_error(tmp_path, capsys):
    command.main(["which", *TINY, "optimizer=normalized_gd", "norms=[frobenius]", f"runs={tmp_path}"])
    printed, beside = capsys.readouterr()
    assert re.search(r"^verdict: not decided: \d of 8 seeds stalled", printed, re.MULTILINE)
    assert re.search(r"of 8 seeds stalled: .* does not stall", beside)


@pytest.mark.slow
def test_norms_are_values_as_well(tmp_path, capsys):
    own = "norms=[frobenius,{_target_:jaxattn.norms.entrywise,p:1.5}]"
    printed, _ = said(capsys, *TINY, own, f"runs={tmp_path}")
    assert re.search(r"^l_1.5 +0\.", printed, re.MULTILINE)


def test_the_defaults_hold_where_the_line_says_nothing():
    assert which.with_defaults([]) == [f"{key}={value}" for key, value in which.DEFAULTS.items()]
    own = which.with_defaults(["weights=factored", "steps=7", "optimizer.step_size=0.5"])
    assert own[-3:] == ["weights=factored", "steps=7", "optimizer.step_size=0.5"]
    assert [one.partition("=")[0] for one in own] == [
        *("optimizer", "snapshots", "record_every"),
        *("weights", "steps", "optimizer.step_size"),
    ]
    assert which.with_defaults(["experiment=rate"]) == ["experiment=rate"]
    assert composition.compose(which.with_defaults(["size=small"])).steps == 200


def test_an_experiment_that_trains_on_problems_is_taken_with_its_own_settings(tmp_path):
    config, _ = which.checked(["experiment=rate", f"runs={tmp_path}"])
    assert runs.folder(config) == runs.folder(composition.compose(["experiment=rate", f"runs={tmp_path}"]))


@pytest.mark.slow
def test_a_head_that_mixes_tokens_is_not_decided(tmp_path, capsys):
    printed, _ = said(capsys, "data=mlp", "head=mlp", "seeds=8", "steps=200", "norms=[max]", f"runs={tmp_path}")
    assert "verdict: not decided: not saturated" in printed
