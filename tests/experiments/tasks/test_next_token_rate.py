"""Next-token prediction in two stages: synthetic measurements, the law, slopes and losses, and a measured record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, initial
from jaxattn.experiments.tasks.next_token_rate import model
from jaxattn.experiments.tasks.next_token_rate.law import ordered
from jaxattn.experiments.tasks.next_token_rate.measure import estimate, known_order, measure
from jaxattn.experiments.tasks.next_token_rate.record import TwoStages
from jaxattn.records import load
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.synthetic import synthetic

VERDICTS = {}
STEPS = np.array(Logarithmically(8)(5000))
LAW = partial(ordered, V=6, asking=2, inputs=3, T=4, cosine=0.3)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)


def measured():
    """Distances fall like 1 / t, and losses like exp(-t / 50)."""
    return {"orthonormal words": of_power(-1.0), "words with cosine 0.3": of_power(-0.95)}


def of_power(power, log=-STEPS / 50):
    """A run of 100 seeds whose distances fall with nearly this power of t."""
    spread = 1 + 0.02 * np.sin(np.arange(100))[:, None]
    off = 0.5 * (STEPS ** (power * spread)) ** 2
    log = log * spread
    return synthetic(
        100, {"steps": 5000}, {"snapshot": STEPS}, off_ov=off, off_kq=off, log_ov=log, log_kq=log, unseen=20, right=20
    )


@pytest.fixture(scope="module")
def drawn():
    """Sentences, and weights of both layers."""
    ov, kq = np.random.default_rng(1).normal(size=(2, 7, 7))
    return jax.jit(LAW)(jax.random.key(3)), ov[:6], kq


def test_sentences_have_their_last_word_and_a_best_one_of_one_order(drawn):
    sentences, _, _ = drawn
    text = sentences.text
    present = np.asarray(sentences.present)
    assert (present.sum(axis=1) == 4).all()
    for words in (text.last, text.next):
        assert np.take_along_axis(present, np.asarray(words)[:, None], axis=1).all()
    for last in np.unique(text.last):
        own = np.asarray(text.last) == last
        # An order has no cycle: no word is known to precede itself.
        assert not known_order(np.asarray(text.next)[own], present[own]).diagonal().any()
    np.testing.assert_allclose(text.E @ text.E.T, np.full((6, 6), 0.3) + 0.7 * np.eye(6), atol=1e-12)
    assert sorted(np.asarray(sentences.successor).tolist()) == list(range(6))


@pytest.mark.parametrize(("wrong", "named"), [({"T": 1}, "T"), ({"asking": 7}, "asking"), ({"cosine": 1.0}, "cosine")])
def test_wrong_sizes_are_refused(wrong, named):
    with pytest.raises(ValueError, match=f"{named}: expected"):
        LAW(jax.random.key(0), **wrong)


def loss_of_words(W_ov, sentences):
    logits = jax.nn.log_softmax(sentences.text.E @ W_ov.T, axis=1)
    return -jnp.mean(jnp.take_along_axis(logits, sentences.successor[:, None], axis=1))


def loss_of_sentences(W_kq, W_ov, sentences):
    text = sentences.text
    logits = jnp.where(sentences.present, text.E[text.last] @ W_kq.T @ text.E.T, -jnp.inf)
    outputs = jax.nn.log_softmax(jax.nn.softmax(logits, axis=1) @ text.E @ W_ov.T, axis=1)
    return -jnp.mean(jnp.take_along_axis(outputs, sentences.successor[text.next][:, None], axis=1))


def test_slopes_and_losses_are_those_of_cross_entropy(drawn):
    sentences, W_ov, W_kq = drawn
    loss, of_words = jax.jit(jax.value_and_grad(loss_of_words))(W_ov, sentences)
    np.testing.assert_allclose(jax.jit(model.feed_forward_slope)(W_ov, sentences) / 6, of_words, atol=1e-12)
    np.testing.assert_allclose(jax.jit(model.log_feed_forward_loss)(W_ov, sentences), np.log(loss))
    of_sentences = jax.jit(jax.value_and_grad(loss_of_sentences))
    slope = jax.jit(model.attention_slope)(W_kq, W_ov, sentences)
    np.testing.assert_allclose(slope / 6, of_sentences(W_kq, W_ov, sentences)[1], atol=1e-12)
    W_ov, trained = planted(sentences, 1.0)
    excess = of_sentences(W_kq, W_ov, sentences)[0] - of_sentences(50 * trained, W_ov, sentences)[0]
    np.testing.assert_allclose(jax.jit(model.log_excess)(W_kq, W_ov, sentences), np.log(excess), rtol=1e-9)


def planted(sentences, scale):
    """Both layers as they should become: successors are ahead by `scale`, words of those that they precede."""
    text = sentences.text
    inverse = np.linalg.pinv(text.E)
    ahead = np.zeros((6, 6))
    for last in np.unique(text.last):
        own = np.asarray(text.last) == last
        ahead[last] = known_order(np.asarray(text.next)[own], np.asarray(sentences.present)[own]).sum(axis=1)
    return scale * np.eye(6)[np.asarray(sentences.successor)].T @ inverse.T, inverse @ ahead.T @ inverse.T


def test_losses_do_not_underflow(drawn):
    sentences, _, _ = drawn
    text = sentences.text
    one = sentences._replace(text=jax.tree.map(lambda leaf: leaf[:1], text)._replace(E=text.E))
    W_ov, W_kq = planted(one, 200.0)
    np.testing.assert_allclose(jax.jit(model.log_feed_forward_loss)(W_ov, one), np.log(5) - 200, rtol=1e-12)
    is_least = jax.jit(model.is_least)
    assert bool(is_least(W_ov, one))
    # Each of three words has attention exp(-300). It brings its own successor, of probability exp(-200), nearer by 400,
    # and the four other wrong words by 200.
    cost = np.log(3 * (400 + 4 * 200)) - 300 - 200
    np.testing.assert_allclose(jax.jit(model.log_excess)(100 * W_kq, W_ov, one), cost, rtol=1e-12)
    assert not bool(is_least(-W_ov, one))


def test_known_orders_are_transitive():
    before = known_order(np.array([0, 1]), np.array([[1, 1, 0, 0], [0, 1, 1, 0]], bool))
    assert sorted(map(tuple, np.argwhere(before).tolist())) == [(0, 1), (0, 2), (1, 2)]


def test_a_record_is_measured(tmp_path):
    made = TwoStages(LAW, initial.free, RULE, seeds=3, key=1, steps=400, snapshots=Logarithmically(8))
    recording.run(made, tmp_path / "record.zarr", {"attempted": 3})
    record = load(tmp_path / "record.zarr")
    found = measure(record)
    assert (found.attrs["kept"], found.attrs["attempted"]) == (3, 3)
    assert (found["off_ov"].isel(snapshot=-1) < 1e-3).all()
    assert (found["off_kq"].isel(snapshot=-1) < 0.02).all()
    assert (found["unseen"] > 0).all()
    assert (found["right"] == found["unseen"]).all()
    # With attention on the worst words, none of the sentences gets its next word.
    opposite = measure(record.assign(W_kq=-record["W_kq"]))
    assert (opposite["right"] < found["right"]).all()
    assert measure(record.assign(W_ov=-record["W_ov"])).attrs["ambiguous"] == 3


def test_the_rule_of_the_optimizer_is_asked_for():
    with pytest.raises(TypeError, match="optimizer: expected one that depends only on the gradient's direction"):
        TwoStages(LAW, initial.free, descent.gd(0.1), seeds=3, key=1, steps=400, snapshots=Logarithmically(8))


def test_rates_tell_linear_convergence_from_a_power():
    summary = estimate(of_power(-1.0), jax.random.key(0))
    np.testing.assert_allclose(summary["rate_kq"], -1, atol=0.01)
    np.testing.assert_allclose(summary["linear_kq"], 1, atol=1e-9)
    power = estimate(of_power(-1.0, -np.log(STEPS)), jax.random.key(0))
    np.testing.assert_allclose(power["linear_kq"], 0.5, atol=0.05)
