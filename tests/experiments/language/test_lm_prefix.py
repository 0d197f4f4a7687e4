"""Starts on prefixes that a fixed head reads: their law, what is measured of a record, verdicts by hand."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from jaxattn import data, descent, language, losses, metrics, records, svm
from jaxattn.experiments.language.lm_prefix import claims, figure
from jaxattn.experiments.language.lm_prefix.examples import STARTS, STEPS, TEXTS, ended, runs
from jaxattn.experiments.language.lm_prefix.measure import measure
from jaxattn.experiments.language.started import Normal, StartedTraining, asking
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule
from tests.instances import drawn_lines

KEY = jax.random.key(0)
LAW = partial(data.read_language, m=4, n=6, d=5, V=4, entropy=0.1)


@pytest.mark.parametrize("d", [3, 6])
def test_a_normal_start_has_the_logits_of_a_matrix_with_normal_entries(d):
    text = data.language(KEY, m=2, n=3, d=d, V=4, entropy=0.5)
    W = language.weights(Normal(2.0)(KEY, text), text).W
    drawn = 2 * jax.random.normal(KEY, (d, d))
    np.testing.assert_allclose(language.table(W, text), language.table(drawn, text), atol=1e-10)
    assert float(metrics.norm(W)) <= float(metrics.norm(drawn)) * (1 + 1e-12)
    assert not np.any(Normal(0.0)(KEY, text))


@pytest.mark.parametrize("wrong", [{"scale": -1.0}, {"scale": np.inf}, {"scale": 1.0, "starts": 0}])
def test_a_scale_or_number_of_starts_that_is_none_is_named(wrong):
    with pytest.raises(ValueError, match=r"scale: expected a finite number|starts: expected"):
        Normal(**wrong)


def recorded(place, rule, initial, seeds):
    """A record of a run on the exact direction."""
    setting = StartedTraining(
        law=LAW,
        optimizer=rule,
        loss=losses.logistic,
        seeds=seeds,
        key=3,
        steps=100,
        snapshots=schedule.Logarithmically(1),
        record_every=100,
        initial=initial,
    )
    config = {
        "data": {"head": {"delta": 0.0}},
        "optimizer": {"step_size": 0.5, "floor": 0.0},
        "weights": {"scale": initial.scale, "starts": initial.starts},
    }
    recording.run(setting, place, {"config": json.dumps(config)})
    return records.load(place)


@pytest.mark.slow
def test_starts_of_one_text_share_it_and_are_measured_against_its_solution(tmp_path):
    record = recorded(tmp_path / "run", descent.normalized_gd(0.5, floor=0.0, penalty=0.0), Normal(1.0, starts=2), 6)
    E, started = record["E"].values, record["pairs_initial"].values
    np.testing.assert_array_equal(E[::2], E[1::2])
    assert len({one.tobytes() for one in E}) == 3
    assert len({one.tobytes() for one in started}) == 6
    one = measure(record)
    assert one.attrs["run"].endswith("from normal W, scale 1")
    counts = [one.attrs[name] for name in ("kept", "diverged", "ambiguous", "infeasible", "unsolved")]
    assert one.attrs["attempted"] == sum(counts) == 6
    assert one.attrs["kept"] >= 2
    np.testing.assert_array_equal(one["text"], one["seed"].values // 2)
    # By hand, in the embeddings as they are.
    lane = int(one["seed"][0])
    text = language.Choices(*(record[name].values[lane] for name in language.Choices._fields))
    posed = language.constraints(text)
    solution = svm.solve(posed)
    W = language.weights(jnp.asarray(record["pairs"].values[lane]), text).W
    np.testing.assert_allclose(one["off"][0, -1], 1 - metrics.correlation(W, solution.W), rtol=1e-5)
    np.testing.assert_allclose(one["margin"][0], metrics.margin_ratio(W, posed, "frobenius", solution), rtol=1e-5)
    np.testing.assert_allclose(one["growth"][0, -1], metrics.norm(W) / metrics.norm(solution.W), rtol=1e-6)
    attended = language.softmax(language.logits(W, text), text)[np.arange(len(text.next)), text.next]
    np.testing.assert_allclose(one["attention"][0], np.min(attended[text.weight > 0]), rtol=1e-9)


def test_with_one_start_a_text_the_seeds_are_those_of_any_experiment():
    setting = {"law": LAW, "optimizer": descent.gd(0.5), "loss": losses.logistic, "seeds": 4, "key": 3, "steps": 2}
    one = StartedTraining(**setting, snapshots=schedule.Logarithmically(1), initial=Normal(1.0))
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


def judgements(datasets):
    summaries = claims.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        # One start that stays behind refutes; one that is on the way decides nothing.
        ({"left": 1}, "equal", Verdict.CORRECTED),
        # Equal scores are within any delta; with close ones a smaller delta might do.
        ({"left": 1}, "close", Verdict.CORRECTED),
        ({"left": 1, "delta": 0.01}, "close", Verdict.OPEN),
        ({"left": 1, "delta": 0.01}, "equal", Verdict.HOLDS),
        ({"left": 1, "behind": 0.9}, "equal", Verdict.OPEN),
        ({"moving": 1}, "equal", Verdict.OPEN),
        ({"left": 1, "moving": 1}, "selection", Verdict.FAILS),
        ({"far": 0.03}, "equal", Verdict.FAILS),
        ({"margin": 0.94}, "equal", Verdict.FAILS),
        # Plain descent is slow: it refutes by starts left behind, or where it goes away or stands still.
        ({"far": 0.04, "rule": "plain"}, "equal", Verdict.HOLDS),
        ({"rises": True, "rule": "plain"}, "equal", Verdict.FAILS),
        ({"left": 1, "rule": "plain"}, "equal", Verdict.CORRECTED),
        ({"rate": 0.1, "rule": "plain", "delta": 0.01}, "close", Verdict.FAILS),
        ({"selects": 0.9, "rule": "plain"}, "selection", Verdict.HOLDS),
        ({"within": 0.8, "rule": "plain"}, "equal", Verdict.HOLDS),
        ({"within": 1.1, "rule": "plain"}, "equal", Verdict.OPEN),
        ({"within": 0.8, "rule": "plain", "delta": 0.01}, "close", Verdict.OPEN),
        ({"texts": 9}, "equal", Verdict.OPEN),
        ({"steps": STEPS[:3]}, "equal", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_where_starts_end(changed, name, verdict):
    assert judgements(runs(ended(**changed)))[1][name].verdict is verdict


@pytest.mark.parametrize(("far", "said"), [(0.001, "broken"), (0.06, "unclear")])
def test_a_start_that_is_on_the_way_refutes_no_correction(far, said):
    one = ended(left=1)
    one["behind"].values[:4], one["unserved"].values[:4], one["off_kept"].values[1] = (1.3, 0.9, 0.9, 0.9), 1, far
    one["off_kept"].values[2:4] = 0.06
    found = judgements(runs(one))[1]["equal"]
    assert found.verdict is Verdict.FAILS
    assert [str(each.outcome) for each in found.corrected if "at most the margin" in each.quantity] == [said]


def test_starts_of_one_text_are_no_independent_cases():
    one = ended(left=4)
    summary = claims.summarize({"one": one}, KEY)["one"]
    assert (int(summary["texts"]), int(summary["starts"]), int(summary["left"])) == (TEXTS, TEXTS * STARTS, 4)
    assert float(summary["share_left"]) == pytest.approx(4 / (TEXTS * STARTS))
    alone = claims.summarize({"one": one.assign(text=one["seed"])}, KEY)["one"]
    wide, narrow = (float(each["share_left_high"] - each["share_left_low"]) for each in (summary, alone))
    assert wide > 1.3 * narrow


def test_what_is_missing_or_no_measurement_is_named():
    with pytest.raises(ValueError, match=r"lm-prefix: expected a kept seed in each run, found none in \['a'\]"):
        claims.summarize({"a": ended().isel(seed=slice(0))}, KEY)
    with pytest.raises(ValueError, match="attention: expected probabilities"):
        claims.summarize({"a": ended(selects=1.5)}, KEY)
    note = judgements({"a": ended()})[1]["equal"].note
    assert note.startswith(
        "Expected runs from drawn starts along the exact gradient direction and one with plain steps;"
    )


def test_the_figure_draws_the_errors_and_where_every_start_ends():
    summaries = judgements(runs(ended(left=6, moving=3)))[0]
    drawn = figure.draw(summaries)
    equal = [one for one in summaries.values() if one.attrs["delta"] == 0]
    for (x, y), one in zip(drawn_lines(drawn.axes[0], least=len(STEPS)), equal, strict=True):
        np.testing.assert_array_equal(x, STEPS)
        np.testing.assert_array_equal(y, one["reached"])
    bars = [bar for bar in drawn.axes[1].patches if isinstance(bar, Rectangle)]
    widths = np.reshape([bar.get_width() for bar in bars], (3, len(summaries)))
    np.testing.assert_allclose(widths[:, 0] * TEXTS * STARTS, [51, 6, 3])
    titles = [panel.get_title() for panel in drawn.axes]
    assert titles[0].startswith("(a) $d = 10$: normalized steps that serve all\nprefixes come within ")
    assert titles[1] == "(b) convergence from any start is refuted:\n6 of 240 starts leave prefixes unserved"
    written = [text.get_text() for text in drawn.axes[1].texts]
    assert [text for text in written if " of " in text] == ["6 of 60", *["0 of 60"] * 3]
    (changed, *_) = [one for one in summaries.values() if int(one["left"])]
    assert f"{100 * float(changed['share_selected']):.0f} % [" in "".join(written)
    assert "starts kept" in drawn.get_supxlabel()
    assert "refuted" not in figure.draw(judgements(runs())[0]).axes[1].get_title()
