"""Shares of the gradient: those of the gradient itself, far below the smallest number too, and the verdict on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import losses, svm, tokens
from jaxattn.experiments.landscape.gradient_share import claims, figure
from jaxattn.experiments.landscape.gradient_share.examples import STEPS, made
from jaxattn.experiments.landscape.gradient_share.measure import log_shares
from jaxattn.study.claims import Verdict
from tests.instances import T, drawn_lines, free, n, problem

KEY = jax.random.key(0)


@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_shares_are_those_of_the_gradient_by_the_logits(size):
    one, W = problem(), size * free()

    def risk(logits):
        scores = one.Y[:, None] * jnp.einsum("ntd,d->nt", one.X, one.v)
        return jnp.mean(losses.logistic(jnp.sum(jax.nn.softmax(logits, axis=1) * scores, axis=1)))

    mass = np.abs(jax.grad(risk)(jnp.einsum("ntd,de,ne->nt", one.X, W, one.Z)))
    found = np.exp(log_shares(W, one))
    np.testing.assert_allclose(found, mass / mass.sum(), rtol=1e-6, atol=1e-9)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("length", [1e3, 1e5])
def test_along_the_solution_every_share_falls_like_its_slack(length):
    # Beyond the range of numbers: at 1e5 the shares are exp(-10000) and less.
    one = problem()
    alpha = tokens.optimal(one)
    constraints = svm.token_constraints(one, alpha)
    W_mm = svm.solve(constraints).W
    near, far = (log_shares(c * W_mm, one) for c in (length, 2 * length))
    slack = np.asarray(svm.margins(constraints, W_mm)) - 1
    others = np.arange(T) != np.asarray(alpha)[:, None]
    fall = np.asarray(near - far)[others].reshape(n, T - 1)
    np.testing.assert_allclose(fall, length * slack, rtol=1e-6, atol=1e-5 * length)


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (made(-1.0), Verdict.HOLDS),
        (made(-0.96), Verdict.HOLDS),
        (made(-0.94), Verdict.FAILS),
        (made(-1.06), Verdict.FAILS),
        (made(-0.9), Verdict.FAILS),
        (made(1.0), Verdict.FAILS),
        # The slope is right, but all of them together have more at the end than at first, or as much within errors.
        (made(-1.0, rise=60.0), Verdict.FAILS),
        (made(0.0), Verdict.FAILS),
        (made(-1.0, seeds=5), Verdict.OPEN),
        (made(-1.0, steps=STEPS[:3]), Verdict.OPEN),
    ],
)
def test_the_verdict_follows_from_the_slope(one, verdict):
    (claim,) = claims.CLAIMS
    assert claim.judge(claims.summarize({"W": one}, KEY)).verdict is verdict


def test_the_slope_is_within_its_interval_of_the_threshold():
    # Each seed has its own slope, so that the mean has an interval: at the threshold it says neither.
    one = made(-1.0)
    slope = np.random.default_rng(1).normal(-0.95, 0.02, one.sizes["seed"])
    x = one["slack"].values[:, None] * one["growth"].values[:, :, None, None]
    one["log_share"].values[:] = slope[:, None, None, None] * x - 4
    (claim,) = claims.CLAIMS
    found = claim.judge(claims.summarize({"W": one}, KEY))
    assert [str(criterion.outcome) for criterion in found.stated] == ["unclear", "met"]
    assert found.verdict is Verdict.OPEN


def test_more_than_one_run_is_an_error():
    with pytest.raises(ValueError, match="expected one run"):
        claims.summarize({"a": made(-1.0), "b": made(-1.0)}, KEY)


def test_support_vectors_are_left_out_and_the_figure_draws_what_is_estimated():
    one = made(-1.0)
    one["log_share"].values[np.broadcast_to(one["slack"].values[:, None] == 0, one["log_share"].shape)] = 50.0
    summaries = claims.summarize({"W": one}, KEY)
    assert claims.CLAIMS[0].judge(summaries).verdict is Verdict.HOLDS
    summary = summaries["W"]
    assert float(summary["support"]) == pytest.approx(0.4, abs=0.05)
    drawn = figure.draw(summaries)
    for axes, expected in ((drawn.axes[0], 10 ** summary["log_together"]), (drawn.axes[2], summary["slope"])):
        curve = next(points for points in drawn_lines(axes, least=len(STEPS)))
        np.testing.assert_allclose(curve, [STEPS, expected])
    for curve in drawn_lines(drawn.axes[1], least=3):
        assert np.all(np.abs(np.diff(np.log(curve[1])) / np.diff(curve[0]) + 1) < 0.3)
    # No share above 1, and ticks at round powers.
    assert drawn.axes[0].get_ylim()[1] == 1
    np.testing.assert_array_equal(np.log10(drawn.axes[0].get_yticks()) % 20, 0)
    assert "20 seeds, all kept." in drawn.get_supxlabel()
