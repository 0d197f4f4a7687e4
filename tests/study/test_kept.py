"""What is kept between commands: composed configurations and fingerprints of code."""

import pytest

from jaxattn.study import kept, making
from jaxattn.study.configuration import composition


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def composed(monkeypatch):
    """The command lines that Hydra composed."""
    calls = []
    compose = composition.compose
    monkeypatch.setattr(composition, "compose", lambda overrides: calls.append(overrides) or compose(overrides))
    return calls


def test_a_second_command_composes_nothing(composed):
    first = making.configurations("trajectories-3", ["seeds=3"])
    assert composed
    composed.clear()
    assert making.configurations("trajectories-3", ["seeds=3"]) == first
    assert not composed


def test_other_overrides_or_files_are_composed(composed, monkeypatch):
    making.configurations("trajectories-3", ["seeds=3"])
    composed.clear()
    assert making.configurations("trajectories-3", ["seeds=4"])[0].seeds == 4
    assert composed
    composed.clear()
    monkeypatch.setattr(making, "sources", lambda name: "a changed file")
    making.configurations("trajectories-3", ["seeds=4"])
    assert composed


def test_what_a_user_s_target_accepts_is_read_again(composed):
    overrides = ["head._target_=jaxattn.heads.linear", "head._partial_=true"]
    for _ in range(2):
        composed.clear()
        making.configurations("trajectories-3", overrides)
        assert composed


def test_a_damaged_result_is_computed_again(folder, caplog):
    assert kept.kept(_twice, 2) == 4
    for file in folder.rglob("output.pkl"):
        file.write_bytes(b"not a pickle")
    assert kept.kept(_twice, 2) == 4
    assert "Exception while loading results" in caplog.text


def test_a_folder_that_cannot_be_written_keeps_nothing(folder, monkeypatch):
    (folder / "file").touch()
    monkeypatch.setattr(kept, "cache_folder", lambda: folder / "file" / "jaxattn")
    assert kept.kept(_twice, 2) == 4
    kept.trim()


def _twice(number):
    return 2 * number
