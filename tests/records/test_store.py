"""A record is whole or says what is missing; a stopped run continues from its last block."""

import dataclasses
import functools
import json
import os
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, heads, initial, losses, records
from jaxattn.records import locks
from jaxattn.study.settings import recording, schedule, training

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


@pytest.fixture(scope="module", autouse=True)
def _three_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "BLOCK_SEEDS", 128)
        yield


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
    recording.run(dataclasses.replace(SETTING, optimizer=optimizer, loss=losses.correlation_loss, seeds=3), path, {})
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
    first = records.Record(path).read("seconds")[0]
    recording.run(SETTING, path, {"config": "{}"})
    resumed, whole = records.load(path), records.load(finished)
    for name in whole.data_vars:
        np.testing.assert_array_equal(resumed[name], whole[name])
    assert 0 < first < resumed.attrs["seconds"] < time.perf_counter() - started


def copied(finished, tmp_path):
    path = tmp_path / "record.zarr"
    shutil.copytree(finished, path)
    return path


def begun_again(path):
    """Take back that a record is complete, as if its run had ended before it said so."""
    described = json.loads((path / "zarr.json").read_text())
    del described["attributes"]["complete"]
    (path / "zarr.json").write_text(json.dumps(described))


def test_a_damaged_block_is_named(finished, tmp_path):
    path = copied(finished, tmp_path)
    chunk = path / "loss" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[8] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(records.RecordError, match="loss of seeds 100 to 199 differs"):
        records.load(path)
    assert list(records.load(path, ["K", "probability"]).data_vars) == ["K", "probability"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: os.truncate(file, 8)])
def test_a_half_written_block_is_named_and_written_again(finished, tmp_path, damage):
    path = copied(finished, tmp_path)
    begun_again(path)
    damage(path / "X" / "c" / "2" / "0" / "0" / "0")
    left = path / "loss" / "c" / "1" / "0.3f.partial"
    left.touch()
    with pytest.warns(records.RecordWarning, match="seeds 200 to 299 were half-written .*X.*2.* computed again"):
        recording.run(SETTING, path, {})
    xarray.testing.assert_equal(records.load(path), records.load(finished))
    assert not left.exists()


def test_blocks_of_nothing_but_zeros_are_kept_as_any_other(tmp_path):
    path = tmp_path / "record.zarr"
    recording.run(dataclasses.replace(SETTING, initial=initial.free_zero, seeds=3), path, {})
    assert (path / "W_initial" / "c" / "0" / "0" / "0").exists()
    assert not records.load(path, ["W_initial"])["W_initial"].values.any()


def test_an_array_that_a_record_does_not_have_is_named_with_those_it_has(finished):
    with pytest.raises(records.RecordError, match=r"has no \['V'\]; it has \['K', 'K_initial'"):
        records.load(finished, ["V", "K"])
    with pytest.raises(records.RecordError, match="names: expected a list of names, found 'loss'"):
        records.load(finished, "loss")
    with pytest.raises(records.RecordError, match=r"`records\.load` reads a record"):
        records.load_dataset(finished)


def test_blocks_are_of_one_length_and_of_bounded_bytes():
    def block(seeds, bytes_of_one=100):
        return recording._block({"x": jax.ShapeDtypeStruct((bytes_of_one,), np.dtype(np.int8))}, seeds)

    assert [block(seeds) for seeds in (1, 128, 129, 300)] == [1, 128, 65, 100]
    assert block(1000, bytes_of_one=recording.BLOCK_BYTES // 10) == 10
    assert block(1000, bytes_of_one=recording.BLOCK_BYTES * 2) == 1
    with pytest.raises(MemoryError, match="one seed needs"):
        block(1, bytes_of_one=2**31)


def test_a_second_run_is_refused_with_the_process_and_start_of_the_first(tmp_path):
    path = tmp_path / "record.zarr"

    def again(seeds):
        del seeds
        expected = rf"{tmp_path} is being written by process {os.getpid()} on .*, started 2.*T.*; wait"
        with pytest.raises(locks.HeldError, match=expected):
            recording.run(SETTING, path, {})
        # Another study is not in the way.
        with locks.held(tmp_path / "other.zarr"):
            pass

    recording.run(SETTING, path, {}, progress=again)
    records.load(path)


def test_too_little_room_is_found_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(records.RecordError, match=r"needs [\d,]+ bytes, and the disk has 0 left"):
        recording.run(SETTING, tmp_path / "record.zarr", {})


def test_the_attributes_of_a_record_are_read_without_its_arrays(finished):
    assert records.attributes(finished)["config"] == "{}"
    with pytest.raises(records.RecordError, match="no readable record"):
        records.attributes(finished / "nowhere")


def test_a_record_is_not_replaced(finished, tmp_path):
    path = copied(finished, tmp_path)
    with pytest.raises(records.RecordError, match="found a folder that is no such store"):
        records.save_dataset(path, xarray.Dataset())
    records.load(path)
