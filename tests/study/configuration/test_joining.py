"""The keys of several processes: each mistake is one error, before anything else."""

import socket

import jax
import pytest

from jaxattn.study import runs
from jaxattn.study.commands import train
from jaxattn.study.configuration import composition, joining

COORDINATOR = "processes.coordinator=localhost:1"
THIRD = "processes.index=2"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["processes.count=0"], r"^processes\.count: expected at least 1, found 0"),
        (["processes.count=2"], r"^processes\.index: expected one of 0 to 1, found none"),
        (["processes.count=2", THIRD, COORDINATOR], r"^processes\.index: expected one of 0 to 1, .*, found 2"),
        ([THIRD], r"^processes\.index: expected one of 0 to 0, as processes\.count=1, found 2"),
        (["processes.count=2", "processes.index=0"], r"^processes\.coordinator: expected host:port, .*, found none"),
        (["processes.count=3", THIRD, "processes.coordinator=here"], r"^processes\.coordinator: .*, found here"),
        ([COORDINATOR], r"^processes\.coordinator: expected none with processes\.count=1, found localhost:1"),
        (["processes.detect=abc"], r"^processes\.detect: expected one of slurm, ompi, mpi4py, k8s, found abc"),
        (["processes.detect=slurm", "processes.count=2"], r"^processes\.detect: the cluster says count"),
        (["--multirun", "processes.count=1,2"], r"^processes: expected the same in all runs of a sweep"),
        (
            ["--multirun", "hydra/launcher=joblib", "processes.count=2"],
            r"^processes\.count: expected 1 with a launcher",
        ),
        (["processes.count=two"], r"processes"),
    ],
)
def test_processes_that_cannot_join_are_named_before_anything_else(overrides, message, tmp_path):
    with pytest.raises(composition.UsageError, match=message):
        # The wrong number of seeds would be the next mistake that is found.
        train.main([*overrides, "seeds=0", f"runs={tmp_path}"])
    assert list(tmp_path.iterdir()) == []


def test_a_first_process_that_does_not_listen_is_named(monkeypatch):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(joining, "_PATIENCE", 1)
    asked = ["processes.count=2", "processes.index=1", f"processes.coordinator=localhost:{port}"]
    with pytest.raises(
        composition.UsageError, match=rf"no process with index 0 listens at localhost:{port}: .*refused"
    ):
        joining.join(composition.compose(asked))


def test_outside_of_its_cluster_a_process_says_what_is_missing(monkeypatch):
    # JAX reads the cluster's variables; asked here, it would find that tests have used its devices before.
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: {}["SLURM_JOB_ID"])
    with pytest.raises(
        composition.UsageError, match=r"^processes\.detect: expected to run inside slurm, .*SLURM_JOB_ID"
    ):
        joining.join(composition.compose(["processes.detect=slurm"]))


def test_a_script_that_joins_no_processes_says_so(tmp_path):
    asked = ["processes.count=2", "processes.index=0", COORDINATOR, f"runs={tmp_path}"]
    with pytest.raises(composition.UsageError, match=r"only `jaxattn train` runs in several"):
        runs.run(composition.compose(asked))


def test_processes_do_not_name_a_run():
    folders = {runs.folder(composition.compose(one)) for one in ([], ["processes.detect=slurm"])}
    assert len(folders) == 1
