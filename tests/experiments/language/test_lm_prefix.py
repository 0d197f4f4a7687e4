"""Starts on prefixes that a fixed head reads: synthetic outcomes, their law, and what is measured of a record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, language, losses, metrics, records, svm
from jaxattn.experiments.language.lm_prefix import estimate, measure
from jaxattn.experiments.language.started import Normal, asking
from jaxattn.study.settings import recording
from tests.experiments.language.text_records import started_training
from tests.experiments.synthetic import synthetic

KEY = jax.random.key(0)
LAW = partial(data.read_language, m=4, n=6, d=5, V=4, entropy=0.1)
STEPS, TEXTS, STARTS = np.array([1, 10, 100, 200, 1000, 2000]), 20, 3
RULES = {"scale_free_gd": "exact direction", "gd": "plain"}
VERDICTS = {
    "lm-prefix:equal": "does not hold",
    "lm-prefix:close": "does not hold",
    "lm-prefix:selection": "does not hold",
}


def measured():
    """All starts converge, but for four with equal scores along the exact direction, which leave a prefix unserved."""
    return {
        f"d = 10, delta {delta:g}, {words}, from normal W, scale 1": ended(
            rule, delta, left=4 if (rule, delta) == ("scale_free_gd", 0.0) else 0
        )
        for delta in (0.0, 0.01)
        for rule, words in RULES.items()
    }


def ended(optimizer, delta, left):
    """A run of which the first starts leave a prefix unserved that is 1.3 behind."""
    starts = TEXTS * STARTS
    noise = 1 + np.random.default_rng(2).normal(0, 0.02, (starts, 1))
    is_left = np.arange(starts) < left
    margin = 0.98 + 0.001 * (noise[:, 0] - 1)
    settings = {"optimizer": optimizer, "data.head.delta": delta, "data.d": 10, "weights.scale": 1.0}
    return synthetic(
        starts,
        settings | {"attempted": 128, "infeasible": 128 - starts, "weights.starts": STARTS, "steps": int(STEPS[-1])},
        {"snapshot": STEPS},
        margin=margin,
        margin_kept=margin,
        attention=np.where(is_left, 1e-9, 1.0),
        off_kept=0.001 * noise[:, 0],
        unserved=is_left.astype(int),
        behind=np.where(is_left, 1.3, 0.0),
        start=2.0,
        within=0.4,
        text=np.arange(starts) // STARTS,
        off=noise * np.geomspace(0.8, np.where(is_left, 0.3, 0.001), len(STEPS), axis=1),
        growth=noise * np.log(STEPS),
    )


@pytest.mark.parametrize("d", [3, 6])
def test_a_normal_start_has_the_logits_of_a_matrix_with_normal_entries(d):
    text = jax.jit(partial(data.language, m=2, n=3, d=d, V=4, entropy=0.5))(KEY)
    W = jax.jit(lambda text: language.weights(Normal(2.0)(KEY, text), text).W)(text)
    drawn = 2 * jax.random.normal(KEY, (d, d))
    table = jax.jit(language.table)
    np.testing.assert_allclose(table(W, text), table(drawn, text), atol=1e-10)
    assert np.linalg.norm(W) <= np.linalg.norm(drawn) * (1 + 1e-12)
    assert not np.any(Normal(0.0)(KEY, text))


@pytest.mark.parametrize("wrong", [{"scale": -1.0}, {"scale": np.inf}, {"scale": 1.0, "starts": 0}])
def test_a_scale_or_number_of_starts_that_is_none_is_named(wrong):
    with pytest.raises(ValueError, match=r"scale: expected a finite number|starts: expected"):
        Normal(**wrong)


@pytest.mark.slow
def test_starts_of_one_text_share_it_and_are_measured_against_its_solution(tmp_path):
    rule = descent.normalized_gd(0.5, floor=0.0, penalty=0.0)
    recording.run(started_training(LAW, Normal(1.0, starts=2), rule, seeds=6, key=3, steps=100), tmp_path / "run", {})
    settings = {"data.head.delta": 0.0, "optimizer.step_size": 0.5, "weights.starts": 2}
    record = records.load(tmp_path / "run").assign_attrs(settings)
    E, started = record["E"].values, record["pairs_initial"].values
    np.testing.assert_array_equal(E[::2], E[1::2])
    assert len({values.tobytes() for values in E}) == 3
    assert len({values.tobytes() for values in started}) == 6
    run = measure(record)
    counts = [run.attrs[name] for name in ("kept", "diverged", "ambiguous", "infeasible", "unsolved")]
    assert run.attrs["attempted"] == sum(counts) == 6
    assert run.attrs["kept"] >= 2
    np.testing.assert_array_equal(run["text"], run["seed"].values // 2)
    # By hand, in the embeddings as they are.
    lane = int(run["seed"][0])
    text = language.Choices(*(record[name].values[lane] for name in language.Choices._fields))
    posed = language.constraints(text)
    solution = svm.solve(posed)
    W = language.weights(jnp.asarray(record["pairs"].values[lane]), text).W
    np.testing.assert_allclose(run["off"][0, -1], 1 - metrics.correlation(W, solution.W), rtol=1e-5)
    np.testing.assert_allclose(run["margin"][0], metrics.margin_ratio(W, posed, "frobenius", solution), rtol=1e-5)
    np.testing.assert_allclose(run["growth"][0, -1], metrics.norm(W) / metrics.norm(solution.W), rtol=1e-6)
    attended = language.softmax(language.logits(W, text), text)[np.arange(len(text.next)), text.next]
    np.testing.assert_allclose(run["attention"][0], np.min(attended[text.weight > 0]), rtol=1e-9)


def test_with_one_start_a_text_the_seeds_are_those_of_any_experiment():
    one = started_training(LAW, Normal(1.0), descent.gd(0.5), seeds=4, key=3, steps=2)
    root = jax.random.key_data(jax.random.key(3))
    expected = [recording.keys(jnp.asarray(seed), root)[0] for seed in range(4)]
    np.testing.assert_array_equal(one.block(np.arange(4), np.asarray(root))["data_key"], expected)


@pytest.mark.slow
def test_inputs_that_choose_nothing_are_not_trained_on():
    text = jax.vmap(LAW)(jax.random.split(KEY, 3))
    short = asking(text)
    kept = np.asarray(text.weight).sum(axis=1)
    assert short.last.shape == (3, int(kept.max()))
    np.testing.assert_array_equal(short.weight.sum(axis=1), kept)
    W = jax.random.normal(KEY, (5, 5))
    risks = (jax.vmap(lambda one: language.risk(W, one, loss=losses.logistic))(each) for each in (text, short))
    np.testing.assert_allclose(*risks, rtol=1e-12)


def test_starts_of_one_text_are_no_independent_cases():
    run = ended("gd", 0.0, left=4)
    summary = estimate(run, KEY)
    assert (int(summary["texts"]), int(summary["starts"]), int(summary["left"])) == (TEXTS, TEXTS * STARTS, 4)
    assert float(summary["share_left"]) == pytest.approx(4 / (TEXTS * STARTS))
    alone = estimate(run.assign(text=run["seed"]), KEY)
    wide, narrow = (float(each["share_left_high"] - each["share_left_low"]) for each in (summary, alone))
    assert wide > 1.3 * narrow
