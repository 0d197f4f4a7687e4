"""Synthetic measurements of mirror descent; its divergence, bounds and exponents; and what trained records give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.experiments.bias.mirror import EXPERIMENT, NORMS, PUBLISHED, bound, divergence
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.bias import synthetic

VERDICTS = {
    "mirror:direction-3": "does not hold",
    "mirror:direction-10": "not decided",
    "mirror:nearest-1.75": "holds with a correction",
    "mirror:nearest-2": "does not hold",
    "mirror:rate-2": "not decided",
    "mirror:rate-3": "does not hold",
}


def measured():
    """The own solution of p = 1.75 is nearest only later, that of p = 2 never; rates are above and below the bounds."""
    ahead = {1.75: (-0.02, 0.02), 2.0: (-0.02, -0.02), 3.0: (0.02, 0.02)}
    slack = {1.75: -1.0, 2.0: 0.0, 3.0: 0.3}
    runs = {f"l_p-AttGD, p = {p:g}, 1,500 epochs": run("lp_gd", p, 1500, ahead=ahead[p][0]) for p in PUBLISHED}
    runs |= {f"l_p-AttGD, p = {p:g}": run("lp_gd", p, 100_000, ahead[p][1], slack[p]) for p in PUBLISHED}
    runs |= {f"normalized, p = {p:g}": run("mirror", p, 20_000) for p in NORMS}
    return runs | {
        "normalized, p = 3": run("mirror", 3.0, 20_000, ratio=0.9),
        "normalized, p = 10": run("mirror", 10.0, 20_000, ratio=0.9, moving=0.2),
    }


def run(optimizer, p, steps, ahead=0.02, slack=-1.0, ratio=0.99, moving=0.0):
    """A run with this margin ratio in its own norm at the end and its change per decade of steps.

    `ahead` is the correlation with its own solution minus the others, `slack` the exponent of log k in the divergence
    over the bound.
    """
    snapshots = np.array(Logarithmically(8)(steps))
    found = synthetic.run({NORMS[p]: ratio}, tuple(NORMS.values()), moving, snapshots)
    spread = (synthetic.SPREAD - 1)[:, None]
    correlation = 0.9 - ahead * (1 + spread) * np.array([norm != NORMS[p] for norm in NORMS.values()])
    late = np.maximum(snapshots, 100)
    found["correlation"] = found["margin_ratio"].copy(
        data=np.broadcast_to(correlation[:, :, None], found["margin_ratio"].shape).copy()
    )
    found["divergence"] = (("seed", "snapshot"), 0.1 * bound(late, p) * np.log(late) ** (slack + 2 * spread))
    return found.assign_attrs({"optimizer": optimizer, "optimizer.p": p})


def test_bounds_and_exponents_are_those_of_their_formulas():
    steps = np.array([10_000, 30_000, 100_000])
    log = np.log(steps)
    np.testing.assert_allclose(bound(steps, 1.75), log**-0.75)
    np.testing.assert_allclose(bound(steps, 2.0), np.log(log) ** 2 / log)
    np.testing.assert_allclose(bound(steps, 3.0), np.log(log) / log)
    planted = run("lp_gd", 3.0, 100_000, slack=-2.0)
    falling = 5.0 * np.maximum(planted["snapshot"].values, 1) ** -1.5
    power = planted.assign(divergence=(("seed", "snapshot"), np.tile(falling, (synthetic.SEEDS, 1))))
    runs = {"planted": planted, "power": power, "short": run("lp_gd", 3.0, 1500)}
    found = EXPERIMENT.estimates(runs, jax.random.key(0))
    assert float(found["planted"]["slack"]) == pytest.approx(-2)
    assert float(found["power"]["power"]) == pytest.approx(-1.5)
    assert np.isnan(found["short"]["power"])


@pytest.mark.parametrize("p", NORMS)
def test_the_divergence_is_that_of_its_definition(p):
    A, B = np.random.default_rng(0).normal(size=(2, 3, 4))
    A, B = (W / (np.abs(W) ** p).sum() ** (1 / p) for W in (A, B))

    def psi(W):
        return jnp.sum(jnp.abs(W) ** p) / p

    slope = jax.grad(psi)(jnp.asarray(B))
    expected = psi(A) - psi(B) - jnp.sum(slope * (A - B))
    np.testing.assert_allclose(divergence(1e30 * A, 3 * B, p), expected, rtol=1e-10)
    np.testing.assert_allclose(divergence(A, A, p), 0, atol=1e-14)
