"""Synthetic measurements of Muon with several Newton-Schulz iterations, and updates read from a planted record."""

from functools import partial

import numpy as np
import pytest

from jaxattn import data, descent, initial, svm
from jaxattn.experiments.bias import newton_schulz
from tests.experiments.bias import synthetic
from tests.recorded import recorded

VERDICTS = {"newton-schulz:updates": "does not hold"}
_USUAL, _CONVERGENT = (f"usual coefficients, {k} iterations" for k in (5, 12)), "convergent coefficients, 24 iterations"


def measured():
    """The usual coefficients leave singular values apart, and W off; the convergent ones only the former."""
    return {name: run(0.85, 0.6) for name in _USUAL} | {_CONVERGENT: run(0.995, 0.8)}


def run(ratio, evenness):
    made = synthetic.run({"spectral": ratio}, newton_schulz.bias.NORMS)
    spread = evenness + 0.0001 * synthetic.SPREAD
    return made.assign(evenness=(("seed", "snapshot"), np.tile(spread[:, None], len(synthetic.STEPS))))


def test_evenness_is_that_of_the_updates(tmp_path, monkeypatch):
    law, rule = partial(data.sphere, n=3, T=4, d=5), descent.steepest("frobenius", descent.falling_step(0.3))
    record = recorded(tmp_path, law, initial.free_zero, rule, {}, seeds=8, steps=100, snapshots=newton_schulz.in_pairs)
    # The ratios do not matter here, and one norm is solved in less time.
    monkeypatch.setattr(newton_schulz.bias, "NORMS", ("frobenius",))
    P, Q = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 5, 5)))[0]
    W = record["W_snapshots"].values
    # The last update, of three inputs, has a rank of three.
    W[:, -2] = W[:, -1] - P @ np.diag([4.0, 3.0, 1.0, 0.0, 0.0]) @ Q
    found = newton_schulz.measure(record)
    kept = newton_schulz.in_pairs(100)
    assert found["snapshot"].values.tolist() == [step for step in kept if step - 1 in kept]
    np.testing.assert_allclose(found["evenness"][:, -1], 1 / 4)
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        newton_schulz.measure(record, solver=svm.Cvxpy())
