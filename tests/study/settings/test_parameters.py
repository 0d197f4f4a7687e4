"""The parameters of models by name, and back; and records of models and noise."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, initial, losses, models, records
from jaxattn.attention import Factored
from jaxattn.heads import linear
from jaxattn.models import Joint
from jaxattn.study.settings import parameters, recording
from jaxattn.study.settings.schedule import Logarithmically
from jaxattn.study.settings.training import Training

SIZES = {"n": 3, "T": 4, "d": 5}
W: Any = np.ones((2, 3, 3))
K: Any = np.zeros((2, 3, 1))
PARAMS = {
    "W": (W, ["W"]),
    "factors": (Factored(K, K), ["K", "Q"]),
    "heads": ((W, 2 * W), ["W0", "W1"]),
    "heads of factors": ((Factored(K, K), Factored(K, K)), ["K0", "Q0", "K1", "Q1"]),
    "values": (Joint(Factored(K, K), W[:, 0]), ["K", "Q", "readout"]),
    "heads and values": (Joint((W, W), W[:, 0]), ["W0", "W1", "readout"]),
}


@pytest.mark.parametrize("name", PARAMS)
def test_names_lead_back_to_the_parameters(name):
    params, names = PARAMS[name]
    found = parameters.named(params)
    assert list(found) == names
    stored = {f"{own}_snapshots": array for own, array in found.items()} | {
        "X": W,
        "W_initial": 7 * W,
        "weights_key": W,
    }
    again = parameters.weights_of(stored, "_snapshots")
    assert jax.tree.structure(again) == jax.tree.structure(params)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(parameters.is_parameter(f"{own}{suffix}") for own in names for suffix in ("", "_initial", "_snapshots"))
    assert not any(map(parameters.is_parameter, ("X", "Y", "weights_key", "logits_snapshots", "v")))


def test_other_parameters_are_refused():
    with pytest.raises(TypeError, match=r"weights: expected W, Factored\(K, Q\) or several heads of these, found dict"):
        parameters.named({"W": W})


def setting(**given):
    values = {"law": partial(data.sphere, **SIZES), "initial": initial.several, "loss": losses.logistic, "head": linear}
    values |= {"optimizer": descent.normalized_gd(0.1, floor=0.0, penalty=0.0), "seeds": 3, "key": 0, "steps": 20}
    values |= {"snapshots": Logarithmically(4), "model": models.summed(2), "noise": descent.minibatches(2)}
    return Training(**values | given)


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> xarray.Dataset:
    path = tmp_path_factory.mktemp("record") / "record.zarr"
    recording.run(setting(), path, {})
    return records.load(path)


def test_a_record_holds_every_head_and_the_key_of_the_noise(record):
    assert record["W1_snapshots"].dims == ("seed", "snapshot", "feature", "query_feature")
    assert record["noise_key"].dims == ("seed", "key_word")
    assert record.attrs["kept"] == 3
    keys = np.concatenate([record[name].values for name in ("data_key", "weights_key", "noise_key")])
    assert len(np.unique(keys, axis=0)) == 9


def test_a_recorded_seed_can_be_trained_again(record):
    one = record.isel(seed=1)
    start = tuple(one[f"W{h}_initial"].values for h in range(2))
    problem = data.sphere(jax.random.wrap_key_data(one["data_key"].values), **SIZES)
    own = setting()
    key = jax.random.wrap_key_data(one["noise_key"].values)
    run = descent.train(jax.tree.map(np.asarray, start), problem, **own.descent, key=key)
    for h in range(2):
        np.testing.assert_allclose(run.weights[h], one[f"W{h}"].values, rtol=1e-9, atol=1e-12)


def test_a_law_of_one_head_does_not_fit_two(tmp_path):
    with pytest.raises(ValueError, match="weights: expected a tuple of 2 heads' weights, found an array of shape"):
        recording.run(setting(initial=initial.free), tmp_path / "record.zarr", {})
