"""Softmax compared with linear attention: synthetic texts, steps and curvatures of a record, and scales."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, language, records
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.softmax_vs_linear import scales
from jaxattn.experiments.smoothness.softmax_vs_linear.claims import CLAIMS, summarize
from jaxattn.experiments.smoothness.softmax_vs_linear.measure import ATTENTIONS, LOSSES, SCALES, STEPS, measure
from jaxattn.study.claims import Number, Outcome, together
from jaxattn.study.settings import recording, texts

VERDICTS = {
    "softmax-vs-linear:logistic": "holds with a correction",
    "softmax-vs-linear:squared": "holds with a correction",
    "softmax-vs-linear:curvature-logistic": "not decided",
    "softmax-vs-linear:curvature-squared": "not decided",
    "softmax-vs-linear:divergence": "holds",
}
KEY = jax.random.key(0)


def measured(forked=0):
    """From scale 2 on softmax has a curvature nine times smaller, and steps three times larger; before, the opposite.

    The first texts, `forked` of 30, have smaller steps with softmax at every scale.
    """
    noise = np.random.default_rng(0).normal(0, 0.02, (30, 1, 1))
    shape = (30, len(SCALES), len(LOSSES))
    linear = (1 + noise) * SCALES[None, :, None] ** 6 * np.ones(len(LOSSES))
    softmax = 1.02 ** np.linspace(-1, 1, 30)[:, None, None] * linear / np.where(SCALES >= 2, 9.0, 0.4)[:, None]
    factor = np.broadcast_to(np.where(SCALES >= 2, 3.0, 0.4)[:, None], shape).copy()
    factor[:forked] = 0.5
    none, all_texts = np.zeros(shape, bool), np.ones(shape, bool)
    values = {
        "at_zero": np.stack([softmax / 2, linear], -1),
        "drawn": np.stack([softmax, linear], -1),
        "path": np.stack([softmax / 2, linear], -1),
        "step": np.stack([factor * 2 / linear, 2 / linear], -1),
        "beyond": np.stack([none, none], -1),
        "below": np.stack([none, none], -1),
        "again": np.stack([none, none], -1),
        "exceeds": np.stack([none, all_texts], -1),
    }
    dims = ("seed", "scale", "loss", "attention")
    run = xarray.Dataset(
        {name: (dims, array) for name, array in values.items()}
        | {"bound": (dims[:3], 5 * softmax), "forked": ("seed", np.arange(30) < forked)},
        {
            "seed": np.arange(30),
            "scale": SCALES,
            "loss": np.array(list(LOSSES), dtype=object),
            "attention": np.array(list(ATTENTIONS), dtype=object),
        },
        {"data.n": 5, "words": 10, "attempted": 30, "kept": 30, "diverged": 0},
    )
    return {"texts": run}


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


@pytest.fixture(scope="module")
def of_record(tmp_path_factory):
    law = partial(data.language, m=4, n=3, d=6, V=4, entropy=0.2, order=1, candidates=language.vocabulary)
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(texts.Texts(law, 4, key=1), path, {})
    record = records.load(path)
    return record, measure(record)


@pytest.mark.slow
def test_a_record_is_measured_at_every_scale(of_record):
    record, one = of_record
    assert one.attrs == {"attempted": 4, "kept": 4, "diverged": 0, "words": 4}
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
def test_a_step_that_was_found_descends_and_a_longer_one_does_not(of_record):
    record, one = of_record
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


def test_a_correction_is_made_only_where_its_criteria_are_met_and_excluded_only_where_all_are_broken():
    first, x = Number(0.2, 0.1, 0.3), np.array([1.0, 2.0])
    last = (Number(share, share - 0.1, share + 0.1) for share in (0.8, 0.5, 0.2))
    met, unclear, broken = (scales.from_some_scale("share", x, [first, one], 0.5) for one in last)
    outcomes = [together(one.criteria) for one in (met, unclear, broken)]
    assert outcomes == [Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN]
    assert scales.best([broken, unclear, met]) is met
    assert scales.best([broken, unclear]) is unclear
    assert scales.best([broken, broken]) is broken
    assert all("only from scale 2 on" in one.sentence for one in (met, unclear, broken))


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


def test_ratios_proofs_and_kinds_of_texts_are_counted():
    summary = summarize(measured(forked=10), KEY)["texts"].sel(loss="squared")
    np.testing.assert_allclose(summary["smoother"], np.log10(np.where(SCALES >= 2, 9.0, 0.4)), atol=1e-12)
    # The bound of softmax is five times what was found.
    np.testing.assert_array_equal(summary["smoother_proved"], SCALES >= 2)
    np.testing.assert_array_equal(summary["rougher_proved"], SCALES < 2)
    np.testing.assert_allclose(summary["larger"], np.where(SCALES >= 2, 2 / 3, 0))
    np.testing.assert_allclose(summary["larger_forked"], 0)
    np.testing.assert_allclose(summary["larger_plain"], SCALES >= 2)
    np.testing.assert_allclose(summary["spared"], 1)


def test_texts_without_a_threshold_for_either_attention_widen_the_share():
    run = measured()["texts"]
    run["beyond"].values[:12] = True
    run["step"].values[:12, ..., 0] = run["step"].values[:12, ..., 1]
    summary = summarize({"texts": run}, KEY)["texts"]
    np.testing.assert_allclose((summary["larger_perhaps"] - summary["larger"]), 0.4)


@pytest.mark.parametrize(("words", "verdict"), [(10, "not decided"), (1, "holds with a correction")])
def test_what_depends_on_whether_linear_attention_is_a_mean_or_a_sum_is_not_decided(words, verdict):
    runs = {"texts": measured()["texts"].assign_attrs(words=words)}
    (claim,) = (one for one in CLAIMS if one.id == "softmax-vs-linear:curvature-squared")
    assert claim.judge(summarize(runs, KEY)).verdict == verdict
