"""A begun record is continued only by what began it; what is damaged is mended or named, and nothing is lost."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
import xarray
from zarr.storage import _local as local

from jaxattn import records
from jaxattn.records.layout import Variable
from tests.instances import all_within

SEEDS, BLOCK = 10, 4
ARRAYS = {"x": np.arange(30.0).reshape(SEEDS, 3), "k": np.arange(SEEDS, dtype=np.int32)}
VARIABLES = {
    "x": Variable(("seed", "axis"), (SEEDS, 3), np.dtype(float)),
    "k": Variable(("seed",), (SEEDS,), np.dtype("int32")),
}
COORDINATES = {"seed": np.arange(SEEDS), "axis": np.array([1.0, 2.0, 4.0])}
ATTRIBUTES = {"jax": "0.10.2", "precision": "float64", "config": '{"steps": 7}'}


def begun(path, variables=None, coordinates=None, attributes=None):
    given = (variables or VARIABLES, coordinates or COORDINATES, attributes or ATTRIBUTES)
    return records.Record.create(path, *given, BLOCK, notes={"revision": "abc"})


def go_on(record, blocks=9):
    """Write so many of the blocks that are missing, and finish if none is."""
    for part in record.unwritten()[:blocks]:
        record.write(part, {name: array[part] for name, array in ARRAYS.items()}, seconds=1.0)
    if not record.unwritten():
        record.finish(kept=SEEDS)


@pytest.fixture
def path(tmp_path):
    """A record of which two of three blocks are written."""
    go_on(begun(tmp_path / "record.zarr"), blocks=2)
    return tmp_path / "record.zarr"


def assert_whole(path):
    found = records.load(path)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_begun_record_is_gone_on_with(path):
    record = begun(path)
    assert [part.start for part in record.unwritten()] == [8]
    go_on(record)
    assert_whole(path)
    assert records.attributes(path)["revision"] == "abc"


def single(name):
    return {**VARIABLES, name: Variable(VARIABLES[name].dims, VARIABLES[name].shape, np.dtype("float32"))}


OTHERWISE = {
    "another JAX": ({"attributes": {**ATTRIBUTES, "jax": "0.11.0"}}, r"jax: expected 0\.11\.0, found 0\.10\.2"),
    "an attribute more": ({"attributes": {**ATTRIBUTES, "device": "cpu"}}, "device: expected cpu, found none"),
    "another configuration": (
        {"attributes": {**ATTRIBUTES, "config": "{}"}},
        r'config: expected {}, found {"steps": 7}',
    ),
    "another precision": (
        {"variables": single("x")},
        r"x: expected float32 \(seed: 10, axis: 3\), found float64 \(seed: 10, axis: 3\)",
    ),
    "other axes": (
        {"variables": {**VARIABLES, "k": Variable(("run",), (SEEDS,), np.dtype("int32"))}},
        r"k: expected int32 \(run: 10\), found int32 \(seed: 10\)",
    ),
    "one array less": ({"variables": {"x": VARIABLES["x"]}}, r"k: expected none, found int32 \(seed: 10\)"),
    "one array more": (
        {"variables": {**VARIABLES, "y": VARIABLES["x"]}},
        r"y: expected float64 \(seed: 10, axis: 3\), found none",
    ),
    "other values of an axis": (
        {"coordinates": {**COORDINATES, "axis": np.array([1.0, 2.0, 8.0])}},
        "axis: expected the values of this run, found others",
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_record_that_was_begun_otherwise_is_refused_and_stays(name, path):
    changes, message = OTHERWISE[name]
    before = all_within(path)
    with pytest.raises(
        records.RecordError,
        match=rf"was begun with other settings and cannot be continued: {message}.*; nothing was changed: move",
    ):
        begun(path, **changes)
    assert all_within(path) == before


def described(path, change):
    """Change what a store says of itself."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def cut(file):
    os.truncate(file, file.stat().st_size // 2)


# What is done to a record, and what is said of it.
DAMAGED = {
    "zarr.json cut short": (lambda path: cut(path / "zarr.json"), "zarr.json is damaged, or not of Zarr"),
    "zarr.json empty": (lambda path: os.truncate(path / "zarr.json", 0), "zarr.json is damaged, or not of Zarr"),
    "zarr.json of something else": (lambda path: (path / "zarr.json").write_text("[1]"), "zarr.json"),
    "zarr.json of an array": (
        lambda path: shutil.copy(path / "x" / "zarr.json", path / "zarr.json"),
        "zarr.json is damaged, or not of Zarr",
    ),
    "another layout": (
        lambda path: described(path / "zarr.json", lambda one: one["attributes"].update(layout=0)),
        "expected a record of layout 1, found 0, of another version",
    ),
    "no names": (
        lambda path: described(path / "zarr.json", lambda one: one["attributes"].pop("variables")),
        "expected a record that jaxattn wrote, found a store without variables",
    ),
    "no checksums": (lambda path: shutil.rmtree(path / "checksum"), "found a store without checksum"),
    "an array that is gone": (lambda path: shutil.rmtree(path / "x"), "x/zarr.json is missing, or damaged"),
    "an array cut short": (lambda path: cut(path / "x" / "zarr.json"), "x/zarr.json is missing, or damaged"),
    "an array of another type": (
        lambda path: described(path / "x" / "zarr.json", lambda one: one.update(data_type="int64")),
        r"x: expected float64 \(seed: 10, axis: 3\), as zarr.json states, found int64",
    ),
    "an array of other axes": (
        lambda path: described(path / "x" / "zarr.json", lambda one: one.update(dimension_names=["seed", "other"])),
        r"x: expected float64 \(seed: 10, axis: 3\), as zarr.json states, found float64 \(seed: 10, other: 3\)",
    ),
}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_record_that_cannot_be_read_is_one_error_and_stays(name, finished, path):
    if finished:
        go_on(begun(path))
    damage, message = DAMAGED[name]
    damage(path)
    before = all_within(path)
    call = records.load if finished else begun
    with pytest.raises(records.RecordError, match=rf"no readable record at .*: .*{message}.*move .*record\.zarr away"):
        call(path)
    assert all_within(path) == before


def flipped(file, byte=3):
    content = bytearray(file.read_bytes())
    content[byte] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(("name", "chunk"), [("x", "1/0"), ("k", "1"), ("checksum", "1/0")])
def test_a_damaged_block_of_a_begun_record_is_computed_again_and_the_finished_one_loads(name, chunk, path):
    flipped(path / name / "c" / chunk)
    with pytest.warns(records.RecordWarning, match="seeds 4 to 7 were damaged .* computed again"):
        record = begun(path)
    assert [part.start for part in record.unwritten()] == [4, 8]
    go_on(record)
    assert_whole(path)


def test_a_damaged_axis_is_found_when_a_record_is_gone_on_with_and_when_it_is_loaded(path):
    flipped(path / "axis" / "c" / "0")
    with pytest.raises(records.RecordError, match="axis: expected the values of this run, found others"):
        begun(path)
    flipped(path / "axis" / "c" / "0")
    go_on(begun(path))
    assert_whole(path)
    flipped(path / "axis" / "c" / "0")
    with pytest.raises(records.RecordError, match=r"is damaged: .*move"):
        records.load(path)


def test_every_byte_of_a_description_may_be_lost(path):
    """Cut short anywhere, a description is one error; no cut is taken for another record."""
    content = (path / "zarr.json").read_bytes()
    for length in range(0, len(content) - 2, 97):
        (path / "zarr.json").write_bytes(content[:length])
        with pytest.raises(records.RecordError, match="no readable record"):
            begun(path)
        with pytest.raises(records.RecordError, match="no readable record"):
            records.load(path)
    (path / "zarr.json").write_bytes(content)
    go_on(begun(path))
    assert_whole(path)


@pytest.mark.parametrize("where", ["zarr.json", "x/c/2", "k/c/2", "checksum/c/2", "seconds/c/2"])
def test_a_disk_that_fills_up_at_any_write_is_one_error_and_the_record_is_gone_on_with(where, path, monkeypatch):
    write = local._put

    def full(file, *rest, **more):
        if file.as_posix().startswith((path / where).as_posix()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(local, "_put", full)
        with pytest.raises(records.RecordError, match="No space left on device"):
            go_on(begun(path))
    go_on(begun(path))
    assert_whole(path)


def test_a_disk_that_is_full_from_the_start_leaves_nothing_that_looks_begun(tmp_path, monkeypatch):
    def full(*given, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(local, "_put", full)
        with pytest.raises(records.RecordError, match=r"cannot write the record .*: No space left on device"):
            begun(tmp_path / "record.zarr")
    assert not (tmp_path / "record.zarr").exists()
    go_on(begun(tmp_path / "record.zarr"))
    assert_whole(tmp_path / "record.zarr")


def dataset():
    texts = np.array(["abc", "äö", ""], object)
    numbers = {
        "x": ("seed", np.array([1.0, np.nan, -0.0])),
        "k": ("seed", np.arange(3)),
        "b": ("seed", np.arange(3) > 1),
    }
    return xarray.Dataset(
        {**numbers, "t": ("seed", texts), "one": ((), 2.5), "none": (("seed", "no"), np.zeros((3, 0)))}
    )


def test_a_dataset_of_any_kind_of_numbers_and_texts_is_held_against_its_checksums(tmp_path):
    records.save_dataset(tmp_path / "own.zarr", dataset())
    xarray.testing.assert_equal(records.load_dataset(tmp_path / "own.zarr"), dataset())


OF_DATASETS = {
    "a damaged chunk": (lambda path: (path / "k" / "c" / "0").write_bytes(b"nonsense"), "damaged"),
    "a lost chunk": (lambda path: (path / "k" / "c" / "0").unlink(), "is damaged: k differs from what was written"),
    "a lost array": (lambda path: shutil.rmtree(path / "x"), "is damaged: x differs from what was written"),
    "another type": (
        lambda path: described(path / "x" / "zarr.json", lambda one: one.update(data_type="int64", fill_value=0)),
        "damaged",
    ),
    "zarr.json cut short": (lambda path: cut(path / "zarr.json"), "is damaged, or no dataset"),
    "a store of an older version": (
        lambda path: described(
            path / "zarr.json", lambda one: one["attributes"].update(written_by_jaxattn=["b", "k", "x"])
        ),
        "found one without checksums; `records.load` reads a record, and `xarray.open_zarr` any store as it is",
    ),
    "a store of another program": (
        lambda path: described(path / "zarr.json", lambda one: one["attributes"].pop("written_by_jaxattn")),
        "found one without checksums",
    ),
    "no store": (shutil.rmtree, "expected a store that jaxattn wrote, found none"),
}


@pytest.mark.parametrize("name", OF_DATASETS)
def test_a_dataset_that_is_not_whole_is_one_error_and_stays(name, tmp_path):
    path = tmp_path / "own.zarr"
    records.save_dataset(path, dataset())
    damage, message = OF_DATASETS[name]
    damage(path)
    before = all_within(tmp_path)
    with pytest.raises(records.RecordError, match=message):
        records.load_dataset(path)
    assert all_within(tmp_path) == before
