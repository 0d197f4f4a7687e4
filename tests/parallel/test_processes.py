"""Processes of one run: each does its part, and no failure of one is lost on the others."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxattn import records
from jaxattn.parallel import processes

ROOT = Path(__file__).parents[2]

# Argument 1 is the process, 2 the port; what the rest of the program sees of its team is printed.
JOINED = """
import sys
import jax
from jaxattn.parallel.processes import ProcessError, Team
index, port = sys.argv[1:]
jax.distributed.initialize(f"localhost:{port}", 2, int(index), cluster_detection_method="deactivate")

def fail(part):
    raise ValueError(f"part {part}")

first_fails, third_part_fails = (lambda: fail(-1), print), (lambda: 5, lambda part: part < 3 or fail(part))
for first, each in ((lambda: [1, "x"], print), first_fails, third_part_fails):
    try:
        team = Team()
        print("told", team.told(first))
        with team.working([1, 2, 3]) as parts:
            for part in parts:
                each(part)
    except (ProcessError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
"""


def in_two_processes(*command, folder=ROOT, after=()):
    """Run a command in two processes at once, with the arguments `after` of their index and a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    running = [
        subprocess.Popen(
            [sys.executable, *command, *(one.format(index=index, port=port) for one in after)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (1, 0)
    ]
    ended = [(*one.communicate(timeout=240), one.returncode) for one in running]
    return ended[::-1]


@pytest.mark.slow
def test_two_processes_share_the_parts_and_hear_of_each_others_failures():
    (first, *_), (second, *_) = ended = in_two_processes("-c", JOINED, after=("{index}", "{port}"))
    assert [code for *_, code in ended] == [0, 0], ended
    assert first.splitlines()[:4] == ["told [1, 'x']", "1", "3", "ValueError: part -1"]
    assert second.splitlines()[:3] == [
        "told [1, 'x']",
        "2",
        "ProcessError: process 0 of 2 has stopped: ValueError: part -1",
    ]
    assert first.splitlines()[4:] == ["told 5", "ValueError: part 3"]
    assert second.splitlines()[3:] == ["told 5", "ProcessError: process 0 of 2 has stopped: ValueError: part 3"]


def test_a_lone_process_is_a_team():
    team = processes.Team()
    assert team.leads
    assert team.told(lambda: 3) == 3
    with team.working([1, 2, 3]) as parts:
        assert list(parts) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.compiled
def test_a_study_in_two_processes_is_to_the_last_bit_that_of_one(tmp_path):
    asked = ["seeds=1500", "steps=500", "snapshots.every=100", "weights=factored"]
    script = str(ROOT / "scripts" / "train.py")
    processes_ = ["processes.count=2", "processes.index={index}", "processes.coordinator=localhost:{port}"]
    ended = in_two_processes(script, *asked, f"runs={tmp_path / 'two'}", after=processes_)
    assert [code for *_, code in ended] == [0, 0], ended
    alone = [sys.executable, script, *asked, f"runs={tmp_path / 'one'}"]
    done = subprocess.run(alone, capture_output=True, text=True, check=True, timeout=240)
    one, two = (records.load(Path(out.strip())) for out in (done.stdout, ended[0][0]))
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name])
