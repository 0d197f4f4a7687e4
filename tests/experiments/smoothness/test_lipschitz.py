"""The Lipschitz constant of the gradient: what is measured of a record, and verdicts on datasets built by hand."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, language, records
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.lipschitz import claims as lipschitz
from jaxattn.experiments.smoothness.lipschitz import figure
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
    one = lipschitz.measure(record)
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
    one = lipschitz.measure(changed)
    assert (one.attrs["attempted"], one.attrs["kept"], one.attrs["diverged"]) == (3, 2, 1)
    assert one["seed"].values.tolist() == [0, 2]


def test_the_papers_constant_is_its_formula_where_that_is_a_number():
    for R, n in ((0.5, 1), (1.0, 5), (4.0, 2)):
        assert 10 ** lipschitz.paper(np.asarray(R), n) == pytest.approx(3 * n**3 * R**7 * np.exp(13 * R**2))
    assert 94.9 < lipschitz.paper(np.asarray(4.0), 1) < 95.1
    assert np.isfinite(lipschitz.paper(np.asarray(100.0), 5))


def made(power=6.0, over=0.5, seeds=24, grows=0.0):
    """What `measure` would return for constants like `R^power exp(grows R^2)`, so much below their bound."""
    noise = np.random.default_rng(0).normal(0, 0.02, (seeds, 1, 1))
    R = lipschitz.RADII[None, :, None]
    bend = (1 + noise) * R**power * np.exp(np.minimum(grows * R**2, 600.0)) * np.ones((1, 1, 3))
    values = {"bend": bend, "residual": 1e-9 * bend, "ratio": bend / 3, "bound": bend / over}
    dims = ("seed", "radius", "risk")
    return xarray.Dataset(
        {name: (dims, each) for name, each in values.items()},
        {"seed": np.arange(seeds), "radius": lipschitz.RADII, "risk": list(RISKS)},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "run": "texts", "n": 5, "draws": 64},
    )


def judged(one):
    summaries, claims = lipschitz.summarize({"texts": one}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


@pytest.mark.parametrize(
    ("one", "name", "verdict"),
    [
        (made(), "bound", Verdict.HOLDS),
        (made(grows=14.0), "bound", Verdict.FAILS),
        (made(), "exponential", Verdict.FAILS),
        (made(grows=13.0), "exponential", Verdict.HOLDS),
        (made(), "derived", Verdict.HOLDS),
        (made(over=1.01), "derived", Verdict.FAILS),
        *((made(seeds=19), name, Verdict.OPEN) for name in ("bound", "exponential", "derived")),
    ],
)
def test_verdicts_follow_from_what_was_measured(one, name, verdict):
    assert judged(one)[1][name].verdict is verdict


def test_below_the_radius_that_is_asked_for_the_papers_constant_may_be_exceeded():
    one = made()
    one["bend"].values[:, :3] = 1e60
    assert judged(one)[1]["bound"].verdict is Verdict.HOLDS
    one["bend"].values[0, 3, 1] = 1e98
    assert judged(one)[1]["bound"].verdict is Verdict.FAILS


def test_decades_and_powers_are_read_with_their_intervals():
    claims = judged(made())[1]
    label = "decades from the largest found to M at R = 4, squared"
    low, high = claims["bound"].interval[label]
    wanted = float(lipschitz.paper(np.asarray(4.0), 5)) - 6 * np.log10(4)
    assert low < claims["bound"].measured[label] < high
    assert claims["bound"].measured[label] == pytest.approx(wanted, abs=0.01)
    for label, power in claims["exponential"].measured.items():
        assert power == pytest.approx(6)
        assert 200 < claims["exponential"].expected[label] < 300
    assert claims["derived"].measured["largest found over the bound at R = 4, logistic"] == pytest.approx(0.5)


def test_no_kept_text_is_an_error():
    with pytest.raises(ValueError, match="expected a kept seed"):
        lipschitz.summarize({"texts": made().isel(seed=slice(0, 0))}, KEY)


def test_the_figure_draws_the_paper_over_all_and_each_risk_below_its_bound():
    summaries = judged(made())[0]
    drawn = figure.draw(summaries)
    first, *others = drawn.axes
    one = summaries["texts"]
    np.testing.assert_array_equal(drawn_lines(first)[0][1], one["paper"])
    assert [panel.get_title() for panel in others] == ["(b) cross entropy", "(c) logistic", "(d) squared"]
    for panel, risk in zip(others, RISKS, strict=True):
        for (x, y), name in zip(drawn_lines(panel), ("bound", "bend", "ratio"), strict=True):
            np.testing.assert_array_equal(x, lipschitz.RADII)
            np.testing.assert_allclose(y, 10 ** one[name].sel(risk=risk))
    assert "24 of 24 texts kept (0 diverged)" in drawn.get_supxlabel()
