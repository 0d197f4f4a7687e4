"""Mirror descent with the l_p potential: verdicts on planted runs, what trained records give, and the figure."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from jaxattn import data, descent, initial, svm
from jaxattn.experiments.bias.mirror import examples, figure, rates
from jaxattn.experiments.bias.mirror.claims import CLAIMS, summarize
from jaxattn.experiments.bias.mirror.measure import NORMALIZED, NORMS, PLAIN, divergence, measure, norm_of
from jaxattn.experiments.bias.mirror.predictions import EXPONENTS, PUBLISHED
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)


def judged(name, *runs):
    summaries = summarize(examples.named(*runs), KEY)
    (claim,) = (one for one in CLAIMS if one.id == f"mirror:{name}")
    return claim.judge(summaries)


@pytest.mark.parametrize(
    ("epochs", "later", "verdict"),
    [
        (0.02, 0.02, Verdict.HOLDS),
        # What comes later is no part of the statement.
        (0.02, -0.02, Verdict.HOLDS),
        (-0.02, 0.02, Verdict.CORRECTED),
        (-0.02, -0.02, Verdict.FAILS),
        (1e-5, 0.02, Verdict.OPEN),
    ],
)
def test_the_own_solution_has_to_be_the_nearest(epochs, later, verdict):
    runs = (examples.run(PLAIN, 3.0, 1500, ahead=epochs), examples.run(PLAIN, 3.0, rates.LONG, ahead=later))
    found = judged("nearest-3", *runs)
    assert found.verdict is verdict
    assert len(found.measured) == 6


@pytest.mark.parametrize("p", PUBLISHED)
@pytest.mark.parametrize(("slack", "verdict"), [(-0.5, Verdict.HOLDS), (0.5, Verdict.FAILS), (0.0, Verdict.OPEN)])
def test_only_what_falls_more_slowly_refutes_the_bound(p, slack, verdict):
    found = judged(f"rate-{p:g}", examples.run(PLAIN, p, rates.LONG, slack=slack))
    assert found.verdict is verdict
    assert found.measured["exponent of log k in the divergence over the bound"] == pytest.approx(slack, abs=0.02)


def test_short_runs_and_missing_ones_decide_nothing():
    short = judged("rate-2", examples.run(PLAIN, 2.0, 20_000))
    assert short.verdict is Verdict.OPEN
    assert short.note == "A run of 20000 steps is too short for a rate in log k."
    for name in ("rate-2", "nearest-2", "direction-2"):
        missing = judged(name, examples.run(PLAIN, 3.0, 1500), examples.run(NORMALIZED, 3.0, 20_000))
        assert missing.verdict is Verdict.OPEN
        assert missing.note == "This run is not made at this size."


def test_bounds_and_exponents_are_those_of_their_formulas():
    steps = np.array([10_000, 30_000, 100_000])
    log = np.log(steps)
    np.testing.assert_allclose(rates.bound(steps, 1.75), log**-0.75)
    np.testing.assert_allclose(rates.bound(steps, 2.0), np.log(log) ** 2 / log)
    np.testing.assert_allclose(rates.bound(steps, 3.0), np.log(log) / log)
    planted = np.stack([rates.bound(steps, 3.0) / log**2, rates.bound(steps, 3.0) * log])
    np.testing.assert_allclose(rates.over_bound(steps, planted, 3.0), [-2, 1])
    np.testing.assert_allclose(rates.of_steps(steps, 5.0 * steps[None] ** -1.5), [-1.5])


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_divergence_is_that_of_its_definition(p):
    A, B = np.random.default_rng(0).normal(size=(2, 3, 4))
    A, B = (W / (np.abs(W) ** p).sum() ** (1 / p) for W in (A, B))

    def psi(W):
        return jnp.sum(jnp.abs(W) ** p) / p

    slope = jax.grad(psi)(jnp.asarray(B))
    expected = psi(A) - psi(B) - jnp.sum(slope * (A - B))
    np.testing.assert_allclose(divergence(1e30 * A, 3 * B, p), expected, rtol=1e-10)
    np.testing.assert_allclose(divergence(A, A, p), 0, atol=1e-14)


def test_a_divergence_that_is_not_positive_is_refused():
    one = examples.run(PLAIN, 3.0, 1500)
    with pytest.raises(ValueError, match=r"^divergence: expected positive numbers, found -"):
        summarize({"run": one.assign(divergence=-one["divergence"])}, KEY)


def test_the_figure_shows_correlations_ratios_and_divergences():
    runs = [examples.run(PLAIN, p, steps) for p in PUBLISHED for steps in (1500, rates.LONG)]
    summaries = summarize(examples.named(*runs, *(examples.run(NORMALIZED, p, 20_000) for p in EXPONENTS)), KEY)
    first, second, third, fourth = figure.draw(summaries).axes
    assert "own solution first in 3 of 3" in first.get_title()
    assert "own norm obeyed in 5 of 5" in second.get_title()
    shown = sorted(text.get_text() for text in first.texts)
    cosines = [summaries[f"{PLAIN}, p = {p:g}, 1,500 steps"]["cosine"] for p in PUBLISHED]
    assert shown == sorted(f"{float(one.sel(norm=norm_of(q))):.3f}" for one in cosines for q in PUBLISHED)
    assert [len([one for one in axes.patches if isinstance(one, Rectangle)]) for axes in (first, second)] == [3, 5]
    for axes, rule, steps, exponents in (
        (third, PLAIN, rates.LONG, PUBLISHED),
        (fourth, NORMALIZED, 20_000, EXPONENTS),
    ):
        for line, p in zip(drawn_lines(axes, least=3), exponents, strict=False):
            one = summaries[f"{rule}, p = {p:g}, {steps:,} steps"]
            np.testing.assert_array_equal(line[1], one["off"].values[one["snapshot"].values > 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "target"), [(descent.lp_gd(3.0, 0.5), "lp_gd"), (descent.mirror(3.0, 10.0), "mirror")]
)
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path, rule, target):
    config = {"optimizer": {"_target_": f"jaxattn.descent.{target}", "p": 3.0}}
    kept = schedule.Logarithmically(4)
    record = recorded(
        tmp_path, data.three_tokens, initial.free, rule, config, seeds=3, steps=200, snapshots=kept, record_every=10
    )
    one = measure(record)
    made = examples.run(PLAIN if target == "lp_gd" else NORMALIZED, 3.0, 200)
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert {name: one.attrs[name] for name in ("run", "rule", "p", "norm", "steps")} == {
        name: made.attrs[name] for name in ("run", "rule", "p", "norm", "steps")
    }
    assert set(made.attrs) <= set(one.attrs)
    assert tuple(one["norm"].values) == NORMS
    assert (one["probability"] <= 1).all()
    assert (one["probability"] >= 1 / 3).all()
    other: Any = svm.ActiveSet()
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=other)


@pytest.mark.slow
def test_an_exponent_without_a_norm_is_named(tmp_path):
    config = {"optimizer": {"_target_": "jaxattn.descent.mirror", "p": 2.5}}
    record = recorded(tmp_path, data.three_tokens, config=config, seeds=2, steps=10, snapshots=schedule.Evenly(5))
    with pytest.raises(ValueError, match=r"^p: expected one whose norm is among .*'l_3'.*, found 2.5"):
        measure(record)
