"""The max-margin problem of a model: by its own functions, by the derivative of its logits, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, bias, descent, models, svm
from jaxattn.bias.checkpoints import as_run
from tests import instances
from tests.instances import T, assert_close, d

SEEDS = 8
P = np.random.default_rng(0).normal(size=(T, d))
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)


def free():
    return instances.stacked([instances.free(i) for i in range(SEEDS)])


def factored():
    return instances.stacked([instances.factored(i) for i in range(SEEDS)])


def planted(params):
    """A run whose snapshots are these parameters at two steps."""
    snapshots = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2, axis=1), params)
    return as_run(snapshots, [10, 20])


def ranked(run, model=None):
    return bias.rank(run, instances.problems(SEEDS), ("frobenius",), model=model)


def trained(model, start, **given):
    given = {"optimizer": RULE, "steps": 2000, "snapshots": (200, 600, 2000)} | given
    return descent.train_batch(start, instances.problems(SEEDS), model=model, **given)


def shifted(W, problem):
    return attention.logits(W, models.key_only(P).for_attention(problem))


def of_two_queries(W, problem):
    return jnp.einsum("ntd,de,nte->nt", problem.X, W, problem.X)


def of_two_heads(params, problem):
    return jnp.stack([attention.logits(W, problem) for W in params])


def test_of_several_heads_one_is_posed_alone():
    params = free(), 2 * free()[::-1]
    for h in (0, 1):
        found = ranked(planted(params), models.Logits(of_two_heads, matrix=lambda params, h=h: params[h]))
        assert_close(found.margin_ratio, ranked(planted(params[h])).margin_ratio, rtol=1e-9)
    other = models.Logits(lambda params, problem: attention.logits(params[1], problem), matrix=lambda params: params[0])
    with pytest.raises(ValueError, match=r"^model: expected logits that depend on W, found none"):
        ranked(planted(params), other)


@pytest.mark.slow
def test_a_function_is_posed_as_the_model_that_it_is():
    norms = ("frobenius", "nuclear", "max")
    run = trained(models.key_only(P), np.zeros((SEEDS, d, d)))
    expected = bias.rank(run, instances.problems(SEEDS), norms)
    found = bias.rank(run, instances.problems(SEEDS), norms, model=shifted)
    assert_close(found.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert_close(found.probability, expected.probability, rtol=1e-9)
    # Against the tokens without positions it would be another problem.
    other = bias.rank(run, instances.problems(SEEDS), norms, model=models.plain)
    assert np.abs(other.margin_ratio - expected.margin_ratio)[..., -1].max() > 0.05


def test_factors_of_a_function_are_posed_by_their_product():
    factors = factored()
    expected = ranked(planted(np.asarray(factors.W)), models.key_only(P))
    assert_close(ranked(planted(factors), shifted).margin_ratio, expected.margin_ratio, rtol=1e-6)


# The first and a middle token of each input are hidden, in the ways of several libraries.
SEEN = np.array([False, True, False, *[True] * (T - 3)])
HIDING = {
    "-inf": lambda logits: jnp.where(SEEN, logits, -jnp.inf),
    "the least number": lambda logits: jnp.where(SEEN, logits, jnp.finfo(logits.dtype).min),
    "a large number": lambda logits: jnp.where(SEEN, logits, -1e9),
    "a large number added": lambda logits: logits + jnp.where(SEEN[None], 0.0, -1e9),
    "-inf added": lambda logits: logits + jnp.where(SEEN[None], 0.0, -jnp.inf),
}

WAYS = [
    pytest.param(how, id=name, marks=[] if name in ("-inf", "a large number added") else [pytest.mark.slow])
    for name, how in HIDING.items()
]


def hiding(how):
    # One function a way, so that each compiles once.
    return lambda W, problem: how(jnp.einsum("ntd,de,ne->nt", problem.X, W, problem.Z))


@pytest.mark.parametrize("how", WAYS)
def test_hidden_tokens_are_no_rivals(how):
    model, problems = hiding(how), instances.problems(SEEDS)
    run = planted(free())
    present = np.broadcast_to(SEEN, problems.X.shape[:-1])
    expected = bias.rank(run, Problem(**problems.arrays, present=present), ("frobenius",), model=models.plain)
    found = ranked(run, model)
    assert found.counts == expected.counts
    assert_close(found.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert_close(found.probability, expected.probability, rtol=1e-9)


@pytest.mark.parametrize("how", WAYS)
def test_logits_that_are_not_linear_are_refused_however_tokens_are_hidden(how):
    def curved(W, problem):
        return how(jnp.tanh(jnp.einsum("ntd,de,ne->nt", problem.X, W, problem.Z)))

    with pytest.raises(ValueError, match=r"^model: expected logits that are linear in W"):
        ranked(planted(free()), curved)


@pytest.mark.slow
def test_heads_are_held_against_the_joint_problem():
    """Its Frobenius optimum has every head's own, as its rows share no entry."""
    model, problems = models.summed(2), instances.problems(SEEDS)
    run = trained(model, (jnp.zeros((SEEDS, d, d)), free()))
    joint = ranked(run)
    heads = [run._replace(weights=run.weights[h], snapshots=run.snapshots[h]) for h in range(2)]
    alone = [ranked(head, models.plain) for head in heads]
    assert joint.seeds.tolist() == alone[0].seeds.tolist() == alone[1].seeds.tolist()
    # Each head's ratio bounds the joint one, which is lost where the heads' margins differ.
    assert (joint.margin_ratio <= np.maximum(alone[0].margin_ratio, alone[1].margin_ratio) + 1e-6).all()

    def of_selected(h, i):
        weights, problem = run.weights[h][i], instances.lane(problems, i)
        return svm.solve(svm.token_constraints(problem, jnp.argmax(attention.logits(weights, problem), axis=1)))

    W = [np.stack([of_selected(h, i).W for i in range(SEEDS)]) for h in range(2)]
    planted = tuple(np.asarray([10.0, 30.0, 100.0])[None, :, None, None] * one[:, None] for one in W)
    runs = run._replace(weights=tuple(one[:, -1] for one in planted), snapshots=planted)
    np.testing.assert_allclose(ranked(runs).margin_ratio, 1, atol=1e-7)


def test_a_model_of_several_queries_is_refused():
    with pytest.raises(ValueError, match=r"model: expected logits of the form k_t\^T W q, .* rank"):
        ranked(planted(free()), of_two_queries)


def scaled(params, problem):
    return jnp.exp(params["log_scale"]) * attention.logits(params["W"], problem)


def with_positions(params, problem):
    return jnp.einsum("ntd,de,ne->nt", problem.X + params[1][None], attention.matrix(params[0]), problem.Z)


def matrix_of(params):
    return params["W"]


def first_of(params):
    return params[0]


def test_a_matrix_trained_with_its_temperature_is_ranked():
    model = models.Logits(scaled, matrix=matrix_of)
    start = {"W": jnp.zeros((SEEDS, d, d)), "log_scale": jnp.linspace(0.0, 1.0, SEEDS)}
    run, problems = trained(model, start, steps=20, snapshots=(5, 20)), instances.problems(SEEDS)
    assert (run.weights["log_scale"] > start["log_scale"]).all()
    ranking = ranked(run)
    # A scale changes no margin ratio.
    alone = run._replace(weights=run.weights["W"], snapshots=run.snapshots["W"], rule=None)
    expected = ranked(alone)
    assert_close(ranking.margin_ratio, expected.margin_ratio, rtol=1e-6)
    probabilities = jax.nn.softmax(jax.vmap(scaled)(run.weights, problems), axis=-1)
    assert_close(ranking.probability[:, -1], probabilities.max(axis=-1).min(axis=-1), rtol=1e-9)
    # Not even one at which a norm's square overflows.
    extreme = planted(run.weights | {"log_scale": jnp.full(SEEDS, 400.0)})
    ratios = ranked(extreme, model).margin_ratio
    assert_close(ratios[..., -1], expected.margin_ratio[..., -1], rtol=1e-6)


@pytest.mark.parametrize("is_factored", [False, True])
def test_a_matrix_beside_trained_positions_is_ranked_with_their_last_values(is_factored):
    W = factored() if is_factored else free()
    run = planted((W, np.broadcast_to(P, (SEEDS, *P.shape))))
    # Other positions before the end change nothing.
    run.snapshots[1][:, 0] = 7.0
    ranking = ranked(run, models.Logits(with_positions, first_of))
    expected = ranked(planted(W), models.key_only(P))
    assert_close(ranking.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert_close(ranking.probability, expected.probability, rtol=1e-9)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (lambda params: 2 * params[0], r"one of the parameters unchanged, W, \(d, d\), .*found \(8, 5, 5\) from"),
        (lambda params: params[1], r"one of the parameters unchanged, W, \(d, d\), .*found \(8, 4, 5\) from"),
        (lambda params: params, r"one of the parameters unchanged, W, .*found \(\(8, 5, 5\), \(8, 4, 5\)\) from"),
        (None, r"one whose parameters are W.*found .*\(8, 4, 5\).*; models.Logits\(function, matrix=lambda"),
    ],
)  # fmt: skip
def test_what_is_none_of_the_parameters_is_refused(matrix, message):
    run = planted((free(), np.broadcast_to(P, (SEEDS, *P.shape))))
    with pytest.raises(ValueError, match=f"^model: expected .*{message}"):
        ranked(run, models.Logits(with_positions, matrix))


@pytest.mark.parametrize("lost", [0, 3])
def test_a_diverged_seed_of_a_function_is_excluded(lost):
    params = {"W": np.array(free()), "log_scale": np.zeros(SEEDS)}
    expected = ranked(planted(params), models.Logits(scaled, matrix_of))
    params["log_scale"][lost] = np.nan
    ranking = ranked(planted(params), models.Logits(scaled, matrix_of))
    assert ranking.counts["diverged"] == 1
    others = expected.seeds != lost
    np.testing.assert_array_equal(ranking.seeds, expected.seeds[others])
    assert_close(ranking.margin_ratio, expected.margin_ratio[others], rtol=1e-9)
