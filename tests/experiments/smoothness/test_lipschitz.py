"""The Lipschitz constant of the gradient: what is measured of a record, and verdicts near the thresholds."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language, records
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.lipschitz import figure
from jaxattn.experiments.smoothness.lipschitz.claims import paper, summarize
from jaxattn.experiments.smoothness.lipschitz.examples import made
from jaxattn.experiments.smoothness.lipschitz.measure import RADII, measure
from jaxattn.study import claims as study_claims
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, texts
from tests.instances import drawn_lines

KEY = jax.random.key(0)
SEEDS, V = 3, 4
RISKS = {"cross entropy": language.risk, "logistic": bends.logistic, "squared": language.squared_risk}
BOUNDS = {
    "cross entropy": language.cross_entropy_bound,
    "logistic": lambda one: language.score_bound(bends.tied(one)),
    "squared": language.squared_bound,
}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    law = partial(data.language, m=4, n=3, d=6, V=V, entropy=0.2, order=1, candidates=language.vocabulary)
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(texts.Texts(law, SEEDS, key=1), path, {"config": json.dumps({"data": {"n": 3}})})
    return records.load(path)


def of_seed(record, seed, R):
    """A text as it was drawn, in all its dimensions, its embeddings of spectral norm R."""
    one = texts.choices_of({name: jnp.asarray(record[name].values[seed]) for name in record.data_vars})
    return one._replace(E=R * one.E / jnp.linalg.norm(one.E, ord=2))


@pytest.mark.slow
def test_what_is_found_is_a_lower_bound_that_is_no_less_than_at_zero(record):
    one = measure(record)
    assert one.attrs | {"draws": 0} == {"attempted": 3, "kept": 3, "diverged": 0, "run": "texts", "n": 3, "draws": 0}
    assert np.all(one["bend"] <= one["bound"])
    # Between two W the gradient turns by a mean of second derivatives; those that were found are nearly the largest.
    assert np.all(one["ratio"] <= one["bound"])
    assert float((one["residual"] / one["bend"]).max()) < 1e-6
    for R in (1.0, 4.0):
        for risk, function in RISKS.items():
            text, found = of_seed(record, 1, R), one.sel(radius=R, risk=risk).isel(seed=1)
            np.testing.assert_allclose(found["bound"], BOUNDS[risk](text), rtol=1e-10)
            at_zero = jax.hessian(function)(jnp.zeros((6, 6)), text).reshape(36, 36)
            assert float(found["bend"]) >= np.linalg.norm(at_zero, 2) * (1 - 1e-9)


@pytest.mark.slow
def test_a_text_without_finite_curvature_is_left_out(record):
    changed = record.copy(deep=True)
    changed["weight"].values[1, 0] = np.inf
    one = measure(changed)
    assert (one.attrs["attempted"], one.attrs["kept"], one.attrs["diverged"]) == (3, 2, 1)
    assert one["seed"].values.tolist() == [0, 2]


def test_the_papers_constant_is_its_formula_where_that_is_a_number():
    for R, n in ((0.5, 1), (1.0, 5), (4.0, 2)):
        assert 10 ** paper(np.asarray(R), n) == pytest.approx(3 * n**3 * R**7 * np.exp(13 * R**2))
    assert 94.9 < paper(np.asarray(4.0), 1) < 95.1
    assert np.isfinite(paper(np.asarray(100.0), 5))


def decided(one):
    """Estimates, and judgements by the name of their claim."""
    experiment = study_claims.experiment("jaxattn.experiments.smoothness.lipschitz")
    summaries, judgements = study_claims.judged(experiment, "lipschitz", {"texts": one}, KEY)
    return summaries, {claim.id.partition(":")[2]: judgement for claim, judgement in judgements}


@pytest.mark.parametrize(
    ("one", "name", "verdict"),
    [
        (made(), "bound", Verdict.HOLDS),
        (made(grows=14.0), "bound", Verdict.FAILS),
        # Also where M is between what is found and a bound that is refuted.
        (made(grows=14.0, over=1e10), "bound", Verdict.FAILS),
        # Nothing found exceeds M, and nothing proved is below it.
        (made(loosens=14.0), "bound", Verdict.OPEN),
        (made(), "exponential", Verdict.HOLDS),
        (made(grows=13.0), "exponential", Verdict.FAILS),
        (made(loosens=13.0), "exponential", Verdict.OPEN),
        # Half of M's power, 274.3, is asked for.
        (made(power=137.3), "exponential", Verdict.FAILS),
        (made(power=136.9), "exponential", Verdict.HOLDS),
        (made(power=137.13), "exponential", Verdict.OPEN),
        (made(), "derived", Verdict.HOLDS),
        (made(over=1.01), "derived", Verdict.FAILS),
        (made(over=0.97), "derived", Verdict.HOLDS),
        # The largest of all decides: over differs by 2 % from text to text.
        (made(over=0.99), "derived", Verdict.FAILS),
        # An eigenvalue that is not exact may exceed the bound.
        (made(over=0.9, residual=0.2), "derived", Verdict.OPEN),
        *((made(seeds=19), name, Verdict.OPEN) for name in ("bound", "exponential", "derived")),
    ],
)
def test_verdicts_follow_from_what_was_measured(one, name, verdict):
    assert decided(one)[1][name].verdict is verdict


def test_below_the_radius_that_is_asked_for_the_papers_constant_may_be_exceeded():
    one = made()
    one["bend"].values[:, :3] = 1e60
    assert decided(one)[1]["bound"].verdict is Verdict.HOLDS
    one["bend"].values[0, 3, 1] = 1e98
    assert decided(one)[1]["bound"].verdict is Verdict.FAILS


def test_all_risks_are_asked_for_power_and_the_largest_decides():
    one = made()
    steep = made(grows=13.0)
    for name in ("bend", "bound"):
        one[name].values[:, :, 1] = steep[name].values[:, :, 1]
    assert decided(one)[1]["exponential"].verdict is Verdict.FAILS


def test_what_is_not_a_number_decides_nothing():
    one = made()
    one["ratio"].values[3, 2, 1] = np.nan
    summaries, judgements = decided(one)
    assert summaries is None
    assert {judgement.verdict for judgement in judgements.values()} == {Verdict.OPEN}


def test_decades_and_powers_are_read_with_their_intervals():
    judgements = decided(made())[1]
    label = "decades from the largest second derivative found to M at R = 4, squared"
    low, high = judgements["bound"].interval[label]
    wanted = float(paper(np.asarray(4.0), 5)) - 6 * np.log10(4)
    assert low < judgements["bound"].measured[label] < high
    assert judgements["bound"].measured[label] == pytest.approx(wanted, abs=0.01)
    for label, power in judgements["exponential"].measured.items():
        assert power == pytest.approx(6)
        assert 200 < judgements["exponential"].expected[label] < 300
    assert judgements["derived"].measured["largest found over the bound at R = 4, logistic"] == pytest.approx(0.5)


def test_another_number_of_runs_is_an_error():
    for datasets in ({}, {"texts": made(), "others": made()}):
        with pytest.raises(ValueError, match="lipschitz: expected one run"):
            summarize(datasets, KEY)


def test_no_kept_text_is_an_error():
    with pytest.raises(ValueError, match="expected a kept seed"):
        summarize({"texts": made().isel(seed=slice(0, 0))}, KEY)


def test_the_figure_draws_each_risk_below_its_bound_and_points_to_the_paper():
    summaries = summarize({"texts": made()}, KEY)
    drawn, one = figure.draw(summaries), summaries["texts"]
    for panel, letter, risk in zip(drawn.axes, "abc", RISKS, strict=True):
        power, decades = (
            float(one["power"].sel(risk=risk)),
            float((one["paper"] - one["steepest"]).sel(radius=4, risk=risk)),
        )
        title = f"({letter}) {risk}: found grows\nlike $R^{{{power:.1f}}}$, {decades:.0f} decades below $M$"
        assert panel.get_title() == title
        for (x, y), name in zip(drawn_lines(panel), ("bound", "bend", "ratio"), strict=True):
            np.testing.assert_array_equal(x, RADII)
            np.testing.assert_allclose(y, 10 ** one[name].sel(risk=risk))
        arrows = [text.get_text() for text in panel.texts if text.get_text()]
        assert arrows[0] == f"$M = 10^{{{float(one['paper'].sel(radius=4)):.0f}}}$"
        assert len(arrows) == sum(RADII >= 4)
    assert "24 texts, all kept." in drawn.get_supxlabel()
