"""Models: their logits and predictions by hand, the problems that pose their SVMs, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, descent, heads, models
from jaxattn.models import Joint
from jaxattn.models.input_transforms import replaced
from tests import instances
from tests.instances import T, assert_close, d, n

P = np.random.default_rng(0).normal(size=(T, d))
ONE_HEAD = {
    "plain": models.plain,
    "normalized": models.normalized(),
    "layer-normalized": models.layer_normalized(),
    "temperature": models.temperature(2.0),
    "key-only": models.key_only(P),
    "additive": models.additive(P, query=1),
    "rotary": models.rotary(query=2),
}
SEVERAL = {
    "summed": models.summed(2),
    "concatenated": models.concatenated(1),
    "with positions": models.summed(2, models.key_only(P)),
}


def weights_of(model):
    return tuple(instances.free(h) for h in range(model.count))


@pytest.mark.parametrize("name", ONE_HEAD)
def test_keys_and_queries_pose_what_attention_sees(name):
    model, problem, W = ONE_HEAD[name], instances.problem(), instances.free()
    seen = model.seen(problem)
    expected = np.einsum("ntd,de,ne->nt", seen.X, W, seen.Z)
    assert_close(model.logits(W, problem), expected[None])
    assert_close(model.matrix(W), W)


def test_what_each_model_sees_and_reads():
    problem = instances.problem()
    stretched = replaced(problem, X=3 * problem.X, Z=0.5 * problem.Z)
    assert_close(models.normalized().seen(stretched).X, problem.X)
    assert_close(models.normalized().seen(stretched).Z, problem.Z)
    assert_close(models.normalized().for_head(stretched).X, stretched.X)
    assert_close(models.temperature(2.0).seen(problem).Z, problem.Z / 2)
    assert_close(models.key_only(P).seen(problem).X, np.asarray(problem.X) + P)
    assert_close(models.key_only(P).for_head(problem).X, problem.X)
    assert_close(models.additive(P, query=1).seen(problem).Z, np.asarray(problem.Z) + P[1])
    assert_close(models.additive(P).for_head(problem).X, np.asarray(problem.X) + P)


def test_layer_norm_by_hand():
    """(1, 2, 3) has mean 2 and variance 2 / 3; LayerNorm forgets scale and offset; equal entries become 0."""
    problem = instances.problem()
    x = jnp.array([[[1.0, 2.0, 3.0], [10.0, 30.0, 50.0], [7.0, 7.0, 7.0]]])
    small = replaced(problem, X=x, Z=x[:, 0], Y=problem.Y[:1], v=jnp.array([1.0, 0.0, 0.0]))
    standard = np.array([-1.5, 0.0, 1.5]) * np.sqrt(2 / 3)
    for seen in (models.layer_normalized().seen(small), models.layer_normalized().for_head(small)):
        assert_close(seen.X, np.array([[standard, standard, np.zeros(3)]]), atol=1e-12)
        assert_close(seen.Z, standard[None], atol=1e-12)


def test_tied_keys_and_queries():
    problem, K = instances.problem(), instances.free()[:, :2]
    found = models.tied().logits(K, problem)[0]
    assert_close(found, np.einsum("ntd,dm,em,ne->nt", problem.X, K, K, problem.Z))
    assert_close(models.tied().matrix(K[None])[0], K @ K.T)
    rotary = models.tied(models.rotary())
    assert_close(rotary.logits(K, problem)[0], attention.logits(rotary.matrix(K), rotary.seen(problem)))


def test_rotary_logits_depend_on_the_distance_of_places():
    """With W = I, to move the query by one place is to move the tokens back by one."""
    problem, eye = instances.problem(), jnp.eye(d)
    moved = replaced(problem, X=jnp.roll(problem.X, 1, axis=1))
    near = models.rotary(query=2).logits(eye, problem)[0]
    far = models.rotary(query=3).logits(eye, moved)[0]
    assert_close(far[:, 1:], near[:, :-1], rtol=1e-10)
    assert_close(jnp.linalg.norm(models.rotary().seen(problem).X, axis=-1), jnp.linalg.norm(problem.X, axis=-1))
    # The last coordinate of an odd dimension has no partner.
    assert_close(models.rotary().seen(problem).X[..., -1], problem.X[..., -1])


@pytest.mark.parametrize("name", SEVERAL)
def test_the_joint_problem_has_the_rows_of_every_head(name):
    model, problem = SEVERAL[name], instances.problem()
    weights, seen = weights_of(model), model.seen(problem)
    assert seen.X.shape == (model.count * n, T, model.count * d)
    block = model.matrix(weights)
    assert_close(attention.logits(block, seen).reshape(model.count, n, T), model.logits(weights, problem))
    assert np.linalg.norm(block) == pytest.approx(np.sqrt(sum(np.linalg.norm(W) ** 2 for W in weights)))


def test_outputs_are_added_up_or_concatenated():
    problem = instances.problem()
    X, Z = (np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 1)]) for array in (problem.X, problem.Z))
    wide = replaced(problem, X=jnp.asarray(X), Z=jnp.asarray(Z), v=jnp.arange(6.0))
    s = jax.nn.softmax(jnp.asarray(np.random.default_rng(1).normal(size=(2, n, T))), axis=-1)
    outputs = np.einsum("hnt,ntd->hnd", s, wide.X)
    both = models.summed(2).predictions(None, s, wide, heads.linear)
    assert_close(both, outputs.sum(axis=0) @ np.arange(6.0))
    beside = models.concatenated(2).predictions(None, s, wide, heads.linear)
    assert_close(beside, outputs[0, :, :3] @ np.arange(3.0) + outputs[1, :, 3:] @ np.arange(3.0, 6.0))


def test_a_function_is_a_model_whose_outputs_are_added_up():
    problem, W = instances.problem(), instances.free()
    one = models.of(attention.logits)
    assert_close(one.logits(W, problem)[0], attention.logits(W, problem))
    s = jax.nn.softmax(one.logits(W, problem), axis=-1)
    found, expected = (model.predictions(None, s, problem, heads.linear) for model in (one, models.plain))
    assert_close(found, expected)
    assert models.of(models.plain) is models.plain


def test_a_trained_readout_takes_the_place_of_v():
    problem, model = instances.problem(), models.with_values()
    s = attention.probabilities(instances.free(), problem)[None]
    found = model.predictions(2 * problem.v, s, problem, heads.linear)
    assert_close(found, 2 * models.plain.predictions(None, s, problem, heads.linear))


def test_equal_models_are_equal_values():
    assert models.key_only(P) == models.key_only(P.copy())
    assert hash(models.rotary(1)) == hash(models.rotary(1))
    assert models.summed(2) != models.summed(3)


def train(weights=None, **given):
    return descent.train(instances.free() if weights is None else weights, instances.problem(), steps=2, **given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.temperature(0.0), "tau: expected a positive finite number, found 0.0"),
        (lambda: models.rotary(query=1.5), "query: expected a place, a whole number, found 1.5"),
        (lambda: models.rotary(base=-1.0), "base: expected a positive finite number, found -1.0"),
        (lambda: models.key_only([1.0, 2.0]), r"P: expected finite positions of shape \(T, d\), found \(2,\)"),
        (lambda: models.key_only(P * np.nan), "P: expected finite positions"),
        (lambda: models.additive(P, query=T), "query: expected a place in 0..3 or None, found 4"),
        (lambda: train(model=models.key_only(P[:2])), r"P: expected positions \(T, d\) = \(4, 5\).*found \(2, 5\)"),
        (lambda: models.summed(0), "count: expected at least 1, found 0"),
        (lambda: train(model=models.summed(2)), "weights: expected a tuple of 2 heads' weights, found"),
        (lambda: train((instances.free(),), model=models.summed(2)), "tuple of 2 heads' weights, found 1 of them"),
        (lambda: train((instances.free(),) * 2, model=models.concatenated(2)), "expected d = 5 to be a multiple of 2"),
        (lambda: models.with_values(len), "model: expected models.TransformedInputs .* found <built-in function"),
        (lambda: train(model=models.with_values()), r"params: expected models.Joint\(attention, readout\).*found None"),
        (lambda: train(Joint(instances.free(), jnp.ones(2)), model=models.with_values()), r"as readout, found \(2,\)"),
        (lambda: train(model="rotary"), r"model: expected a function model\(params, problem\), found 'rotary'"),
        (lambda: train(model=models.Heads), "model: expected a function .*found the class Heads"),
        (lambda: train(model=lambda W: W), r"model: should be model\(params, problem\), found <lambda>\(W\)"),
        (
            lambda: train(model=lambda W, problem: W),
            r"model: expected logits of shape \(n, T\) = \(3, 4\).*found \(5, 5\)",
        ),
    ],
)
def test_bad_input_is_one_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
