"""Synthetic measurements of local convergence, and what is estimated from them."""

import jax
import numpy as np

from jaxattn import data
from jaxattn.experiments.local.local_convergence import estimate
from jaxattn.experiments.local.self_attention import self_attention
from tests.experiments.synthetic import synthetic

STEPS, SEEDS = np.array([200, 400, 600, 800, 1000, 2000]), 20
PROBABILITY = np.array([0.966, *[0.98] * 4, 0.99995])
# Of the Frobenius and the nuclear solution; those for training W are the authors'.
CORRELATION = {
    "W": [[0.883, 0.960, 0.980, 0.988, 0.993, 0.995], [0.796, 0.848, 0.858, 0.861, 0.862, 0.862]],
    "KQ": [[0.7, 0.7, 0.7, 0.7, 0.7, 0.8], [0.9, 0.9, 0.9, 0.9, 0.9, 0.995]],
}
VERDICTS = {"local-convergence:norm-KQ": "does not hold"}


def measured():
    """As published, with a small spread over seeds: W grows, K Q^T is at rest."""
    runs = {"W": run("W", growth=1.0), "KQ": run("KQ", growth=0.0)}
    return runs | {f"{name}, self-attention": one for name, one in runs.items()}


def run(name, growth):
    """A run whose ||W z|| grows like this power of the step."""
    spread = np.resize([-0.001, 0.001], SEEDS)
    probability = np.full((SEEDS, STEPS[-1]), 0.5)
    probability[:, STEPS - 1] = PROBABILITY + 0.01 * spread[:, None]
    length = (STEPS / STEPS[-1]) ** (growth + 10 * spread)[:, None]
    return synthetic(
        SEEDS,
        {"steps": 2000, "attempted": 23, "diverged": 1, "infeasible": 2},
        {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": STEPS},
        correlation=(("seed", "norm", "snapshot"), np.array(CORRELATION[name]) + spread[:, None, None]),
        probability=(("seed", "step"), probability),
        path=(("seed", "snapshot", "input", "feature"), np.tile(length[:, :, None, None], (1, 1, 2, 3))),
    )


def test_the_lead_is_that_of_the_own_solution_and_the_growth_that_of_the_path():
    for name, lead, growth in (("W", 0.133, 1.0), ("KQ", 0.195, 0.0)):
        summary = estimate(measured()[name].assign_attrs(run=name), jax.random.key(0))
        np.testing.assert_allclose(summary["lead"], lead)
        np.testing.assert_allclose(summary["growth"], growth, atol=1e-9)
        np.testing.assert_allclose(summary["probability"], PROBABILITY)
        assert (int(summary["since"]), int(summary["until"])) == (1000, 2000)


def test_the_query_of_self_attention_is_the_first_token():
    key = jax.random.key(0)
    own, apart = (law(key, n=3, T=4, d=5) for law in (self_attention, data.sphere))
    np.testing.assert_array_equal(own.Z, own.X[:, 0])
    np.testing.assert_array_equal(own.X, apart.X)
    assert (own.Z != apart.Z).all()
