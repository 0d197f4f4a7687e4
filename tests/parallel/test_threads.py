"""Several threads, and forked processes: neither waits forever."""

import os
import select
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, svm
from jaxattn.parallel import batch, forks
from jaxattn.problem import of_arrays
from tests import instances

PATIENCE = 120.0
BATCH = np.ones((4, 2))
running, most = [], []


def on_host(x):
    running.append(x)
    most.append(len(running))
    time.sleep(0.02)
    running.pop()
    return x


def calls_out(x):
    return jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


def in_threads(*work):
    """Do the work of each thread, and fail if one of them does not end."""
    found: list[Any] = [None] * len(work)

    def one(number):
        # Contexts such as `jax.enable_x64` belong to a thread.
        with jax.enable_x64(True):
            found[number] = work[number]()

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(work))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), f"a thread was still running after {PATIENCE} s"
    return found


def test_programs_that_call_out_run_one_at_a_time_whichever_thread_starts_them():
    most.clear()
    for found in in_threads(*[lambda: batch.over_seeds(calls_out, BATCH)] * 3):
        np.testing.assert_array_equal(found, BATCH)
    assert most == [1] * 12


def test_three_threads_solve_as_one_does():
    rows, names = jax.tree.map(np.asarray, instances.constraints(4)), ("nuclear", "schatten_1.5", "nuclear")
    alone = [svm.solve_batch(rows, norm=name) for name in names]
    found = in_threads(*[lambda name=name: [svm.solve_batch(rows, norm=name) for _ in range(2)] for name in names])
    for solution, of_thread in zip(alone, found, strict=True):
        for other in of_thread:
            jax.tree.map(np.testing.assert_array_equal, other, solution)


def forked(work):
    """Return the sentence that a forked child says."""
    reading, writing = os.pipe()
    with pytest.warns(RuntimeWarning, match="fork"):
        child = os.fork()
    if child == 0:
        try:
            said = f"solved {work()}"
        except BaseException as error:  # noqa: BLE001 (whatever it is, the parent reads it)
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    try:
        ready, _, _ = select.select([reading], [], [], 10)
        return os.read(reading, 4096).decode() if ready else "hangs"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


PROBLEM, _ = instances.planted(0, 3, 4, 5)
ONES: Any = np.ones
HOST = svm.Constraints(ONES((3, 3, 5)), ONES((3, 5)))
ROWS = jax.tree.map(jnp.asarray, HOST)


@pytest.mark.parametrize(
    "work",
    [
        lambda: svm.solve(ROWS),
        lambda: svm.solve(HOST, norm="nuclear"),
        lambda: svm.solve_batch(jax.tree.map(lambda leaf: leaf[None], HOST)),
        lambda: svm.att(np.ones((1, 2, 2)), np.ones((1, 2)), [0]),
        lambda: descent.train(np.zeros((5, 5)), PROBLEM),
        lambda: of_arrays({"X": np.ones((1, 2, 2)), "Z": np.ones((1, 2)), "Y": np.ones(1), "v": np.ones(2)}),
        lambda: batch.over_seeds(jnp.sum, BATCH),
    ],
)
def test_a_process_forked_after_jax_was_used_says_so_at_once(work):
    assert "forked after JAX was used" in forked(work)
    forks.check()  # The parent goes on.


def test_a_process_forked_before_jax_is_used_solves():
    script = (
        "import os, numpy as np; from jaxattn import svm\n"
        "if child := os.fork(): raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "os._exit(int(svm.att(np.eye(3, dtype=np.float32)[None], np.ones((1, 3), np.float32), [1]).status))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
