"""The tensor-trick experiment: what is measured of a record, verdicts on datasets built by hand, costs, the table."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language, losses, records
from jaxattn.experiments.smoothness.tensor_trick import measure as room
from jaxattn.experiments.smoothness.tensor_trick.claims import summarize
from jaxattn.experiments.smoothness.tensor_trick.costs import costs
from jaxattn.experiments.smoothness.tensor_trick.examples import runs
from jaxattn.experiments.smoothness.tensor_trick.measure import measure
from jaxattn.experiments.smoothness.tensor_trick.table import table
from jaxattn.language import tensor
from jaxattn.study import claims as study_claims
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, texts
from tests.instances import lane

KEY = jax.random.key(0)
LAW = {"m": 3, "n": 5, "d": 6, "V": 4, "entropy": 1.0}
LOSSES = ("cross entropy", "logistic", "squared")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    setting = texts.Texts(partial(data.language, **LAW, candidates=language.prefix), seeds=4, key=1)
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting, path, {"config": json.dumps({"data": LAW})})
    return records.load(path)


def test_every_text_is_measured_at_weights_of_its_own_key(record):
    one = measure(record)
    assert one.attrs == {"attempted": 4, "kept": 4, "labels": 0, "run": "n=5 d=6", **{k: LAW[k] for k in "mndV"}}
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
    monkeypatch.setitem(room.LOSSES, "cross entropy", changed)
    choices = texts.choices_of({str(name): record[name].values for name in record.data_vars})
    alone = jax.tree.map(jnp.asarray, lane(choices, 0))
    words = jnp.concatenate([alone.last.reshape(3, 4), alone.next.reshape(3, 4)[:, -1:]], axis=1)
    apart = room._apart(alone, words, jnp.asarray(record["draw_key"].values[0]))
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


def decided(seeds=24, **wrong):
    """Estimates, and the judgement on the claim."""
    experiment = study_claims.experiment("jaxattn.experiments.smoothness.tensor_trick")
    summaries, ((claim, found),) = study_claims.judged(experiment, "tensor-trick", runs(seeds, **wrong), KEY)
    assert claim.id == "tensor-trick:identity"
    return summaries, found


@pytest.mark.parametrize(
    ("seeds", "wrong", "verdict"),
    [
        (24, {}, Verdict.HOLDS),
        (24, {"risk": 2e-12}, Verdict.FAILS),
        (24, {"gradient": 2e-12}, Verdict.FAILS),
        (24, {"gradient": 9e-13}, Verdict.HOLDS),
        (24, {"risk": 1.01e-12}, Verdict.FAILS),
        (24, {"risk": 1e-12, "gradient": 1e-12}, Verdict.HOLDS),
        # No measurement: neither the same nor different.
        (24, {"risk": np.nan}, Verdict.OPEN),
        (24, {"gradient": np.nan}, Verdict.OPEN),
        (20, {}, Verdict.HOLDS),
        (19, {}, Verdict.OPEN),
        (8, {}, Verdict.OPEN),
        (8, {"risk": 1.0}, Verdict.OPEN),
    ],
)
def test_the_identity_holds_only_if_every_text_agrees(seeds, wrong, verdict):
    found = decided(seeds, **wrong)[1]
    assert found.verdict is verdict
    assert found.note


def test_the_claim_names_the_largest_difference_of_every_loss():
    found = decided(gradient=3e-12)[1]
    assert found.measured["largest relative difference of the gradient, logistic"] == 3e-12
    assert found.measured["largest relative difference of the gradient, squared"] == 2e-15
    share = "share of texts that agree to 1e-12 for every loss"
    assert found.measured[share] == pytest.approx(119 / 120)
    low, high = found.interval[share]
    assert low < 119 / 120 <= high
    assert set(found.expected) == {name for name in found.measured if "over matrix form" not in name}


def test_the_claim_counts_the_texts_of_every_size():
    found = decided()[1]
    assert [*found.counts] == ["n=9 d=4", "n=9 d=8", "n=9 d=16", "n=5 d=8", "n=17 d=8"]
    assert all(counts == {"attempted": 24, "kept": 24, "labels": 0} for counts in found.counts.values())


def test_no_run_is_an_error():
    with pytest.raises(ValueError, match="tensor-trick: expected a run, found none"):
        summarize({}, KEY)


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


def test_the_table_has_a_row_per_size_with_differences_and_costs():
    found = table(summarize(runs(gradient=3e-11), KEY))
    assert [row[:3] for row in found.rows] == [
        (n, d, "24 of 24") for n, d in (("5", "8"), ("9", "4"), ("9", "8"), ("9", "16"), ("17", "8"))
    ]
    small = r"$2\times10^{-15}$"
    assert {row[3] for row in found.rows} == {small}
    # One text of one size and loss.
    assert [row[4] for row in found.rows] == [small, small, r"$3\times10^{-11}$", small, small]
    assert [row[5] for row in found.rows] == ["1,024", "1,024", "4,096", "16,384", "16,384"]
    assert found.heads[6:] == ("cost, tensor trick", "cost, matrix form", "cost, pairs of words")
    products, held = costs(3, 9, 8, 4)
    assert found.rows[2][6:] == tuple(f"{products[form]:,} / {held[form]:,}" for form in products)
    assert found.rows[2][6] == "24,576 / 4,160"
    assert "(cross entropy, logistic, squared); the claim allows $1\\times10^{-12}$." in found.note
    assert found.note.endswith("120 texts, all kept.")


def test_texts_without_a_choice_are_counted_in_their_row_and_below_the_table():
    datasets = dict(runs())
    datasets["n=9 d=4"] = datasets["n=9 d=4"].isel(seed=slice(22)).assign_attrs(kept=22, labels=2, run="n=9 d=4")
    found = table(summarize(datasets, KEY))
    assert [row[2] for row in found.rows] == ["24 of 24", "22 of 24", *["24 of 24"] * 3]
    assert found.note.endswith("118 of 120 texts kept (excluded: 2 labels).")
