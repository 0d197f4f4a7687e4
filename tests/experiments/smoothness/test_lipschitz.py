"""The Lipschitz constant of the gradient: synthetic texts, and what is measured of a record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language
from jaxattn.experiments.smoothness import bends
from jaxattn.experiments.smoothness.lipschitz import (
    _paper,  # pyright: ignore[reportPrivateUsage]
    measure,
    summarize,
)
from jaxattn.study.settings import texts
from tests.experiments.synthetic import synthetic
from tests.recorded import written

VERDICTS = {}
SEEDS, V = 3, 4
RISKS = {
    "cross entropy": (language.risk, language.cross_entropy_bound),
    "logistic": (bends.logistic, lambda one: language.score_bound(bends.tied(one))),
    "squared": (language.squared_risk, language.squared_bound),
}


def measured():
    """Second derivatives that grow like R^6 and are half of their bounds, with a small spread over texts."""
    R = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    noise = np.random.default_rng(0).normal(0, 0.02, (24, 1, 1))
    spread = 0.02 * np.linspace(-1, 1, 24)[:, None, None]
    bend = (1 + noise) * R[None, :, None] ** (6 + spread) * np.ones(3)
    values = {"bend": bend, "residual": 1e-9 * bend, "ratio": bend / 3, "bound": bend / (0.5 * (1 + spread))}
    run = synthetic(
        24,
        {"data.n": 5},
        {"risk": np.array(list(RISKS), dtype=object), "radius": R},
        **{name: (("seed", "radius", "risk"), array) for name, array in values.items()},
    )
    return {"texts": run}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    law = partial(data.language, m=4, n=3, d=6, V=V, entropy=0.2, order=1, candidates=language.vocabulary)
    return written(texts.Texts(law, SEEDS, key=1), tmp_path_factory.mktemp("runs"))


def of_seed(record, seed, R):
    """A text as it was drawn, in all its dimensions, its embeddings of spectral norm R."""
    one = texts.choices_of({name: jnp.asarray(record[name].values[seed]) for name in record.data_vars})
    return one._replace(E=R * one.E / jnp.linalg.norm(one.E, ord=2))


@pytest.mark.slow
def test_what_is_found_is_a_lower_bound_that_is_no_less_than_at_zero(record):
    one = measure(record)
    assert one.attrs == {"attempted": 3, "kept": 3, "diverged": 0}
    assert np.all(one["bend"] <= one["bound"])
    # Between two W the gradient turns by a mean of second derivatives; those that were found are nearly the largest.
    assert np.all(one["ratio"] <= one["bound"])
    assert float((one["residual"] / one["bend"]).max()) < 1e-6
    for R in (1.0, 4.0):
        for risk, (function, bound) in RISKS.items():
            text, found = of_seed(record, 1, R), one.sel(radius=R, risk=risk).isel(seed=1)
            np.testing.assert_allclose(found["bound"], bound(text), rtol=1e-10)
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
        assert 10 ** _paper(np.asarray(R), n) == pytest.approx(3 * n**3 * R**7 * np.exp(13 * R**2))
    assert 94.9 < _paper(np.asarray(4.0), 1) < 95.1
    assert np.isfinite(_paper(np.asarray(100.0), 5))


def test_powers_and_ratios_to_the_bound():
    summary = summarize(measured(), jax.random.key(0))["texts"]
    np.testing.assert_allclose(summary["power"], 6, rtol=1e-2)
    np.testing.assert_allclose(summary["tightness"], 0.5, rtol=1e-3)
    np.testing.assert_allclose(summary["tightest_with_residual"], 0.5 * 1.02 * (1 + 1e-9), rtol=1e-6)
