"""The tensor trick: synthetic texts, what is measured of a record, and costs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language, losses
from jaxattn.experiments.smoothness import tensor_trick
from jaxattn.experiments.smoothness.tensor_trick import costs, measure
from jaxattn.language import tensor
from jaxattn.study.settings import texts
from tests.experiments.synthetic import synthetic
from tests.instances import lane
from tests.recorded import written

VERDICTS = {}
LAW = {"m": 3, "n": 5, "d": 6, "V": 4, "entropy": 1.0}
LOSSES = ("cross entropy", "logistic", "squared")


def measured():
    """Differences by rounding in texts of seven sizes."""
    return {f"n={n} d={d}": of_size(n, d) for n, d in ((9, 4), (9, 8), (9, 16), (9, 32), (5, 8), (17, 8), (33, 8))}


def of_size(n, d):
    apart = 2e-15 * np.linspace(0.5, 1.0, 24)[:, None] * np.ones(3)
    return synthetic(
        24,
        {"data.m": 4, "data.n": n, "data.d": d, "data.V": 4, "labels": 0},
        {"loss": np.array(LOSSES, dtype=object)},
        risk=(("seed", "loss"), apart),
        gradient=(("seed", "loss"), apart),
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    setting = texts.Texts(partial(data.language, **LAW, candidates=language.prefix), seeds=4, key=1)
    return written(setting, tmp_path_factory.mktemp("runs")).assign_attrs({"data.m": 3, "data.n": 5})


def test_every_text_is_measured_at_weights_of_its_own_key(record):
    one = measure(record)
    assert one.attrs == {"attempted": 4, "kept": 4, "labels": 0}
    assert one["loss"].values.tolist() == list(LOSSES)
    assert float(one["risk"].max()) < 1e-13
    assert float(one["gradient"].max()) < 1e-12
    # The largest is of rounding, and rounding there is.
    assert float(one["gradient"].max()) > 0


@pytest.mark.slow
def test_a_difference_would_be_seen(record, monkeypatch):
    def off(x, E, words, loss):
        found = tensor.slope(x, E, words, loss)
        return found._replace(value=found.value * (1 + 1e-9), gradient=found.gradient.at[1].add(1e-3))

    changed = (lambda W, choices: language.risk(W, choices), partial(off, loss=losses.cross_entropy))
    monkeypatch.setitem(tensor_trick._LOSSES, "cross entropy", changed)
    choices = texts.choices_of({str(name): record[name].values for name in record.data_vars})
    alone = jax.tree.map(jnp.asarray, lane(choices, 0))
    words = jnp.concatenate([alone.last.reshape(3, 4), alone.next.reshape(3, 4)[:, -1:]], axis=1)
    apart = tensor_trick._apart(alone, words, jnp.asarray(record["draw_key"].values[0]))
    assert float(apart[0, 0]) == pytest.approx(1e-9, rel=1e-3)
    assert float(apart[0, 1]) > 1e-4
    assert np.max(apart[1:]) < 1e-12


def test_texts_in_which_no_prefix_chooses_are_counted(record):
    changed = record.copy(deep=True)
    changed["weight"].values[2] = 0
    one = measure(changed)
    assert [one.attrs[name] for name in ("attempted", "kept", "labels")] == [4, 3, 1]
    assert one["seed"].values.tolist() == [0, 1, 3]
    changed["weight"].values[:] = 0
    with pytest.raises(ValueError, match=r"^tensor-trick: expected a text in which a prefix chooses, found none of 4"):
        measure(changed)


def test_costs_are_those_of_the_arrays():
    m, n, d, V = 3, 5, 6, 4
    products, held = costs(m, n, d, V)
    A = jnp.ones((n - 1, d))
    whole = tensor.kronecker(A, A)
    assert held["tensor trick"] == whole.size + (n - 1) ** 2
    # Each entry is a product, and multiplies one of x.
    assert products["tensor trick"] == m * 2 * whole.size
    assert products["matrix form"] == m * ((n - 1) * d * d + (n - 1) * d * (n - 1))
    assert held["matrix form"] == (n - 1) * d + (n - 1) ** 2
    assert products["pairs of words"] == V * d * d + V * d * V
    assert held["pairs of words"] == V * d + V * V + m * (n - 1) * V
