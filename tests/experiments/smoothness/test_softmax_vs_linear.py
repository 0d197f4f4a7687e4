"""Softmax beside linear attention: steps and curvatures of a record, and verdicts on datasets built by hand."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language, records
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.softmax_vs_linear import figure, scales
from jaxattn.experiments.smoothness.softmax_vs_linear.claims import summarize
from jaxattn.experiments.smoothness.softmax_vs_linear.examples import FROM_TWO, PROVED_FROM_TWO, made
from jaxattn.experiments.smoothness.softmax_vs_linear.measure import SCALES, STEPS, measure
from jaxattn.study import claims as study_claims
from jaxattn.study.claims import Number, Outcome, Verdict
from jaxattn.study.settings import recording, texts
from tests.instances import drawn_lines

KEY = jax.random.key(0)


def text(seed=0, scale=1.0):
    drawn = data.language(jax.random.key(seed), 4, 3, 6, 4, 0.2)
    return drawn._replace(E=scale * drawn.E)


@pytest.mark.slow
@pytest.mark.parametrize("attention", [language.softmax, language.linear])
def test_the_squared_risk_at_another_scale_is_the_same_elsewhere(attention):
    W, s = jax.random.normal(KEY, (36,)).reshape(6, 6), 3.0
    here = language.squared_risk(W, text(1, s), attention=attention)
    np.testing.assert_allclose(here, s**2 * language.squared_risk(s**2 * W, text(1), attention=attention), rtol=1e-12)


@pytest.mark.parametrize("risk", [bends.logistic, language.squared_risk])
def test_linear_attention_bends_nowhere_more_than_at_zero(risk):
    one = text(2, 1.7)
    W = jax.random.normal(KEY, (20 * 36,)).reshape(20, 6, 6) * jnp.geomspace(0.1, 30, 20)[:, None, None]
    hessian = jax.jit(jax.hessian(lambda W: risk(W, one, attention=language.linear)))
    at_zero = np.linalg.norm(hessian(jnp.zeros((6, 6))).reshape(36, 36), 2)
    assert max(np.linalg.norm(hessian(each).reshape(36, 36), 2) for each in W) <= at_zero * (1 + 1e-12)


@pytest.mark.slow
def test_linear_attention_as_a_sum_bends_by_the_number_of_words_squared_more():
    one = text(2)

    def total(logits, choices):
        return language.linear(logits, choices) * logits.shape[-1]

    for risk in (bends.logistic, language.squared_risk):
        mean, of_sum = (
            jax.hessian(partial(risk, choices=one, attention=attention))(jnp.zeros((6, 6)))
            for attention in (language.linear, total)
        )
        np.testing.assert_allclose(of_sum, 16 * mean, rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_compact_texts_bend_as_they_do_in_all_their_dimensions():
    one = text(4)
    shorter = jax.tree.map(jnp.asarray, language.compact(one))
    for risk in (bends.logistic, language.squared_risk, language.risk):
        spectra = []
        for each in (one, shorter):
            d = each.E.shape[1]
            H = jax.hessian(partial(risk, choices=each))(jnp.zeros((d, d))).reshape(d * d, d * d)
            spectra.append(np.sort(np.abs(np.linalg.eigvalsh(H)))[-16:])
        np.testing.assert_allclose(spectra[1], spectra[0], rtol=1e-9, atol=1e-14)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    law = partial(data.language, m=4, n=3, d=6, V=4, entropy=0.2, order=1, candidates=language.vocabulary)
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(texts.Texts(law, 4, key=1), path, {"config": json.dumps({"data": {"n": 3}})})
    record = records.load(path)
    return record, measure(record)


@pytest.mark.slow
def test_a_record_is_measured_at_every_scale(measured):
    record, one = measured
    assert one.attrs == {"attempted": 4, "kept": 4, "diverged": 0, "run": "texts", "words": 4}
    linear, squared = one.sel(attention="linear"), one.sel(loss="squared")
    # The classical edge: of a quadratic the largest step is 2 / its curvature.
    edge = (linear["step"] * linear["at_zero"] / 2).sel(loss="squared").values
    assert np.all((edge > 0.999) & (edge < 1.001))
    np.testing.assert_allclose(
        squared["at_zero"] / SCALES[:, None] ** 6, np.broadcast_to(squared["at_zero"].sel(scale=[1.0]), (4, 6, 2)), 1e-9
    )
    for name in ("at_zero", "drawn", "path"):
        assert np.all(one[name].sel(attention="softmax") <= one["bound"] * (1 + 1e-9))
        assert np.all(linear[name] <= linear["at_zero"] * (1 + 1e-9))
    for seed in range(4):
        pairs = {(int(a), int(b)) for a, b in zip(record["last"][seed], record["next"][seed], strict=True)}
        assert bool(one["forked"][seed]) == (len({a for a, _ in pairs}) < len(pairs))
    of_two = texts.choices_of({name: jnp.asarray(record[name].values[2]) for name in record.data_vars})
    of_two = of_two._replace(E=2 * of_two.E)
    at_zero = jax.hessian(partial(bends.logistic, choices=of_two))(jnp.zeros((6, 6))).reshape(36, 36)
    found = one["at_zero"].sel(scale=2.0, loss="logistic", attention="softmax")[2]
    assert float(found) == pytest.approx(np.linalg.norm(at_zero, 2), rel=1e-6)


@pytest.mark.slow
def test_a_step_that_was_found_descends_and_a_longer_one_does_not(measured):
    record, one = measured
    for seed in range(4):
        each = one.sel(scale=1.0, loss="squared", attention="softmax").isel(seed=seed)
        if bool(each["beyond"]):
            continue
        choices = texts.choices_of({name: jnp.asarray(record[name].values[seed]) for name in record.data_vars})
        slope = jax.jit(jax.value_and_grad(partial(language.squared_risk, choices=choices)))
        for factor, descends in ((1.0, True), (1.01, False)):
            W, risks = jnp.zeros((6, 6)), []
            for _ in range(STEPS + 1):
                risk, gradient = slope(W)
                risks.append(float(risk))
                W = W - factor * float(each["step"]) * gradient
            assert (np.max(np.diff(risks)) <= 1e-12 * risks[0]) == descends


def decided(one):
    """Estimates, and judgements by the name of their claim."""
    experiment = study_claims.experiment("jaxattn.experiments.smoothness.softmax_vs_linear")
    summaries, judgements = study_claims.judged(experiment, "softmax-vs-linear", {"texts": one}, KEY)
    return summaries, {claim.id.partition(":")[2]: judgement for claim, judgement in judgements}


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        ({}, "squared", Verdict.HOLDS),
        ({"larger": 0.5}, "squared", Verdict.FAILS),
        ({"larger": FROM_TWO}, "squared", Verdict.CORRECTED),
        ({"larger": FROM_TWO[::-1]}, "squared", Verdict.FAILS),
        ({"forked": 14}, "squared", Verdict.CORRECTED),
        # The shares in which it is larger do not tell whether it is in four of five texts.
        ({"forked": 8}, "squared", Verdict.OPEN),
        ({"forked": 3}, "squared", Verdict.OPEN),
        ({"forked": 1}, "squared", Verdict.HOLDS),
        # Too few texts of a kind do not correct what most others refute.
        ({"forked": 20}, "squared", Verdict.FAILS),
        ({"forked": 30}, "squared", Verdict.FAILS),
        # Neither is known to be larger where no threshold was found.
        ({"beyond": True}, "logistic", Verdict.OPEN),
        ({}, "curvature-logistic", Verdict.HOLDS),
        ({"smoother": 0.5}, "curvature-logistic", Verdict.FAILS),
        ({"smoother": PROVED_FROM_TWO}, "curvature-squared", Verdict.CORRECTED),
        ({"smoother": FROM_TWO}, "curvature-squared", Verdict.FAILS),
        # What is found with softmax is smaller, what is proved is not.
        ({"smoother": 4.9}, "curvature-squared", Verdict.OPEN),
        ({"smoother": 5.1}, "curvature-squared", Verdict.HOLDS),
        ({"smoother": 0.99}, "curvature-squared", Verdict.FAILS),
        # Also where what is found exceeds a bound that is wrong.
        ({"smoother": 0.9, "loose": 0.1}, "curvature-squared", Verdict.FAILS),
        ({}, "divergence", Verdict.HOLDS),
        ({"exceeds": (1.0, 1.0)}, "divergence", Verdict.FAILS),
        ({"exceeds": (1.0, 0.0)}, "divergence", Verdict.FAILS),
        ({"exceeds": (0.3, 0.4)}, "divergence", Verdict.OPEN),
        ({"exceeds": (0.1, 0.5)}, "divergence", Verdict.HOLDS),
        # Where linear attention exceeds its start in few texts, few are spared by chance.
        ({"exceeds": (0.0, 0.1)}, "divergence", Verdict.OPEN),
        ({"exceeds": ((1.0, 0.0), 1.0)}, "divergence", Verdict.CORRECTED),
        *(({"seeds": 19}, name, Verdict.OPEN) for name in ("squared", "curvature-squared", "divergence")),
    ],
)
def test_verdicts_follow_from_what_was_measured(changes, name, verdict):
    assert decided(made(**changes))[1][name].verdict is verdict


def test_one_loss_alone_corrects_the_claim_on_divergence():
    one = made()
    one["exceeds"].values[:, :, 0, 0] = True
    found = decided(one)[1]["divergence"]
    assert found.verdict is Verdict.CORRECTED
    assert "only for the squared loss: at every scale, at least 89% of the texts" in found.note


def test_a_loss_with_which_nothing_diverges_is_not_tested():
    one = made()
    one["exceeds"].values[:, :, 0] = False
    found = decided(one)[1]["divergence"]
    assert found.verdict is Verdict.OPEN
    assert {criterion.outcome for criterion in found.stated} == {Outcome.UNCLEAR, Outcome.MET}


def test_corrections_name_what_they_are():
    assert "only from scale 2 on" in decided(made(larger=FROM_TWO))[1]["logistic"].note
    assert "no word has two successors, at every scale" in decided(made(forked=14))[1]["logistic"].note
    assert "only from scale 2 on" in decided(made(smoother=PROVED_FROM_TWO))[1]["curvature-logistic"].note


def test_a_correction_is_made_only_where_its_criteria_are_met_and_excluded_only_where_all_are_broken():
    first, x = Number(0.2, 0.1, 0.3), np.array([1.0, 2.0])
    last = (Number(share, share - 0.1, share + 0.1) for share in (0.8, 0.5, 0.2))
    met, unclear, broken = (scales.from_some_scale("share", x, [first, one], 0.5) for one in last)
    outcomes = [study_claims.together(one.criteria) for one in (met, unclear, broken)]
    assert outcomes == [Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN]
    assert scales.best([broken, unclear, met]) is met
    assert scales.best([broken, unclear]) is unclear
    assert scales.best([broken, broken]) is broken
    assert all("only from scale 2 on" in one.sentence for one in (met, unclear, broken))


def test_steps_that_all_descend_widen_the_interval_of_the_share_only():
    one = made(larger=0.5)
    one["beyond"].values[:12] = True
    one["step"].values[:12, ..., 0] = one["step"].values[:12, ..., 1]
    found = decided(one)[1]["squared"]
    (criterion,) = found.stated
    assert found.measured["share of texts in which the largest step is larger with softmax, scale 1"] == 0
    assert criterion.value.low == 0
    assert criterion.value.high == pytest.approx(0.577, abs=1e-3)
    assert found.verdict is Verdict.FAILS
    assert "40% of the 30 texts" in found.note


def test_scales_and_crossings_are_read_off():
    x = np.array([0.5, 1.0, 2.0, 4.0])
    assert scales.from_where(x, np.array([True, False, True, True])) == 2
    assert scales.from_where(x, np.array([True] * 4)) == 0.5
    assert scales.from_where(x, np.array([True, True, True, False])) is None
    assert scales.crossing(x, np.log(x / 1.5)) == pytest.approx(1.5)
    assert scales.crossing(x, np.ones(4)) is None
    numbers = [Number(0.5, 0.1, 0.9), Number(0.4, 0.3, 0.5)]
    assert scales.least(numbers) == Number(0.4, 0.1, 0.5)
    assert scales.most(numbers) == Number(0.5, 0.3, 0.9)
    found = decided(made(smoother=SCALES / 1.5))[1]["curvature-squared"]
    assert found.measured["scale at which the curvatures are equal"] == pytest.approx(1.5, abs=0.02)


def test_ratios_and_proofs_are_counted():
    one = made(smoother=10.0)
    found = decided(one)[1]["curvature-squared"]
    assert found.measured["log10 of the largest curvature, linear over softmax, scale 4"] == pytest.approx(1)
    # The bound of softmax is five times what was found, half of the linear one's curvature.
    assert found.measured["share of texts in which it is proved to have a smaller one, largest over scales"] == 1
    assert found.measured["share of texts in which softmax is proved to have a larger curvature, scale 1"] == 0
    steps = decided(made(forked=10))[1]["squared"]
    assert steps.measured["share of texts in which the largest step is larger with softmax, scale 8"] == 20 / 30
    label = "log10 of the largest step over 2 / curvature at 0, linear, median over those found"
    assert steps.measured[label] == pytest.approx(0, abs=1e-12)


def test_another_number_of_runs_is_an_error():
    for datasets in ({}, {"texts": made(), "others": made()}):
        with pytest.raises(ValueError, match="softmax-vs-linear: expected one run"):
            summarize(datasets, KEY)


def test_no_kept_text_is_an_error():
    with pytest.raises(ValueError, match="expected a kept seed"):
        summarize({"texts": made().isel(seed=slice(0, 0))}, KEY)


def test_the_figure_draws_the_ratio_of_curvatures_and_the_steps_of_all_texts():
    summaries = summarize({"texts": made(forked=10)}, KEY)
    drawn, one = figure.draw(summaries), summaries["texts"]
    for row, loss in enumerate(("logistic", "squared")):
        curvatures, steps, ratios = drawn.axes[3 * row : 3 * row + 3]
        of_loss = one.sel(loss=loss)
        found, surely = drawn_lines(curvatures, least=len(SCALES))[:2]
        np.testing.assert_allclose(found[1], 10 ** of_loss["smoother"])
        np.testing.assert_allclose(surely[1], 10 ** of_loss["smoother_surely"])
        # Without the line of equality.
        assert sum(line.shape[1] for line in drawn_lines(steps, least=1)[:-1]) == 2 * 30 * len(SCALES)
        # A text is a point or an arrow in the ratios, or counted above them.
        beyond = of_loss["each_beyond"].values.astype(bool)
        told = sum(int(text.get_text()) for text in ratios.texts)
        assert told == beyond.all(axis=-1).sum()
        assert sum(line.shape[1] for line in drawn_lines(ratios, least=1)[:-2]) == 30 * len(SCALES) - told
        arrows = sum(np.size(line.get_xdata()) for line in steps.lines if line.get_marker() == r"$\uparrow$")
        assert arrows == beyond.sum()
    assert "30 texts, all kept." in drawn.get_supxlabel()
