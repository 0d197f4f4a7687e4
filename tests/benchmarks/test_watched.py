"""A command that is watched: what it compiles is counted in all of its processes, and its pauses on the screen."""

import pytest

from benchmarks.watched import watch

COMPILING = """
import subprocess, sys
import jax

@jax.jit
def doubled(x):
    return x + x

doubled(3.0).block_until_ready()
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "inner"], check=True)
"""


def variables(place):
    every = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    return every | {"JAX_COMPILATION_CACHE_DIR": str(place / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}


@pytest.mark.slow
def test_programs_are_counted_in_every_process_and_those_kept_are_told_apart(tmp_path):
    (tmp_path / "program.py").write_text(COMPILING)
    first, again = (
        watch(["program.py"], root=tmp_path, variables=variables(tmp_path), figures=tmp_path / "figures")
        for _ in range(2)
    )
    assert first.compiled > 0
    # The inner process finds what the outer one compiled.
    assert (first.compiled, first.found) == (again.found / 2, again.found / 2)
    assert again.compiled == 0
    assert first.first_figure is None


SHOWING = """
import pathlib, sys, time
assert sys.stdout.isatty()
print("here", flush=True)
time.sleep(0.5)
pathlib.Path("figures").mkdir()
pathlib.Path("figures/one.png").touch()
time.sleep(0.5)
"""


def test_outputs_and_the_first_figure_are_timed(tmp_path):
    (tmp_path / "program.py").write_text(SHOWING)
    found = watch(["program.py"], root=tmp_path, variables={}, figures=tmp_path / "figures")
    assert found.first_figure is not None
    assert 0 < found.first_output < found.first_figure < found.seconds
    assert 0.9 < found.longest_pause < found.seconds - found.first_output + 0.1
    assert (found.compiled, found.found, found.compiling) == (0, 0, 0)


def test_a_command_that_fails_is_an_error_with_its_last_words(tmp_path):
    with pytest.raises(
        RuntimeError, match=r"expected status 0, found 1; its last words:\n[^$]*No module named nothing"
    ):
        watch(["-m", "nothing"], root=tmp_path, variables={}, figures=tmp_path)
