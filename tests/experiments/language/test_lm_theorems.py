"""Plain descent on texts: scores, the attention of least risk, what is measured of a record, verdicts by hand."""

import itertools
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from jaxattn import data, descent, language, losses, records, svm
from jaxattn.experiments.language.lm_theorems import claims, figure, paths, ties
from jaxattn.experiments.language.lm_theorems.crossed import crossed
from jaxattn.experiments.language.lm_theorems.examples import OFF, RUNS, STEPS, made
from jaxattn.experiments.language.lm_theorems.measure import measure
from jaxattn.experiments.language.lm_theorems.start_examples import ended, with_ends
from jaxattn.experiments.language.started import Drawn, StartedTraining, Toward
from jaxattn.parallel import batch
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule, texts
from tests.instances import drawn_lines, stacked

KEY = jax.random.key(0)
LAW = partial(data.scored_language, m=4, n=4, d=12, V=5, entropy=0.3, delta=0.5)


def asked(*following, V=4, scores=None):
    """A text in which word 0 asks for these words."""
    N, E = len(following), np.random.default_rng(3).normal(size=(V, 7)) / np.sqrt(7)
    given = jnp.asarray(E), jnp.zeros(N, int), jnp.asarray(following), jnp.ones(N)
    return language.Choices(*given, scores=scores)


@pytest.mark.slow
def test_scores_are_within_delta_of_each_other_and_drawn_from_a_key_of_their_own():
    plain = data.language(KEY, 4, 4, 12, 5, 0.3)
    near, far = (data.scored_language(KEY, 4, 4, 12, 5, 0.3, delta) for delta in (0.1, 0.5))
    for text in (near, far):
        np.testing.assert_array_equal(text.E, plain.E)
        np.testing.assert_array_equal(text.next, plain.next)
    of_others = np.asarray(far.scores)[np.asarray(far.others)]
    assert np.all((of_others >= 0) & (of_others < 0.5))
    assert np.ptp(of_others) > 0.4
    assert len(np.unique(of_others)) == of_others.size
    np.testing.assert_allclose(np.asarray(near.scores)[np.asarray(near.others)], of_others / 5, rtol=1e-12)
    assert np.all(np.take_along_axis(np.asarray(far.scores), np.asarray(far.next)[:, None], axis=1) == 1)
    np.testing.assert_array_equal(language.close_scores(KEY, plain, 0.0).worth, plain.worth)


@pytest.mark.parametrize("delta", [-0.1, 1.0])
def test_a_delta_that_another_word_could_win_by_is_named(delta):
    with pytest.raises(ValueError, match=r"delta: expected a number within \[0, 1\), found"):
        language.close_scores(KEY, asked(1, 2), delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("following", "kept"),
    [
        ((1, 1), {1: 1.0}),
        ((1, 2), {1: 0.5, 2: 0.5}),
        # Twice as often: s(-1) * 2 > s(0), so that the rarer word is given up.
        ((1, 1, 2), {1: 1.0}),
        # 3 s(-q) = 2 s(q - 1) at q = 0.826226, by halving.
        ((1, 1, 1, 2, 2), {1: 0.826226, 2: 0.173774}),
        ((1, 2, 3), {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}),
    ],
)
def test_the_attention_of_least_risk_gives_up_the_rarer_word_or_mixes(following, kept):
    text = asked(*following)
    attention = ties.best_attention(text)
    expected = [kept.get(word, 0.0) for word in range(4)]
    np.testing.assert_allclose(attention[0], expected, atol=2e-6)
    np.testing.assert_allclose(attention[1:], 1 / 4)
    selected, clear = ties.selected(attention, text)
    assert bool(clear)
    np.testing.assert_array_equal(np.flatnonzero(selected[0]), sorted(kept))


def test_the_attention_of_least_risk_is_stationary_with_any_scores():
    text = language.close_scores(KEY, asked(1, 1, 2, 3), 0.9)
    q = np.asarray(ties.best_attention(text))[0]
    slope = np.asarray(jax.grad(lambda q: jnp.mean(losses.logistic(text.worth @ q)))(jnp.asarray(q)))
    # At a minimum on the simplex no word has a smaller slope than those that keep attention.
    np.testing.assert_allclose(slope[q > 1e-4], slope.min(), rtol=1e-6)


def test_attention_that_is_neither_kept_nor_lost_is_not_told():
    text = asked(1, 2)
    rows = jnp.array([[0.6, 0.4 - 1e-6, 1e-6, 0.0]] + 3 * [[0.25] * 4])
    assert not ties.selected(rows, text)[1]
    # Nor does it matter where nothing asks.
    assert ties.selected(rows[::-1], text)[1]


def test_words_within_half_a_margin_are_kept():
    table = jnp.array([[0.0, -4.9, -5.1, -20.0], [1.0, 3.0, 2.0, -9.0]])[:, :4]
    kept = ties.kept(jnp.concatenate([table, table]), jnp.asarray(10.0))
    np.testing.assert_array_equal(kept[:2], [[True, True, False, False], [True, True, True, False]])


def test_prefixes_with_candidates_of_their_own_are_refused():
    text = asked(1, 2)._replace(counts=jnp.ones((2, 4)))
    with pytest.raises(ValueError, match="expected the whole vocabulary as candidates"):
        ties.best_attention(text)


@pytest.mark.slow
def test_the_tied_problem_separates_what_keeps_attention_and_ties_it():
    text = asked(1, 2)
    selected, _ = ties.selected(ties.best_attention(text), text)
    solution = svm.solve(language.set_constraints(text, selected))
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    logits = np.asarray(text.E @ solution.W @ text.E[0])
    assert logits[1] == pytest.approx(logits[2], abs=1e-8)
    assert logits[1] - max(logits[0], logits[3]) == pytest.approx(1, abs=1e-8)


@pytest.mark.slow
def test_soft_margin_and_tied_margin_are_one_where_words_are_asked_for_equally_often():
    lanes = stacked([asked(1, 2)._replace(weight=jnp.array(times)) for times in ([1.0, 1.0], [2.0, 1.0], [3.0, 2.0])])

    def posed(text):
        return language.set_constraints(text, ties.selected(ties.best_attention(text), text)[0]), language.soft(text)

    tied, soft = (np.asarray(svm.solve_batch(rows).W) for rows in jax.jit(jax.vmap(posed))(lanes))
    cosine = np.sum(tied * soft, axis=(1, 2)) / np.linalg.norm(tied, axis=(1, 2)) / np.linalg.norm(soft, axis=(1, 2))
    assert (cosine > 1 - 1e-6).tolist() == [True, False, False]


@pytest.mark.slow
def test_the_bound_exceeds_every_second_derivative():
    curvature = jax.jit(jax.hessian(lambda W, text: language.risk(W, text, loss=losses.logistic)))
    for seed, size in itertools.product(range(3), (0.0, 1.0, 5.0)):
        text = LAW(jax.random.key(seed))
        # In an orthonormal basis of the embeddings' span, where lengths are those of W.
        small = text._replace(E=text.E @ jnp.linalg.qr(text.E.T)[0])
        W = jax.random.normal(jax.random.key(seed + 9), (5, 5)) * size
        largest = np.linalg.norm(np.asarray(curvature(W, small)).reshape(25, 25), 2)
        assert 0 < largest < float(language.score_bound(text, slope=0.5)) < 100 * max(largest, 0.01)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    setting = texts.TextTraining(
        LAW, descent.gd(1.0), losses.logistic, 6, 1, 300, schedule.Logarithmically(2), record_every=100
    )
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    config = {"optimizer": {"step_size": 1.0}, "data": {"delta": 0.5}}
    recording.run(setting, path, {"config": json.dumps(config)})
    return records.load(path)


def _posed(pairs, text):
    weights = language.weights(pairs, text)
    best, _ = ties.selected(ties.best_attention(text), text)
    tied = language.set_constraints(text, best)
    return weights.W, language.logits(weights, text), language.constraints(text), tied, language.soft(text)


@pytest.mark.slow
def test_a_run_is_held_against_the_solution_of_its_kind_of_text(record):
    one = measure(record)
    assert one.attrs["run"] == "delta 0.5, step 1"
    assert one.attrs["kept"] == one.sizes["seed"] == 6
    assert 0 < int(one["feasible"].sum()) < 6
    drawn = texts.choices_of({str(name): record[name].values for name in record.data_vars})
    last, following = (np.asarray(words) for words in (drawn.last, drawn.next))
    pairs = [set(zip(*words, strict=True)) for words in zip(last.tolist(), following.tolist(), strict=True)]
    feasible = [len(found) == len({asking for asking, _ in found}) for found in pairs]
    assert one["feasible"].values.tolist() == feasible

    # In the embeddings as they are, not in coordinates of their span.
    W, logits, *posed = batch.over_seeds(_posed, record["pairs_snapshots"].values[:, -1], drawn)
    hard, tied, soft = (np.asarray(svm.solve_batch(rows).W) for rows in posed)
    solution = np.where(np.array(feasible)[:, None, None], hard, tied)
    W, solution, soft = (matrices.reshape(6, -1) for matrices in (W, solution, soft))
    lengths = [np.linalg.norm(matrices, axis=1) for matrices in (W, solution, soft)]
    off, off_soft = (
        1 - np.sum(W * other, axis=1) / lengths[0] / length
        for other, length in zip((solution, soft), lengths[1:], strict=True)
    )
    # Where other words than those of least risk are kept, it is another solution.
    least = one["feasible"].values | one["least"].values
    assert least.sum() >= 5
    np.testing.assert_allclose(one["off"].values[least, -1], off[least], rtol=1e-5)
    np.testing.assert_allclose(one["off_soft"].values[:, -1], off_soft, rtol=1e-5)
    np.testing.assert_allclose(one["growth"].values[least, -1], (lengths[0] / lengths[1])[least], rtol=1e-6)
    np.testing.assert_array_equal(one["chosen"], np.mean(np.argmax(logits, axis=2) == following, axis=1))
    assert np.all(one["chosen"] <= one["choosable"] + 1e-12)
    assert np.all(one["apart"].values[one["feasible"].values] < 1e-8)
    assert np.all(one["choosable"].values[one["feasible"].values] == 1)


@pytest.mark.slow
def test_runs_that_diverged_are_left_out(record):
    changed = record.copy(deep=True)
    changed["pairs"].values[1] = np.nan
    one = measure(changed)
    assert (one.attrs["attempted"], one.attrs["kept"], one.attrs["diverged"]) == (6, 5, 1)
    assert one["seed"].values.tolist() == [0, 2, 3, 4, 5]


@pytest.mark.slow
def test_two_inputs_of_one_query_never_leave_where_one_of_them_is_given_up():
    """The region of the proof in `crossed`: no step of any size leaves it, and the known start lies in it."""
    text = crossed(KEY)
    slope = jax.grad(language.risk)
    of_loss = jax.jit(jax.vmap(partial(slope, choices=text, loss=losses.logistic)))
    rng = np.random.default_rng(0)
    q = 3 + rng.exponential(4, 500)
    p = -2 - q - rng.exponential(3, 500)
    q[0], p[0] = 3.0, -6.0
    W = np.stack([np.stack([q, p + 2 * q], axis=1), np.zeros((500, 2))], axis=2)
    after = W - rng.exponential(3, 500)[:, None, None] * np.asarray(of_loss(jnp.asarray(W)))
    first, both = after[:, 0, 0], after[:, 1, 0] - after[:, 0, 0]
    assert np.all(first >= q)
    assert np.all(both <= p + q)
    # Outside it the first input may be served: from 0 it is.
    moved = -np.asarray(slope(jnp.zeros((2, 2)), text, loss=losses.logistic))
    assert moved[1, 0] > 2 * moved[0, 0]


@pytest.mark.slow
def test_a_start_is_recorded_and_where_it_ends_is_measured(tmp_path):
    found, steps = {}, 2000
    for name, initial in (("far", Toward(asking=0, word=2, radius=3.0)), ("drawn", Drawn(0.0))):
        setting = StartedTraining(
            law=crossed,
            optimizer=descent.gd(0.45),
            loss=losses.logistic,
            seeds=1,
            key=1,
            steps=steps,
            snapshots=schedule.Logarithmically(1),
            record_every=steps,
            initial=initial,
        )
        radius = {"radius": initial.radius} | ({"word": 2} if name == "far" else {})
        config = {
            "data": {"_target_": "a.crossed"},
            "loss": {"_target_": "a.logistic"},
            "optimizer": {"step_size": 0.45},
            "weights": radius,
        }
        recording.run(setting, tmp_path / name, {"config": json.dumps(config)})
        found[name] = measure(records.load(tmp_path / name))
    far, zero = found["far"], found["drawn"]
    assert far.attrs["run"] == "two inputs, delta 0, logistic, plain, step 0.45, from ||W|| = 3, W z along e_b"
    # W_S = (1, 0), along which the other input is 2 behind; W_mm = (1, 3).
    np.testing.assert_allclose(far["behind"], 2.0, rtol=1e-7)
    np.testing.assert_allclose(far["start"], 3 / np.sqrt(10), rtol=1e-7)
    np.testing.assert_allclose(far["off"][0, -1], 1 - 1 / np.sqrt(10), atol=0.02)
    assert (int(far["unserved"][0]), int(zero["unserved"][0])) == (1, 0)
    assert float(far["off_kept"][0]) < 1e-3
    assert float(zero["off"][0, -1]) == float(zero["off_kept"][0]) < 0.01
    assert not np.any(records.load(tmp_path / "drawn")["pairs_initial"])


def judgements(datasets):
    summaries = claims.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


def judged(**changed):
    """The judgements where the run of delta 0.5 and the larger step is changed."""
    return judgements(with_ends(ended(), changed={(0.5, 50.0): changed}))


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "equal", Verdict.HOLDS),
        ({}, "close", Verdict.HOLDS),
        ({"off": 0.01 + 0 * OFF}, "close", Verdict.FAILS),
        ({"off": 5 * OFF}, "close", Verdict.FAILS),
        ({"chosen": 0.95}, "close", Verdict.FAILS),
        # Near the threshold of the end, 0.02.
        ({"off": 0.019 * OFF / OFF[-1]}, "close", Verdict.HOLDS),
        ({"off": 0.020 * OFF / OFF[-1]}, "close", Verdict.OPEN),
        ({"off": 0.021 * OFF / OFF[-1]}, "close", Verdict.FAILS),
        ({"off": 0.01 + 0 * OFF}, "equal", Verdict.HOLDS),
        ({"feasible": 9}, "close", Verdict.OPEN),
        ({"feasible": 9}, "soft", Verdict.FAILS),
        ({}, "soft", Verdict.FAILS),
        ({}, "tied", Verdict.HOLDS),
        ({"least": 29}, "tied", Verdict.CORRECTED),
        ({"tied": 0.015 + 0 * OFF}, "tied", Verdict.FAILS),
        ({"tied": 5 * OFF}, "tied", Verdict.FAILS),
        ({"tied": 0.020 * OFF / OFF[-1]}, "tied", Verdict.OPEN),
        ({"tied": 5 * OFF, "least": 29}, "tied", Verdict.FAILS),
        ({"feasible": 30}, "tied", Verdict.OPEN),
        ({"feasible": 30}, "soft", Verdict.OPEN),
        ({"feasible": 30}, "close", Verdict.HOLDS),
        ({}, "step", Verdict.HOLDS),
        # The claim is of the smallest step.
        ({"loss": (1.0, 1.5)}, "step", Verdict.HOLDS),
    ],
)
def test_verdicts_follow_from_what_was_measured(changed, name, verdict):
    assert judged(**changed)[1][name].verdict is verdict


def test_the_soft_margin_holds_where_descent_tends_to_it():
    found = judgements({one.attrs["run"]: one for one in (made(0.0, step, soft=OFF) for step in (1.5, 50.0))})[1]
    assert found["soft"].verdict is Verdict.HOLDS
    # No run has close scores.
    assert found["close"].verdict is Verdict.OPEN
    assert found["close"].note == "There is no run with close scores from drawn starts."
    assert found["close"].measured == {}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"loss": (1.0, 1.1)}, Verdict.FAILS),
        ({"loss": (1.0, 1.0)}, Verdict.HOLDS),
        # A step beyond 1 / L says nothing of steps within, whether the risk rises or not.
        ({"bound": 1 / 0.79}, Verdict.OPEN),
        ({"bound": 1 / 0.79, "loss": (1.0, 1.1)}, Verdict.OPEN),
        ({"bound": 1 / 0.81}, Verdict.HOLDS),
        # One recorded step has nothing to rise from.
        ({"loss": (1.0,)}, Verdict.OPEN),
    ],
)
def test_a_rise_of_the_risk_refutes_if_the_step_is_within_the_bound(changed, verdict):
    found = judgements({"first": made(0.0, 0.8, **changed)})[1]["step"]
    assert found.verdict is verdict
    assert found.measured["increases of the recorded risk, first"] == (30 if changed.get("loss") == (1.0, 1.1) else 0)


def test_steps_beyond_the_bound_decide_no_theorem():
    found = judgements(with_ends(ended(), changed={one: {"bound": 1.3} for one in RUNS}))[1]
    assert {found[name].verdict for name in ("equal", "close", "step")} == {Verdict.OPEN}
    assert found["equal"].note == "The smallest step is 1.04 / L, but the claim is about steps of at most 1 / L."
    # Theorem 3.15 asks for half of it.
    found = judgements(with_ends(ended(), changed={one: {"bound": 0.7} for one in RUNS}))[1]
    assert [found[name].verdict for name in ("equal", "close")] == [Verdict.HOLDS, Verdict.OPEN]
    assert found["close"].note == "The smallest step is 0.56 / L, but the claim is about steps of at most 0.5 / L."


@pytest.mark.parametrize(
    ("ends", "name", "verdict"),
    [
        # One start that stays behind refutes, whatever the others do; one that is on the way decides nothing.
        ((ended(left=1),), "equal", Verdict.CORRECTED),
        ((ended(moving=1),), "equal", Verdict.OPEN),
        ((ended(left=1, moving=1),), "equal", Verdict.CORRECTED),
        # A prefix that is less than the margin behind, or a run near no solution, is not what the correction says.
        ((ended(left=1, behind=0.99),), "equal", Verdict.OPEN),
        ((ended(left=1), ended(left=1, behind=0.99, delta=0.01)), "close", Verdict.FAILS),
        ((ended(left=4, far=0.04),), "equal", Verdict.FAILS),
        # Equal scores are close as well; close ones are not equal.
        ((ended(left=1),), "close", Verdict.CORRECTED),
        ((ended(), ended(0.01, left=1)), "equal", Verdict.HOLDS),
        # Plain descent is slow: it refutes, but how near it is to a solution is not asked.
        ((ended(), ended(left=2, far=0.04, rule="plain, step 1")), "equal", Verdict.CORRECTED),
        ((ended(texts=9),), "equal", Verdict.OPEN),
        # Each loss has a line of its own.
        ((ended(), ended(loss="cross_entropy", left=1), ended(loss="printed", left=1)), "equal", Verdict.HOLDS),
        ((ended(left=1), ended(loss="cross_entropy")), "cross-entropy", Verdict.HOLDS),
        ((ended(loss="printed", far=1.7), ended(loss="turned", texts=9)), "printed", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_where_starts_end(ends, name, verdict):
    assert judgements(with_ends(*ends))[1][name].verdict is verdict


def test_errors_of_the_direction_are_checked():
    one = ended()
    one["off_kept"] = -one["off_kept"]
    with pytest.raises(ValueError, match=r"off_kept: expected direction errors, 0\.\.2, found"):
        judgements(with_ends(one))


def test_the_correction_counts_the_texts_that_keep_other_words():
    note = judged(least=28)[1]["tied"].note
    assert "With the largest step, 2 of 30 texts keep other words than those of least risk." in note


def test_short_runs_decide_nothing_and_nothing_kept_is_named():
    one = made(0.0, 1.5, steps=STEPS[:20])
    found = judgements({"short": one})[1]
    assert {each.verdict for each in found.values()} == {Verdict.OPEN}
    with pytest.raises(ValueError, match=r"expected a kept seed in each run, found none in \['short'\]"):
        claims.summarize({"short": one.isel(seed=slice(0))}, KEY)


def test_the_figure_draws_each_kind_of_text_and_survives_without_one():
    summaries = judged()[0]
    drawn = figure.draw(summaries)
    names = ("feasible_off", "infeasible_off_soft", "infeasible_off", "feasible_growth")
    for panel, name in zip(drawn.axes[:4], names, strict=True):
        curves = drawn_lines(panel, least=len(STEPS))
        for (x, y), one in zip(curves, paths.plain(summaries).values(), strict=True):
            np.testing.assert_allclose(x, one.attrs["step_size"] * STEPS)
            np.testing.assert_array_equal(y, one[name])
    level = [y for _, y in drawn_lines(drawn.axes[1]) if len(y) == 2]
    np.testing.assert_allclose(level, 0.06)
    # Titles hold the number of texts and the errors at the end; the claim on soft margins fails here.
    titles = [panel.get_title() for panel in drawn.axes[:4]]
    end = max(float(summaries[f"delta {delta:g}, step 50"]["infeasible_off_soft"][-1]) for delta in (0, 0.5))
    assert titles[1] == f"(b) 15 infeasible texts: refuted,\n{end:.2g} from the soft margin"
    assert titles[0].startswith("(a) 15 feasible texts:\n")
    assert titles[2].startswith("(c) 15 infeasible texts:\n")
    slope = float(summaries["delta 0, step 50"]["feasible_slope"])
    assert f"{slope:.2f}" in titles[3]
    assert "texts, all kept" in drawn.get_supxlabel()
    alone = figure.draw(claims.summarize({"one": made(0.0, 1.5, feasible=30)}, KEY))
    assert drawn_lines(alone.axes[1]) == []
    assert "refuted" not in "".join(panel.get_title() for panel in alone.axes)


def test_what_holds_is_not_called_refuted():
    summaries = judgements(with_ends(ended(), changed={one: {"soft": OFF} for one in RUNS}))[0]
    assert "refuted" not in "".join(panel.get_title() for panel in figure.draw(summaries).axes)


def test_the_figure_draws_where_every_start_ends():
    summaries = judgements(with_ends(ended(loss="cross_entropy"), ended(left=4, moving=2), ended(0.01)))[0]
    panel = figure.draw(summaries).axes[5]
    bars = [one for one in panel.patches if isinstance(one, Rectangle)]
    # By loss, the logistic one first.
    widths = np.reshape([bar.get_width() for bar in bars], (3, 3))
    np.testing.assert_allclose(widths[:, 0] * 15, [9, 4, 2])
    np.testing.assert_allclose(widths[:, 1:], [[1, 1], [0, 0], [0, 0]])
    written = [text.get_text() for text in panel.texts]
    assert [text for text in written if " of " in text] == ["4 of 15", "0 of 15", "0 of 15"]
    assert [text for text in written if text in ("logistic", "cross entropy")] == ["logistic", "cross entropy"]
    assert "refuted for the logistic loss, 4 of 30" in panel.get_title()
    assert "cross entropy: 0 of 15" in panel.get_title()


def test_the_figure_draws_two_inputs_by_loss():
    known = {"text": "two inputs", "radius": 3.0}
    runs = [ended(left=15).assign_attrs(known, run="W z along e_b"), ended(loss="cross_entropy").assign_attrs(known)]
    runs[1].attrs["run"] = "W z along e_b, cross entropy"
    summaries = judgements(with_ends(*runs))[0]
    panel = figure.draw(summaries).axes[4]
    for (x, y), one in zip(drawn_lines(panel), paths.started(summaries).values(), strict=True):
        np.testing.assert_array_equal(x, STEPS)
        np.testing.assert_array_equal(y, one["off"])
    assert panel.get_title() == "(e) two inputs, from $Wz = (3, 0)$:\nthe logistic loss serves only one"
    assert [text.get_text() for text in panel.texts] == ["logistic loss", "cross entropy"]
