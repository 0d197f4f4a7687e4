"""A study that is killed at any moment goes on, loses at most the block in flight, and ends bit-identical."""

import subprocess
import sys
import time

import numpy as np
import pytest

from jaxattn import records

# Argument 1 is the record; after each block the number of seeds that are there is printed.
STUDY = """
import functools, pathlib, sys
import jax
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from jaxattn import data, descent, heads, initial, losses
from jaxattn.study.settings import recording, schedule, training
recording.BLOCK_SEEDS = 10
setting = training.Training(
    law=functools.partial(data.sphere, n=3, T=4, d=4),
    initial=initial.factored,
    optimizer=descent.normalized_gd(0.1),
    loss=losses.logistic,
    head=heads.linear,
    seeds=3000,
    key=1,
    steps=300,
    snapshots=schedule.Evenly(100),
)
setting.block(np.arange(10), recording._root(setting))  # Compiles, so that the kills fall into the writing.
done = 0
def count(seeds):
    global done
    done += seeds
    print(done, flush=True)
recording.run(setting, pathlib.Path(sys.argv[1]), {}, progress=count)
"""
KILLS = 20


@pytest.mark.slow
def test_a_study_killed_twenty_times_at_random_ends_bit_identical(tmp_path):
    draws = np.random.default_rng(20230816)

    def started(name):
        command = [sys.executable, "-c", STUDY, str(tmp_path / name), str(tmp_path / "programs")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    out, err = started("whole.zarr").communicate(timeout=300)
    assert out.splitlines()[-1] == "3000", err
    path, known = tmp_path / "killed.zarr", 0
    for _ in range(KILLS):
        study = started("killed.zarr")
        assert study.stdout is not None
        # What is there already is said before the first block; from then on blocks are computed and written.
        assert int(study.stdout.readline()) >= known
        time.sleep(draws.uniform(0.0, 0.3))
        study.kill()
        out, _ = study.communicate(timeout=60)
        assert study.returncode == -9
        known = int(out.split()[-1]) if out.split() else known
        missing = sum(part.stop - part.start for part in records.Record(path).unwritten())
        assert known <= 3000 - missing <= known + 10
        with pytest.raises(records.RecordError, match="unfinished"):
            records.load(path)
    assert 0 < known < 3000
    out, err = started("killed.zarr").communicate(timeout=300)
    assert out.splitlines()[-1] == "3000", err
    whole, killed = records.load(tmp_path / "whole.zarr"), records.load(path)
    for name in whole.data_vars:
        np.testing.assert_array_equal(killed[name], whole[name])
    assert not list(path.rglob("*.partial"))
