"""The norms: their values, their duals, the squared ones, and names and powers that are not known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import svm
from jaxattn.norms import named

RNG = np.random.default_rng(0)
# Every norm with its value in NumPy.
VALUES = {
    "frobenius": (svm.frobenius, np.linalg.norm),
    "nuclear": (svm.nuclear, lambda W: np.linalg.norm(W, "nuc")),
    "spectral": (svm.spectral, lambda W: np.linalg.norm(W, 2)),
    "l1": (svm.entrywise(1.0), lambda W: np.abs(W).sum()),
    "l1.5": (svm.entrywise(1.5), lambda W: (np.abs(W) ** 1.5).sum() ** (2 / 3)),
    "l2": (svm.entrywise(2.0), np.linalg.norm),
    "l3": (svm.entrywise(3.0), lambda W: (np.abs(W) ** 3).sum() ** (1 / 3)),
    "max": (svm.entrywise(float("inf")), lambda W: np.abs(W).max()),
    "schatten_1.5": (svm.schatten(1.5), lambda W: (singular_values(W) ** 1.5).sum() ** (2 / 3)),
    "2,inf": (svm.rows(float("inf")), lambda W: np.linalg.norm(W, axis=1).max()),
    "2,1": (svm.rows(1.0), lambda W: np.linalg.norm(W, axis=1).sum()),
    "2,inf of columns": (svm.columns(float("inf")), lambda W: np.linalg.norm(W, axis=0).max()),
    "2,1 of columns": (svm.columns(1.0), lambda W: np.linalg.norm(W, axis=0).sum()),
    "schatten_4": (svm.schatten(4.0), lambda W: (singular_values(W) ** 4).sum() ** (1 / 4)),
}


def singular_values(W):
    return np.linalg.svd(W, compute_uv=False)


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
        "l1.5": lambda: power(G, 1.5),
        "l2": lambda: G,
        "l3": lambda: power(G, 3.0),
        "max": lambda: np.sign(G),
        "2,inf": lambda: G / lengths(G, 1),
        "2,1": lambda: np.where(lengths(G, 1) == lengths(G, 1).max(), G, 0.0),
        "2,inf of columns": lambda: G / lengths(G, 0),
        "2,1 of columns": lambda: np.where(lengths(G, 0) == lengths(G, 0).max(), G, 0.0),
        "schatten_1.5": lambda: (U * power(s, 1.5)) @ Vt,
        "schatten_4": lambda: (U * power(s, 4.0)) @ Vt,
    }[name]()


@pytest.mark.parametrize("shape", [(4, 4), (5, 2), (3, 1), (1, 1)])
@pytest.mark.parametrize("name", VALUES)
def test_the_value_is_that_of_numpy(name, shape):
    norm, expected = VALUES[name]
    W = RNG.normal(size=shape)
    np.testing.assert_allclose(norm.value(jnp.asarray(W)), expected(W), rtol=1e-13)
    assert norm.value(jnp.zeros(shape)) == 0


@pytest.mark.parametrize("name", VALUES)
def test_the_dual_is_the_largest_inner_product_with_a_matrix_of_norm_one(name):
    norm, value = VALUES[name]
    G = RNG.normal(size=(4, 3))
    best = attains(name, G)
    np.testing.assert_allclose(norm.dual(jnp.asarray(G)), np.sum(G * best) / value(best), rtol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(VALUES)), st.integers(0, 2**31 - 1))
def test_no_inner_product_exceeds_the_norm_times_the_dual_norm(name, seed):
    norm, rng = VALUES[name][0], np.random.default_rng(seed)
    W, G = rng.normal(size=(2, 4, 3)) * rng.exponential(size=(2, 1, 1))
    assert abs(np.sum(W * G)) <= norm.value(jnp.asarray(W)) * norm.dual(jnp.asarray(G)) * (1 + 1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 4.0, float("inf")])
@pytest.mark.parametrize("c", [1e-200, 1e200])
def test_an_entrywise_norm_neither_over_nor_underflows(p, c):
    W = jnp.asarray(RNG.normal(size=(3, 3)))
    norm = svm.entrywise(p)
    np.testing.assert_allclose(norm.value(c * W), c * norm.value(W), rtol=1e-12)


def test_norms_are_values_equal_and_hashable_by_what_they_are():
    for norm, _ in VALUES.values():
        assert {norm: 1}[norm] == 1
        twice = svm.squared(norm)
        assert twice == svm.squared(norm) == svm.squared(twice)
        assert twice.power == 2
        assert twice != norm
        assert twice.plain == norm
        assert twice.plain.name == norm.name
        assert type(twice) is type(norm)
    assert svm.entrywise(1.5) is svm.entrywise(1.5)
    assert len({norm.name for norm, _ in VALUES.values()}) == len(VALUES)


def test_norms_work_under_jit_and_vmap():
    W = jnp.asarray(RNG.normal(size=(3, 4, 2)))
    for norm, expected in VALUES.values():
        np.testing.assert_allclose(jax.jit(jax.vmap(norm.value))(W), [expected(one) for one in np.asarray(W)])


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, float("nan")])
@pytest.mark.parametrize("family", [svm.entrywise, svm.schatten])
def test_a_p_below_one_is_refused(family, p):
    with pytest.raises(ValueError, match=r"^p: expected at least 1, found"):
        family(p)


def test_schatten_norms_include_the_nuclear_frobenius_and_spectral_norm_and_have_names():
    assert named("schatten_1") is svm.schatten(1.0) is svm.nuclear
    assert named("schatten_2") is svm.schatten(2.0) is svm.frobenius
    assert named("schatten_inf") is svm.schatten(float("inf")) is svm.spectral
    assert named("schatten_1.5") is svm.schatten(1.5)
    assert named("schatten_1.5").name == "schatten_1.5"


def test_lengths_of_rows_and_columns_have_names_and_no_other_exponent():
    assert named("2,inf") is svm.rows(float("inf"))
    assert named("2,1") is svm.rows(1.0)
    assert named("2,inf of columns") is svm.columns(float("inf"))
    assert named("2,1 of columns") is svm.columns(1.0)
    with pytest.raises(ValueError, match=r"^p: expected 1 or inf, found 2"):
        svm.rows(2.0)
    with pytest.raises(ValueError, match=r"^norm: expected one of \['2,1', '2,1 of columns', '2,inf', "):
        named("2,2")


def test_another_power_than_one_or_two_is_refused():
    with pytest.raises(ValueError, match=r"^norm 'cube': expected power 1 or 2, found 3"):
        svm.Norm("cube", svm.frobenius.value, svm.frobenius.dual, power=3)


def test_a_name_is_looked_up_and_a_value_kept():
    assert named("spectral") is svm.spectral
    assert named(svm.entrywise(3.0)) is svm.entrywise(3.0)
    with pytest.raises(ValueError, match=r"^norm: expected one of .* 'frobenius', 'gamma2', 'l1', 'max', .* 'maximum'"):
        named("maximum")


@pytest.mark.parametrize(
    ("name", "p"),
    [("max", float("inf")), ("l1", 1.0), ("l_1", 1.0), ("l_1.5", 1.5), ("l_3", 3.0), ("l_inf", float("inf"))],
)
def test_entrywise_norms_have_names(name, p):
    assert named(name) is svm.entrywise(p)


@pytest.mark.parametrize("name", ["l_0.5", "l_nan", "l_", "l_x", "1.5", "L1", "schatten_0.5", "schatten_"])
def test_what_names_no_norm_of_a_family_is_refused(name):
    with pytest.raises(ValueError, match=r"^norm: expected one of .*, l_p or schatten_p with p of at least 1, or"):
        named(name)
