"""The command line of `jaxattn train`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxattn.records import is_complete, locks
from jaxattn.study.commands import train

# A launcher as of a cluster: each run has a process of its own, whose outputs nobody sees.
ELSEWHERE = """
from dataclasses import dataclass

import joblib
from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import run_job, setup_globals
from hydra.plugins.launcher import Launcher


def job(launcher, number, line, state):
    open(f"log-{number}", "w").close()
    for output in (1, 2):
        os.dup2(os.open(f"log-{number}", os.O_WRONLY | os.O_APPEND), output)
    setup_globals()
    Singleton.set_state(state)
    config = launcher.context.config_loader.load_sweep_config(launcher.config, line)
    return run_job(launcher.function, config, "hydra.sweep.dir", "hydra.sweep.subdir", launcher.context)


class Elsewhere(Launcher):
    def setup(self, *, hydra_context, task_function, config):
        self.context, self.function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides, initial_job_idx):
        jobs = (joblib.delayed(job)(self, k, list(line), Singleton.get_state()) for k, line in enumerate(job_overrides))
        return joblib.Parallel(n_jobs=2)(jobs)


@dataclass
class Config:
    _target_: str = "hydra_plugins.elsewhere.Elsewhere"


ConfigStore.instance().store(group="hydra/launcher", name="elsewhere", node=Config())
"""
# A head that fails in a worker alone.
HEADS = """
import os


def broken(x, v):
    if os.getppid() == int(os.environ["TESTED"]):
        return v @ x
    raise ValueError("expected no worker, found one")
"""
TINY = ["--multirun", "hydra/launcher=elsewhere", "data.n=2", "data.T=3", "data.d=3,4", "seeds=2"]


@pytest.mark.parametrize("option", [["--cfg", "job"], ["--cfg=job"], ["-c", "job"], ["-c=job"]], ids=" ".join)
def test_an_option_may_stand_before_its_value_or_hold_it(option, capsys):
    train.main([*option, "data.d=4", "--resolve"])
    assert "  d: 4\n" in capsys.readouterr().out


def test_diverged_seeds_are_told(tmp_path, capsys):
    size = ["data.n=2", "data.T=3", "data.d=3", "seeds=2", "steps=20", f"runs={tmp_path}"]
    train.main(["optimizer=adam", "optimizer.optimizer.learning_rate=inf", *size])
    assert "2 of 2 seeds diverged" in capsys.readouterr().err


@pytest.fixture
def begun(tmp_path):
    """Begin a sweep with the launcher in an empty folder."""
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins/elsewhere.py").write_text(f"import os\n{ELSEWHERE}")
    (tmp_path / "heads.py").write_text(HEADS)
    own = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "TESTED": str(os.getpid())}

    def begin(*words: str) -> subprocess.Popen:
        line = [sys.executable, "-m", "jaxattn.study", "train", *TINY, *words]
        return subprocess.Popen(line, stdout=-1, stderr=-1, text=True, cwd=tmp_path, env=os.environ | own)

    return begin


@pytest.mark.slow
def test_the_records_of_other_processes_are_printed(begun, tmp_path):
    done = begun("steps=30")
    printed, said = done.communicate(timeout=300)
    assert (done.returncode, len(printed.splitlines())) == (0, 2), said
    assert all(is_complete(tmp_path / line) for line in printed.splitlines())
    assert {path.name for path in tmp_path.glob("log-*")} == {"log-0", "log-1"}


@pytest.mark.slow
def test_a_failure_in_another_process_fails_the_command(begun):
    done = begun("steps=30", "head._target_=heads.broken")
    printed, said = done.communicate(timeout=300)
    assert (done.returncode, printed) == (2, "")
    assert said.endswith("jaxattn: expected no worker, found one\n")


def running(folder: Path) -> list[Path]:
    """The records that are being written."""
    states = {path: json.loads(path.read_text())["state"] for path in folder.glob("runs/*/status.json")}
    return [path.with_name("record.zarr") for path, state in states.items() if state == "running"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_workers_end_with_a_command_that_is_killed(name, begun, tmp_path):
    command = begun("steps=50000000", "record_every=50000000", "snapshots=never")
    until = time.monotonic() + 300
    while len(records := running(tmp_path)) < 2 and time.monotonic() < until:
        time.sleep(0.5)
    command.send_signal(getattr(signal, name))
    command.communicate(timeout=60)
    assert command.returncode == {"SIGKILL": -9, "SIGTERM": 143}[name]
    time.sleep(10)
    assert len(records) == 2
    for record in records:
        with locks.held(record):  # Which a process that writes it does not allow.
            pass
