"""The gradient with respect to the logits: that of automatic differentiation, and exact where that underflows."""

from dataclasses import dataclass, replace
from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, heads, losses, metrics, tokens
from jaxattn.descent import gradients
from tests import instances
from tests.descent.cases import quadratic

pytestmark = pytest.mark.compiled

RULES = [gradients.gradient, gradients.exact, gradients.direction]
STEP = jnp.zeros((), int)


# A head of the user's, and those of the package, each with a problem that fits it.
LAYER = jnp.asarray(np.random.default_rng(5).normal(size=(instances.d, 6)))
LAYERED = replace(instances.problem(), v=LAYER)
HEADS = {
    "linear": (heads.linear, instances.problem()),
    "quadratic": (heads.Quadratic(0.25), instances.problem()),
    "mlp": (heads.mlp, LAYERED),
    "of the user": (quadratic, instances.problem()),
    "layer of the user": (lambda x, v: jnp.sum(jnp.tanh(x @ v)), LAYERED),
}


def slope_of(rule, W, problem, loss: losses.Loss = losses.logistic, head: heads.Head = heads.linear):
    """What a rule says at the logits of W."""
    return rule(STEP, attention.logits(W, problem), problem.Y, gradients.reading(problem, head), loss)


def of_matrix(slope, problem):
    """The gradient with respect to W, up to its factor."""
    return np.einsum("nt,ntd,ne->de", slope.coefficients, problem.X, problem.Z)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("which", HEADS)
@pytest.mark.parametrize("loss", [losses.logistic, losses.exponential, losses.correlation_loss])
def test_it_is_the_gradient_up_to_its_factor(loss, which, rule):
    W, (head, problem) = instances.free(), HEADS[which]
    found = slope_of(rule, W, problem, loss, head)
    risk, probabilities = losses.risk_and_probabilities(W, problem, loss=loss, head=head)
    expected = jax.grad(lambda W: losses.risk(W, problem, loss=loss, head=head))(W)
    np.testing.assert_allclose(np.mean(found.losses), risk, rtol=1e-14)
    np.testing.assert_allclose(found.probabilities, probabilities, rtol=1e-13)
    error = 1e-13 * float(metrics.norm(expected))
    np.testing.assert_allclose(of_matrix(found, problem) * np.exp(found.log_scale), expected, atol=error)
    np.testing.assert_allclose(np.sum(found.coefficients, axis=1), 0, atol=1e-15)


def exactly_mlp(x, v):
    units = x @ v
    on = np.array([Decimal(int(unit > 0)) for unit in units])
    return units @ on, v @ on


# The value and gradient of heads, in decimal numbers.
EXACT_HEADS = {
    "linear": lambda x, v: (v @ x, v),
    "quadratic": lambda x, v: (v @ x - x @ x / 4, v - x / 2),
    "mlp": exactly_mlp,
}


def exactly(W, problem, which="linear"):
    """The gradient of the logistic risk, in 60 digits and any exponent."""
    getcontext().prec, getcontext().Emin = 60, -(10**9)
    X, Z, Y, v, W = (
        np.vectorize(Decimal, otypes=[object])(np.asarray(leaf))
        for leaf in (problem.X, problem.Z, problem.Y, problem.v, W)
    )
    total = np.full(W.shape, Decimal(0))
    for x, z, y in zip(X, Z, Y, strict=True):
        e = [logit.exp() for logit in x @ W @ z]
        s = np.array([one / sum(e) for one in e])
        prediction, of_output = EXACT_HEADS[which](s @ x, v)
        score = x @ of_output
        # Of pairs: what the selected token has over the mean would be lost in any number of digits.
        over = (score[:, None] - score[None, :]) @ s
        c = -y / (1 + (y * prediction).exp()) / len(Y)
        total = total + c * np.outer((s * over) @ x, z)
    return total


def held_against_exact(found, exact, problem, scale):
    largest = max(abs(entry) for entry in exact.ravel())
    slope = of_matrix(found, problem)
    ratio = np.array([[float(entry / largest) for entry in row] for row in exact])
    np.testing.assert_allclose(slope / np.abs(slope).max(), ratio, atol=1e-9)
    assert abs(float(largest.ln()) - float(found.log_scale + np.log(np.abs(slope).max()))) < 1e-9 * scale


@pytest.mark.parametrize("which", EXACT_HEADS)
@pytest.mark.parametrize("scale", [30.0, 3e5])
def test_it_is_exact_where_the_gradient_underflows_and_where_several_tokens_are_selected(scale, which):
    W, (head, problem) = scale * instances.free(), HEADS[which]
    if scale > 1e3:
        np.testing.assert_array_equal(slope_of(gradients.gradient, W, problem, head=head).coefficients, 0)
    # Two tokens of the first input keep a finite ratio, whatever the scale of the other logits.
    logits = np.asarray(attention.logits(W, problem))[0]
    order = np.argsort(logits)
    pair = np.asarray(problem.X[0, order[-1]] - problem.X[0, order[-2]])
    z = np.asarray(problem.Z[0])
    shift = (0.7 - (logits[order[-1]] - logits[order[-2]])) / (pair @ pair) / (z @ z)
    several = W + shift * np.outer(pair, z)
    s = np.sort(np.asarray(attention.probabilities(several, problem))[0])
    assert 0.3 < s[-2] / s[-1] < 0.8, s
    for one in (W, several):
        found = slope_of(gradients.direction, one, problem, head=head)
        held_against_exact(found, exactly(one, problem, which), problem, scale)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e5])
def test_it_is_exact_where_the_slope_of_the_loss_underflows(size):
    # Scores of this size: margins far beyond 745, where the slope of the logistic loss is zero in double precision.
    W, problem = instances.free(), instances.problem()
    far = replace(problem, v=size * problem.v)
    held_against_exact(slope_of(gradients.direction, W, far), exactly(W, far), far, size)


def test_a_loss_of_the_users_may_bring_the_logarithm_of_its_slope():
    @dataclass(frozen=True)
    class Steep:
        def __call__(self, margin):
            return jnp.exp(-margin)

    class Known(Steep):
        def log_slope(self, margin):
            return -margin

    W, problem = instances.free(), replace(instances.problem(), v=1e5 * instances.problem().v)
    lost, known = (slope_of(gradients.direction, W, problem, loss) for loss in (Steep(), Known()))
    expected = slope_of(gradients.direction, W, problem, losses.exponential)
    assert not np.array_equal(lost.coefficients, expected.coefficients)
    np.testing.assert_array_equal(known.coefficients, expected.coefficients)


def test_a_copy_of_the_selected_token_does_not_hide_the_others():
    # Its part of the gradient is zero whatever its probability is, and must not set the scale of the others'.
    W, problem = 1e5 * instances.free(), instances.problem()
    top = int(tokens.selected(W, problem)[0])
    other = (top + 1) % instances.T
    copied = replace(problem, X=problem.X.at[0, other].set(problem.X[0, top]))
    held_against_exact(slope_of(gradients.direction, W, copied), exactly(W, copied), copied, 1e5)


def test_a_gradient_of_zero_stays_zero():
    found = slope_of(gradients.direction, instances.free(), instances.problem(), head=lambda x, v: 0.0 * (v @ x))
    np.testing.assert_array_equal(found.coefficients, 0)
    assert found.log_scale == -jnp.inf
