"""The max-margin problem of a model: by its own functions, by the derivative of its logits, and refusals."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, bias, descent, models, svm
from jaxattn.attention import Factored
from tests import instances
from tests.instances import T, assert_close, d

SEEDS = 8
P = np.random.default_rng(0).normal(size=(T, d))
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)


def trained(model, start=None, **given):
    given = {"optimizer": RULE, "steps": 2000, "snapshots": (200, 600, 2000)} | given
    start = jnp.zeros((SEEDS, d, d)) if start is None else start
    return descent.train_batch(start, instances.problems(SEEDS), model=model, **given)


def shifted(W, problem):
    return attention.logits(W, models.key_only(P).for_attention(problem))


def bent(W, problem):
    return jnp.tanh(shifted(W, problem))


def of_two_queries(W, problem):
    return jnp.einsum("ntd,de,nte->nt", problem.X, W, problem.X)


@pytest.mark.slow
def test_a_function_is_posed_as_the_model_that_it_is():
    norms = ("frobenius", "nuclear", "max")
    run = trained(models.key_only(P))
    expected = bias.rank(run, instances.problems(SEEDS), norms)
    found = bias.rank(run, instances.problems(SEEDS), norms, model=shifted)
    assert_close(found.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert_close(found.probability, expected.probability, rtol=1e-9)
    # Against the tokens without positions it would be another problem.
    other = bias.rank(run, instances.problems(SEEDS), norms, model=models.plain)
    assert np.abs(other.margin_ratio - expected.margin_ratio)[..., -1].max() > 0.05


def test_factors_of_a_function_are_posed_by_their_product():
    start = instances.stacked([instances.factored(i) for i in range(SEEDS)])
    run = trained(shifted, start, steps=20, snapshots=(10, 20))
    assert isinstance(run.weights, Factored)
    ranking = bias.rank(run, instances.problems(SEEDS), ("frobenius",), model=shifted)
    as_W = run._replace(weights=np.asarray(run.weights.W), snapshots=np.asarray(run.snapshots.W))
    expected = bias.rank(as_W, instances.problems(SEEDS), ("frobenius",), model=models.key_only(P))
    assert_close(ranking.margin_ratio, expected.margin_ratio, rtol=1e-6)


# The first and a middle token of each input are hidden, in the ways of several libraries.
SEEN = np.array([False, True, False, *[True] * (T - 3)])
HIDING = {
    "-inf": lambda logits: jnp.where(SEEN, logits, -jnp.inf),
    "the least number": lambda logits: jnp.where(SEEN, logits, jnp.finfo(logits.dtype).min),
    "a large number": lambda logits: jnp.where(SEEN, logits, -1e9),
    "a large number added": lambda logits: logits + jnp.where(SEEN[None], 0.0, -1e9),
    "-inf added": lambda logits: logits + jnp.where(SEEN[None], 0.0, -jnp.inf),
}


def hiding(how):
    # One function a way, so that each compiles once.
    return lambda W, problem: how(jnp.einsum("ntd,de,ne->nt", problem.X, W, problem.Z))


@pytest.mark.parametrize("how", HIDING.values(), ids=HIDING)
def test_hidden_tokens_are_no_rivals(how):
    model, problems = hiding(how), instances.problems(SEEDS)
    run = trained(model, steps=20, snapshots=(5, 20))
    present = np.broadcast_to(SEEN, problems.X.shape[:-1])
    expected = bias.rank(run, Problem(**problems.arrays, present=present), ("frobenius",), model=models.plain)
    found = bias.rank(run, problems, ("frobenius",), model=model)
    assert found.counts == expected.counts
    assert_close(found.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert_close(found.probability, expected.probability, rtol=1e-9)


@pytest.mark.parametrize("how", HIDING.values(), ids=HIDING)
def test_logits_that_are_not_linear_are_refused_however_tokens_are_hidden(how):
    def curved(W, problem):
        return how(jnp.tanh(jnp.einsum("ntd,de,ne->nt", problem.X, W, problem.Z)))

    run = trained(curved, steps=20, snapshots=(5, 20))
    with pytest.raises(ValueError, match=r"^model: expected logits that are linear in W"):
        bias.rank(run, instances.problems(SEEDS), ("frobenius",), model=curved)


@pytest.mark.slow
def test_heads_are_held_against_the_joint_problem():
    """Its Frobenius optimum has every head's own, as its rows share no entry."""
    model, problems = models.summed(2), instances.problems(SEEDS)
    run = trained(model, (jnp.zeros((SEEDS, d, d)), instances.stacked([instances.free(i) for i in range(SEEDS)])))
    joint = bias.rank(run, problems, ("frobenius",))
    heads = [run._replace(weights=run.weights[h], snapshots=run.snapshots[h]) for h in range(2)]
    alone = [bias.rank(head, problems, ("frobenius",), model=models.plain) for head in heads]
    assert joint.seeds.tolist() == alone[0].seeds.tolist() == alone[1].seeds.tolist()
    # Each head's ratio bounds the joint one, which is lost where the heads' margins differ.
    assert (joint.margin_ratio <= np.maximum(alone[0].margin_ratio, alone[1].margin_ratio) + 1e-6).all()

    def of_selected(h, i):
        weights, problem = run.weights[h][i], instances.lane(problems, i)
        return svm.solve(svm.token_constraints(problem, jnp.argmax(attention.logits(weights, problem), axis=1)))

    W = [np.stack([of_selected(h, i).W for i in range(SEEDS)]) for h in range(2)]
    planted = tuple(np.asarray([10.0, 30.0, 100.0])[None, :, None, None] * one[:, None] for one in W)
    runs = run._replace(weights=tuple(one[:, -1] for one in planted), snapshots=planted)
    np.testing.assert_allclose(bias.rank(runs, problems, ("frobenius",)).margin_ratio, 1, atol=1e-7)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (bent, "model: expected logits that are linear in W"),
        (of_two_queries, r"model: expected logits of the form k_t\^T W q, .* rank"),
    ],
)
def test_a_model_without_a_matrix_is_refused(model, message):
    run = trained(model, instances.stacked([instances.free(i) for i in range(SEEDS)]), steps=20, snapshots=(10, 20))
    with pytest.raises(ValueError, match=message):
        bias.rank(run, instances.problems(SEEDS), ("frobenius",), model=model)


def test_parameters_that_are_no_matrix_are_refused():
    def of_a_pair(pair, problem):
        return shifted(pair[0] + pair[1], problem)

    run = trained(of_a_pair, (jnp.zeros((SEEDS, d, d)),) * 2, steps=20, snapshots=(10, 20))
    with pytest.raises(ValueError, match=r"model: expected one whose parameters are W, \(d, d\), or Factored"):
        bias.rank(run, instances.problems(SEEDS), ("frobenius",), model=of_a_pair)
