"""A record is ranked as the run that it holds, snapshots of zeros aside, and a ranking goes through a dataset."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, data, descent, initial, records
from jaxattn.problem import of_arrays
from jaxattn.study.measuring.ranked import of_dataset, ranked, to_dataset
from jaxattn.study.settings.training import weights_of
from tests.instances import T, d, n
from tests.recorded import recorded

SEEDS, STEPS, KEPT = 8, 600, (0, 60, 200, 600)
NORMS = ("frobenius", "nuclear")
LAW = functools.partial(data.sphere, n=n, T=T, d=d)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
STARTS = {"W": initial.free_zero, "KQ": initial.factored_zero}


@pytest.fixture(scope="module", params=["W", pytest.param("KQ", marks=pytest.mark.slow)])
def record(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    return recorded(path, LAW, STARTS[request.param], RULE, seeds=SEEDS, steps=STEPS, snapshots=lambda steps: KEPT)


@pytest.fixture(scope="module")
def ranking(record):
    return ranked(record, NORMS)


def assert_same(one, other):
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        assert jax.tree.structure(mine) == jax.tree.structure(theirs), field.name
        for left, right in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(left, right, err_msg=field.name)


def test_a_record_is_ranked_as_its_run(record, ranking):
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    start = jax.tree.map(jnp.asarray, weights_of(arrays, "_initial"))
    run = descent.train_batch(start, problems, optimizer=RULE, steps=STEPS, snapshots=KEPT[1:])
    expected = bias.rank(run, problems, NORMS)
    np.testing.assert_allclose(ranking.margin_ratio, expected.margin_ratio, rtol=1e-9)
    assert ranking.verdict == expected.verdict


def test_snapshots_of_zeros_are_not_ranked(ranking):
    np.testing.assert_array_equal(ranking.steps, KEPT[1:])
    assert ranking.margin_ratio.shape == (ranking.counts["kept"], len(NORMS), 3)


def test_a_ranking_goes_through_a_dataset_and_the_disk(ranking, tmp_path):
    dataset = to_dataset(ranking)
    assert dataset["margin_ratio"].dims == ("seed", "norm", "snapshot")
    assert dataset.attrs["kept"] == ranking.counts["kept"]
    assert dataset.attrs["verdict"] == str(ranking.verdict)
    records.save_dataset(tmp_path / "ranking.zarr", dataset)
    again = of_dataset(records.load_dataset(tmp_path / "ranking.zarr"))
    assert_same(again, ranking)
    assert again.table() == ranking.table()


def test_one_snapshot_has_no_trend_in_a_dataset_either(record):
    lone = ranked(record.isel(snapshot=[0, 3]), NORMS)
    assert lone.trend is None
    assert "trend" not in to_dataset(lone)
    assert_same(of_dataset(to_dataset(lone)), lone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.drop_vars([name for name in one if str(name).endswith("_snapshots")]),
         r"^record: expected snapshots of the weights, found none; train with snapshots=logarithmically"),
        (lambda one: one.isel(snapshot=[0]), r"^record: expected weights with a direction, found zeros at every "),
        (lambda one: one.drop_vars(["Z", "v"]), r"^record: expected one of `jaxattn train` on problems, found no Z, v"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_ranked_is_named(record, change, message):
    with pytest.raises(ValueError, match=message):
        ranked(change(record), NORMS)
