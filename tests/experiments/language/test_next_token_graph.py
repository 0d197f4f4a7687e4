"""Next-token prediction: what is measured of a record, the verdicts, and the figure."""

import json
from functools import cache, partial

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, language, losses
from jaxattn.experiments.language.next_token_graph import claims, figure, law
from jaxattn.experiments.language.next_token_graph.examples import STEPS, made, runs
from jaxattn.experiments.language.next_token_graph.measure import measure
from jaxattn.experiments.language.started import Normal, StartedTraining
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.settings.schedule import Logarithmically
from tests.instances import drawn_lines

KEY = jax.random.key(0)
PLANTED = {"V": 5, "asking": 2, "cycle": 3, "inputs": 6, "T": 5}
WORDS = {"m": 4, "n": 4, "d": 7, "V": 5, "entropy": 0.8}


def recorded(drawn, sizes, scale=0.0, starts=1, seeds=4, optimizer=None, rule=None, steps=200):
    """A record as `recording.run` writes it, made in memory."""
    setting = StartedTraining(
        law=partial(drawn, **sizes),
        optimizer=descent.gd(1.0) if optimizer is None else optimizer,
        loss=losses.cross_entropy,
        seeds=seeds,
        key=5,
        steps=steps,
        snapshots=Logarithmically(2),
        record_every=steps,
        initial=Normal(scale, starts),
    )
    root = np.asarray(jax.random.key_data(jax.random.key(setting.key)))
    arrays = setting.block(np.arange(seeds), root)
    words = {"_target_": "jaxattn.experiments.language.next_token_graph.law.one_hot"}
    config = {
        "data": sizes | ({"embeddings": words} if drawn is law.planted else {}),
        "weights": {"scale": scale, "starts": starts},
        "optimizer": {"step_size": 1.0} if rule is None else rule,
    }
    return xarray.Dataset(
        {name: (("seed", *setting.dims(name)), array) for name, array in arrays.items()},
        {"seed": np.arange(seeds), **setting.coordinates},
        {"config": json.dumps(config)},
    )


@cache
def record():
    """Two texts with two starts each."""
    return recorded(law.planted, PLANTED, scale=1.0, starts=2)


@cache
def measured():
    return measure(record())


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples():
    one, example = measured(), made(starts=2, seeds=4)
    assert not_a_number({"one": one}) == ""
    assert {name: example[name].dims for name in example.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(example.attrs) == set(one.attrs)
    assert one.attrs["run"] == example.attrs["run"] == "cycle 3, one-hot, 2 starts"
    assert one["text"].values.tolist() == [0, 0, 1, 1]


def test_with_one_hot_words_the_projection_takes_means_over_components():
    one = measured()
    pairs = record()["pairs_snapshots"].values[:, -1]
    probabilities = np.where(one["cyclic"], one["reached"], 0.0)
    # The words of a component share 1 among them: one cycle of three words for each of two last words.
    np.testing.assert_allclose(probabilities.sum(axis=(1, 2)), 2)
    np.testing.assert_array_equal(one["cyclic"].sum(("asking", "word")), 6)
    for seed in range(4):
        for k in np.flatnonzero(one["cyclic"][seed].any("word")):
            words = one["cyclic"].values[seed, k]
            shares = np.exp(pairs[seed, k, words])
            np.testing.assert_allclose(one["reached"].values[seed, k, words], shares / shares.sum(), rtol=1e-9)


def test_starts_of_one_text_come_together():
    one = measured()
    np.testing.assert_array_equal(one["finite_apart"][::2], 0)
    assert np.all(one["finite_apart"].values[1::2] < 0.1 * one["finite_apart_0"].values[1::2])
    np.testing.assert_allclose(one["predicted"][::2], one["predicted"][1::2])
    assert np.all(one["midpoint"] > 0)
    assert np.all(one["both"].values[:, -1] <= one["whole"].values[:, -1])


@pytest.mark.slow
def test_all_words_as_candidates_give_the_parts_of_the_words_that_follow():
    one = measure(recorded(data.language, WORDS))
    assert one.attrs["run"] == "all words as candidates"
    assert float(one["sets_apart"].max()) < 1e-8
    assert one["size"].values.max() > 0


def test_normalized_steps_are_named_by_their_rule():
    rule = {"step_size": 0.1, "floor": 0.0, "penalty": 0.0}
    one = measure(
        recorded(law.planted, PLANTED | {"cycle": 1}, optimizer=descent.normalized_gd(0.1, 0.0, 0.0), rule=rule)
    )
    assert one.attrs["run"] == "no cycle, one-hot, exact direction"
    np.testing.assert_array_equal(one["size"], 0)
    np.testing.assert_array_equal(one["error"], 0)


def test_texts_that_diverge_or_have_no_direction_are_counted():
    broken = record().copy(deep=True)
    broken["pairs"][0] = np.inf
    # Two words in a cycle, and no other ones.
    counts = np.zeros_like(broken["counts"][1])
    counts[:, :2] = 1.0
    broken["counts"][1] = counts
    broken["last"][1], broken["next"][1] = 0, np.resize([0, 1], broken.sizes["prefix"])
    one = measure(broken)
    counted = {name: one.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous", "unsolved")}
    assert counted == {"attempted": 4, "kept": 2, "diverged": 1, "ambiguous": 1, "unsolved": 0}
    assert one["seed"].values.tolist() == [2, 3]
    broken["pairs"][:] = np.inf
    with pytest.raises(ValueError, match="expected a text with both parts of its limit, found none of 4"):
        measure(broken)


def test_less_than_a_decade_of_snapshots_is_named():
    with pytest.raises(ValueError, match=r"snapshot: expected a decade of steps or more, found 69\.\.200"):
        measure(record().isel(snapshot=slice(-2, None)))


HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN
NAMES = ("direction", "finite-part", "global", "both-parts")


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (HOLDS, HOLDS, HOLDS, HOLDS)),
        ({"increment": 0.05}, (FAILS, HOLDS, HOLDS, HOLDS)),
        # A norm that rests has no limit in direction.
        ({"rate": 0.1}, (FAILS, HOLDS, HOLDS, HOLDS)),
        # No nearer than at a tenth of the steps.
        ({"whole": 0.25, "both": 0.1}, (FAILS, HOLDS, HOLDS, HOLDS)),
        ({"finite": 0.9}, (HOLDS, FAILS, HOLDS, HOLDS)),
        ({"error": 0.05}, (HOLDS, FAILS, HOLDS, HOLDS)),
        ({"finite_apart": 0.5}, (HOLDS, HOLDS, FAILS, HOLDS)),
        ({"both": 0.02}, (HOLDS, HOLDS, HOLDS, FAILS)),
        ({"seeds": 6}, (OPEN, OPEN, OPEN, OPEN)),
        ({"steps": STEPS[:3]}, (OPEN, OPEN, OPEN, OPEN)),
    ],
)
def test_the_verdicts_follow_the_measurement(changes, verdicts):
    summaries = claims.summarize(runs(**changes), KEY)
    judged = {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in claims.CLAIMS}
    assert tuple(judged[name] for name in NAMES) == verdicts


def test_a_distance_below_zero_is_refused():
    with pytest.raises(ValueError, match="error: expected distances of at least 0, found -"):
        claims.summarize(runs(error=-0.1), KEY)


def test_the_figure_draws_the_estimates():
    summaries = claims.summarize(runs(), KEY)
    left, middle, right = figure.draw(summaries).axes
    for axes, name in ((left, "whole"), (middle, "finite")):
        for line, one in zip(drawn_lines(axes, least=3), summaries.values(), strict=True):
            np.testing.assert_array_equal(line[1], one[name])
    assert "error < 0.0002" in right.get_title()
    assert left.get_legend_handles_labels()[1] == ["cycles of 3", "cycles of 3, 2 starts", "all words as candidates"]


def test_the_text_of_a_record_is_one_of_next_tokens_in_their_inputs():
    drawn = partial(law.planted, **PLANTED)(KEY)
    assert isinstance(drawn, language.Choices)
    of_next = np.take_along_axis(np.asarray(drawn.counts), np.asarray(drawn.next)[:, None], axis=1)
    assert np.all(of_next > 0)
    assert np.all(np.take_along_axis(np.asarray(drawn.counts), np.asarray(drawn.last)[:, None], axis=1) > 0)
