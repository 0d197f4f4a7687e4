"""Shares of the gradient: synthetic runs, and those of the gradient itself, also far below the smallest number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import losses, svm, tokens
from jaxattn.experiments.landscape.gradient_share import log_shares, summarize
from tests.experiments.synthetic import synthetic
from tests.instances import T, free, n, problem

VERDICTS = {}
STEPS = np.array([1, 10, 100, 1000, 2000])


def measured(slope=-1.0):
    """One run of 6 inputs and 8 tokens, with log shares that fall with this slope in slack times growth."""
    rng = np.random.default_rng(0)
    slack = np.where(rng.random((20, 6, 7)) < 0.4, 0.0, rng.exponential(1.0, (20, 6, 7)))
    growth = np.broadcast_to(0.02 * STEPS, (20, 5))
    log_share = slope * slack[:, None] * growth[:, :, None, None] - 4 + 0.1 * rng.normal(size=(20, 5, 6, 7))
    run = synthetic(
        20,
        {"weights": "free", "steps": 2000},
        {"snapshot": STEPS},
        log_share=(("seed", "snapshot", "input", "other"), log_share),
        slack=(("seed", "input", "other"), slack),
        growth=growth,
    )
    return {"W": run}


@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_shares_are_those_of_the_gradient_by_the_logits(size):
    one, W = problem(), size * free()

    def risk(logits):
        scores = one.Y[:, None] * jnp.einsum("ntd,d->nt", one.X, one.v)
        return jnp.mean(losses.logistic(jnp.sum(jax.nn.softmax(logits, axis=1) * scores, axis=1)))

    mass = np.abs(jax.jit(jax.grad(risk))(np.einsum("ntd,de,ne->nt", one.X, W, one.Z)))
    found = np.exp(jax.jit(log_shares)(W, one))
    np.testing.assert_allclose(found, mass / mass.sum(), rtol=1e-6, atol=1e-9)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("length", [1e3, 1e5])
def test_along_the_solution_every_share_falls_like_its_slack(length):
    # Beyond the range of numbers: at 1e5 the shares are exp(-10000) and less.
    one = problem()
    alpha = tokens.optimal(one)
    constraints = svm.token_constraints(one, alpha)
    W_mm = svm.solve(constraints).W
    near, far = (jax.jit(log_shares)(c * W_mm, one) for c in (length, 2 * length))
    slack = np.asarray(svm.margins(constraints, W_mm)) - 1
    others = np.arange(T) != np.asarray(alpha)[:, None]
    fall = np.asarray(near - far)[others].reshape(n, T - 1)
    np.testing.assert_allclose(fall, length * slack, rtol=1e-6, atol=1e-5 * length)


def test_slopes_and_totals_are_over_the_tokens_that_are_no_support_vectors():
    run = measured(slope=-0.9)["W"]
    summary = summarize({"W": run}, jax.random.key(0))["W"]
    np.testing.assert_allclose(summary["slope"][-1], -0.9, atol=0.01)
    outside = run["slack"].values > 1e-6
    np.testing.assert_allclose(summary["support"], np.mean(~outside))
    totals = np.sum(np.where(outside[:, None], np.exp(run["log_share"]), 0), axis=(2, 3))
    np.testing.assert_allclose(summary["log_together"], np.log10(totals).mean(axis=0))
