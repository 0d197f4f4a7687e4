"""Training v together with W: synthetic runs, the risk in the log domain, and what is measured of a record."""

import functools

import jax
import numpy as np
import pytest

from jaxattn import descent, initial, models
from jaxattn.experiments.rates.joint_rate import estimate, log_risk, measure
from jaxattn.experiments.rates.law import near_orthogonal
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded

VERDICTS = {"joint-rate:risk": "not decided"}
STEPS = np.array(Logarithmically(4)(4000))


def measured():
    """-log risk grows like a power of the step, for normalized steps faster than the bound."""
    return {run: of_exponent(power) for run, power in (("plain", 0.15), ("normalized", 1.0), ("falling", 0.36))}


def of_exponent(power):
    """A run of 100 seeds with nearly this exponent of -log risk; W and v converge."""
    fallen = 0.9 * STEPS ** (power * (1 + 0.02 * np.resize([-1.0, 1.0], 100)[:, None]))
    return synthetic(
        100,
        {"steps": 4000},
        {"snapshot": STEPS},
        fallen=fallen,
        size=fallen,
        off_W=0.5 / STEPS + 0 * fallen,
        off_v=0.5 / STEPS + 0 * fallen,
    )


@pytest.mark.parametrize("margins", [[-3.0, 0.5, 2.0], [30.0, 39.9, 41.0], [-800.0, 0.0, 1e6]])
def test_the_logarithm_of_the_risk_is_that_of_the_risk_and_does_not_underflow(margins):
    expected = np.log(np.mean(np.logaddexp(0, np.negative(margins))))
    assert float(jax.jit(log_risk)(np.array(margins))) == pytest.approx(expected, rel=1e-12)
    assert float(jax.jit(log_risk)(np.array([1e5, 2e5, 2e5]))) == pytest.approx(-1e5 - np.log(3), rel=1e-12)


@pytest.mark.slow
def test_a_record_is_measured(tmp_path):
    rule = descent.normalized_gd(1.0, floor=0.0, penalty=0.0)
    law = functools.partial(near_orthogonal, n=2, T=3, d=12)
    size = {"seeds": 3, "steps": 20, "snapshots": Logarithmically(3)}
    record = recorded(tmp_path, law, initial.with_readout, rule, model=models.with_values(), **size)
    one = measure(record)
    assert set(one) == {"fallen", "size", "off_W", "off_v"}
    W, v, problem = (record[name].values[0] for name in ("W_snapshots", "readout_snapshots", "X"))
    s = np.exp(np.einsum("ntd,de,ne->nt", problem, W[-1], problem[:, 0]))
    outputs = np.einsum("nt,ntd->nd", s / s.sum(axis=1, keepdims=True), problem)
    margins = record["Y"].values[0] * (outputs @ v[-1])
    assert float(one["fallen"][0, -1]) == pytest.approx(-np.log(np.mean(np.log1p(np.exp(-margins)))), rel=1e-6)
    assert float(one["size"][0, -1]) == pytest.approx(np.linalg.norm(v[-1]))
    assert float(one["off_v"][0, -1]) == pytest.approx(1 - v[-1][0] / np.linalg.norm(v[-1]), abs=1e-12)


def test_exponents_are_over_the_last_decade():
    summary = estimate(of_exponent(0.5), jax.random.key(0))
    np.testing.assert_allclose((summary["exponent"], summary["growth"]), 0.5)
    assert (float(summary["W_arrived"]), float(summary["v_arrived"])) == (1, 1)
