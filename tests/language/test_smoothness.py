"""Bounds of the second derivatives of a text's risks: against exact ones, and the lemmas that they are made of."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import language, losses

RNG = np.random.default_rng(0)
V, D = 4, 3
WORDS = jnp.asarray([[0, 1, 2, 0, 3], [1, 2, 3, 1, 1]])


def text(scale, candidates=language.vocabulary, scored=False):
    E = scale * RNG.normal(size=(V, D))
    one = language.of_text(E, WORDS, candidates)
    return one._replace(scores=jnp.asarray(RNG.normal(size=(*one.last.shape, V)) * scale)) if scored else one


def logistic(W, choices):
    return language.risk(W, choices, loss=losses.logistic)


@partial(jax.jit, static_argnums=0)
def curvatures(function, W, choices):
    bends = jax.vmap(jax.hessian(function), in_axes=(0, None))(W, choices).reshape(len(W), D * D, D * D)
    return jnp.max(jnp.abs(jnp.linalg.eigvalsh(bends)), axis=1)


RISKS = {
    "cross entropy": (language.risk, language.cross_entropy_bound, False),
    "logistic": (logistic, language.score_bound, True),
    "squared": (language.squared_risk, language.squared_bound, False),
}


@pytest.mark.parametrize("candidates", [language.vocabulary, language.prefix])
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("name", RISKS)
def test_no_second_derivative_exceeds_the_bound(name, scale, candidates):
    function, bound, scored = RISKS[name]
    for _ in range(3):
        one = text(scale, candidates, scored)
        W = jnp.asarray(RNG.normal(size=(200, D, D)) * np.geomspace(0.01, 10, 200)[:, None, None] / scale**2)
        found = float(jnp.max(curvatures(function, W, one)))
        assert 0 < found <= float(bound(one))


def of_two_words(p, scores=None):
    """One input, attention p and 1 - p: embeddings opposite, of length 1, a W along them."""
    one = language.of_text(jnp.asarray([[1.0], [-1.0]]), jnp.asarray([[0, 0]]))
    W = jnp.log(p / (1 - p))[:, None, None] / 2
    return W, one._replace(scores=scores)


P = jnp.linspace(0.001, 0.999, 999)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("cross entropy", 1 - 1e-4), ("logistic", 1 / 3), ("squared", 1 / 3)])
def test_two_words_show_that_the_bound_is_near(name, least):
    function, bound, scored = RISKS[name]
    W, one = of_two_words(P, jnp.asarray([[1.0, -1.0]]) if scored else None)
    found = jax.vmap(jax.hessian(function), in_axes=(0, None))(W, one).ravel()
    assert least <= float(jnp.max(jnp.abs(found)) / bound(one)) <= 1


def test_the_bound_is_its_formula():
    one = text(1.0)
    E, share = np.asarray(one.E), 1 / len(one.last)
    second = sum(share * np.outer(E[a], E[a]) for a in np.asarray(one.last))
    apart = np.linalg.norm(E - E.mean(axis=0), 2) ** 2
    wanted = 0.5 * np.linalg.norm(second, 2) * apart
    assert float(language.cross_entropy_bound(one)) == pytest.approx(wanted, rel=1e-12)
    scored = one._replace(scores=jnp.asarray(np.tile([0.0, 3.0, 1.0, 2.0], (len(one.last), 1))))
    wanted = (0.5 * 9 / 8 + 2 * 3 / 4) * np.linalg.norm(second, 2) * apart
    assert float(language.score_bound(scored, bend=0.5, slope=2.0)) == pytest.approx(wanted, rel=1e-12)
    widest = max(np.linalg.norm(x - y) for x in E for y in E)
    wanted = 3 / 8 * widest**2 * np.linalg.norm(second, 2) * apart
    assert float(language.squared_bound(one)) == pytest.approx(wanted, rel=1e-12)


def test_the_bounds_know_compact_choices_and_those_that_are_left_out():
    one = text(1.0, language.prefix)
    assert float(jnp.min(one.weight)) == 0
    for bound in (language.cross_entropy_bound, language.squared_bound):
        shorter = jax.tree.map(jnp.asarray, language.compact(one))
        np.testing.assert_allclose(bound(shorter), bound(one), rtol=1e-12)


def test_scores_are_no_probabilities():
    with pytest.raises(ValueError, match="without scores"):
        language.cross_entropy_bound(text(1.0, scored=True))


NUMBERS = st.lists(st.tuples(*[st.floats(-1, 1)] * 2, st.floats(0, 10)), min_size=2, max_size=6)


@settings(deadline=None, max_examples=300)
@given(NUMBERS)
def test_the_slope_and_the_bend_of_an_attended_score_are_within_the_lemmas(numbers):
    gamma, u, z = np.array(numbers).T
    p = np.exp(z - z.max())
    p = p / p.sum()
    length, range_ = np.linalg.norm(u), np.ptp(gamma)
    f, apart = p @ gamma, u - p @ u
    assert p @ apart**2 <= length**2 / 2 + 1e-12
    assert np.linalg.norm(p * (gamma - f)) <= range_ / np.sqrt(8) + 1e-12
    assert abs(p @ ((gamma - f) * apart**2)) <= range_ / 4 * length**2 + 1e-12
