"""A sweep is gathered with its numbers and their provenance; what is not ours at the place is not touched."""

import json

import numpy as np
import pytest
import xarray

from jaxattn import records
from jaxattn.study import making, runs
from jaxattn.study.commands import gather
from jaxattn.study.configuration import composition
from jaxattn.study.measuring import comparison

TINY = ["seeds=3", "steps=20", "data.n=2", "data.T=3", "snapshots.every=20"]


SWEEP = [
    "data.d=3,4",
    "optimizer.step_size=0.1,1,1e-2",
    "weights=free,factored",
    "optimizer._target_=jaxattn.descent.normalized_gd",
    "key=7",
]


@pytest.mark.slow
def test_a_sweep_is_composed_once_a_choice_of_groups_to_the_same_runs(monkeypatch):
    combinations = composition.expand(SWEEP)
    expected = [composition.compose(one) for one in combinations]
    counted, compose = [], composition.compose
    monkeypatch.setattr(composition, "compose", lambda one: counted.append(one) or compose(one))
    configs = [*composition.composed(combinations)]
    assert len(counted) == 2
    assert [runs.folder(one) for one in configs] == [runs.folder(one) for one in expected]
    assert configs == expected


def test_a_list_and_a_key_that_is_given_twice_are_composed_as_hydra_does():
    combinations = composition.expand(["experiment=feasibility", "data.d=[2],[2,3]", "seeds=2", "seeds=3"])
    configs = [*composition.composed(combinations)]
    assert [list(one.data.d) for one in configs] == [[2], [2, 3]]
    assert [one.seeds for one in configs] == [3, 3]
    assert configs == [composition.compose(one) for one in combinations]
    assert gather._swept(combinations, configs)["data.d"][1].tolist() == ["[2]", "[2,3]"]


def test_swept_numbers_are_numbers_and_names_and_lists_are_texts():
    combinations = composition.expand(SWEEP)
    swept = gather._swept(combinations, [composition.compose(one) for one in combinations])
    found = {key: values for key, (_, values) in swept.items()}
    assert set(found) == {"data.d", "optimizer.step_size", "weights"}
    assert found["data.d"].dtype == np.int64
    assert found["optimizer.step_size"].dtype == np.float64
    assert set(found["optimizer.step_size"].tolist()) == {0.1, 1.0, 0.01}
    assert set(found["weights"].tolist()) == {"free", "factored"}


@pytest.mark.parametrize(
    ("values", "written", "expected"),
    [
        ([1, 2.5], ["1", "2.5"], [1.0, 2.5]),
        ([2**53 + 1, 0.5], ["9007199254740993", "0.5"], ["9007199254740993", "0.5"]),
        ([2**70, 1], ["1180591620717411303424", "1"], ["1180591620717411303424", "1"]),
        ([True, False], ["true", "false"], [True, False]),
        ([True, 1], ["true", "1"], ["true", "1"]),
        ([None, 1], ["null", "1"], ["null", "1"]),
        (["a b", "c"], ["'a b'", "c"], ["a b", "c"]),
    ],
)
def test_values_of_several_kinds_are_kept_exactly(values, written, expected):
    found = gather._numbers(values, written).tolist()
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def trained(overrides):
    for one in composition.expand(overrides):
        runs.run(composition.compose(one))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The overrides of a sweep of two trained runs."""
    overrides = [*TINY, "data.d=3,4", f"runs={tmp_path_factory.mktemp('runs')}"]
    trained(overrides)
    return overrides


@pytest.mark.slow
def test_a_sweep_is_gathered_into_one_dataset(sweep, tmp_path):
    with pytest.raises(records.RecordError, match="2 of 2 runs are not there"):
        gather.gather([*sweep[:-1], f"runs={tmp_path}"])
    for _ in range(2):  # The second replaces the first.
        gather.main([*sweep, "--to", str(tmp_path / "sweep.zarr")])
    dataset = records.load_dataset(tmp_path / "sweep.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.zarr"]
    assert dataset["data.d"].values.tolist() == [3, 4]
    assert dataset["attempted"].values.tolist() == [3, 3]
    assert dataset["norm"].values.tolist() == ["frobenius", "nuclear"]
    assert dataset.sizes["snapshot"] == 1
    for run, line in enumerate(composition.expand(sweep)):
        compared = making.measured(composition.compose(line))["margin_ratio"]
        found = dataset["margin_ratio"].isel(run=run).sel(seed=compared["seed"])
        np.testing.assert_array_equal(found.transpose(*compared.dims), compared)


@pytest.mark.slow
def test_where_the_numbers_come_from_is_kept(sweep, tmp_path):
    gather.main([*sweep, "--to", str(tmp_path / "sweep.zarr")])
    dataset = records.load_dataset(tmp_path / "sweep.zarr")
    configs = [composition.compose(one) for one in composition.expand(sweep)]
    shared = json.loads(dataset.attrs["config"])
    assert (shared["seeds"], shared["steps"], shared["data"]["n"]) == (3, 20, 2)
    assert "d" not in shared["data"]
    assert json.loads(dataset.attrs["overrides"]) == sweep
    assert json.loads(dataset.attrs["norms"]) == ["frobenius", "nuclear"]
    assert dataset["record"].values.tolist() == [str(runs.folder(config)) for config in configs]
    assert dataset["fingerprint"].values.tolist() == [runs.fingerprint(config) for config in configs]
    assert {"jax", "jaxattn"} < set(json.loads(str(dataset["versions"].values[0])))
    assert all(dataset["revision"].values)


@pytest.mark.slow
def test_norms_are_chosen_and_measured_once(sweep, tmp_path, monkeypatch):
    command = [*sweep, "--to", str(tmp_path / "sweep.zarr"), "--norms"]
    gather.main([*command, "spectral, frobenius"])
    first = records.load_dataset(tmp_path / "sweep.zarr")
    assert first["norm"].values.tolist() == ["spectral", "frobenius"]
    assert json.loads(first.attrs["norms"]) == ["spectral", "frobenius"]
    gather.main([*command, "nuclear,frobenius"])
    default = gather.gather(sweep)
    other = records.load_dataset(tmp_path / "sweep.zarr")
    np.testing.assert_array_equal(other["primal"].values, default["primal"].values[:, :, ::-1])
    np.testing.assert_allclose(first["primal"].sel(norm="frobenius"), default["primal"].sel(norm="frobenius"))

    def again(*given, **more):
        raise AssertionError(given)

    monkeypatch.setattr(comparison, "compare", again)
    gather.main([*command, "spectral,frobenius"])
    xarray.testing.assert_identical(records.load_dataset(tmp_path / "sweep.zarr"), first)


@pytest.mark.slow
def test_a_sweep_with_excluded_seeds_is_written_and_read(tmp_path):
    # A step of 1e308 on a linear loss carries the weights beyond the largest double.
    overrides = [*TINY, "data.d=3", "loss=correlation", "optimizer=gd", "weights=factored", f"runs={tmp_path / 'runs'}"]
    overrides.append("optimizer.step_size=0.1,1e308")
    trained(overrides)
    gather.main([*overrides, "--norms", "frobenius", "--to", str(tmp_path / "sweep.zarr")])
    dataset = records.load_dataset(tmp_path / "sweep.zarr")
    assert dataset["optimizer.step_size"].values.tolist() == [0.1, 1e308]
    assert dataset["attempted"].values.tolist() == [3, 3]
    excluded = sum(dataset[name] for name in ("diverged", "infeasible", "unsolved"))
    np.testing.assert_array_equal(dataset["kept"] + excluded, [3, 3])
    assert int(dataset["diverged"][1]) > 0
    known = dataset["correlation"].notnull().any(("norm", "snapshot")).sum("seed")
    np.testing.assert_array_equal(known, dataset["kept"])


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    """Gathers two runs, which are measured like this."""

    def gathered(measured):
        monkeypatch.setattr(making, "measured", measured)
        monkeypatch.setattr(runs, "is_recorded", lambda config: True)
        monkeypatch.setattr(records, "attributes", lambda path: {"fingerprint": "abc"})
        gather.main(["data.d=3,4", "--to", str(tmp_path / "sweep.zarr")])
        return records.load_dataset(tmp_path / "sweep.zarr")

    return gathered


def test_a_sweep_of_which_every_seed_is_excluded_is_written_and_read(gathered):
    found = xarray.Dataset(
        {"status": (("attempt", "norm"), np.full((3, 1), 2)), "rank": (("seed", "norm"), np.zeros((0, 1), int))},
        {"attempt": np.arange(3), "seed": np.zeros(0, int), "norm": np.array(["frobenius"], object)},
        {"attempted": 3, "kept": 0, "diverged": 0, "infeasible": 3, "unsolved": 0, "run": "W"},
    )
    dataset = gathered(lambda config: found)
    assert (dataset["infeasible"].values.tolist(), dataset.sizes["seed"]) == ([3, 3], 0)
    assert dataset["data.d"].values.tolist() == [3, 4]


@pytest.mark.parametrize("dims", [("seed", "norm", "snapshot"), ("seed", "snapshot")])
def test_margin_ratios_are_gathered_with_what_they_are(gathered, dims):
    sizes = {"seed": 2, "norm": 1, "snapshot": 3}
    ratios = [np.linspace(k, k + 0.5, 6).reshape([sizes[name] for name in dims]) for k in range(2)]
    left = iter(ratios)

    def measured(config):
        return xarray.Dataset(
            {"margin_ratio": (dims, next(left)), "W_svm": ("seed", np.ones(2))},
            {"seed": np.arange(2), "norm": np.array(["max"], object), "snapshot": [1, 2, 3]},
            {"attempted": 2, "kept": 2, "diverged": 0, "infeasible": 0, "unsolved": 0, "run": "W"},
        )

    found = gathered(measured)["margin_ratio"]
    np.testing.assert_array_equal(found.transpose("run", *dims), ratios)
    assert found.attrs == {"units": "1", "long_name": "normalized margin of W as a share of the largest possible one"}
