"""Losses and the risk: values, gradients, stability, and invariance to the order of tokens."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxattn import Problem, attention, losses
from tests import instances
from tests.instances import assert_close

LOSSES = [losses.logistic, losses.exponential, losses.correlation_loss]
# Where each is looked at: cross entropy is of a probability.
RANGES = dict.fromkeys(LOSSES, (-30.0, 30.0)) | {losses.cross_entropy: (1e-3, 1.0)}
WEIGHTS = {"free": instances.free(), "narrow": instances.factored(m=2), "wide": instances.factored(m=instances.d + 2)}


@dataclass(frozen=True)
class Cubic:
    """A head with a number of its own."""

    size: float

    def __call__(self, x, v):
        """`size (v . x)^3`."""
        return self.size * jnp.vdot(v, x) ** 3


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_risk_is_the_mean_loss_of_the_margins(kind):
    problem, weights = instances.problem(), WEIGHTS[kind]
    s = np.asarray(attention.probabilities(weights, problem))
    margin = problem.Y * np.einsum("ntd,nt,d->n", problem.X, s, problem.v)
    expected = np.log1p(np.exp(-margin)), np.exp(-margin), -margin
    for loss, values in zip(LOSSES, expected, strict=True):
        assert_close(losses.risk(weights, problem, loss=loss), np.mean(values))


def test_the_risk_comes_with_the_probabilities_it_was_read_through():
    problem, W = instances.problem(), instances.free()
    risk, probabilities = losses.risk_and_probabilities(W, problem)
    assert_close(risk, losses.risk(W, problem))
    assert_close(probabilities, attention.probabilities(W, problem))


def test_a_head_is_any_function_of_the_output_and_the_direction():
    problem, W = instances.problem(), instances.free()
    s = np.asarray(attention.probabilities(W, problem))
    reading = np.einsum("ntd,nt,d->n", problem.X, s, problem.v)
    expected = -np.mean(np.asarray(problem.Y) * 2.5 * reading**3)
    assert_close(losses.risk(W, problem, loss=losses.correlation_loss, head=Cubic(2.5)), expected)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_gradients_agree_with_finite_differences(kind, loss):
    def risk(weights):
        return losses.risk(jax.tree.map(jnp.asarray, weights), instances.problem(), loss=loss)

    check_grads(risk, (WEIGHTS[kind],), order=1, modes=["rev"], atol=1e-8, rtol=1e-6)


def test_the_logistic_loss_and_its_slope_are_exact_at_both_ends():
    ends = jnp.array([-1000.0, -40.0, 0.0, 40.0, 700.0, 1000.0])
    values = jax.vmap(losses.logistic)(ends)
    np.testing.assert_allclose(values, [1000, 40, np.log(2), np.exp(-40), np.exp(-700), 0], rtol=1e-12)
    slopes = jax.vmap(jax.grad(losses.logistic))(ends)
    np.testing.assert_allclose(slopes, [-1, -1, -0.5, -np.exp(-40), -np.exp(-700), 0], rtol=1e-12)


@pytest.mark.parametrize("loss", RANGES, ids=lambda loss: loss.__name__)
def test_every_loss_decreases(loss):
    values = np.asarray(jax.vmap(loss)(jnp.linspace(*RANGES[loss], 601)))
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("loss", RANGES, ids=lambda loss: loss.__name__)
def test_the_logarithm_of_the_slope_is_known(loss):
    margins = jnp.linspace(*RANGES[loss], 61)
    known = losses.log_slope(loss)
    assert known is not None
    np.testing.assert_allclose(known(margins), np.log(-jax.vmap(jax.grad(loss))(margins)), rtol=1e-12, atol=1e-14)


def test_the_cross_entropy_of_a_probability_and_its_slope():
    probabilities = jnp.array([1e-300, 1e-8, 0.25, 0.5, 1.0])
    expected = [300 * np.log(10), 8 * np.log(10), np.log(4), np.log(2), 0]
    np.testing.assert_allclose(losses.cross_entropy(probabilities), expected, rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(losses.cross_entropy))(probabilities), -1 / probabilities, rtol=1e-14)
    known = losses.log_slope(losses.cross_entropy)
    assert known is not None
    np.testing.assert_allclose(known(probabilities), expected, rtol=1e-14)


def test_the_slope_of_a_loss_of_the_users_is_not_known_unless_it_brings_it():
    assert losses.log_slope(lambda margin: -margin) is None


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_risk_does_not_see_the_order_of_tokens_or_inputs(kind):
    problem, weights = instances.problem(), WEIGHTS[kind]
    order = np.random.default_rng(0).permuted(np.tile(np.arange(instances.T), (instances.n, 1)), axis=1)
    X = jnp.take_along_axis(problem.X, jnp.asarray(order)[..., None], axis=1)
    shuffled = Problem(X=X[::-1], Z=problem.Z[::-1], Y=problem.Y[::-1], v=problem.v)
    assert_close(losses.risk(weights, shuffled), losses.risk(weights, problem))
