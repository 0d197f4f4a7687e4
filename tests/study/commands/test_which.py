"""A variant is trained, ranked and drawn by one line; what is there is found again, a user's files stay."""

import csv
import re
from pathlib import Path

import pytest

from jaxattn import bias, records
from jaxattn.study import asking, command, runs
from jaxattn.study.configuration import composition
from jaxattn.study.measuring.ranked import of_dataset
from jaxattn.study.settings import recording

TINY = ["data.n=3", "data.T=4", "data.d=5", "seeds=8", "steps=2000"]


def said(capsys, *line: str) -> tuple[str, dict[str, str]]:
    """What a line prints, and its paths by what they are of."""
    command.main(["which", *line])
    printed = capsys.readouterr().out
    return printed, dict(re.findall(r"^(record|ranking|figure|table): (.*)$", printed, re.MULTILINE))


def assert_drawn(paths):
    png, pdf = map(Path, paths["figure"].split(" "))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def files(folder):
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_norms_of_the_configuration_are_those_of_the_library():
    assert tuple(composition.compose([]).norms) == bias.NORMS


def test_one_line_says_which_and_a_second_finds_it_again(tmp_path, capsys, monkeypatch):
    line = [*TINY, "norms=[frobenius,max]", f"runs={tmp_path}"]
    printed, paths = said(capsys, *line)
    assert "verdict: frobenius\n" in printed
    folder = runs.folder(composition.compose(asking.with_defaults(line)))
    assert paths["record"] == str(folder / "record.zarr")
    assert records.load(folder / "record.zarr").sizes["seed"] == 8
    ranking = of_dataset(records.load_dataset(tmp_path / paths["ranking"]))
    assert printed.startswith(ranking.table())
    assert ranking.norms == ("frobenius", "max")
    assert_drawn(paths)
    before = files(tmp_path)

    def refuse(*given, **more):
        raise AssertionError("expected what is there to be found")

    monkeypatch.setattr(recording, "run", refuse)
    monkeypatch.setattr(asking, "ranked", refuse)
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
    place = asking.checked([[*TINY, f"runs={tmp_path}"]])[0].path
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
    assert re.search(r"^verdict: not decided: stalled: .*, in \d of 8 seeds$", printed, re.MULTILINE)
    assert re.search(r"of 8 seeds stalled: .* does not stall", beside)


@pytest.mark.slow
def test_norms_are_values_as_well(tmp_path, capsys):
    own = "norms=[frobenius,{_target_:jaxattn.norms.entrywise,p:1.5}]"
    printed, _ = said(capsys, *TINY, own, f"runs={tmp_path}")
    assert re.search(r"^l_1.5 +0\.", printed, re.MULTILINE)


def test_the_defaults_hold_where_the_line_says_nothing():
    assert asking.with_defaults([]) == [f"{key}={value}" for key, value in asking.DEFAULTS.items()]
    own = asking.with_defaults(["weights=factored", "steps=7", "optimizer.step_size=0.5"])
    assert own[-3:] == ["weights=factored", "steps=7", "optimizer.step_size=0.5"]
    assert [one.partition("=")[0] for one in own] == [
        *("optimizer", "snapshots", "record_every"),
        *("weights", "steps", "optimizer.step_size"),
    ]
    assert asking.with_defaults(["experiment=rate"]) == ["experiment=rate"]
    assert composition.compose(asking.with_defaults(["size=small"])).steps == 200


def test_an_experiment_that_trains_on_problems_is_taken_with_its_own_settings(tmp_path):
    (asked,) = asking.checked([["experiment=rate", f"runs={tmp_path}"]])
    assert asked.folder == runs.folder(composition.compose(["experiment=rate", f"runs={tmp_path}"]))


SWEEP = [
    *TINY,
    "optimizer=steepest",
    "optimizer.norm=frobenius,max",
    "optimizer.step=0.03,0.1",
    "norms=[frobenius,max]",
]


def test_a_sweep_is_one_table_one_file_and_one_diagram_and_a_killed_one_continues(tmp_path, capsys, monkeypatch):
    line, train, trained = [*SWEEP, "norms=[frobenius,max]", f"runs={tmp_path}"], recording.run, []

    def killed(*given, **more):
        trained.append(given)
        if len(trained) == 2:
            raise KeyboardInterrupt
        train(*given, **more)

    monkeypatch.setattr(recording, "run", killed)
    with pytest.raises(SystemExit) as ended:
        said(capsys, "--multirun", *line)
    assert ended.value.code == 130
    capsys.readouterr()
    printed, paths = said(capsys, "--multirun", *line)
    assert len(trained) == 2 + 3
    rows = [row.split(maxsplit=2) for row in printed.splitlines()[:5]]
    assert [row[:2] for row in rows] == [
        ["optimizer.norm", "optimizer.step"],
        *(["frobenius", step] for step in ("0.03", "0.1")),
        *(["max", step] for step in ("0.03", "0.1")),
    ]
    table = list(csv.DictReader(Path(paths["table"]).read_text().splitlines()))
    for row, (*setting, rest) in zip(table, rows[1:], strict=True):
        assert [row["optimizer.norm"], row["optimizer.step"]] == setting
        assert rest.endswith(f"  {row['verdict']}")
        assert float(row["limit_low"]) <= float(row["limit"]) <= float(row["limit_high"])
        assert (row["attempted"], row["kept"]) == ("8", "8")
        assert records.is_complete(row["record"])
    assert table[1]["verdict"] == table[1]["best_norm"] == "frobenius"
    assert_drawn(paths)
    before = files(tmp_path)
    monkeypatch.setattr(recording, "run", None)
    monkeypatch.setattr(asking, "ranked", None)
    assert said(capsys, "-m", *line)[0] == printed
    # The line of one point repeats nothing either.
    alone = said(capsys, *TINY, "optimizer=steepest", "optimizer.norm=max", "optimizer.step=0.1", *line[-2:])[0]
    assert alone.startswith("norm ")
    assert {one for one in before.items() if (tmp_path / one[0]).is_file()} <= files(tmp_path).items()


@pytest.mark.slow
def test_three_keys_have_no_diagram_and_a_point_that_cannot_be_ranked_is_a_row(tmp_path, capsys, monkeypatch):
    ranked = asking.ranked

    def without_max(record, norms, key):
        if norms == ["max"]:
            raise ValueError("run: expected a seed that can be compared")
        return ranked(record, norms, key)

    monkeypatch.setattr(asking, "ranked", without_max)
    vary = ["steps=100,200", "norms=[max],[frobenius]", "optimizer.step_size=0.1,0.2"]
    printed, paths = said(capsys, "--multirun", *TINY[:4], *vary, f"runs={tmp_path}")
    assert paths["figure"] == "none, since more than two keys vary: steps, norms, optimizer.step_size"
    assert printed.count("  not ranked: run: expected a seed that can be compared\n") == 4
    assert len(list(csv.DictReader(Path(paths["table"]).read_text().splitlines()))) == 8


@pytest.mark.slow
def test_weights_that_stop_growing_are_told_where(tmp_path, capsys):
    decay = ["optimizer=adamw", "optimizer.optimizer.weight_decay=1"]
    printed, _ = said(capsys, *TINY, *decay, "norms=[max]", f"runs={tmp_path}")
    assert "verdict: not decided: " in printed
    assert "\nwhere W stops: no direction: the weights stopped growing at max norm 1.000, stationary" in printed


@pytest.mark.slow
def test_a_head_that_mixes_tokens_is_not_decided(tmp_path, capsys):
    printed, _ = said(capsys, "data=mlp", "head=mlp", "seeds=8", "steps=200", "norms=[max]", f"runs={tmp_path}")
    assert "verdict: not decided: not saturated" in printed
