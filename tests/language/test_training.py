"""Descent on pairs of words: the gradient of W itself, its steps, what is recorded when, and lifting."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import descent, language, losses
from jaxattn.descent import gradients
from tests.instances import assert_close, lane
from tests.language import texts
from tests.language.texts import CANDIDATES, N, V, weighted

STEPS = 50
ALL = range(STEPS + 1)
STEP = jnp.zeros((), int)
RULES = [gradients.gradient, gradients.exact, gradients.direction]
LOSSES = [losses.cross_entropy, losses.logistic, losses.exponential]
OPTIMIZERS = {
    "gd": descent.gd(0.3),
    "normalized": descent.normalized_gd(0.1),
    "free": descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
}


@cache
def of_risk(loss):
    """The risk and its gradient with respect to W, by automatic differentiation."""
    return jax.jit(jax.value_and_grad(partial(language.risk, loss=loss)))


@jax.jit
def probabilities(W, choices):
    return language.softmax(language.logits(W, choices), choices)


@partial(jax.jit, static_argnames=("loss", "rule"))
def slopes(several, table, loss, rule):
    """Those of several texts in one program."""
    return [language.pair_slopes(choices, loss, rule)(STEP, table) for choices in several]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_the_slope_of_pairs_is_the_gradient_of_the_risk(candidates, loss, rule):
    choices, W = weighted(texts.drawn(candidates)), texts.matrix()
    (slope,) = slopes([choices], language.table(W, choices), loss, rule)
    risk, expected = of_risk(loss)(W, choices)
    assert_close(of_W(slope, choices), expected, rtol=1e-12)
    np.testing.assert_allclose(slope.risk, risk, rtol=1e-12)
    p = np.asarray(probabilities(W, choices))
    np.testing.assert_allclose(slope.probability, choices.share @ p[np.arange(N), np.asarray(choices.next)], rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_prefixes_of_one_last_word_are_the_sum_of_what_each_has(loss, rule):
    """Of the logits of a long descent too, where attention is all but one word's."""
    choices = weighted(texts.conflicting())
    # The first way groups what asks alike; the second, with the same candidates written out, does not.
    written = choices._replace(counts=jnp.ones((N, V)))
    for scale in (1.0, 20.0):
        table = scale * language.table(texts.matrix(), choices)
        one, other = slopes([choices, written], table, loss, rule)
        factor = np.exp(one.log_scale - other.log_scale)
        assert_close(one.coefficients * factor, other.coefficients, rtol=1e-11)
        for name in ("risk", "probability"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)


def of_W(slope, choices):
    E = np.asarray(choices.E)
    return np.einsum("at,td,ae->de", slope.coefficients, E, E) * np.exp(slope.log_scale)


@pytest.mark.parametrize("rule", RULES)
def test_scores_of_ones_own_reach_the_slope(rule):
    choices = texts.drawn("prefix")
    choices = choices._replace(scores=jnp.asarray(np.random.default_rng(3).normal(size=(N, V))))
    W = texts.matrix()
    (slope,) = slopes([choices], language.table(W, choices), losses.logistic, rule)
    assert_close(of_W(slope, choices), of_risk(losses.logistic)(W, choices)[1], rtol=1e-12)


def naive(choices, loss, step_of):
    """W after every step of descent by automatic differentiation, and what is read before it."""
    both = of_risk(loss)
    W, states, series = np.zeros((choices.E.shape[1],) * 2), [], []
    for _ in range(STEPS):
        states.append(W)
        risk, slope = map(np.asarray, both(W, choices))
        p = np.asarray(probabilities(W, choices))
        of_next = p[np.arange(N), np.asarray(choices.next)]
        series.append((np.dot(choices.share, of_next), risk, np.linalg.norm(slope)))
        W = W - step_of(slope)
    return [*states, W], np.array(series).T


STEP_OF = {
    "gd": lambda slope: 0.3 * slope,
    "normalized": lambda slope: 0.1 * slope / (np.linalg.norm(slope) + descent.PUBLISHED_EPSILON),
    "free": lambda slope: 0.1 * slope / np.linalg.norm(slope),
}


@pytest.fixture(
    scope="module", params=[("vocabulary", "gd"), ("prefix", "normalized"), ("prefix", "free")], ids=lambda one: one[1]
)
def run(request):
    """A run that keeps its weights after every step, and the same by automatic differentiation."""
    candidates, name = request.param
    choices = weighted(texts.drawn(candidates))
    # Some prefixes are excluded, others count several times.
    assert candidates == "vocabulary" or choices.weight.min() == 0
    found = language.train(choices, optimizer=OPTIMIZERS[name], steps=STEPS, snapshots=ALL)
    return choices, found, naive(choices, losses.cross_entropy, STEP_OF[name])


def test_every_step_is_one_of_descent_on_W(run):
    choices, found, (states, _) = run
    for k in range(STEPS + 1):
        assert_close(language.weights(found.snapshots[k], choices).W, states[k], rtol=1e-10, atol=1e-14)
    assert_close(found.pairs, found.snapshots[-1])
    np.testing.assert_array_equal(found.snapshots[0], 0)


def test_the_series_are_read_before_the_update(run):
    _, found, (_, series) = run
    for name, expected in zip(("probability", "loss", "gradient_norm"), series, strict=True):
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-10)


def test_compact_choices_have_the_same_run():
    choices = texts.drawn("prefix")
    one, other = (language.train(c, steps=STEPS, snapshots=(7,)) for c in (choices, language.compact(choices)))
    # The basis of W is another; coefficients of pairs and all numbers are the same.
    for name in one._fields:
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-10, atol=1e-13)


def test_fewer_snapshots_and_entries_are_some_of_all():
    choices = texts.drawn()
    every = language.train(choices, steps=STEPS, snapshots=ALL)
    some = language.train(choices, steps=STEPS, snapshots=(0, 3, 50), record_every=7)
    assert_close(some.pairs, every.pairs)
    assert_close(some.snapshots, every.snapshots[np.array([0, 3, 50])])
    for name in ("probability", "loss", "gradient_norm"):
        assert_close(getattr(some, name), getattr(every, name)[::7])
    assert jax.eval_shape(partial(language.train, steps=STEPS), choices).snapshots.shape == (0, V, V)


def test_the_exact_direction_goes_on_where_the_loss_has_underflowed():
    choices, steps = texts.separable(), 4000
    kept = (2000, 3000, 4000)
    free, floored = (
        language.train(choices, optimizer=OPTIMIZERS[name], steps=steps, snapshots=kept)
        for name in ("free", "normalized")
    )
    E = np.asarray(choices.E)
    norms, stalled = (
        np.linalg.norm(E.T @ np.swapaxes(run.snapshots, 1, 2) @ E, axis=(1, 2)) for run in (free, floored)
    )
    # Nearly a straight line: a step of 0.1 is 0.1 of norm.
    np.testing.assert_allclose(np.diff(norms), 100, rtol=1e-3)
    assert free.loss[-1] < 1e-15
    assert stalled[-1] < 0.5 * norms[-1]
    assert np.isfinite(free.gradient_norm).all()
    assert free.stalled == -1
    assert 100 < floored.stalled < 2500
    # Until then the floor takes less than half of a step, and soon after next to all.
    assert floored.gradient_norm[: floored.stalled].min() > 2 * descent.PUBLISHED_EPSILON
    assert np.max(floored.gradient_norm[floored.stalled + 1000 :]) < 0.1 * descent.PUBLISHED_EPSILON


# Normalized steps bounce about a finite minimum, where rounding grows: fewer of them.
@pytest.mark.parametrize(("candidates", "name", "steps"), [("vocabulary", "gd", STEPS), ("prefix", "normalized", 20)])
def test_a_lane_of_train_batch_is_a_lone_run(candidates, name, steps):
    batch, of = texts.batch_of(candidates), {"optimizer": OPTIMIZERS[name], "steps": steps, "snapshots": (2, 5)}
    runs = language.train_batch(batch, record_every=3, **of)
    assert all(isinstance(leaf, np.ndarray) for leaf in runs)
    for i in range(3):
        lone = language.train(lane(batch, i), record_every=3, **of)
        assert_close(jax.tree.map(jnp.asarray, lane(runs, i)), lone)


def test_train_works_under_jit_and_vmap():
    batch = texts.batch_of("prefix")
    # The lone run is compiled for the lanes above.
    of = {"optimizer": OPTIMIZERS["normalized"], "steps": 20, "snapshots": (2, 5), "record_every": 3}
    lifted = jax.jit(jax.vmap(partial(language.train, **of)))(batch)
    for i in range(3):
        assert_close(lane(lifted, i), language.train(lane(batch, i), **of), rtol=1e-12)


def test_other_numbers_and_snapshot_steps_compile_nothing_again():
    traced = []

    def loss(margin):
        traced.append(margin)
        return jnp.exp(-margin)

    def train(rule, snapshots):
        language.train(texts.drawn(), optimizer=rule, steps=5, snapshots=snapshots, loss=loss)

    train(descent.gd(0.1), (1, 2))
    first = len(traced)
    assert first > 0
    train(descent.gd(0.7), (0, 5))
    assert len(traced) == first
    train(descent.normalized_gd(0.1), (1, 2))
    assert len(traced) > first


def test_single_precision_follows_double():
    choices = texts.drawn("prefix")
    with jax.enable_x64(False):
        run = language.train(texts.single(choices), steps=STEPS, snapshots=(2,))
    assert {leaf.dtype.name for leaf in run._replace(stalled=run.loss)} == {"float32"}
    assert_close(run, language.train(choices, steps=STEPS, snapshots=(2,)), rtol=1e-3)


@pytest.mark.parametrize(
    ("train", "choices"), [(language.train, texts.drawn("vocabulary")), (language.train_batch, texts.batch_of())]
)
@pytest.mark.parametrize("optimizer", [optax.adam(0.1), optax.sgd(0.1), descent.gd(0.1)._replace(update=print)])
def test_an_optimizer_that_does_not_move_along_the_gradient_is_refused(train, choices, optimizer):
    with pytest.raises(ValueError, match=r"^optimizer: expected one that moves W along its gradient.*, found"):
        train(choices, optimizer=optimizer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, r"^steps: expected at least 1, found 0"),
        ({"record_every": 0}, r"^record_every: expected at least 1, found 0"),
        ({"steps": 5, "snapshots": (6,)}, r"^snapshots: expected increasing steps within 0\.\.5"),
        ({"steps": 5, "snapshots": (2, 2)}, r"^snapshots: expected increasing steps within 0\.\.5"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    for train, choices in ((language.train, texts.drawn()), (language.train_batch, texts.batch_of())):
        with pytest.raises(ValueError, match=message):
            train(choices, **arguments)


def test_weights_are_sums_over_pairs_of_words():
    choices, pairs = texts.drawn(), texts.matrix(2, V)
    assert_close(language.weights(pairs, choices).W, np.einsum("at,td,ae->de", pairs, choices.E, choices.E))


def test_a_start_is_gone_on_from():
    """Two halves of a descent are the whole one, and a start of another shape is named."""
    text, rule = texts.separable(), descent.gd(0.3)
    whole = language.train(text, optimizer=rule, steps=STEPS, snapshots=(20,))
    half = language.train(text, whole.snapshots[0], optimizer=rule, steps=STEPS - 20)
    assert_close(half.pairs, whole.pairs, rtol=1e-12)
    assert_close(half.loss, whole.loss[20:], rtol=1e-12)
    with pytest.raises(ValueError, match=r"start: expected coefficients of pairs, \(4, 4\), found shape \(3, 3\)"):
        language.train(text, jnp.zeros((3, 3)), optimizer=rule, steps=1)
