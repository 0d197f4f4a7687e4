"""The direction of the gradient: that of automatic differentiation, and exact where that underflows."""

from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, gradients, heads, losses, metrics, svm, tokens
from tests import instances


def quadratic(x, v):
    return v @ x - 0.3 * (x @ x)


def rule_of_three(loss, head, weights):
    problem = instances.problem()
    return (rule(weights, problem, loss, head) for rule in (gradients.gradient, gradients.direction))


@pytest.mark.parametrize("weights", [instances.free(), instances.factored()], ids=["W", "KQ"])
@pytest.mark.parametrize("head", [heads.linear, quadratic])
@pytest.mark.parametrize("loss", [losses.logistic, losses.exponential, losses.correlation])
def test_it_is_the_gradient_up_to_its_factor(loss, head, weights):
    expected, found = rule_of_three(loss, head, weights)
    np.testing.assert_allclose(found.risk, expected.risk, rtol=1e-14)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-13)
    for one, other in zip(jax.tree.leaves(found.slope), jax.tree.leaves(expected.slope), strict=True):
        np.testing.assert_allclose(one * jnp.exp(found.log_scale), other, atol=1e-13 * float(metrics.norm(other)))


def exactly(W, problem):
    """The gradient of the logistic risk under the linear head, in 60 digits and any exponent."""
    getcontext().prec, getcontext().Emin = 60, -(10**9)
    X, Z, Y, v, W = (
        np.vectorize(Decimal, otypes=[object])(np.asarray(leaf))
        for leaf in (problem.X, problem.Z, problem.Y, problem.v, W)
    )
    total = np.full(W.shape, Decimal(0))
    for x, z, y in zip(X, Z, Y, strict=True):
        e = [logit.exp() for logit in x @ W @ z]
        s, score = np.array([one / sum(e) for one in e]), x @ v
        # Of pairs: what the selected token has over the mean would be lost in any number of digits.
        over = (score[:, None] - score[None, :]) @ s
        c = -y / (1 + (y * (s @ score)).exp()) / len(Y)
        total = total + c * np.outer((s * over) @ x, z)
    return total


@pytest.mark.parametrize("scale", [30.0, 3e5])
def test_it_is_exact_where_the_gradient_underflows(scale):
    W, problem = scale * instances.free(), instances.problem()
    exact = exactly(W, problem)
    largest = max(abs(entry) for entry in exact.ravel())
    found = gradients.direction(W, problem, losses.logistic, heads.linear)
    slope = np.asarray(found.slope)
    ratio = np.array([[float(entry / largest) for entry in row] for row in exact])
    np.testing.assert_allclose(slope / np.abs(slope).max(), ratio, atol=1e-9)
    assert abs(float(largest.ln()) - float(found.log_scale + np.log(np.abs(slope).max()))) < 1e-9 * scale
    if scale > 1e3:
        naive = gradients.gradient(W, problem, losses.logistic, heads.linear)
        np.testing.assert_array_equal(naive.slope, 0)


def test_a_gradient_of_zero_stays_zero():
    problem = instances.problem()
    found = gradients.direction(instances.free(), problem, losses.logistic, lambda x, v: 0.0 * (v @ x))
    np.testing.assert_array_equal(found.slope, 0)
    assert found.log_scale == -jnp.inf


def test_scale_free_descent_does_not_stall():
    problem = instances.problem()
    solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
    start = jnp.zeros((instances.d, instances.d))
    off = {}
    for name, rule in (
        ("free", descent.normalized_gd(0.1, floor=0.0, penalty=0.0)),
        ("floor", descent.normalized_gd(0.1)),
    ):
        run = descent.train(start, problem, optimizer=rule, steps=20_000, snapshots=(2_000, 20_000))
        off[name] = [1 - float(metrics.correlation(W, solution.W)) for W in run.snapshots]
    # The published form stands still; the direction goes on, nearly as k^-2.
    assert off["free"][1] < 0.05 * off["free"][0]
    assert off["free"][1] < 0.01 * off["floor"][1]
