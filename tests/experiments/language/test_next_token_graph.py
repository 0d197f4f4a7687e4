"""Next-token prediction: what is measured of a record, the verdicts, and the figure."""

from functools import cache, partial

import numpy as np
import pytest

from jaxattn import data, descent, losses
from jaxattn.experiments.language.next_token_graph import law
from jaxattn.experiments.language.next_token_graph.measure import measure
from jaxattn.experiments.language.started import Normal
from jaxattn.study.claims import not_a_number
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.language.text_records import in_memory, started_training
from tests.experiments.synthetic import synthetic

SEEDS, STEPS = 24, np.array([1, 10, 100, 1000, 10_000])
VERDICTS = {}


def measured():
    """A run with cycles, one with several starts, and one with all words as candidates; all is as predicted."""
    return {
        "cycle 3, one-hot": planted(),
        "cycle 3, one-hot, 2 starts": planted(starts=2),
        "all words as candidates": planted(data_law="language"),
    }


def planted(starts=1, data_law="token_graph"):
    """A run with numbers that differ a little between seeds."""
    rng = np.random.default_rng(starts)

    def spread(value):
        return value * np.exp(0.05 * rng.normal(size=SEEDS))

    def course(first, end):
        return first * (spread(end)[:, None] / first) ** np.linspace(0, 1, len(STEPS))

    several, shares = float(starts > 1), np.tile(np.linspace(0.1, 0.9, 3), (SEEDS, 1, 1))
    cycle = {"data.cycle": 3} if data_law == "token_graph" else {}
    words = "seed", "asking", "word"
    return synthetic(
        SEEDS,
        cycle | {"data": data_law, "weights.starts": starts, "optimizer": "gd", "steps": int(STEPS[-1])},
        {"snapshot": STEPS},
        increment=spread(1e-3),
        rate=spread(1.0),
        error=spread(1e-4),
        size=1.0,
        midpoint=spread(0.2),
        within=0.7,
        growth_apart=several * spread(1e-3),
        finite_apart=several * spread(1e-5),
        finite_apart_0=several,
        sets_apart=1e-9,
        text=np.arange(SEEDS) // starts,
        whole=course(0.25, 0.01),
        both=course(0.25, 0.007),
        growing=course(0.2, 0.007),
        margin=1 - course(1.0, 0.2),
        finite=course(1.0, 1e-3),
        predicted=(words, shares),
        reached=(words, shares + spread(1e-4)[:, None, None]),
        cyclic=(words, shares > 0),
    )


PLANTED = {"V": 5, "asking": 2, "cycle": 3, "inputs": 6, "T": 5}
WORDS = {"m": 4, "n": 4, "d": 7, "V": 5, "entropy": 0.8}


def recorded(drawn, sizes, scale=0.0, starts=1):
    """A record as `recording.run` writes it, made in memory."""
    trained = {"loss": losses.cross_entropy, "seeds": 4, "key": 5, "steps": 200, "snapshots": Logarithmically(2)}
    setting = started_training(partial(drawn, **sizes), Normal(scale, starts), descent.gd(1.0), **trained)
    return in_memory(setting, **{"weights.starts": starts, "optimizer.step_size": 1.0})


@cache
def record():
    """Two texts with two starts each."""
    return recorded(law.planted, PLANTED, scale=1.0, starts=2)


@cache
def found():
    return measure(record())


@pytest.mark.slow
def test_a_record_is_measured():
    run, expected = found(), planted(starts=2)
    assert not_a_number({"run": run}) == ""
    assert {name: expected[name].dims for name in expected} == {name: run[name].dims for name in run}
    assert run["text"].values.tolist() == [0, 0, 1, 1]


def test_with_one_hot_words_the_projection_takes_means_over_components():
    run = found()
    pairs = record()["pairs_snapshots"].values[:, -1]
    probabilities = np.where(run["cyclic"], run["reached"], 0.0)
    # The words of a component share 1 among them: one cycle of three words for each of two last words.
    np.testing.assert_allclose(probabilities.sum(axis=(1, 2)), 2)
    np.testing.assert_array_equal(run["cyclic"].sum(("asking", "word")), 6)
    for seed in range(4):
        for k in np.flatnonzero(run["cyclic"][seed].any("word")):
            words = run["cyclic"].values[seed, k]
            shares = np.exp(pairs[seed, k, words])
            np.testing.assert_allclose(run["reached"].values[seed, k, words], shares / shares.sum(), rtol=1e-9)


def test_starts_of_one_text_come_together():
    run = found()
    np.testing.assert_array_equal(run["finite_apart"][::2], 0)
    assert np.all(run["finite_apart"].values[1::2] < 0.1 * run["finite_apart_0"].values[1::2])
    np.testing.assert_allclose(run["predicted"][::2], run["predicted"][1::2])
    assert np.all(run["midpoint"] > 0)
    assert np.all(run["both"].values[:, -1] <= run["whole"].values[:, -1])


@pytest.mark.slow
def test_all_words_as_candidates_give_the_parts_of_the_words_that_follow():
    run = measure(recorded(data.language, WORDS))
    assert float(run["sets_apart"].max()) < 1e-8
    assert run["size"].values.max() > 0


def test_without_a_cycle_there_is_no_finite_part():
    run = measure(recorded(law.planted, PLANTED | {"cycle": 1}, scale=1.0, starts=2))
    np.testing.assert_array_equal(run["size"], 0)
    np.testing.assert_array_equal(run["error"], 0)


def test_texts_that_diverge_or_have_no_direction_are_counted():
    broken = record().copy(deep=True)
    broken["pairs"][0] = np.inf
    # Two words in a cycle, and no other ones.
    counts = np.zeros_like(broken["counts"][1])
    counts[:, :2] = 1.0
    broken["counts"][1] = counts
    broken["last"][1], broken["next"][1] = 0, np.resize([0, 1], broken.sizes["prefix"])
    run = measure(broken)
    counted = {name: run.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous", "unsolved")}
    assert counted == {"attempted": 4, "kept": 2, "diverged": 1, "ambiguous": 1, "unsolved": 0}
    assert run["seed"].values.tolist() == [2, 3]
    broken["pairs"][:] = np.inf
    with pytest.raises(ValueError, match="expected a text with both parts of its limit, found none of 4"):
        measure(broken)
