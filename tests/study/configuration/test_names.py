"""Configurations of the user's own, in the working folder, come before jaxattn's own."""

import subprocess
from types import SimpleNamespace

import hydra
import pytest

from jaxattn.study import making, runs
from jaxattn.study.configuration import composition, names

GROUP = "_target_: jaxattn.descent.normalized_gd\nstep_size: {step}\n"
EXPERIMENT = """# @package _global_
defaults:
  - override /optimizer: mine
steps: 50
study:
  experiment: jaxattn.experiments.local.rate
  of: A question of mine.
  runs: {"W": {seeds: 3}}
"""


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A working folder with an experiment, an optimizer, and one in place of jaxattn's own."""
    files = {
        "experiment/mine": EXPERIMENT,
        "optimizer/mine": GROUP.format(step=0.5),
        "optimizer/gd": GROUP.format(step=2),
    }
    for name, text in files.items():
        file = tmp_path / f"conf/{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf"


def test_both_folders_are_searched_the_users_first(users):
    assert names.folders() == [users, names.root() / "conf"]
    assert composition.compose(["optimizer=mine"]).optimizer.step_size == 0.5
    assert composition.compose(["optimizer=gd"]).optimizer.step_size == 2
    assert composition.compose(["optimizer=adam"]).optimizer.optimizer.learning_rate == 0.01
    config = composition.compose(["experiment=mine"])
    assert (config.steps, config.optimizer.step_size, config.data.n) == (50, 0.5, composition.compose([]).data.n)


def test_names_and_descriptions_are_those_of_both(users):
    assert {"mine", "adam", "gd"} <= set(names.names_of("optimizer"))
    assert names.names_of("optimizer").count("gd") == 1
    assert {"mine", "rate"} <= set(names.experiments())
    assert names.described("mine").of == "A question of mine."
    assert names.described("rate").place


def test_a_file_that_has_changed_is_read_again(users):
    assert names.described("mine").of == "A question of mine."
    file = users / "experiment" / "mine.yaml"
    file.write_text(file.read_text().replace("A question of mine.", "Another question."))
    assert names.described("mine").of == "Another question."


def test_a_checkout_as_the_working_folder_is_searched_once(monkeypatch):
    monkeypatch.chdir(names.root())
    assert names.folders() == [names.root() / "conf"]


def test_what_is_kept_is_told_apart_by_the_files_of_both_folders(users, monkeypatch):
    with_users = names.sources("rate")
    (users / "optimizer/gd.yaml").write_text(GROUP.format(step=3))
    changed = names.sources("rate")
    (users / "experiment/mine.yaml").write_text(f"{EXPERIMENT}# another remark\n")
    assert names.sources("rate") == changed
    monkeypatch.chdir(users)
    assert len({with_users, changed, names.sources("rate")}) == 3


def test_what_is_kept_of_the_users_experiment_follows_its_files(users, monkeypatch):
    monkeypatch.setattr(making, "_experiment", lambda configs: SimpleNamespace(of=lambda name: ["a claim"]))
    for step in (2, 3):
        (users / "optimizer/mine.yaml").write_text(GROUP.format(step=step))
        (config,) = making.configurations("mine", [])
        assert (config.study.name, config.seeds, config.optimizer.step_size) == ("W", 3, step)


def test_another_application_of_hydra_keeps_its_search_path(users, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.yaml").write_text("a: 1\n")
    (users / "config.yaml").write_text("a: 2\n")
    with hydra.initialize_config_dir(str(tmp_path / "other"), version_base="1.3"):
        assert hydra.compose("config").a == 1


def test_the_revision_is_not_that_of_a_repository_around_an_installation(tmp_path, monkeypatch):
    inside = tmp_path / "environment"
    (inside / "conf").mkdir(parents=True)
    (inside / "conf/config.yaml").touch()
    commit = ["-c", "user.name=a", "-c", "user.email=a", "commit", "--quiet", "--allow-empty", "--message=a"]
    for arguments in (["init", "--quiet"], commit):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    monkeypatch.setattr(runs, "root", lambda: inside)
    assert runs._revision() == "not a git checkout"
