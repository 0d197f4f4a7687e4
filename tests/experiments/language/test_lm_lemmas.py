"""The second paper's lemmas: what is measured of a text, and verdicts on datasets built by hand."""

import json
from functools import partial

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data
from jaxattn.experiments.language.lm_lemmas import claims, figure
from jaxattn.experiments.language.lm_lemmas.examples import texts
from jaxattn.experiments.language.lm_lemmas.measure import LABELS, measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings.texts import Texts
from tests.instances import drawn_lines

KEY = jax.random.key(0)
SIZES = {"m": 1, "n": 4, "d": 3, "V": 5, "entropy": 1.0}


@pytest.fixture(scope="module")
def measured():
    setting = Texts(law=partial(data.language, **SIZES), seeds=3, key=5)
    arrays = setting.block(np.arange(3), np.asarray(jax.random.key_data(jax.random.key(5))))
    variables = {name: (("seed", *setting.dims(name)), array) for name, array in arrays.items()}
    return measure(xarray.Dataset(variables, {"seed": np.arange(3)}, {"config": json.dumps({"data": SIZES})}))


def test_the_gradient_with_the_label_inside_is_right_and_the_printed_one_for_labels_of_size_one(measured):
    unit = np.abs(LABELS) == 1
    assert np.all(measured["mended"] < 1e-13)
    assert np.all(measured["printed"].values[:, unit] < 1e-13)
    assert np.all(measured["printed"].values[:, ~unit] > 1e-6)


def test_slopes_reach_the_sharp_constant_and_bounds_are_not_reached(measured):
    near = measured["slope"].values[:, 0]
    assert np.all((near > 0.99 * claims.SHARP) & (near < 1.0001 * claims.SHARP))
    # Half the range of g', 1/4, over the distance.
    assert np.all(measured["slope"].values[:, -1] <= 0.25 / measured["distance"].values[-1])
    assert np.all(measured["share"] <= 1e-9)
    # By Cauchy and Schwarz, and by algebra: the two bounds that have no slack of their own.
    tight = measured["share"].sel(bound=["alpha", "1 / alpha"])
    assert np.all(tight > -3)
    assert np.all(measured["share"].sel(bound=["f", "f f^T"]) < -10)


def judged(**changed):
    summaries = claims.summarize(texts(**changed), KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "gradient", Verdict.HOLDS),
        ({"printed": 1.1e-10}, "gradient", Verdict.CORRECTED),
        ({"printed": 1.1e-10, "mended": 1.1e-10}, "gradient", Verdict.FAILS),
        ({"slope": 0.99}, "slope", Verdict.HOLDS),
        ({"slope": 1.1}, "slope", Verdict.FAILS),
        ({"share": 0.0}, "bounds", Verdict.HOLDS),
        ({"share": 1e-3}, "bounds", Verdict.FAILS),
        ({"seeds": 19}, "bounds", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_what_was_measured(changed, name, verdict):
    assert judged(**changed)[1][name].verdict is verdict


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match=r"slope: expected sizes of at least 0, found -0\.0"):
        judged(slope=-0.09)
    with pytest.raises(ValueError, match=r"lm-lemmas: expected one run, found \[\]"):
        claims.summarize({}, KEY)


def test_the_figure_draws_both_gradients_and_every_bound():
    summaries = judged(printed=0.3)[0]
    drawn = figure.draw(summaries)
    points = [line.get_ydata() for line in drawn.axes[0].lines[:2]]
    assert np.max(points[0]) > 0.2
    assert np.max(points[1]) < 1e-14
    ((x, y),) = drawn_lines(drawn.axes[1], least=10)
    np.testing.assert_allclose(y, summaries["texts"]["slope_most"])
    assert len(x) == summaries["texts"].sizes["distance"]
    assert len(drawn.axes[2].get_yticks()) == 7
    for (x, _), radius in zip(drawn_lines(drawn.axes[2], least=7), summaries["texts"]["radius"].values, strict=True):
        np.testing.assert_array_equal(x, summaries["texts"]["share_most"].sel(radius=radius))


@pytest.mark.parametrize(
    ("changed", "place", "said"),
    [
        ({}, 0, "right for every label"),
        ({"printed": 0.3}, 0, "wrong for $b$ = 0.5, 2"),
        ({}, 1, "Lemma 3.12 holds:\nlargest slope 0.09"),
        ({"slope": 1.2}, 1, "Lemma 3.12 fails:\nlargest slope 1.2"),
        # The powers of ten are rounded down.
        ({}, 2, "all 7 bounds hold,\n6 loose by $10^{3}$ or more"),
        ({"share": 1.5}, 2, "2 of 7 bounds exceeded,\n2 loose by $10^{3}$ or more"),
    ],
)
def test_titles_say_what_was_found(changed, place, said):
    assert said in figure.draw(judged(**changed)[0]).axes[place].get_title()
