"""Softmax beside linear attention: steps and curvatures of a record, and verdicts on datasets built by hand."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, language, records
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.softmax_vs_linear import claims as softmax_claims
from jaxattn.experiments.smoothness.softmax_vs_linear import figure
from jaxattn.experiments.smoothness.softmax_vs_linear import measure as softmax_vs_linear
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, texts
from tests.instances import drawn_lines

KEY = jax.random.key(0)
SCALES = softmax_vs_linear.SCALES


def text(seed=0, scale=1.0):
    drawn = data.language(jax.random.key(seed), 4, 3, 6, 4, 0.2)
    return drawn._replace(E=scale * drawn.E)


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
    return record, softmax_vs_linear.measure(record)


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
            for _ in range(softmax_vs_linear.STEPS + 1):
                risk, gradient = slope(W)
                risks.append(float(risk))
                W = W - factor * float(each["step"]) * gradient
            assert (np.max(np.diff(risks)) <= 1e-12 * risks[0]) == descends


def made(
    seeds=30,
    smoother: float | np.ndarray = 10.0,
    larger: float | np.ndarray = 3.0,
    forked=0,
    exceeds=(0.0, 1.0),
    beyond=False,
):
    """What `measure` would return: softmax smoother, and its steps larger, by these factors at every scale and loss.

    The first `forked` texts fork, where softmax has half the linear one's step.
    """
    noise = np.random.default_rng(0).normal(0, 0.02, (seeds, 1, 1))
    shape = (seeds, len(SCALES), 2)
    linear = (1 + noise) * SCALES[None, :, None] ** 6 * np.ones(2)
    softmax = linear / (np.broadcast_to(smoother, SCALES.shape)[None, :, None])
    factor = np.broadcast_to(np.broadcast_to(larger, SCALES.shape)[None, :, None], shape).copy()
    factor[:forked] = 0.5
    steps = 2 / linear
    hits = [np.broadcast_to((np.arange(seeds) < share * seeds)[:, None, None], shape) for share in exceeds]
    none = np.zeros((*shape, 2), bool)
    values = {
        "at_zero": np.stack([softmax / 2, linear], -1),
        "drawn": np.stack([softmax, linear], -1),
        "path": np.stack([softmax / 2, linear], -1),
        "step": np.stack([steps if beyond else factor * steps, steps], -1),
        "beyond": none | beyond,
        "below": none,
        "again": none,
        "exceeds": np.stack(hits, -1),
    }
    dims = ("seed", "scale", "loss", "attention")
    return xarray.Dataset(
        {name: (dims, each) for name, each in values.items()}
        | {"bound": (dims[:3], 5 * softmax), "forked": (("seed",), np.arange(seeds) < forked)},
        {
            "seed": np.arange(seeds),
            "scale": SCALES,
            "loss": ["logistic", "squared"],
            "attention": ["softmax", "linear"],
        },
        {"attempted": seeds, "kept": seeds, "diverged": 0, "run": "texts", "words": 10},
    )


def judged(one):
    summaries, claims = softmax_vs_linear.summarize({"texts": one}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


FROM_TWO = np.where(SCALES >= 2, 3.0, 0.4)


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        ({}, "squared", Verdict.HOLDS),
        ({"larger": 0.5}, "squared", Verdict.FAILS),
        ({"larger": FROM_TWO}, "squared", Verdict.CORRECTED),
        ({"larger": FROM_TWO[::-1]}, "squared", Verdict.FAILS),
        ({"forked": 15}, "squared", Verdict.CORRECTED),
        ({"forked": 5}, "squared", Verdict.HOLDS),
        # Neither is larger where no threshold was found.
        ({"beyond": True}, "logistic", Verdict.FAILS),
        ({}, "curvature-logistic", Verdict.HOLDS),
        ({"smoother": 0.5}, "curvature-logistic", Verdict.FAILS),
        ({"smoother": FROM_TWO}, "curvature-squared", Verdict.CORRECTED),
        ({}, "divergence", Verdict.HOLDS),
        ({"exceeds": (1.0, 1.0)}, "divergence", Verdict.FAILS),
        ({"exceeds": (0.3, 0.4)}, "divergence", Verdict.FAILS),
        *(({"seeds": 19}, name, Verdict.OPEN) for name in ("squared", "curvature-squared", "divergence")),
    ],
)
def test_verdicts_follow_from_what_was_measured(changes, name, verdict):
    assert judged(made(**changes))[1][name].verdict is verdict


def test_one_loss_alone_corrects_the_claim_on_divergence():
    one = made()
    one["exceeds"].values[:, :, 0] = False
    claim = judged(one)[1]["divergence"]
    assert claim.verdict is Verdict.CORRECTED
    assert "It is for: squared." in claim.note


def test_corrections_name_what_they_are():
    assert "It is from scale 2 on only" in judged(made(larger=FROM_TWO))[1]["logistic"].note
    assert "no word has two successors, at every scale" in judged(made(forked=15))[1]["logistic"].note


def test_scales_and_crossings_are_read_off():
    x = np.array([0.5, 1.0, 2.0, 4.0])
    assert softmax_claims.from_where(x, np.array([True, False, True, True])) == 2
    assert softmax_claims.from_where(x, np.array([True] * 4)) == 0.5
    assert softmax_claims.from_where(x, np.array([True, True, True, False])) is None
    assert softmax_claims.crossing(x, np.log(x / 1.5)) == pytest.approx(1.5)
    assert softmax_claims.crossing(x, np.ones(4)) is None
    claim = judged(made(smoother=SCALES / 1.5))[1]["curvature-squared"]
    assert claim.measured["scale at which the curvatures are equal"] == pytest.approx(1.5, abs=0.02)


def test_ratios_and_proofs_are_counted():
    one = made(smoother=10.0)
    claim = judged(one)[1]["curvature-squared"]
    assert claim.measured["log10 of the largest curvature, linear over softmax, scale 4"] == pytest.approx(1)
    # The bound of softmax is five times what was found, half of the linear one's curvature.
    assert claim.measured["share of texts in which it is proved to bend less, most of all scales"] == 1
    assert claim.measured["share of texts in which softmax is proved to bend more, scale 1"] == 0
    steps = judged(made(forked=10))[1]["squared"]
    assert steps.measured["share of texts in which the largest step is larger with softmax, scale 8"] == 20 / 30
    label = "log10 of the largest step over 2 / curvature at 0, linear, median where found"
    assert steps.measured[label] == pytest.approx(0, abs=1e-12)


def test_no_kept_text_is_an_error():
    with pytest.raises(ValueError, match="expected a kept seed"):
        softmax_vs_linear.summarize({"texts": made().isel(seed=slice(0, 0))}, KEY)


def test_the_figure_draws_curvatures_and_the_steps_of_all_texts():
    summaries = judged(made(forked=10))[0]
    drawn, one = figure.draw(summaries), summaries["texts"]
    assert [panel.get_title()[4:] for panel in drawn.axes] == [
        f"{loss} loss: {what}"
        for loss in ("logistic", "squared")
        for what in ("curvature", "largest step", "softmax against linear")
    ]
    curves = drawn_lines(drawn.axes[0], least=len(SCALES))
    np.testing.assert_allclose(curves[0][1], 10 ** one["bound"].sel(loss="logistic") / SCALES**6)
    points = sum(len(x) for x, _ in drawn_lines(drawn.axes[4], least=1)) - 2 * len(SCALES)
    assert points == 2 * 30 * len(SCALES)
    np.testing.assert_allclose(drawn_lines(drawn.axes[5])[0][1], 10 ** one["smoother"].sel(loss="squared"))
    assert "30 of 30 texts kept (0 diverged)" in drawn.get_supxlabel()
