"""Sums over named axes, with and without lanes behind them, in groups of any length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.parallel import lanes

pytestmark = pytest.mark.compiled

STEP = jnp.zeros((), int)
SIZES = dict(zip("ntdmeijpq", (3, 4, 5, 2, 6, 3, 3, 7, 7), strict=True))
SPECS = [
    "ntd,nd->nt",
    "nt,ntd->nd",
    "ntd,d->nt",
    "nd,ne->de",
    "de,ne->nd",
    "dm,nm->nd",
    "nd,dm->nm",
    "nd,nm->dm",
    "ij,jd->id",
    "id,jd->ij",
    "pq,q->p",
]


def operands(spec, behind, sizes=SIZES):
    random = np.random.default_rng(0)
    return [random.normal(size=(*(sizes[letter] for letter in one), *behind)) for one in spec.split("->")[0].split(",")]


def by_numpy(spec, A, B):
    inputs, out = spec.split("->")
    a, b = inputs.split(",")
    return np.einsum(f"{a}...,{b}...->{out}...", A, B)


@pytest.mark.parametrize("behind", [(), (1,), (5,), (2, 3)])
def test_it_is_the_einsum_of_every_lane(behind):
    given = {spec: operands(spec, behind) for spec in SPECS}
    found = jax.jit(lambda given: {spec: lanes.einsum(STEP, spec, *both) for spec, both in given.items()})(given)
    for spec in SPECS:
        np.testing.assert_allclose(found[spec], by_numpy(spec, *given[spec]), rtol=1e-12, atol=1e-14, err_msg=spec)


@pytest.mark.parametrize("length", [1, lanes.TERMS - 1, lanes.TERMS, lanes.TERMS + 1, lanes.LONG, lanes.LONG + 3])
def test_long_sums_are_added_up_in_groups(length):
    A, B = operands("ntd,nd->nt", (2,), SIZES | {"d": length})
    found = jax.jit(lambda A, B: lanes.einsum(STEP, "ntd,nd->nt", A, B))(A, B)
    np.testing.assert_allclose(found, by_numpy("ntd,nd->nt", A, B), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("length", [lanes.TERMS, lanes.TERMS + 1])
@pytest.mark.parametrize("behind", [(), (3,)])
def test_a_sum_that_is_not_stored_is_the_same(length, behind):
    A, B = map(jnp.asarray, operands("ij,jd->id", behind, SIZES | {"j": length}))
    found = jax.jit(lambda A, B: lanes.fused(STEP, "ij,jd->id", A, B))(A, B)
    np.testing.assert_allclose(found, by_numpy("ij,jd->id", A, B), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 4), (3, lanes.TERMS + 4), (lanes.TERMS + 4, 3)])
@pytest.mark.parametrize("behind", [(), (3,), (2, 3)])
def test_totals_and_largest_entries_are_those_of_every_lane(shape, behind):
    A = np.random.default_rng(0).normal(size=(*shape, *behind))
    found = jax.jit(lambda A: [(lanes.total(A, 2, axis), lanes.largest(A, 2, axis)) for axis in (None, 0, 1)])(A)
    for (total, largest), axes in zip(found, ((0, 1), 0, 1), strict=True):
        np.testing.assert_allclose(total, A.sum(axes), rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(largest, A.max(axes))


def test_what_is_stored_is_what_is_computed():
    x = jnp.arange(6.0).reshape(2, 3)
    for step in (0, 7):
        np.testing.assert_array_equal(jax.jit(lambda k: lanes.stored(k, lambda: 2 * x))(step), 2 * x)


def test_a_number_a_lane_is_spread_over_the_named_axes():
    A = jnp.ones((2, 3, 4))
    assert lanes.spread(jnp.arange(4.0), A).shape == (1, 1, 4)
    assert lanes.spread(jnp.float64(1.0), A).shape == (1, 1, 1)
    assert lanes.spread(jnp.ones((3, 4)), A).shape == (1, 3, 4)
