"""Whole datasets: read as they were written, and nothing of anyone else's is replaced."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import xarray
from zarr.storage import _local as local

from jaxattn import records
from tests.instances import all_within


def own(n=3):
    return xarray.Dataset({"x": ("seed", np.arange(n)), "y": ((), 1.0)}, {"seed": np.arange(n)}, {"made": "here"})


def test_a_dataset_is_read_as_it_was_written_and_replaces_the_one_before(tmp_path):
    for n in (3, 4, 0):
        records.save_dataset(tmp_path / "new" / "own.zarr", own(n))
        xarray.testing.assert_identical(records.load_dataset(tmp_path / "new" / "own.zarr"), own(n))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["own.zarr"]


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_an_array_of_one_value_is_read_to_the_last_bit(value, dtype, tmp_path):
    # A quotient 0/0 has the other sign than the NaN that Zarr fills with, and leaves out where a chunk is full of it.
    dataset = xarray.Dataset({"x": ("seed", np.full(4, value, dtype))})
    records.save_dataset(tmp_path / "own.zarr", dataset)
    assert records.load_dataset(tmp_path / "own.zarr")["x"].values.tobytes() == dataset["x"].values.tobytes()


DATES = ["2020-01-01T00:00:01", "NaT", "1850-06-01T12:00:01"]
TIMES = [np.array(DATES, f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")]


@pytest.mark.parametrize(
    "arrays",
    [
        *({"time": ("seed", times), "since": ("seed", times - times[0])} for times in TIMES),
        *({"x": ("seed", np.arange(3, dtype=dtype))} for dtype in (">f8", ">f4", ">i4", ">c16")),
        {"x": ((np.str_("seed"),), np.arange(3))},
    ],
)
def test_times_byte_orders_and_names_are_read_as_the_same(arrays, tmp_path):
    records.save_dataset(str(tmp_path / "own.zarr"), xarray.Dataset(arrays))
    xarray.testing.assert_equal(records.load_dataset(str(tmp_path / "own.zarr")), xarray.Dataset(arrays))


def test_attributes_of_numpy_and_paths_are_written_as_json_has_them(tmp_path):
    own = xarray.DataArray([1.0], dims="seed", attrs={"unit": np.str_("step"), "size": np.int32(3)})
    given = {"mean": np.float64(0.5), "range": np.arange(2), "from": Path("here"), "all": [np.bool_(True)]}
    records.save_dataset(tmp_path / "own.zarr", xarray.Dataset({"x": own}, attrs=given))
    read = records.load_dataset(tmp_path / "own.zarr")
    assert read.attrs == {"mean": 0.5, "range": [0, 1], "from": "here", "all": [True]}
    assert read["x"].attrs == {"unit": "step", "size": 3}
    assert isinstance(given["range"], np.ndarray)


@pytest.mark.parametrize("value", [print, {1}, b"bytes", 1j])
def test_an_attribute_that_json_has_no_form_for_is_named_before_anything_is_written(value, tmp_path):
    with pytest.raises(records.RecordError, match=f"expected attributes of numbers.*found {type(value).__name__}"):
        records.save_dataset(tmp_path / "own.zarr", xarray.Dataset(attrs={"what": value}))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("reason", ("seed", np.array(["stalled", None], object))),
        ("loss/train", ("seed", np.arange(2.0))),
        ("x", ("seed", np.arange(1.0, 3.0), {"scale_factor": 2.0})),
    ],
)
def test_an_array_that_would_be_read_as_another_is_named_when_it_is_written(name, array, tmp_path):
    records.save_dataset(tmp_path / "own.zarr", own())
    with pytest.raises(records.RecordError, match=f"cannot write .*found others: {name}$"):
        records.save_dataset(tmp_path / "own.zarr", own().drop_dims("seed").assign({name: array}))
    xarray.testing.assert_identical(records.load_dataset(tmp_path / "own.zarr"), own())
    assert [path.name for path in tmp_path.iterdir()] == ["own.zarr"]


@pytest.mark.parametrize("given", [own()["x"], {"x": np.arange(3)}])
def test_what_is_no_dataset_is_named(given, tmp_path):
    found = type(given).__name__
    with pytest.raises(records.RecordError, match=f"dataset: expected an xarray.Dataset, found {found}"):
        records.save_dataset(tmp_path / "own.zarr", given)


def test_a_dataset_read_as_a_record_is_told_what_reads_it(tmp_path):
    records.save_dataset(tmp_path / "own.zarr", own())
    with pytest.raises(records.RecordError, match=r"found a dataset, which `records\.load_dataset` reads$"):
        records.load(tmp_path / "own.zarr")


def a_folder(place):
    place.mkdir()
    (place / "notes.txt").write_text("of years")


def a_link(place):
    records.save_dataset(place.with_name("target"), own())
    place.symlink_to(place.with_name("target"))


def a_dangling_link(place):
    place.symlink_to(place.with_name("nowhere"))


def a_store_of_another_program(place):
    own().to_zarr(place, consolidated=False, zarr_format=3)


def a_store_of_ours_with(name):
    def put(place):
        records.save_dataset(place, own())
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("of years")

    return put


FOUND = [
    (a_folder, "a folder that is no such store"),
    (Path.mkdir, "a folder that is no such store"),
    (Path.touch, "a file"),
    (a_link, "a symbolic link"),
    (a_dangling_link, "a symbolic link"),
    (a_store_of_another_program, "a folder that is no such store"),
    (a_store_of_ours_with("notes.txt"), "such a store with a file of someone else in it, notes.txt"),
    (a_store_of_ours_with("x/c/notes.txt"), "such a store with a file of someone else in it, x/c/notes.txt"),
    (a_store_of_ours_with("mine/0"), "such a store with a file of someone else in it, mine/0"),
]


@pytest.mark.parametrize(("put", "found"), FOUND)
def test_what_is_no_store_of_ours_is_refused_and_not_touched(put, found, tmp_path):
    place = tmp_path / "own.zarr"
    put(place)
    before = all_within(tmp_path)
    for refused in (records.check_place, lambda path: records.save_dataset(path, own())):
        with pytest.raises(records.RecordError, match=rf"expected nothing there.*, found {found}; nothing was changed"):
            refused(place)
    assert all_within(tmp_path) == before


def test_what_others_put_beside_the_place_stays(tmp_path):
    for name in ("own.zarr.new", "own.zarr.mine.partial"):
        a_folder(tmp_path / name)
    records.save_dataset(tmp_path / "own.zarr", own())
    assert {path.name for path in tmp_path.rglob("notes.txt")} == {"notes.txt"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.zarr", "own.zarr.mine.partial", "own.zarr.new"]


def test_a_place_below_a_file_is_named_before_any_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(records.RecordError, match=r"cannot write in .*: .*file is not a folder"):
        records.check_place(tmp_path / "file" / "x" / "own.zarr")


def disk_full(write):
    def put(file, *rest, **more):
        if "x/c" in file.as_posix():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, *rest, **more)

    return put


def interrupted(write):
    def to_zarr(dataset, *rest, **more):
        write(dataset, *rest, **more)
        raise KeyboardInterrupt

    return to_zarr


def not_moved(rename):
    def failing(path, target):
        if path.name == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    return failing


@pytest.mark.parametrize(
    ("where", "name", "fails", "error", "message"),
    [
        (local, "_put", disk_full, records.RecordError, r"cannot write .*own\.zarr: No space left on device"),
        (xarray.Dataset, "to_zarr", interrupted, KeyboardInterrupt, "^$"),
        (Path, "rename", not_moved, records.RecordError, r"cannot write .*own\.zarr: Input/output error"),
    ],
)
def test_a_write_that_fails_keeps_the_store_before(where, name, fails, error, message, tmp_path, monkeypatch):
    records.save_dataset(tmp_path / "own.zarr", own())
    monkeypatch.setattr(where, name, fails(getattr(where, name)))
    with pytest.raises(error, match=message):
        records.save_dataset(tmp_path / "own.zarr", own(5))
    xarray.testing.assert_identical(records.load_dataset(tmp_path / "own.zarr"), own())
    assert [path.name for path in tmp_path.iterdir()] == ["own.zarr"]
