"""A record is whole or says what is missing; a stopped run goes on from its last block."""

import dataclasses
import functools
import shutil
import time

import numpy as np
import pytest

from jaxattn import data, descent, heads, initial, losses, records
from jaxattn.experiments import recording, schedule, training

SETTING = training.Training(
    law=functools.partial(data.sphere, n=2, T=3, d=3),
    initial=initial.factored,
    optimizer=descent.normalized_gd(0.1),
    loss=losses.logistic,
    head=heads.linear,
    seeds=300,
    key=1,
    steps=4,
    snapshots=schedule.Evenly(2),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(SETTING, path, {"config": "{}"})
    return path


def test_a_record_holds_every_array_with_named_axes_and_every_key(finished):
    record = records.load(finished)
    assert record["K_snapshots"].dims == ("seed", "snapshot", "feature", "width")
    assert record["snapshot"].values.tolist() == [2, 4]
    assert len(np.unique(record["data_key"].values, axis=0)) == SETTING.seeds
    np.testing.assert_array_equal(record["K_snapshots"][:, -1], record["K"])
    assert record.attrs["complete"]
    assert record.attrs["seconds"] > 0
    assert (record.attrs["kept"], record.attrs["diverged"]) == (SETTING.seeds, 0)


def test_a_diverged_seed_is_counted_in_its_record(tmp_path):
    # A step of 1e308 on a linear loss carries the weights beyond the largest double.
    optimizer, path = descent.gd(1e308), tmp_path / "record.zarr"
    recording.run(dataclasses.replace(SETTING, optimizer=optimizer, loss=losses.correlation, seeds=3), path, {})
    record = records.load(path)
    finite = [np.isfinite(record[name].values).all(axis=(1, 2)) for name in "KQ"]
    diverged = ~np.all(finite, axis=0)
    assert record.attrs["diverged"] == int(diverged.sum()) > 0
    assert record.attrs["kept"] == 3 - record.attrs["diverged"]


def test_a_run_stopped_after_a_block_resumes_and_ends_bit_identical(finished, tmp_path):
    class StopError(Exception):
        pass

    def stop_after_first_block(seeds):
        if seeds > 0:
            raise StopError

    path = tmp_path / "record.zarr"
    started = time.perf_counter()
    with pytest.raises(StopError):
        recording.run(SETTING, path, {"config": "{}"}, progress=stop_after_first_block)
    with pytest.raises(records.RecordError, match="unfinished: 2 of 3 blocks"):
        records.load(path)
    first = records.Record(path, 128).read("seconds")[0]
    recording.run(SETTING, path, {"config": "{}"})
    resumed, whole = records.load(path), records.load(finished)
    for name in whole.data_vars:
        np.testing.assert_array_equal(resumed[name], whole[name])
    assert 0 < first < resumed.attrs["seconds"] < time.perf_counter() - started


def test_a_damaged_block_is_named(finished, tmp_path):
    path = tmp_path / "record.zarr"
    shutil.copytree(finished, path)
    chunk = path / "loss" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[8] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(records.RecordError, match="seeds 128 to 255 differ"):
        records.load(path)


def test_a_missing_record_is_named(tmp_path):
    with pytest.raises(records.RecordError, match="no readable record"):
        records.load(tmp_path / "nothing.zarr")


def test_too_little_room_is_found_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(records.RecordError, match=r"needs [\d,]+ bytes, and the disk has 0 left"):
        recording.run(SETTING, tmp_path / "record.zarr", {})
