"""The tensor-trick experiment: what is measured of a record, verdicts on datasets built by hand, costs, the figure."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, language, losses, records
from jaxattn.experiments.smoothness.tensor_trick import claims as tensor_trick
from jaxattn.experiments.smoothness.tensor_trick import figure
from jaxattn.language import tensor
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, texts
from tests.instances import drawn_lines, lane

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
    one = tensor_trick.measure(record)
    assert one.attrs == {"attempted": 4, "kept": 4, "labels": 0, "run": "n=5 d=6", **{k: LAW[k] for k in "mndV"}}
    assert one["loss"].values.tolist() == list(LOSSES)
    assert float(one["risk"].max()) < 1e-13
    assert float(one["gradient"].max()) < 1e-12
    # The largest is of rounding, and rounding there is.
    assert float(one["gradient"].max()) > 0


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
    one = tensor_trick.measure(changed)
    assert [one.attrs[name] for name in ("attempted", "kept", "labels")] == [4, 3, 1]
    assert one["seed"].values.tolist() == [0, 1, 3]
    changed["weight"].values[:] = 0
    with pytest.raises(ValueError, match=r"^tensor-trick: expected a text in which a prefix chooses, found none of 4"):
        tensor_trick.measure(changed)


def made(n, d, seeds=24, **wrong):
    """What `measure` would return of texts of this size; `wrong` is put in for one seed."""
    values = {name: np.full((seeds, 3), 2e-15) for name in ("risk", "gradient")}
    for name, number in wrong.items():
        values[name][5, 1] = number
    attrs = {"attempted": seeds, "kept": seeds, "labels": 0, "run": f"n={n} d={d}", "m": 3, "n": n, "d": d, "V": 4}
    coordinates = {"seed": np.arange(seeds), "loss": np.array(LOSSES, dtype=object)}
    return xarray.Dataset({name: (("seed", "loss"), one) for name, one in values.items()}, coordinates, attrs)


def judged(seeds=24, **wrong):
    runs = [made(9, 4, seeds), made(9, 8, seeds, **wrong), made(9, 16, seeds), made(5, 8, seeds), made(17, 8, seeds)]
    summaries, (claim,) = tensor_trick.summarize({one.attrs["run"]: one for one in runs}, KEY)
    assert claim.id == "tensor-trick:identity"
    return summaries, claim


@pytest.mark.parametrize(
    ("seeds", "wrong", "verdict"),
    [
        (24, {}, Verdict.HOLDS),
        (24, {"risk": 2e-12}, Verdict.FAILS),
        (24, {"gradient": 2e-12}, Verdict.FAILS),
        (24, {"gradient": 9e-13}, Verdict.HOLDS),
        (24, {"risk": np.nan}, Verdict.FAILS),
        (8, {}, Verdict.OPEN),
        (8, {"risk": 1.0}, Verdict.OPEN),
    ],
)
def test_the_identity_holds_only_if_every_text_agrees(seeds, wrong, verdict):
    claim = judged(seeds, **wrong)[1]
    assert claim.verdict is verdict
    assert claim.note


def test_the_claim_names_the_largest_difference_of_every_loss():
    claim = judged(gradient=3e-12)[1]
    assert claim.measured["largest relative difference of the gradient, logistic"] == 3e-12
    assert claim.measured["largest relative difference of the gradient, squared"] == 2e-15
    share = "share of texts that agree to 1e-12 for every loss"
    assert claim.measured[share] == pytest.approx(119 / 120)
    low, high = claim.interval[share]
    assert low < 119 / 120 <= high
    assert set(claim.expected) == {name for name in claim.measured if "over matrix form" not in name}


def test_costs_are_those_of_the_arrays():
    m, n, d, V = 3, 5, 6, 4
    products, held = tensor_trick.costs(m, n, d, V)
    A = jnp.ones((n - 1, d))
    whole = tensor.kronecker(A, A)
    assert held["tensor trick"] == whole.size + (n - 1) ** 2
    # Each entry is a product, and multiplies one of x.
    assert products["tensor trick"] == m * 2 * whole.size
    assert products["matrix form"] == m * ((n - 1) * d * d + (n - 1) * d * (n - 1))
    assert held["matrix form"] == (n - 1) * d + (n - 1) ** 2
    assert products["pairs of words"] == V * d * d + V * d * V
    assert held["pairs of words"] == V * d + V * V + m * (n - 1) * V


def test_the_figure_draws_differences_and_costs():
    summaries, _ = judged(gradient=3e-11)
    drawn = figure.draw(summaries)
    titles = [panel.get_title() for panel in drawn.axes]
    assert titles[1:] == ["(b) cost of the scores, $n = 9$", "(c) cost of the scores, $d = 8$"]
    summary = summaries["texts"]
    apart, *costs = drawn.axes
    points = drawn_lines(apart, least=5)
    assert len(points) == 6
    for (x, y), (loss, name) in zip(points, [(a, b) for a in LOSSES for b in ("risk", "gradient")], strict=True):
        np.testing.assert_array_equal(x, ((summary["n"] - 1) * summary["d"]) ** 2)
        np.testing.assert_array_equal(y, summary[name].sel(loss=loss))
        low, high = apart.get_ylim()
        assert np.all((y > low) & (y < high))
    for axes, sizes in zip(costs, ([4, 8, 16], [5, 9, 17]), strict=True):
        lines = drawn_lines(axes, least=3)
        assert len(lines) == 6
        assert all(x.tolist() == sizes for x, _ in lines)
    first = [tensor_trick.costs(3, 9, d, 4)[0]["tensor trick"] for d in (4, 8, 16)]
    np.testing.assert_array_equal(drawn_lines(costs[0], least=3)[0][1], first)
    assert "texts: 120 of 120 texts kept (0 labels)" in drawn.get_supxlabel()
