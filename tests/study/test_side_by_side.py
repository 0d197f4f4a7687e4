"""Experiments made side by side are those made one after the other; a mistake or an interrupt ends them all."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from jaxattn import records
from jaxattn.study import side_by_side
from jaxattn.study.commands import figures
from jaxattn.study.configuration import composition
from jaxattn.study.mistakes import ProcessError

# Python as a terminal starts it: what a shell starts in the background ignores SIGINT, and hands that on.
HEEDING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
FIGURES = [sys.executable, "-c", HEEDING, "-m", "jaxattn.study", "figures"]


def test_how_many_processes():
    assert jax.default_backend() == "cpu"
    assert side_by_side.processes(3, 2) == 2
    assert side_by_side.processes(3, 9) == 3
    assert side_by_side.processes(None, 1) == side_by_side.processes(7, 0) == 1
    assert 1 <= side_by_side.processes(None, 1000) <= (os.cpu_count() or 1)


@pytest.mark.slow
def test_a_process_that_ends_before_it_makes_anything_is_named():
    def ended() -> None:
        with side_by_side.pool(2) as pool:
            assert pool is not None
            pool.executor.submit(os._exit, 1).result()

    with pytest.raises(ProcessError, match=r"a process ended without a message .*; run the same command again"):
        ended()


def small(place: Path, *more: str) -> list[str]:
    return ["size=small", "seeds=4", "steps=60", f"runs={place / 'runs'}", f"figures={place / 'figures'}", *more]


@pytest.mark.slow
def test_claims_and_figures_do_not_depend_on_the_number_of_processes(tmp_path):
    lines, drawn = [], []
    for workers in (1, 2):
        place = tmp_path / str(workers)
        figures.main(small(place, "experiment=trajectories-3,trajectories-5", f"workers={workers}"))
        made = json.loads((place / "figures" / "small" / "claims.json").read_text())
        # What they were made from names the folder of the runs.
        lines.append([{key: line[key] for key in line if key not in ("seconds", "made_from")} for line in made])
        drawn.append({path.name: path.read_bytes() for path in (place / "figures" / "small").glob("*.p??")})
    assert lines[0] == lines[1]
    assert len(lines[0]) == 4
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_what_one_process_raises_ends_all_with_its_own_error(tmp_path):
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(records.RecordError, match="cannot write"):
        figures.main(small(tmp_path, "experiment=trajectories-3,trajectories-5", "workers=2"))


@pytest.fixture
def start():
    """Starts a command in a group of its own, of which nothing is left behind, whatever a test finds."""
    begun = []

    def command(line):
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
        return begun[-1]

    yield command
    for one in begun:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


# Ctrl-C in a terminal reaches all processes of a command.
IDLE = """
import os, signal
from jaxattn.study import side_by_side
try:
    with side_by_side.pool(2) as pool:
        pool.executor.submit(os.getpid).result()
        os.killpg(0, signal.SIGINT)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_processes_without_a_task_end_without_a_traceback(start):
    begun = start([sys.executable, "-c", HEEDING, "-c", IDLE])
    assert begun.communicate(timeout=120) == ("interrupted\n", "")


def training(start, place, seeds):
    """A command that trains two experiments side by side."""
    begun = start([*FIGURES, *small(place, "experiment=trajectories-3,rate", "workers=2", f"seeds={seeds}")])
    deadline = time.monotonic() + 120
    while len(list(place.glob("runs/*/status.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    return begun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_all_processes_with_one_message(tmp_path, start, sent, status, said):
    begun = training(start, tmp_path, 500_000)
    workers = children(begun.pid)
    begun.send_signal(sent)
    _, err = begun.communicate(timeout=120)
    assert begun.returncode == status, err
    assert f"{said}; finished work is kept" in err
    assert "Traceback" not in err
    assert len(workers) >= 2
    deadline = time.monotonic() + 60
    while any(map(runs_still, workers)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(runs_still, workers))
    states = {json.loads(path.read_text())["state"] for path in tmp_path.glob("runs/*/status.json")}
    assert states <= {"stopped", "complete"}


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_all_with_one_error_and_what_was_finished_is_kept(tmp_path, start):
    """As when the system runs out of memory; in a folder whose name has blanks and other letters."""
    place = tmp_path / "with blanks, äö"
    begun = training(start, place, 100_000)
    workers = [one for one in children(begun.pid) if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    _, err = begun.communicate(timeout=120)
    assert begun.returncode == 2, err
    message = "a process ended without a message (killed, or out of memory?) while making rate, trajectories-3; "
    assert err.count(message) == 1
    assert "Traceback" not in err
    assert not any(map(runs_still, workers))
    states = [json.loads(path.read_text()) for path in place.glob("runs/*/status.json")]
    assert {one["state"] for one in states} == {"stopped"}
    assert "its process was killed" in {one["reason"] for one in states}
    for path in place.glob("runs/*/record.zarr"):
        records.Record(path)  # Can be continued.


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{process}/task/{process}/children")
    if not tasks.exists():
        pytest.skip("expected /proc, which lists the processes that another has started")
    return [int(one) for one in tasks.read_text().split()]


def runs_still(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_papers_figures_are_made_first_and_the_shortest_of_them_before_all():
    names = ["rate", "flow", "svm-rank", "trajectories-3", "lm-cosine"]
    composed = {name: [composition.compose([f"experiment={name}"])] for name in names}
    seconds = {"rate": 9.0, "flow": 1.0, "svm-rank": 3.0, "trajectories-3": 2.0}
    # What has not been timed counts as long.
    assert side_by_side.ordered(composed, seconds) == ["trajectories-3", "lm-cosine", "svm-rank", "rate", "flow"]
    assert side_by_side.ordered({"flow": composed["flow"]}, {}) == ["flow"]
