"""Even pairs and parity: synthetic measurements, the two laws, the chain of thought, and what is read off a record."""

from functools import partial
from itertools import pairwise, product

import jax
import numpy as np
import optax
import pytest

from jaxattn import descent, initial, models
from jaxattn.experiments.tasks.regular_languages import EQUAL, RUNS
from jaxattn.experiments.tasks.regular_languages.law import answered, even_pairs, parity
from jaxattn.experiments.tasks.regular_languages.measure import _rise, _separated, estimate, measure
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded

VERDICTS = {"regular-languages:stable": "holds with a correction"}
STEPS = np.array(Logarithmically(8)(10000))
KEY = jax.random.key(0)


def measured():
    """The attention slows down, v grows like the logarithm of t, and turns to the hyperplane like 1 / ||v||."""
    return {run: of_gap(0.1 if run == EQUAL else 0.01) for run in RUNS}


def of_gap(moved):
    """A run of 20 seeds whose attention still moves by this much in the last decade."""
    seeds, later = 1 + 0.001 * np.sin(np.arange(20))[:, None], STEPS[STEPS >= 20]
    log = np.log(STEPS + 1)
    series = {"size_W": np.sqrt(log), "size_v": log, "loss": 1 / STEPS, "moved": moved * (1 - log / log[-1]) * 5}
    series["off_first"] = 0.1 + 0 * log
    off = 0.05 / np.log(later + 1)
    return synthetic(
        20,
        {"steps": 10000},
        {"attempt": np.arange(20), "snapshot": STEPS, "later": later},
        **{name: seeds * curve for name, curve in series.items()},
        phase=20.0,
        rise_W=2.0,
        rise_v=1.0,
        answered=1.0,
        off=(("seed", "later"), seeds * off),
        ratio=(("seed", "later"), 1 - seeds * off),
        start=("attempt", np.ones(20, bool)),
        soon=("attempt", np.ones(20, bool)),
    )


def bits_of(problem):
    """The bits of every sequence, as the tokens say them."""
    tokens = [x[p].argmax(axis=1) for x, p in zip(*map(np.asarray, (problem.X, problem.present)), strict=True)]
    assert all((row // 2 == np.arange(len(row))).all() for row in tokens)
    return [tuple((row % 2).tolist()) for row in tokens]


def test_even_pairs_counts_all_lengths_equally():
    problem = even_pairs(KEY, 4)
    bits = bits_of(problem)
    assert set(bits) == {one for length in range(1, 5) for one in product((0, 1), repeat=length)}
    assert np.bincount([len(one) for one in bits]).tolist() == [0, 16, 16, 16, 16]
    for one, y, z in zip(bits, problem.Y, problem.Z, strict=True):
        changes = sum(a != b for a, b in pairwise(one))
        assert y == (1 if changes % 2 == 0 else -1)
        assert int(z.argmax()) == 2 * (len(one) - 1) + one[-1]


def test_parity_ends_with_the_parity():
    problem = parity(KEY, 4)
    rows = dict(zip(bits_of(problem), np.asarray(problem.Y).tolist(), strict=True))
    for start in product((0, 1), repeat=4):
        bits = start
        while bits in rows and len(bits) < 7:
            bits = (*bits, int(rows[bits] < 0))
        assert (len(bits), bits[-1]) == (7, sum(start) % 2)
    assert np.bincount([len(one) for one in bits_of(problem)]).tolist() == [0, 16, 16, 16, 16, 16, 16]


@pytest.mark.parametrize("law", [even_pairs, parity])
def test_a_length_is_refused(law):
    with pytest.raises(ValueError, match="length: expected at least 2, found 1"):
        law(KEY, 1)


def test_a_chain_of_thought_finds_parity():
    """A planted model compares the last of three bits with the first: equal bits attend there, where v is 1."""
    W, v = np.zeros((6, 6)), np.array([1.0, 1.0, -1.0, -1.0, -1.0, -1.0])
    for one, at, other in product((0, 1), (1, 2), (0, 1)):
        W[one, 2 * at + other] = 50.0 if one == other else -50.0
    rate = jax.jit(answered, static_argnums=2)
    assert float(rate(W, v, 3)) == 1
    # The opposite answers turn the parity of three bits round twice, and that of two bits once.
    assert float(rate(W, -v, 3)) == 1
    assert float(rate(W[:4, :4], -v[:4], 2)) == 0


def test_the_first_phase_ends_where_all_are_right_for_good():
    margin = np.array([[-1.0, 1.0, -1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, -1.0]])
    ends, since = _separated(margin)
    assert (ends.tolist(), since.tolist()) == ([True, True, False], [3, 0, 4])
    steps = np.array([1, 2, 4, 8, 16])
    np.testing.assert_allclose(_rise(np.stack([steps**1.5] * 2), steps, np.array([3, 4])), 1.5)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    rule = optax.multi_transform(
        {"attention": descent.gd(20.0), "readout": descent.gd(2.0)}, models.Joint("attention", "readout")
    )
    start = partial(initial.with_readout, law=initial.free_zero, scale=0.1)
    law, kept, folder = partial(even_pairs, length=3), Logarithmically(8), tmp_path_factory.mktemp("record")
    made = recorded(folder, law, start, rule, {}, seeds=8, steps=300, snapshots=kept, model=models.with_values())
    return made.assign_attrs({"data.length": 3})


def test_a_record_is_measured(record):
    found = measure(record)
    assert found.attrs["kept"] == 8
    assert found["start"].all()
    W, v, X, Z = (record[name].values[0] for name in ("W", "readout", "X", "Z"))
    present, Y = record["present"].values[0], record["Y"].values[0]
    s = np.exp(np.where(present, np.einsum("ntd,de,ne->nt", X, W, Z), -np.inf))
    outputs = np.einsum("nt,ntd->nd", s / s.sum(axis=1, keepdims=True), X)
    margins = Y * (outputs @ v)
    assert (margins > 0).all()
    np.testing.assert_allclose(found["loss"][0, -1], np.mean(np.log1p(np.exp(-margins))), rtol=1e-9)
    np.testing.assert_allclose(found["size_v"][0, -1], np.linalg.norm(v), rtol=1e-12)
    assert (found["ratio"] <= 1 + 1e-6).all()
    # A margin of the share r of the best one is at an angle of at most arccos(r) from its direction.
    assert (found["off"] <= 1 - found["ratio"] + 1e-6).all()
    assert (found["answered"] == 1).all()
    assert (found["moved"].isel(snapshot=-1) == 0).all()


def test_a_model_that_does_not_learn_is_not_kept(record):
    still = record.assign({name: record[name] * 0 for name in ("W_snapshots", "readout_snapshots")})
    found = measure(still)
    assert (found.attrs["kept"], found.attrs["infeasible"]) == (0, 8)
    assert not found["soon"].any()


def test_growth_of_a_logarithm_is_steady():
    summary = estimate(of_gap(0.01), KEY)
    np.testing.assert_allclose(summary["steady_v"], 1, atol=0.01)
    assert float(summary["steady_W"]) < 0.95
    np.testing.assert_allclose(summary["exponent"], -1)
    with pytest.raises(ValueError, match="steps: expected three snapshots"):
        estimate(of_gap(0.01).isel(later=[0]), KEY)
