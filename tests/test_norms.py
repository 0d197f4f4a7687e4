"""The norms: their values, their duals, the squared ones, and names and powers that are not known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.norms import named
from tests.svm.problems import NORMS

RNG = np.random.default_rng(0)
# The value in NumPy.
VALUES = {name: value for name, (value, _) in NORMS.items()} | {"l_2": np.linalg.norm}


def lengths(G, axis):
    return np.linalg.norm(G, axis=axis, keepdims=True)


def power(G, p):
    """A matrix that attains Hoelder's inequality for the l_p norm, p > 1 finite."""
    return np.sign(G) * np.abs(G) ** (1 / (p - 1))


def attains(name, G):
    """A matrix whose inner product with G is its own norm times the dual norm of G."""
    U, s, Vt = np.linalg.svd(G, full_matrices=False)
    largest = np.abs(G) == np.abs(G).max()
    return {
        "frobenius": lambda: G,
        "nuclear": lambda: np.outer(U[:, 0], Vt[0]),
        "spectral": lambda: U @ Vt,
        "l1": lambda: np.where(largest, np.sign(G), 0.0),
        "l_1.5": lambda: power(G, 1.5),
        "l_2": lambda: G,
        "l_3": lambda: power(G, 3.0),
        "max": lambda: np.sign(G),
        "2,inf": lambda: G / lengths(G, 1),
        "2,1": lambda: np.where(lengths(G, 1) == lengths(G, 1).max(), G, 0.0),
        "2,inf of columns": lambda: G / lengths(G, 0),
        "2,1 of columns": lambda: np.where(lengths(G, 0) == lengths(G, 0).max(), G, 0.0),
        "schatten_1.5": lambda: (U * power(s, 1.5)) @ Vt,
        "schatten_4": lambda: (U * power(s, 4.0)) @ Vt,
    }[name]()


@pytest.mark.parametrize("shape", [(4, 4), (5, 2), (3, 1)])
def test_the_values_are_those_of_numpy_under_jit_and_vmap(shape):
    W = np.stack([RNG.normal(size=shape), np.zeros(shape)])
    found = jax.jit(lambda W: {name: jax.vmap(named(name).value)(W) for name in VALUES})(W)
    for name, expected in VALUES.items():
        np.testing.assert_allclose(found[name][0], expected(W[0]), rtol=1e-13, err_msg=name)
        assert found[name][1] == 0, name


def test_the_dual_is_the_largest_inner_product_with_a_matrix_of_norm_one():
    W, G = RNG.normal(size=(2, 40, 4, 3)) * RNG.exponential(size=(2, 40, 1, 1))
    both = {name: (named(name).value, named(name).dual) for name in VALUES}
    found = jax.jit(jax.vmap(lambda W, G: {name: (value(W), dual(G)) for name, (value, dual) in both.items()}))(W, G)
    for name, value in VALUES.items():
        norms, duals = found[name]
        assert (np.abs(np.sum(W * G, axis=(1, 2))) <= norms * duals * (1 + 1e-12)).all(), name
        best = attains(name, G[0])
        np.testing.assert_allclose(duals[0], np.sum(G[0] * best) / value(best), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("p", [1.0, 1.5, 4.0, float("inf")])
@pytest.mark.parametrize("c", [1e-200, 1e200])
def test_an_entrywise_norm_neither_over_nor_underflows(p, c):
    W = jnp.asarray(RNG.normal(size=(3, 3)))
    norm = svm.entrywise(p)
    np.testing.assert_allclose(norm.value(c * W), c * norm.value(W), rtol=1e-12)


def test_norms_are_values_equal_and_hashable_by_what_they_are():
    for norm in map(named, VALUES):
        assert {norm: 1}[norm] == 1
        twice = svm.squared(norm)
        assert twice == svm.squared(norm) == svm.squared(twice)
        assert twice.power == 2
        assert twice != norm
        assert twice.plain == norm
        assert twice.plain.name == norm.name
        assert type(twice) is type(norm)
    assert svm.entrywise(1.5) is svm.entrywise(1.5)
    assert [named(name).name for name in VALUES] == list(VALUES)


INF = float("inf")
NAMED = {
    "max": svm.entrywise(INF),
    "l1": svm.entrywise(1.0),
    "l_1": svm.entrywise(1.0),
    "l_1.5": svm.entrywise(1.5),
    "l_inf": svm.entrywise(INF),
    "schatten_1": svm.nuclear,
    "schatten_2": svm.frobenius,
    "spectral": svm.spectral,
    "schatten_inf": svm.spectral,
    "schatten_1.5": svm.schatten(1.5),
    "2,inf": svm.rows(INF),
    "2,1": svm.rows(1.0),
    "2,inf of columns": svm.columns(INF),
    "2,1 of columns": svm.columns(1.0),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_looked_up_and_a_value_kept(name):
    assert named(name) is named(NAMED[name]) is NAMED[name]


FAMILY = "norm: expected one of .*, l_p or schatten_p with p of at least 1, or"
NO_NAMES = ("2,2", "l_0.5", "l_nan", "l_", "l_x", "1.5", "L1", "schatten_0.5", "schatten_")


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        *((svm.entrywise, p, "p: expected at least 1, found") for p in (0.5, 0.0, -1.0, np.nan)),
        *((svm.schatten, p, "p: expected at least 1, found") for p in (0.5, 0.0, -1.0, np.nan)),
        (svm.rows, 2.0, "p: expected 1 or inf, found 2"),
        (lambda k: replace(svm.frobenius, power=k), 3, "norm 'frobenius': expected power 1 or 2, found 3"),
        (named, "maximum", r"norm: expected one of \['2,1', .* 'frobenius', 'gamma2', .* 'maximum'"),
        *((named, name, FAMILY) for name in NO_NAMES),
    ],
)
def test_what_is_no_norm_is_refused(call, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call(given)
