"""Two processes at one record: one writes at a time, and one that is killed lets go of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from jaxattn import records
from jaxattn.records import locks

# Holds argument 1 until it is ended, without the rest of the package: that would take seconds to import.
HOLDER = """
import pathlib, sys, time
from jaxattn.records import locks
with locks.held(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(path):
    """A process that holds a place."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.slow
def test_what_another_process_holds_is_refused_with_its_number_until_it_is_killed(tmp_path):
    path = tmp_path / "with blanks, äö" / "record.zarr"
    with another_process(path) as holder:
        for _ in range(2):
            with (
                pytest.raises(locks.HeldError, match=rf"is being written by process {holder.pid} on .*; wait for it"),
                locks.held(path),
            ):
                pass
        with locks.held(path.with_name("other.zarr")):  # Another place is free.
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(timeout=60)
        with locks.held(path):
            assert json.loads(path.with_name("record.zarr.lock").read_text())["process"] == os.getpid()


def test_a_lock_whose_holder_cannot_be_read_is_held_all_the_same(tmp_path):
    path = tmp_path / "record.zarr"
    with locks.held(path):
        for said in ("", "[]", "{}", "no JSON"):
            path.with_name("record.zarr.lock").write_text(said)
            with (
                pytest.raises(locks.HeldError, match="is being written by another process; wait for it"),
                locks.held(path),
            ):
                pass


def test_a_symbolic_link_to_a_folder_is_that_folder(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "target")
    records.check_folder(tmp_path / "runs" / "a")
    with locks.held(tmp_path / "runs" / "record.zarr"):
        assert (tmp_path / "target" / "record.zarr.lock").exists()
        # Under its other name it is the same place.
        with pytest.raises(locks.HeldError), locks.held(tmp_path / "target" / "record.zarr"):
            pass


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere")
    with pytest.raises(records.RecordError, match=r"cannot write in .*runs: .*runs is not a folder"):
        records.check_folder(tmp_path / "runs")
    with pytest.raises(records.RecordError, match="cannot write"), locks.held(tmp_path / "runs" / "record.zarr"):
        pass


@pytest.fixture
def forbidden():
    """A folder that this process may read and not write; the superuser gives up the right to write everywhere."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o555)
        superuser = os.geteuid() == 0
        if superuser:
            os.setresuid(65534, 65534, 0)
        yield folder
        if superuser:
            os.setresuid(0, 0, 0)
        folder.chmod(0o755)


def test_a_folder_that_may_not_be_written_is_one_error(forbidden):
    for call in (
        lambda: records.check_folder(forbidden / "figures"),
        lambda: records.check_place(forbidden / "own.zarr"),
        lambda: records.write_json(forbidden / "status.json", {}),
        lambda: locks.held(forbidden / "record.zarr").__enter__(),
    ):
        with pytest.raises(records.RecordError, match=r"cannot write .*([Pp]ermission)"):
            call()
    assert list(forbidden.iterdir()) == []
